"""GGUF storage types, and which type llama.cpp's quantiser gives each matrix of a model under a file type.

Owns block sizes and the choice of a type by matrix. Does not know weights or engines.

Sources: ggml ``ggml-common.h`` (block structures); llama.cpp b11434 ``src/llama-quant.cpp``
(``llama_tensor_get_type_impl``, ``tensor_type_fallback``, ``tensor_allows_quantization``). An importance matrix
moves a few matrices of ``q4_0``, ``q5_0`` and ``iq4_*`` by one type; both choices are bounds here. Files that a
publisher mixes otherwise (``UD-Q4_K_XL``, ``Q4_K_L``) are not these file types.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from model_catalog.architecture import Role, TensorTemplate
from model_catalog.errors import UsageError
from model_catalog.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockType:
    """``block_elements`` neighbours of one row are stored in ``block_bytes``."""

    name: str
    block_elements: int
    block_bytes: int

    def row_bytes(self, elements: int) -> int:
        """Bytes of one row (ggml_row_size)."""
        return ceil_div(elements, self.block_elements) * self.block_bytes


_TYPES: Final = {
    name: BlockType(name=name, block_elements=elements, block_bytes=size)
    for name, elements, size in (
        ("f32", 1, 4),
        ("f16", 1, 2),
        ("bf16", 1, 2),
        ("q4_0", 32, 18),
        ("q4_1", 32, 20),
        ("q5_0", 32, 22),
        ("q5_1", 32, 24),
        ("q8_0", 32, 34),
        ("iq4_nl", 32, 18),
        ("mxfp4", 32, 17),
        ("iq4_xs", 256, 136),
        ("q2_k", 256, 84),
        ("q3_k", 256, 110),
        ("q4_k", 256, 144),
        ("q5_k", 256, 176),
        ("q6_k", 256, 210),
    )
}
F32: Final = _TYPES["f32"]
F16: Final = _TYPES["f16"]
#: File type -> the type of most matrices.
_BASE: Final = MappingProxyType(
    {name: name for name in ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "iq4_xs")}
    | {"q2_k": "q2_k", "q3_k_s": "q3_k", "q3_k_m": "q3_k", "q3_k_l": "q3_k", "q4_k_s": "q4_k", "q4_k_m": "q4_k"}
    | {"q5_k_s": "q5_k", "q5_k_m": "q5_k", "q6_k": "q6_k", "mxfp4": "q8_0"}
)
#: What llama-quantize takes for the same.
_ALIASES: Final = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m", "mxfp4_moe": "mxfp4"} | {
    "float32": "f32",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
}
#: Rows that are no multiple of 256 take a type of blocks of 32.
_NARROWER: Final = {
    "iq4_xs": "iq4_nl",
    "q2_k": "q4_0",
    "q3_k": "q4_0",
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
}
_FLOATS: Final = frozenset({"f32", "f16", "bf16"})
_MOE_OF_EIGHT: Final = 8  # the quantiser treats models of eight experts (Mixtral) in a way of its own
#: With eight experts these store attention outputs in q5_k.
_WIDER_OUTPUTS: Final = frozenset({"q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m", "iq4_nl", "iq4_xs"})
_LAYERS_OF_70B: Final = 80


def find_block_type(name: str) -> BlockType | None:
    """The type under ggml's name in any case, or torch's for the plain ones; None for another."""
    plain = name.strip().lower()
    return _TYPES.get({"float32": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16"}.get(plain, plain))


def file_types() -> tuple[str, ...]:
    """The file types known here."""
    return tuple(_BASE)


def file_type(name: str) -> str:
    """The canonical name of a file type.

    Raises:
        UsageError: for one that is not known.
    """
    plain = name.strip().lower()
    found = _ALIASES.get(plain, plain)
    if found not in _BASE:
        raise UsageError(
            f"{name!r} is not a GGUF file type that is known here",
            subject="--quantization",
            hint=f"use one of {', '.join(_BASE)}",
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What of a model the quantiser looks at. ``tied``: no output matrix of its own is stored."""

    layers: int
    value_layers: int
    heads_per_kv_head: int
    experts: int
    tied: bool
    falcon: bool = False


def matrix_types(
    kind: str, template: TensorTemplate, setting: Setting, *, layer: int, value_layer: int
) -> tuple[BlockType, BlockType]:
    """The narrowest and the widest type of this tensor in a file of type ``kind``.

    ``layer`` counts layers, ``value_layer`` those before it that have a value projection.
    """
    if len(template.shape) < 2 or template.role is Role.POSITION or _stays_wide(template):
        return F32, F32
    if kind in _FLOATS:
        return _TYPES[kind], _TYPES[kind]
    names = _names(kind, template, setting, layer, value_layer)
    columns = template.shape[-1]
    if template.name.endswith("kv_b_proj.weight"):
        names = (*names, _NARROWER.get(names[-1], names[-1]))  # stored as two, of which one has rows of a head
    found = sorted((_fitting(name, columns) for name in names), key=lambda item: item.row_bytes(columns))
    return found[0], found[-1]


def _stays_wide(template: TensorTemplate) -> bool:
    """Routers, convolutions, and parameters that are no weights of a matrix product."""
    if template.role is Role.ROUTER or "conv1d" in template.name or template.name.endswith("conv.weight"):
        return True
    return not template.linear and not template.name.endswith(("weight", "proj"))


def _fitting(name: str, columns: int) -> BlockType:
    if columns % _TYPES[name].block_elements:
        name = _NARROWER.get(name, name)
    return F16 if columns % _TYPES[name].block_elements else _TYPES[name]


def _names(kind: str, template: TensorTemplate, setting: Setting, layer: int, value_layer: int) -> tuple[str, ...]:
    base = _BASE[kind]
    if template.role is Role.HEAD or (setting.tied and template.role is Role.EMBEDDING):
        return _output_names(kind, template.shape[-1], setting)
    if kind == "mxfp4":
        # Converted straight from a checkpoint in MXFP4, all but the experts may be in 16 bits.
        return ("mxfp4",) if template.role is Role.EXPERT else ("q8_0", "f16")
    part = template.name.removesuffix(".weight").rpartition(".")[2]
    if template.role is Role.QKV or part in {"qkv_proj", "query_key_value", "c_attn", "Wqkv"}:
        return (_FUSED.get(kind, base),)
    if part in {"v_proj", "value"}:
        return (_value_name(kind, base, setting, value_layer),)
    if part == "k_proj" and setting.experts == _MOE_OF_EIGHT:
        return ("q8_0",)
    if template.role is Role.ATTENTION_OUTPUT:
        return (_attention_output_name(kind, base, setting),)
    if part in {"down_proj", "w2", "fc2", "dense_4h_to_h", "c_proj", "down"}:
        return _down_names(kind, base, setting, layer)
    return (base,)


_FUSED: Final = {"q3_k_m": "q4_k", "q3_k_l": "q4_k", "q4_k_m": "q5_k", "q5_k_m": "q6_k"}


def _output_names(kind: str, columns: int, setting: Setting) -> tuple[str, ...]:
    if kind == "mxfp4":
        return "q8_0", "f16"
    base = _BASE[kind]
    if base == "q8_0" or setting.falcon or columns % _TYPES[base].block_elements:
        return ("q8_0",)
    return ("q6_k",)


def more_bits(number: int, count: int) -> bool:
    """Whether the quantiser spends more on this of ``count`` layers (``use_more_bits``)."""
    return number < count // 8 or number >= 7 * count // 8 or (number - count // 8) % 3 == 2


def _value_name(kind: str, base: str, setting: Setting, number: int) -> str:
    if setting.experts == _MOE_OF_EIGHT:
        return "q8_0"
    grouped = setting.heads_per_kv_head >= 4
    chosen = base
    if kind == "q2_k":
        chosen = "q4_k" if grouped else "q3_k"
    elif kind == "q3_k_m":
        chosen = "q5_k" if number < 2 else "q4_k"
    elif kind == "q3_k_l" or (kind == "q4_k_s" and number < 4) or (kind.startswith("iq4") and grouped):
        chosen = "q5_k"
    elif kind in {"q4_k_m", "q5_k_m"} and more_bits(number, setting.value_layers):
        chosen = "q6_k"
    if setting.layers == _LAYERS_OF_70B and setting.heads_per_kv_head > 1 and chosen in {"q3_k", "q4_k"}:
        return "q5_k"
    return chosen


def _attention_output_name(kind: str, base: str, setting: Setting) -> str:
    if setting.falcon:
        return "q4_k" if kind == "q3_k_l" else base
    if setting.experts == _MOE_OF_EIGHT:
        return "q5_k" if kind in _WIDER_OUTPUTS else base
    return {"q2_k": "q3_k", "q3_k_m": "q4_k", "q3_k_l": "q5_k"}.get(kind, base)


def _down_names(kind: str, base: str, setting: Setting, layer: int) -> tuple[str, ...]:
    count = setting.layers
    first = layer < count // 8
    if setting.falcon:
        return base, {"q3_k": "q5_k", "q4_k": "q6_k", "q5_k": "q6_k"}.get(base, base)
    if kind == "q2_k":
        return ("q3_k",)
    if kind == "q3_k_m":
        return ("q5_k",) if layer < count // 16 else ("q4_k",)
    if kind == "q3_k_l" or (kind == "q4_k_s" and first):
        return ("q5_k",)
    if kind in {"q4_k_m", "q5_k_m"}:
        return ("q6_k",) if more_bits(layer, count) else (base,)
    imatrix = {"q4_0": "q4_1", "q5_0": "q5_1", "iq4_nl": "q5_k", "iq4_xs": "q5_k"}
    return (base, imatrix[kind]) if first and kind in imatrix else (base,)
