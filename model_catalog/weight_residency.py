"""Which stored weights stay in an engine's memory, and in which type.

Owns the rules from stored group to resident group. Does not know how the stored groups were found.

Rules (vLLM's model loaders; other engines agree unless they say otherwise): masks and rotary frequencies are
rebuilt; a stored copy of a tied head is dropped; an MTP layer's vocabulary tables are shared with the target
when equal; floating weights take the engine's dtype; quantised weights stay as stored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import ArchitectureSpec, Component, Role
from model_catalog.conversion import Quantization
from model_catalog.dtypes import BFLOAT16, DType, find_dtype
from model_catalog.errors import UsageError
from model_catalog.snapshot import WeightGroup
from model_catalog.weight_derivation import derive_groups

#: Roles whose float32 tensors engines may keep so: router biases, decay parameters, norms.
_MAY_STAY_WIDE: Final = frozenset({Role.ROUTER, Role.STATE_MIXER, Role.STATE_REPLICATED, Role.NORM, Role.OTHER})
_LOADABLE: Final = frozenset({"float16", "bfloat16", "float32"})
_TABLES: Final = frozenset({Role.EMBEDDING, Role.HEAD})

Key = tuple[Component, int | None, Role]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentGroup:
    """Weights of one component, layer and role as they stay in memory, over all ranks together.

    ``parameters`` counts elements as stored (packed words as words). MTP layers are listed, whether or not they
    will be used: the planner leaves the component out where they are not.
    """

    component: Component
    layer: int | None
    role: Role
    parameters: int
    low_bytes: int
    high_bytes: int


def load_dtype(architecture: ArchitectureSpec, requested: str, *, subject: str) -> DType:
    """The type that floating weights take in memory under the engine's ``--dtype``.

    ``auto`` is the configuration's type, and bfloat16 where that is wider than 16 bits (vLLM casts float32
    checkpoints to a 16-bit type; ``vllm/config/model.py``, ``_resolve_auto_dtype``).

    Raises:
        UsageError: when the request names no type that weights are loaded in.
    """
    if requested == "auto":
        return architecture.dtype if architecture.dtype.bits == 16 else BFLOAT16
    found = find_dtype(requested)
    if found is None or found.name not in _LOADABLE:
        raise UsageError(
            f"dtype {requested!r} is not one that weights are loaded in",
            subject=subject,
            hint="use auto, bfloat16, float16 or float32",
        )
    return found


def resident_groups(
    groups: Iterable[WeightGroup], architecture: ArchitectureSpec, *, dtype: DType, quantized: bool
) -> tuple[ResidentGroup, ...]:
    """What stays of these stored groups, one entry for each component, layer and role."""
    sums: dict[Key, list[int]] = {}
    for group in groups:
        if group.role is Role.BUFFER or _is_tied_copy(group, architecture):
            continue
        low, high = _resident_bytes(group, dtype, quantized=quantized)
        total = sums.setdefault((group.component, group.layer, group.role), [0, 0, 0])
        total[0] += group.parameters
        total[1] += low
        total[2] += high
    return tuple(
        ResidentGroup(
            component=component, layer=layer, role=role, parameters=parameters, low_bytes=low, high_bytes=high
        )
        for (component, layer, role), (parameters, low, high) in sums.items()
    )


def converted_while_loading(
    resident: Iterable[ResidentGroup], architecture: ArchitectureSpec, quantization: Quantization, *, dtype: DType
) -> tuple[ResidentGroup, ...]:
    """These groups after an engine has quantised them: each changes by what the formulas say it changes.

    Taking the difference keeps what the configuration does not explain (towers, odd tensors) as it is.
    """
    plain = _bytes_by_key(derive_groups(architecture, None, dtype=dtype))
    packed = _bytes_by_key(derive_groups(architecture, quantization, dtype=dtype))
    changed = []
    for group in resident:
        key = (group.component, group.layer, group.role)
        saved = plain.get(key, 0) - packed.get(key, 0)
        changed.append(
            ResidentGroup(
                component=group.component,
                layer=group.layer,
                role=group.role,
                parameters=group.parameters,
                low_bytes=max(group.low_bytes - saved, 0),
                high_bytes=max(group.high_bytes - saved, 0),
            )
        )
    return tuple(changed)


def _bytes_by_key(groups: Iterable[WeightGroup]) -> Mapping[Key, int]:
    sums: dict[Key, int] = {}
    for group in groups:
        key = (group.component, group.layer, group.role)
        sums[key] = sums.get(key, 0) + group.stored_bytes
    return sums


def _is_tied_copy(group: WeightGroup, architecture: ArchitectureSpec) -> bool:
    return architecture.tied_head and group.component is Component.TEXT and group.role is Role.HEAD


def _resident_bytes(group: WeightGroup, dtype: DType, *, quantized: bool) -> tuple[int, int]:
    stored = find_dtype(group.dtype)
    size = group.stored_bytes
    low, high = size, size
    is_plain = stored is not None and stored.floating and stored.bits >= 16 and group.dtype != "C64"
    if stored is not None and is_plain and stored.bits != dtype.bits and not (quantized and stored.bits > 16):
        cast = -(-group.parameters * dtype.bits // 8)
        wide = stored.bits > dtype.bits and group.role in _MAY_STAY_WIDE
        low, high = cast, size if wide else cast
    if group.component is Component.MTP and group.role in _TABLES:
        low = 0
    return low, high
