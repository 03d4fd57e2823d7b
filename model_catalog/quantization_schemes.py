"""How one quantised matrix lies in a checkpoint: packed weight, scales, zero points and small companions.

Owns the arithmetic of the storage formats. Does not know which matrices a method converts.

Layouts, by the code that writes and loads them: AutoGPTQ/GPTQModel and AutoAWQ linear layers; DeepSeek-V3's
and ModelOpt's FP8; compressed-tensors' compressors; NVFP4 and MXFP4 as ModelOpt, compressed-tensors and
gpt-oss store them (OCP Microscaling v1.0: blocks of 32 with an 8-bit exponent); bitsandbytes' ``QuantState``.
"""

from dataclasses import dataclass
from typing import Final

from model_catalog.dtypes import find_dtype
from model_catalog.units import ceil_div

#: In place of a group's extent: the whole dimension shares one scale.
WHOLE: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """Tensors of one storage type. ``dtype`` in the spelling of safetensors headers."""

    dtype: str
    elements: int
    stored_bytes: int
    tensors: int


def part(dtype: str, elements: int, tensors: int = 1) -> StoredPart:
    """A part whose bytes follow from its type; ``elements`` counts all its tensors together."""
    known = find_dtype(dtype)
    if known is None:
        raise ValueError(f"{dtype!r} is not a storage type")
    return StoredPart(
        dtype=dtype, elements=elements, stored_bytes=ceil_div(elements * known.bits, 8), tensors=tensors
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedScheme:
    """Weights of ``bits`` in words of ``word``, with one scale for each group of rows times columns.

    ``group`` is (rows, columns) over the (out, in) matrix; ``WHOLE`` spans the dimension. ``packed_rows``:
    words run along the output dimension (AWQ) instead of the input. ``scale`` None means the model's dtype.
    ``zero_points``: packed integers of ``bits`` for each group. ``input_index``: GPTQ's ``g_idx``.
    ``scalars`` counts F32 values beside each matrix, ``shape_words`` I64 values (compressed-tensors).
    """

    label: str
    bits: int
    word: str
    group: tuple[int, int]
    scale: str | None
    packed_rows: bool = False
    zero_points: bool = False
    input_index: bool = False
    scalars: int = 0
    shape_words: int = 0

    def parts(self, outputs: int, inputs: int, count: int, model_dtype: str) -> tuple[StoredPart, ...]:
        """What ``count`` matrices of (outputs, inputs) take up."""
        word = find_dtype(self.word)
        if word is None:
            raise ValueError(f"{self.word!r} is not a storage type")
        along, across = (outputs, inputs) if self.packed_rows else (inputs, outputs)
        words = ceil_div(along * self.bits, word.bits) * across
        row_groups = ceil_div(outputs, self.group[0] or max(outputs, 1))
        column_groups = ceil_div(inputs, self.group[1] or max(inputs, 1))
        found = [
            part(self.word, words * count, count),
            part(self.scale or model_dtype, row_groups * column_groups * count, count),
        ]
        if self.zero_points:
            found.append(
                part(self.word, ceil_div(row_groups * self.bits, word.bits) * column_groups * count, count)
            )
        if self.input_index:
            found.append(part("I32", inputs * count, count))
        if self.scalars:
            found.append(part("F32", self.scalars * count, self.scalars * count))
        if self.shape_words:
            found.append(part("I64", self.shape_words * count, count))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class BitsAndBytes4:
    """Four-bit codes in flat blocks of 64 with F32 maxima, themselves quantised when ``double``.

    Source: bitsandbytes ``functional.quantize_4bit`` and ``QuantState.as_dict(packed=True)``: codes two a byte,
    ``absmax``, a 16-entry ``quant_map``, a JSON blob in U8; double: U8 maxima in blocks of 256 and their map.
    """

    double: bool
    label: str = "bitsandbytes 4 bit"
    bits: int = 4

    def parts(self, outputs: int, inputs: int, count: int, model_dtype: str) -> tuple[StoredPart, ...]:  # noqa: ARG002 - every scheme's signature
        """What ``count`` matrices of (outputs, inputs) take up."""
        elements = outputs * inputs
        blocks = ceil_div(elements, 64)
        codes = part("U8", ceil_div(elements, 2) * count, count)
        state = part("U8", _STATE_BLOB_BYTES * count, count)
        if not self.double:
            return codes, part("F32", (blocks + 16) * count, 2 * count), state
        nested = ceil_div(blocks, 256) + 256
        return codes, part("U8", blocks * count, count), part("F32", (nested + 16) * count, 3 * count), state


#: The JSON with block size, type name, dtype and shape: 80 to 100 bytes in published files.
_STATE_BLOB_BYTES: Final = 96

Scheme = GroupedScheme | BitsAndBytes4


def gptq(bits: int, group: int) -> Scheme:
    """GPTQ: I32 words along the input, packed zeros along the output, F16 scales, an input index."""
    return GroupedScheme(
        label=f"GPTQ int{bits}, {_grouped(group)}",
        bits=bits,
        word="I32",
        group=(1, group),
        scale="F16",
        zero_points=True,
        input_index=True,
    )


def awq(bits: int, group: int, *, zero_points: bool) -> Scheme:
    """AWQ (GEMM layout): I32 words along the output, zeros likewise, scales in the model's dtype."""
    return GroupedScheme(
        label=f"AWQ int{bits}, {_grouped(group)}",
        bits=bits,
        word="I32",
        group=(1, group),
        scale=None,
        packed_rows=True,
        zero_points=zero_points,
    )


def fp8(group: tuple[int, int], *, scale: str | None, scalars: int = 0) -> Scheme:
    """FP8 weights with scales for each tensor, row or block."""
    kind = {(WHOLE, WHOLE): "one scale a tensor", (1, WHOLE): "one scale a row"}
    return GroupedScheme(
        label=f"FP8, {kind.get(group, f'blocks of {group[0]}x{group[1]}')}",
        bits=8,
        word="F8_E4M3",
        group=group,
        scale=scale,
        scalars=scalars,
    )


def nvfp4(*, scalars: int, group: int = 16) -> Scheme:
    """NVFP4: two values a byte, FP8 scales for each 16, one F32 scale a tensor, and one for the input."""
    return GroupedScheme(label="NVFP4", bits=4, word="U8", group=(1, group), scale="F8_E4M3", scalars=scalars)


def mxfp4() -> Scheme:
    """MXFP4: two values a byte, an 8-bit exponent for each 32."""
    return GroupedScheme(label="MXFP4", bits=4, word="U8", group=(1, 32), scale="U8")


def mxfp8() -> Scheme:
    """MXFP8: FP8 values, an 8-bit exponent for each 32."""
    return GroupedScheme(label="MXFP8", bits=8, word="F8_E4M3", group=(1, 32), scale="U8")


def int8_rows(label: str, *, scale: str | None = "F32", word: str = "I8") -> Scheme:
    """INT8 weights with one scale a row."""
    return GroupedScheme(label=label, bits=8, word=word, group=(1, WHOLE), scale=scale)


def packed_integer(bits: int, group: int, *, zero_points: bool, input_index: bool) -> Scheme:
    """compressed-tensors ``pack-quantized``: I32 words along the input, scales in the model's dtype."""
    return GroupedScheme(
        label=f"int{bits}, {_grouped(group)}",
        bits=bits,
        word="I32",
        group=(1, group),
        scale=None,
        zero_points=zero_points,
        input_index=input_index,
        shape_words=2,
    )


def _grouped(group: int) -> str:
    return f"groups of {group}" if group else "one scale a row"
