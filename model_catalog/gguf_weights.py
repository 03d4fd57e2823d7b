"""A model's weights as a GGUF file of a given type holds them: what stays in memory under llama.cpp.

Owns the step from structure to bytes by part. Which matrix takes which type is ``gguf_types``'; where each part
lies is the engine's. Towers are a file of their own (``--mmproj``) in GGUF, so they are left out here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from model_catalog.architecture import ArchitectureSpec, Component, Role, TensorTemplate
from model_catalog.bounds import Basis
from model_catalog.conversion import Quantization
from model_catalog.dtypes import find_dtype
from model_catalog.gguf_types import Setting, file_type, matrix_types
from model_catalog.weight_residency import ResidentGroup
from model_catalog.weights import WeightTable

_TOWERS: Final = frozenset({Component.VISION, Component.AUDIO, Component.PROJECTOR})
_VALUES: Final = frozenset({"v_proj", "qkv_proj", "query_key_value", "c_attn", "Wqkv"})
_NARROWEST_BITS: Final = 2  # of what no formula explains: no file type stores less
Key = tuple[Component, int | None, Role]


def chosen_file_type(
    asked: str | None, *, dtype: str, architecture: ArchitectureSpec, stored: Quantization | None
) -> str:
    """The file type that is planned: as asked, else what a plain conversion of the checkpoint gives.

    ``convert_hf_to_gguf.py`` keeps MXFP4 experts and 16-bit types, and writes everything else in 16 bits.

    Raises:
        UsageError: for a file type that is not known.
    """
    if asked is not None:
        return file_type(asked)
    if stored is not None and stored.method == "mxfp4":
        return "mxfp4"
    found = find_dtype(dtype) or architecture.dtype
    return {"float16": "f16", "float32": "f32" if dtype != "auto" else "f16"}.get(found.name, "bf16")


def as_gguf(table: WeightTable, architecture: ArchitectureSpec, kind: str) -> WeightTable:
    """The same weights in a GGUF file of this type; ``stored`` stays what the checkpoint stores."""
    sizes = _sizes(architecture, kind)
    return replace(
        table,
        basis=Basis.DERIVED,
        source=f"{table.source}; as {kind} by the rules of llama.cpp's quantiser (b11434 llama-quant.cpp)",
        resident=tuple(_converted(table.resident, sizes)),
        notes=(
            *(note for note in table.notes if "tied head" not in note),
            *(("towers are a GGUF file of their own (--mmproj) and not planned",) if _has_tower(table) else ()),
        ),
        # A tower of unknown size does not matter here; headers that hold too little still do.
        complete=table.complete or (table.basis is not Basis.EXACT and not architecture.tower_parameters_known),
    )


def _has_tower(table: WeightTable) -> bool:
    return any(group.component in _TOWERS for group in table.resident)


def _converted(
    resident: Iterable[ResidentGroup], sizes: Mapping[Key, tuple[int, int, int]]
) -> Iterable[ResidentGroup]:
    for group in resident:
        if group.component in _TOWERS:
            continue
        known = sizes.get((group.component, group.layer, group.role))
        if known is not None:
            low, high, elements = known
            yield replace(group, low_bytes=low, high_bytes=high, parameters=elements)
        else:
            yield replace(group, low_bytes=group.low_bytes * _NARROWEST_BITS // 16)


def _sizes(architecture: ArchitectureSpec, kind: str) -> Mapping[Key, tuple[int, int, int]]:
    """Low and high bytes and elements by component, layer and role."""
    setting = _setting(architecture)
    before = _value_layers_before(architecture)
    sums: dict[Key, list[int]] = {}
    for component, layer, template in architecture.tensors():
        number = 0 if layer is None else layer
        narrow, wide = matrix_types(kind, template, setting, layer=number, value_layer=before.get(number, 0))
        columns = template.shape[-1]
        rows = template.parameters // columns if columns else 0
        total = sums.setdefault((component, layer, template.role), [0, 0, 0])
        total[0] += rows * narrow.row_bytes(columns)
        total[1] += rows * wide.row_bytes(columns)
        total[2] += template.parameters
    return {key: (low, high, elements) for key, (low, high, elements) in sums.items()}


def _setting(architecture: ArchitectureSpec) -> Setting:
    before = _value_layers_before(architecture)
    return Setting(
        layers=len(architecture.decoder_layers) + len(architecture.mtp_layers),
        value_layers=len(before),
        heads_per_kv_head=architecture.attention_heads // max(architecture.kv_heads, 1),
        experts=architecture.experts,
        tied=architecture.tied_head,
        falcon=architecture.model_type == "falcon",
    )


def _value_layers_before(architecture: ArchitectureSpec) -> Mapping[int, int]:
    """Layers with a value projection, each with how many come before it."""
    found: dict[int, int] = {}
    for number, layer in enumerate(architecture.layers):
        if any(_is_value(template) for template in layer.tensors):
            found[number] = len(found)
    return found


def _is_value(template: TensorTemplate) -> bool:
    return len(template.shape) > 1 and template.name.removesuffix(".weight").rpartition(".")[2] in _VALUES
