"""From structure and quantisation to what a checkpoint stores, and the ways in which checkpoints differ.

Owns the derivation by formula, for models whose headers were not read. Does not decide what stays in memory.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from model_catalog.architecture import (
    ArchitectureSpec,
    Component,
    FullAttention,
    LatentAttention,
    Role,
    SlidingWindow,
    TensorTemplate,
)
from model_catalog.conversion import Quantization, plain_parts
from model_catalog.dtypes import FLOAT32, DType
from model_catalog.quantization_schemes import StoredPart, part
from model_catalog.snapshot import WeightGroup
from model_catalog.tensor_names import group_order

Tables = Literal["as described", "without tables", "with tables", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLayout:
    """What a configuration does not say about its checkpoint. The defaults are the commonest.

    ``router_bias_f32`` and ``state_f32``: small tensors kept in F32 (``e_score_correction_bias`` of DeepSeek and
    GLM; ``A_log``, ``D``, ``dt_bias`` of state mixers). ``mtp``: whether MTP layers are stored, and with their
    own vocabulary tables. ``buffer_bytes``: masks and frequencies that engines rebuild.
    """

    dtype: DType | None = None
    block_scales: str | None = None
    router_bias_f32: bool = True
    state_f32: bool = False
    head_stored: bool = False
    mtp: Tables = "as described"
    buffer_bytes: int = 0
    buffer_elements: int = 0

    def describe(self) -> str:
        """How it departs from the defaults, for people; empty where it does not."""
        told = {
            "weights in float32": self.dtype is FLOAT32,
            f"block scales in {self.block_scales}": self.block_scales is not None,
            "router bias in the model's type": not self.router_bias_f32,
            "state parameters in float32": self.state_f32,
            "the tied head stored": self.head_stored,
            f"MTP {self.mtp}": self.mtp not in {"as described", "none"},
            "no MTP layers": self.mtp == "none",
            f"{self.buffer_bytes:,} B of masks or rotary frequencies": self.buffer_bytes > 0,
        }
        return ", ".join(text for text, holds in told.items() if holds)


DEFAULT_LAYOUT: Final = StorageLayout()


def derive_groups(
    architecture: ArchitectureSpec,
    quantization: Quantization | None,
    *,
    dtype: DType | None = None,
    layout: StorageLayout = DEFAULT_LAYOUT,
) -> tuple[WeightGroup, ...]:
    """What the checkpoint stores, grouped as headers would be. ``dtype`` None means the configuration's."""
    layout = layout if dtype is None else replace(layout, dtype=dtype)
    sums: dict[tuple[Component, int | None, Role, str], list[int]] = {}
    for component, layer, template, parts in stored_templates(architecture, quantization, layout):
        for item in parts:
            total = sums.setdefault((component, layer, template.role, item.dtype), [0, 0, 0])
            total[0] += item.elements
            total[1] += item.stored_bytes
            total[2] += item.tensors
    return tuple(
        WeightGroup(
            component=key[0],
            layer=key[1],
            role=key[2],
            dtype=key[3],
            parameters=sums[key][0],
            stored_bytes=sums[key][1],
            tensors=sums[key][2],
        )
        for key in sorted(sums, key=group_order)
    )


#: Models that store masks have short contexts.
_LONGEST_MASK: Final = 8192


def stored_templates(
    architecture: ArchitectureSpec, quantization: Quantization | None, layout: StorageLayout
) -> Iterator[tuple[Component, int | None, TensorTemplate, tuple[StoredPart, ...]]]:
    dtype = layout.dtype or architecture.dtype
    if quantization is not None and layout.block_scales is not None:
        quantization = quantization.block_scales_as(layout.block_scales) or quantization
    decoder_layers = len(architecture.decoder_layers)
    for component, layer, template in _templates(architecture, layout):
        small = _small_dtype(template, layout)
        if small is not None:
            parts = plain_parts(template, small)
        elif quantization is None:
            parts = plain_parts(template, dtype)
        else:
            parts = quantization.parts(component, layer, template, decoder_layers=decoder_layers, dtype=dtype)
        yield component, layer, template, parts
    if layout.buffer_bytes:
        buffers = TensorTemplate(name="buffers", shape=(layout.buffer_bytes,), role=Role.BUFFER)
        yield Component.TEXT, None, buffers, (part("U8", layout.buffer_bytes),)


def _templates(
    architecture: ArchitectureSpec, layout: StorageLayout
) -> Iterator[tuple[Component, int | None, TensorTemplate]]:
    table = vocabulary_table(architecture)
    for component, layer, template in architecture.tensors():
        is_mtp = component is Component.MTP
        if is_mtp and layout.mtp == "none":
            continue
        if is_mtp and layout.mtp != "as described" and template.role in {Role.EMBEDDING, Role.HEAD}:
            continue
        yield component, layer, template
    if layout.head_stored and table is not None:
        yield Component.TEXT, None, replace(table, name="lm_head.weight", role=Role.HEAD)
    if layout.mtp == "with tables" and table is not None:
        for number, spec in enumerate(architecture.layers):
            if spec.component is Component.MTP:
                yield Component.MTP, number, table
                yield Component.MTP, number, replace(table, name="shared_head.head.weight", role=Role.HEAD)


def vocabulary_table(architecture: ArchitectureSpec) -> TensorTemplate | None:
    tables = (
        template
        for component, template in architecture.root_tensors
        if component is Component.TEXT and template.role is Role.EMBEDDING
    )
    return next(tables, None)


def _small_dtype(template: TensorTemplate, layout: StorageLayout) -> DType | None:
    if layout.router_bias_f32 and is_router_bias(template):
        return FLOAT32
    return FLOAT32 if layout.state_f32 and is_state_parameter(template) else None


def is_router_bias(template: TensorTemplate) -> bool:
    """The load-balancing bias that sigmoid routers keep in float32."""
    return template.name.endswith("e_score_correction_bias")


def is_state_parameter(template: TensorTemplate) -> bool:
    """The decay and step parameters of state mixers."""
    return template.name.rsplit(".", 1)[-1] in {"A_log", "D", "dt_bias"}


def layouts(architecture: ArchitectureSpec, quantization: Quantization | None) -> Iterator[StorageLayout]:
    """The known ways to store this model, the commonest first."""
    templates = [template for _, _, template in architecture.tensors()]
    scales: tuple[str | None, ...] = (None,)
    if quantization is not None and quantization.block_scales_as("BF16") is not None:
        scales = (None, "BF16", "F8_E8M0")
    mtp: tuple[Tables, ...] = ("as described",)
    if architecture.mtp_layers:
        mtp = ("as described", "none", "without tables", "with tables")
    yield from (
        StorageLayout(
            dtype=dtype,
            block_scales=scale,
            router_bias_f32=bias,
            state_f32=state,
            head_stored=head,
            mtp=choice,
            buffer_bytes=buffer[0],
            buffer_elements=buffer[1],
        )
        for dtype, buffer, state, bias, scale, choice, head in itertools.product(
            (None,) if quantization is not None or architecture.dtype is FLOAT32 else (None, FLOAT32),
            _buffer_sizes(architecture),
            (False, True) if any(map(is_state_parameter, templates)) else (False,),
            (True, False) if any(map(is_router_bias, templates)) else (True,),
            scales,
            mtp,
            (False, True) if architecture.tied_head else (False,),
        )
    )


def _buffer_sizes(architecture: ArchitectureSpec) -> tuple[tuple[int, int], ...]:
    """(bytes, elements) of rebuilt buffers that some checkpoints store.

    Rotary frequencies a layer: half a head, an eighth with ``rotary_pct`` 0.25 (Pythia), or a whole one
    (Moonlight), in F32 or two bytes (Llama 2). Causal masks (GPT-NeoX, GPT-2): a byte for each pair of
    positions a layer, or as index files count booleans (transformers' ``dtype_byte_size``: an eighth of a
    byte), with or without GPT-NeoX's ``masked_bias`` scalar.
    """
    layers = len(architecture.decoder_layers)
    width = sum(_rotary_dim(architecture, number) for number in range(layers))
    rotary = [(0, 0)] + [(part * size, part) for part in (width // 2, width // 8, width) for size in (4, 2)]
    pairs = min(architecture.max_context_tokens or 0, _LONGEST_MASK) ** 2 * layers
    masks = [(0, 0), (pairs, pairs), (pairs + 2 * layers, pairs + layers)]
    masks += [(pairs // 8, pairs), (pairs // 8 + 2 * layers, pairs + layers)]
    return tuple(
        dict.fromkeys(
            (mask[0] + frequencies[0], mask[1] + frequencies[1])
            for mask, frequencies in itertools.product(masks, rotary)
        )
    )


def _rotary_dim(architecture: ArchitectureSpec, layer: int) -> int:
    for cache in architecture.decoder_layers[layer].caches:
        if isinstance(cache, LatentAttention):
            return cache.rope_dim
        if isinstance(cache, FullAttention | SlidingWindow):
            return cache.key_dim
    return 0
