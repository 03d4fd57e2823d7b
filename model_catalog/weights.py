"""A model's weights: the bytes its checkpoint stores, and the bytes that stay in memory once loaded.

Owns the choice of the best source: headers (exact), or the configuration held against whatever total is known.
The rules of residency, derivation by formula and the choice of files have modules of their own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from model_catalog.architecture import ArchitectureSpec, Component, Role
from model_catalog.bounds import Basis, ByteRange
from model_catalog.checkpoint_files import checkpoint_files
from model_catalog.conversion import Quantization, on_the_fly
from model_catalog.dtypes import FLOAT32, DType
from model_catalog.errors import UsageError
from model_catalog.snapshot import ModelSnapshot, WeightGroup, WeightsKnownFrom
from model_catalog.units import ceil_div
from model_catalog.weight_derivation import (
    DEFAULT_LAYOUT,
    StorageLayout,
    derive_groups,
    layouts,
)
from model_catalog.weight_residency import (
    ResidentGroup,
    converted_while_loading,
    load_dtype,
    resident_groups,
)
from model_catalog.weight_totals import LayoutSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTable:
    """Stored and resident weights of one model.

    ``parameters``: elements without MTP layers and buffers, a tied head once; None where the configuration
    does not give a tower's size. ``complete`` is False where something of unknown size is missing from the
    bytes: then they are a lower bound and no verdict may rest on them.
    """

    stored: ByteRange
    parameters: int | None
    basis: Basis
    source: str
    resident: tuple[ResidentGroup, ...]
    notes: tuple[str, ...] = ()
    complete: bool = True

    def resident_bytes(self, *, with_mtp: bool = False) -> ByteRange:
        """All resident groups together, MTP layers only where asked for."""
        total = ByteRange.point(0)
        for group in self.resident:
            if with_mtp or group.component is not Component.MTP:
                total += ByteRange(low_bytes=group.low_bytes, high_bytes=group.high_bytes)
        return total


def weigh(
    snapshot: ModelSnapshot,
    architecture: ArchitectureSpec,
    quantization: Quantization | None,
    *,
    dtype: str = "auto",
    on_the_fly: str | None = None,
) -> WeightTable:
    """Stored and resident bytes of a model, from headers where they were read, else from its configuration.

    ``dtype`` and ``on_the_fly`` are the engine's ``--dtype`` and ``--quantization``.

    Raises:
        UsageError: for a dtype or quantisation that the engine cannot make of this checkpoint.
    """
    target = load_dtype(architecture, dtype, subject=snapshot.repo_id)
    conversion = _conversion(snapshot, quantization, on_the_fly)
    if snapshot.weight_groups:
        table = _from_headers(snapshot, architecture, quantization, target)
    else:
        table = _from_config(snapshot, architecture, quantization, target)
    if conversion is None:
        return table
    return WeightTable(
        stored=table.stored,
        parameters=table.parameters,
        basis=Basis.DERIVED,
        source=f"{table.source}; converted by formula: {conversion.label}",
        resident=converted_while_loading(table.resident, architecture, conversion, dtype=target),
        notes=(*table.notes, "towers, MTP layers and the head are planned unconverted"),
        complete=table.complete,
    )


def _conversion(snapshot: ModelSnapshot, stored: Quantization | None, wanted: str | None) -> Quantization | None:
    if wanted is None:
        return None
    if stored is None:
        return on_the_fly(wanted, subject=snapshot.repo_id)
    # Engines name their kernels after the format: awq_marlin, modelopt_fp4, gpt_oss_mxfp4.
    if stored.method.replace("-", "_") in wanted.lower().replace("-", "_"):
        return None
    raise UsageError(
        f"the checkpoint is quantised as {stored.method}, not {wanted}",
        subject=snapshot.repo_id,
        hint="leave the quantization option out: the checkpoint says it itself",
    )


def _from_headers(
    snapshot: ModelSnapshot, architecture: ArchitectureSpec, quantization: Quantization | None, target: DType
) -> WeightTable:
    groups = snapshot.weight_groups
    derived = [group for group in derive_groups(architecture, quantization) if group.component is Component.TEXT]
    decoder = [group for group in groups if group.component is Component.TEXT and group.role is not Role.BUFFER]
    loaded = [group for group in decoder if not (architecture.tied_head and group.role is Role.HEAD)]
    stored = sum(group.stored_bytes for group in groups)
    resident = resident_groups(groups, architecture, dtype=target, quantized=quantization is not None)
    parameters: int | None = sum(group.parameters for group in resident if group.component is not Component.MTP)
    if quantization is not None:
        parameters = architecture.parameters() if architecture.tower_parameters_known else None
    return WeightTable(
        stored=ByteRange.point(stored),
        parameters=parameters,
        basis=Basis.EXACT,
        source=f"safetensors headers: {sum(group.tensors for group in groups):,} tensors",
        resident=resident,
        notes=tuple(_header_notes(loaded, derived, head_copy=len(loaded) < len(decoder))),
        complete=_is_whole(loaded, derived, packed=quantization is not None),
    )


def _header_notes(
    loaded: Iterable[WeightGroup], derived: Iterable[WeightGroup], *, head_copy: bool
) -> Iterable[str]:
    """What a reader should know where headers and configuration tell different stories about the decoder."""
    found, expected = (sum(group.stored_bytes for group in groups) for groups in (loaded, derived))
    if head_copy:
        yield "the checkpoint stores a copy of the tied head, which is not loaded"
    if abs(found - expected) * 1000 > expected:
        yield f"the headers hold {found:,} B for the decoder; the configuration explains {expected:,} B"


def _is_whole(loaded: Iterable[WeightGroup], derived: Iterable[WeightGroup], *, packed: bool) -> bool:
    """Whether the headers can be all of the decoder: a file cut out of a checkpoint, or of another model, is not.

    Elements are compared, since a checkpoint may be stored in another type than its configuration says; packed
    words count as one element each, so there bytes are, and a tighter packing than we know is allowed for.
    """
    if packed:
        found, expected = (sum(group.stored_bytes for group in groups) for groups in (loaded, derived))
        return found * 2 >= expected
    found, expected = (sum(group.parameters for group in groups) for groups in (loaded, derived))
    return found * 10 >= expected * 9


def _from_config(
    snapshot: ModelSnapshot, architecture: ArchitectureSpec, quantization: Quantization | None, target: DType
) -> WeightTable:
    sizes = LayoutSizes(architecture, quantization)
    figure = _known_total(snapshot, architecture, quantization)
    candidates = tuple(layouts(architecture, quantization))
    if figure is not None and architecture.tower_parameters_known:
        for layout in candidates:
            if figure.agrees(sizes, layout):
                return _proven(architecture, quantization, target, layout, sizes, figure)
        nearest = min(candidates, key=lambda layout: figure.bytes_apart(sizes, layout))
        if figure.bytes_apart(sizes, nearest) * _NEGLIGIBLE < figure.total_bytes:
            return _proven(architecture, quantization, target, nearest, sizes, figure)
    return _bounded(architecture, quantization, target, candidates, sizes, figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """A published total: in bytes that may exceed the tensors by ``slack_bytes``, or in elements."""

    total_bytes: int
    told_by: str
    slack_bytes: int = 0
    elements: int | None = None

    def agrees(self, sizes: LayoutSizes, layout: StorageLayout) -> bool:
        if self.elements is not None:
            return sizes.total_elements(layout) == self.elements
        return 0 <= self.total_bytes - sizes.total_bytes(layout) <= self.slack_bytes

    def bytes_apart(self, sizes: LayoutSizes, layout: StorageLayout) -> int:
        if self.elements:
            missing = abs(self.elements - sizes.total_elements(layout))
            return ceil_div(missing * self.total_bytes, self.elements)
        return abs(self.total_bytes - sizes.total_bytes(layout))


def _known_total(
    snapshot: ModelSnapshot, architecture: ArchitectureSpec, quantization: Quantization | None
) -> _Figure | None:
    """The best published total."""
    if snapshot.index_total_bytes is not None:
        return _Figure(total_bytes=snapshot.index_total_bytes, told_by="the index's total")
    if snapshot.published_bytes is not None:
        return _Figure(total_bytes=snapshot.published_bytes, told_by="the published bytes")
    files = checkpoint_files(snapshot.files, snapshot.config)
    if files and snapshot.weights_from is not WeightsKnownFrom.CONFIG:
        known = [file.size_bytes for file in files if file.size_bytes is not None]
        if len(known) == len(files):
            slack = len(files) * _LARGEST_USUAL_HEADER_BYTES
            return _Figure(total_bytes=sum(known), told_by="the sizes of its files", slack_bytes=slack)
    # The Hub counts packed words of quantised checkpoints as parameters: of no use there.
    elements = snapshot.published_parameters
    if elements is None or quantization is not None:
        return None
    size = elements * architecture.dtype.bits // 8
    return _Figure(total_bytes=size, told_by="the published parameter count", elements=elements)


#: Some 130 bytes a tensor; shards of 5 GB hold up to 2,000 tensors where experts are small (Qwen3-Next).
_LARGEST_USUAL_HEADER_BYTES: Final = 500_000


#: A total this many times larger than what is left unexplained (small buffers, a few biases) counts as met.
_NEGLIGIBLE: Final = 100_000


def _proven(
    architecture: ArchitectureSpec,
    quantization: Quantization | None,
    target: DType,
    layout: StorageLayout,
    sizes: LayoutSizes,
    figure: _Figure,
) -> WeightTable:
    groups = derive_groups(architecture, quantization, layout=layout)
    how = layout.describe()
    size = sizes.total_bytes(layout)
    apart = figure.bytes_apart(sizes, layout)
    agreement = f"within {apart:,} B of"
    if figure.agrees(sizes, layout):
        agreement, apart = ("in agreement with" if figure.slack_bytes else "equal to"), 0
    widest = size + apart
    if figure.elements is not None and any(item.key.endswith("dtype") for item in architecture.assumptions):
        # A count proves the shapes, not the type, which the configuration leaves open.
        widest = max(widest, sizes.total_bytes(replace(layout, dtype=FLOAT32)))
    return WeightTable(
        stored=ByteRange(low_bytes=size - apart, high_bytes=widest),
        parameters=architecture.parameters(),
        basis=Basis.DERIVED,
        source=f"config.json, {agreement} {figure.told_by}" + (f" with {how}" if how else ""),
        resident=resident_groups(groups, architecture, dtype=target, quantized=quantization is not None),
    )


def _bounded(
    architecture: ArchitectureSpec,
    quantization: Quantization | None,
    target: DType,
    candidates: tuple[StorageLayout, ...],
    sizes: LayoutSizes,
    figure: _Figure | None,
) -> WeightTable:
    """Nothing proves the formula: bounds that span the likely layouts, and the published figure."""
    likely = [
        sizes.total_bytes(layout)
        for layout in candidates
        if layout.dtype is None and not layout.buffer_bytes and layout.mtp != "with tables"
    ]
    spread = ByteRange(low_bytes=min(likely), high_bytes=max(likely))
    default = sizes.total_bytes(DEFAULT_LAYOUT)
    groups = derive_groups(architecture, quantization)
    resident = resident_groups(groups, architecture, dtype=target, quantized=quantization is not None)
    known = architecture.tower_parameters_known
    table = WeightTable(
        stored=spread,
        parameters=architecture.parameters() if known else None,
        basis=Basis.DERIVED,
        source="config.json alone",
        resident=resident,
    )
    if figure is None:
        missing = "a vision or audio tower whose size the configuration does not give is missing from the weights"
        return replace(table, notes=() if known else (missing,), complete=known)
    total, told_by = figure.total_bytes, figure.told_by
    stored, note = ByteRange.point(total), f"the tower's size is what {told_by} leaves beyond the decoder"
    if known:
        stored = ByteRange(low_bytes=min(total, spread.low_bytes), high_bytes=max(total, spread.high_bytes))
        note = f"no known way to store this model gives {told_by} ({total:,} B); the formula gives {default:,} B"
    return replace(
        table,
        stored=stored,
        source=f"config.json and {told_by}",
        resident=_stretched(resident, default=default, likely=spread, total=total, tower=not known),
        notes=(note,),
    )


def _stretched(
    resident: tuple[ResidentGroup, ...], *, default: int, likely: ByteRange, total: int, tower: bool
) -> tuple[ResidentGroup, ...]:
    """Widen resident groups until they span what a published total leaves open."""
    if total >= default:
        extra = ResidentGroup(
            component=Component.VISION if tower else Component.OTHER,
            layer=None,
            role=Role.TOWER if tower else Role.OTHER,
            parameters=0,
            low_bytes=max(total - likely.high_bytes, 0) if tower else 0,
            high_bytes=total - likely.low_bytes if tower else total - default,
        )
        return (*resident, extra)
    return tuple(
        ResidentGroup(
            component=group.component,
            layer=group.layer,
            role=group.role,
            parameters=group.parameters,
            low_bytes=group.low_bytes * total // default,
            high_bytes=group.high_bytes,
        )
        for group in resident
    )
