"""llama.cpp's server: weights in a GGUF type, and caches of one size from the start.

Nothing is a fraction and nothing grows: ``--ctx-size`` fixes every cell, and weights, caches and compute buffers
are allocated before the first request. The token table stays in host memory; a tied one is copied to the last GPU
as output matrix. Layers are dealt whole over the GPUs; the draft has a context as long as the target's, on the
first.
Sources: llama.cpp b11434 ``src/llama-model.cpp`` (dev_input, get_layer_buft_list), ``src/llama-context.cpp``,
``common/speculative.cpp``, ``tools/server/server-context.cpp``; checked against ``llama-server`` b10434 itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from model_catalog.architecture import (
    ChunkedAttention,
    Component,
    LayerSpec,
    RecurrentState,
    Role,
    SlidingWindow,
)
from model_catalog.bounds import Basis, ByteRange
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model
from model_catalog.weight_residency import ResidentGroup
from planner.devices import Device, DeviceSource
from planner.engines.base import Draft, EngineCache, EngineDefaults, Loading, Rank, Serving, layers_of
from planner.engines.llama_cpp_buffers import Pass, checkpoint_line, compute_line, process_line, scratch_line
from planner.engines.llama_cpp_cache import (
    PAD_TOKENS,
    Cells,
    cache_type,
    kv_bytes,
    server_cells,
    state_bytes,
    state_rows,
)
from planner.engines.llama_cpp_checks import check_serving
from planner.engines.weight_lines import part_of
from planner.memory.breakdown import Group, LineItem, Owner

_CACHE_SOURCE = "llama.cpp b11434 src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-context.cpp (n_ctx)"
_STATE_SOURCE = "llama.cpp b11434 src/llama-memory-recurrent.cpp, llama-hparams.cpp"
_INPUT_ROLES = frozenset({Role.EMBEDDING, Role.POSITION})


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppProfile:
    """llama-server with all layers on the devices. ``version`` is the build number."""

    version: str = "11434"
    name: str = "llama.cpp"
    budget_base: Literal["total", "free"] = "free"

    def check(self, serving: Serving) -> None:
        """Refuse what the server has no option for, and caches that are not known."""
        check_serving(serving)

    def defaults(self, serving: Serving, device: Device) -> EngineDefaults:
        """One pass takes ``--ubatch-size`` tokens; cells come in steps of 256."""
        del device
        cells = server_cells(serving.workload)
        return EngineDefaults(
            max_num_batched_tokens=cells.ubatch,
            max_num_seqs=cells.slots,
            block_size=PAD_TOKENS,
            gpu_memory_utilization=None,
        )

    def ranks_per_stage(self, serving: Serving) -> int:
        """Devices hold whole layers."""
        del serving
        return 1

    def stages(self, serving: Serving) -> tuple[tuple[int, ...], ...]:
        """Layers by device under equal shares: layer i of L on device i x devices // (L + 1), the output last."""
        architecture = serving.target.architecture
        count = serving.workload.tp * serving.workload.pp
        layers = len(architecture.decoder_layers)
        places: list[list[int]] = [[] for _ in range(count)]
        for number in range(layers):
            places[number * count // (layers + 1)].append(number)
        return tuple(tuple(place) for place in places)

    def lines(self, serving: Serving, rank: Rank) -> tuple[LineItem, ...]:
        """Weights, cells, states, buffers and process on one device."""
        target, cells = serving.target, server_cells(serving.workload)
        layers = layers_of(target, rank.layers)
        host = rank.device.source is DeviceSource.HOST
        kind = serving.workload.kv_cache_dtype
        count = serving.workload.tp * serving.workload.pp
        outputs = cells.slots * (1 + serving.num_speculative_tokens)
        work = Pass(cells=cells, outputs=outputs, devices=count)
        lines = [
            *_weight_lines(target, _held(target, rank, host=host), Owner.TARGET),
            *_cache_lines(target, layers, cells, kind, Owner.TARGET, serving.draft),
            compute_line(target, layers, work, Owner.TARGET),
            process_line(rank.device),
        ]
        if host:
            lines += _checkpoints(serving, layers, cells)
        else:
            lines.append(scratch_line(layers, cells, packed_cache=_is_packed(kind)))
        if serving.draft is not None:
            lines += _draft_lines(serving, serving.draft, rank, cells, host=host)
        return tuple(lines)

    def loading(self, serving: Serving, rank: Rank) -> Loading | None:
        """Nothing on a GPU beyond what stays. Host: the token tables at least, the mapped files at most."""
        if rank.device.source is DeviceSource.HOST:
            return None
        models = [serving.target]
        if serving.draft is not None and serving.draft.model is not None:
            models.append(serving.draft.model)
        tables = sum(
            group.low_bytes
            for model in models
            for group in model.weights.resident
            if group.component is Component.TEXT and group.role in _INPUT_ROLES
        )
        files = sum(model.weights.resident_bytes(with_mtp=True).high_bytes for model in models)
        return Loading(extra=ByteRange.point(0), host=ByteRange(low_bytes=min(tables, files), high_bytes=files))

    def pool(self, serving: Serving, rank: Rank, available: ByteRange) -> EngineCache | None:
        """There is no pool: the cells are those of ``--ctx-size``, and what is left over is not used."""
        del serving, rank, available
        return None


def _is_packed(kind: str) -> bool:
    found = cache_type(kind)
    return found is not None and found.block_elements > 1


def _held(model: Model, rank: Rank, *, host: bool) -> Iterator[tuple[str, ResidentGroup]]:
    """The target's weights on this device, by label."""
    for group in model.weights.resident:
        if group.component is Component.MTP:
            continue  # only where it drafts
        if group.layer is not None:
            if group.layer in rank.layers:
                yield part_of(group), group
        elif group.role in _INPUT_ROLES:
            if host:
                yield part_of(group), group
            elif rank.last_stage and (copy := _tied_copy(model, group)) is not None:
                yield "output_head", copy
        elif rank.last_stage:
            yield part_of(group), group


def _tied_copy(model: Model, group: ResidentGroup) -> ResidentGroup | None:
    """A tied token table once more, as output matrix (TENSOR_DUPLICATED); tables for other inputs stay away."""
    architecture = model.architecture
    if not architecture.tied_head or group.role is not Role.EMBEDDING:
        return None
    tables = [
        template.parameters
        for component, template in architecture.root_tensors
        if component is group.component and template.role is Role.EMBEDDING
    ]
    if not tables:
        return group
    # All of them take one type, so bytes divide as elements do; the first is the token table.
    share, whole = tables[0], sum(tables)
    return ResidentGroup(
        component=group.component,
        layer=None,
        role=Role.HEAD,
        parameters=share,
        low_bytes=group.low_bytes * share // whole,
        high_bytes=group.high_bytes * share // whole,
    )


def _weight_lines(model: Model, held: Iterable[tuple[str, ResidentGroup]], owner: Owner) -> Iterator[LineItem]:
    sums: dict[str, ByteRange] = {}
    elements: Counter[str] = Counter()
    for label, group in held:
        size = ByteRange(low_bytes=group.low_bytes, high_bytes=group.high_bytes)
        sums[label] = sums.get(label, ByteRange.point(0)) + size
        elements[label] += group.parameters
    for label, size in sums.items():
        if not size.high_bytes:
            continue
        yield LineItem.of_size(
            size,
            group=Group.TARGET_WEIGHTS if owner is Owner.TARGET else Group.DRAFT_WEIGHTS,
            label=f"{owner.value}_{label}",
            owner=owner,
            basis=model.weights.basis,
            source=model.weights.source,
            formula=f"{elements[label]:,} elements{_bits(size, elements[label])}, blocks of each matrix's type",
        )


def _bits(size: ByteRange, elements: int) -> str:
    return f" x {size.high_bytes * 8 / elements:.2f} bits" if elements else ""


def _cache_lines(
    model: Model,
    layers: tuple[LayerSpec, ...],
    cells: Cells,
    dtype: str,
    owner: Owner,
    draft: Draft | None,
) -> Iterator[LineItem]:
    kind = cache_type(dtype)
    if kind is None:
        return  # refused by ``check``
    size = kv_bytes(model, layers, cells, kind)
    streams = f"{cells.slots:,} x {cells.per_slot:,}" if cells.slots > 1 else f"{cells.per_slot:,}"
    yield LineItem.of_size(
        size,
        group=Group.KV_CACHE,
        label=f"{owner.value}_kv_cache",
        owner=owner,
        basis=Basis.DERIVED,
        source=_CACHE_SOURCE,
        formula=f"(row of keys + row of values in {kind.name}) x {streams} cells in {len(layers)} layers",
    )
    rows = state_rows(model, draft if owner is Owner.TARGET else None, cells.slots)
    states = state_bytes(layers, rows)
    if states:
        yield LineItem.of_size(
            ByteRange.point(states),
            group=Group.KV_CACHE,
            label=f"{owner.value}_recurrent_state",
            owner=owner,
            basis=Basis.DERIVED,
            source=_STATE_SOURCE,
            formula=f"(convolution history + state) in F32 x {rows:,} rows for {cells.slots:,} slots",
        )


def _checkpoints(serving: Serving, layers: tuple[LayerSpec, ...], cells: Cells) -> Iterator[LineItem]:
    """In host memory only: on a GPU's machine the copies lie beside what is planned."""
    kind = cache_type(serving.workload.kv_cache_dtype)
    if kind is None:
        return
    windowed = tuple(
        layer for layer in layers if any(isinstance(r, SlidingWindow | ChunkedAttention) for r in layer.caches)
    )
    kept = kv_bytes(serving.target, windowed, cells, kind) + ByteRange.point(state_bytes(layers, cells.slots))
    if kept.high_bytes:
        yield checkpoint_line(kept, cells)


def _draft_lines(serving: Serving, draft: Draft, rank: Rank, cells: Cells, *, host: bool) -> Iterator[LineItem]:
    dtype = serving.workload.draft_kv_cache_dtype
    if draft.method is DraftMethod.MTP and draft.model is None:
        if rank.last_stage:
            yield from _mtp_lines(serving.target, cells, dtype)
        return
    if draft.model is None or not rank.first_stage:
        return
    model, layers = draft.model, draft.model.architecture.decoder_layers
    outputs = cells.slots
    if draft.method in {DraftMethod.DFLASH, DraftMethod.DSPARK}:
        outputs *= 1 + draft.num_speculative_tokens
    yield from _weight_lines(model, _whole(model, host=host), Owner.DRAFT)
    yield from _cache_lines(model, layers, cells, dtype, Owner.DRAFT, None)
    yield compute_line(model, layers, Pass(cells=cells, outputs=outputs), Owner.DRAFT)


def _whole(model: Model, *, host: bool) -> Iterator[tuple[str, ResidentGroup]]:
    for group in model.weights.resident:
        if group.component is Component.MTP:
            continue
        if group.layer is None and group.role in _INPUT_ROLES and not host:
            if (copy := _tied_copy(model, group)) is not None:
                yield "output_head", copy
        else:
            yield part_of(group), group


def _mtp_lines(target: Model, cells: Cells, dtype: str) -> Iterator[LineItem]:
    """The target's own layers beyond the decoder, with a context of their own (LLAMA_CONTEXT_TYPE_MTP)."""
    layers = tuple(
        layer
        for layer in target.architecture.mtp_layers
        if not any(isinstance(rule, RecurrentState) for rule in layer.caches)
    )
    held = ((part_of(group), group) for group in target.weights.resident if group.component is Component.MTP)
    yield from _weight_lines(target, held, Owner.DRAFT)
    yield from _cache_lines(target, layers, cells, dtype, Owner.DRAFT, None)
    yield compute_line(target, layers, Pass(cells=cells, outputs=cells.slots), Owner.DRAFT)
