"""Storage types as bits per element, under every spelling that configs, headers and engines use.

Sources: safetensors format (dtype names), torch dtype names, vLLM's ``--dtype`` and ``--kv-cache-dtype``.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final


@dataclass(frozen=True, slots=True)
class DType:
    """A storage type. ``bits`` per element; ``name`` is torch's spelling."""

    name: str
    bits: int
    floating: bool = True


_ROWS: Final = (
    (DType("float64", 64), "F64", "double"),
    (DType("float32", 32), "F32", "float", "fp32"),
    (DType("float16", 16), "F16", "half", "fp16"),
    (DType("bfloat16", 16), "BF16", "bf16"),
    (DType("float8_e4m3fn", 8), "F8_E4M3", "fp8", "fp8_e4m3", "float8_e4m3", "F8_E4M3FN", "F8_E4M3FNUZ"),
    (DType("float8_e5m2", 8), "F8_E5M2", "fp8_e5m2", "F8_E5M2FNUZ"),
    (DType("float8_e8m0fnu", 8), "F8_E8M0"),
    (DType("float6_e2m3", 6), "F6_E2M3"),
    (DType("float6_e3m2", 6), "F6_E3M2"),
    (DType("float4_e2m1fn", 4), "F4", "mxfp4", "nvfp4", "fp4"),
    (DType("int64", 64, floating=False), "I64"),
    (DType("uint64", 64, floating=False), "U64"),
    (DType("int32", 32, floating=False), "I32"),
    (DType("uint32", 32, floating=False), "U32"),
    (DType("int16", 16, floating=False), "I16"),
    (DType("uint16", 16, floating=False), "U16"),
    (DType("int8", 8, floating=False), "I8"),
    (DType("uint8", 8, floating=False), "U8"),
    (DType("int4", 4, floating=False), "I4"),
    (DType("bool", 8, floating=False), "BOOL"),
    (DType("complex64", 64), "C64"),
)
_BY_SPELLING: Final[dict[str, DType]] = {
    spelling.lower(): row[0] for row in _ROWS for spelling in (row[0].name, *row[1:])
}
FLOAT32: Final = _BY_SPELLING["float32"]
BFLOAT16: Final = _BY_SPELLING["bfloat16"]
FLOAT16: Final = _BY_SPELLING["float16"]


@lru_cache(maxsize=256)
def find_dtype(spelling: str) -> DType | None:
    """The type under any known spelling (``BF16``, ``torch.bfloat16``, ``fp8``), or None."""
    return _BY_SPELLING.get(spelling.lower().removeprefix("torch."))
