"""The TensorRT-LLM profile (PyTorch backend): a pool of 0.9 of what is free after weights and the working peak.

The engine loads, runs a dummy batch with its graphs, takes the peak off the device's total, and gives the pool a
fraction of the rest, shared by target and draft by their bytes a token. Weights and peak are therefore *before*
the budget, and the pool alone inside it.

Source: NVIDIA/TensorRT-LLM at 00043967, ``_torch/pyexecutor/_util.py`` (``_cal_max_memory``,
``_get_kv_size_per_token``: a head's layers on the last stage), ``llmapi/llm_args.py`` (``KvCacheConfig``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from model_catalog.architecture import Component
from model_catalog.bounds import Basis, ByteRange
from model_catalog.drafts import PARALLEL_HEADS, DraftMethod
from model_catalog.errors import UsageError
from model_catalog.units import KIB, MIB
from planner.devices import Device
from planner.engines.base import (
    BudgetBase,
    CacheGroup,
    EngineCache,
    EngineDefaults,
    Loading,
    Rank,
    Serving,
    layers_of,
)
from planner.engines.server_checks import (
    cache_dtype,
    check_serving,
    draft_architecture,
    draft_cache_dtype,
    draft_layers,
    refuse_pinned_cache,
)
from planner.engines.server_lines import (
    AFTER,
    BEFORE,
    library_line,
    logits_line,
    overhead_line,
    process_lines,
    working_peak,
)
from planner.engines.token_cells import TokenCell, page_tokens, token_cell
from planner.engines.vllm_weights import draft_weights, target_weights
from planner.errors import ParallelismError
from planner.memory.breakdown import Group, LineItem, Owner

TENSORRT_LLM_VERSION: Final = "1.2.1"
CACHE_DTYPES: Final = ("auto", "fp8", "fp8_e4m3", "nvfp4")
_SOURCE: Final = "NVIDIA/TensorRT-LLM at 00043967, _torch/pyexecutor/_util.py"
_FRACTION: Final = 0.9  # KvCacheConfig.free_gpu_memory_fraction
_TOKENS_PER_BLOCK: Final = 32  # KvCacheConfig.tokens_per_block
_MAX_BATCH_SIZE: Final = 2048
_MAX_NUM_TOKENS: Final = 8192
#: Graphs are captured for every batch up to 32, for 64 and 128.
_GRAPH_BATCH: Final = 128
_GRAPH_SIZES: Final = 34
#: A graph's bytes a layer, as vLLM's logs show them for CUDA graphs of other kernels; taken over as assumed.
_GRAPH_LAYER_BYTES: Final = (24 * KIB, 768 * KIB)
_GRAPH_BASE_HIGH_BYTES: Final = 400 * MIB
_LATER_HIGH_BYTES: Final = 512 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtLlmProfile:
    """TensorRT-LLM's ``trtllm-serve`` with the PyTorch backend."""

    version: str = TENSORRT_LLM_VERSION
    name: str = "tensorrt-llm"
    budget_base: BudgetBase = "free_after_load"

    def check(self, serving: Serving) -> None:
        """Refuse what the engine refuses, and what is not known here."""
        work, draft, subject = serving.workload, serving.draft, serving.target.snapshot.repo_id
        check_serving(serving, "TensorRT-LLM", cache_dtypes=CACHE_DTYPES)
        refuse_pinned_cache(
            serving,
            "TensorRT-LLM",
            "max_gpu_total_bytes caps what its fraction would take, and promises nothing",
            "use --gpu-memory-utilization, which is its free_gpu_memory_fraction here",
        )
        if work.quantization is not None:
            raise UsageError(
                "TensorRT-LLM serves the weights as they were published",
                subject="--quantization",
                hint="choose a checkpoint that was quantised",
            )
        if draft is not None and draft.method is DraftMethod.EAGLE:
            raise UsageError(
                "TensorRT-LLM does not take first-generation EAGLE heads",
                subject=subject,
                hint="choose an EAGLE-3 head",
            )
        if draft is not None and draft.method is DraftMethod.DRAFT_MODEL and work.pp > 1:
            raise ParallelismError(
                "how TensorRT-LLM deals a draft model to pipeline stages is not known here",
                subject=subject,
                hint="use --pp 1, or a head (which lives on the last stage)",
            )

    def defaults(self, serving: Serving, device: Device) -> EngineDefaults:
        """Tokens, sequences, block and fraction as ``trtllm-serve`` would choose them."""
        del device
        work = serving.workload
        return EngineDefaults(
            max_num_batched_tokens=work.max_num_batched_tokens or _MAX_NUM_TOKENS,
            max_num_seqs=work.max_num_seqs or _MAX_BATCH_SIZE,
            block_size=work.block_size or _TOKENS_PER_BLOCK,
            gpu_memory_utilization=_FRACTION
            if work.gpu_memory_utilization is None
            else work.gpu_memory_utilization,
        )

    def ranks_per_stage(self, serving: Serving) -> int:
        """Every stage is split over the TP ranks."""
        return serving.workload.tp

    def stages(self, serving: Serving) -> tuple[tuple[int, ...], ...]:
        """Layers dealt evenly, the first stages one more (``mapping.py``, ``pp_layers``: ``tensor_split``)."""
        layers, pp = serving.target.architecture.layers, serving.workload.pp
        positions = [number for number, layer in enumerate(layers) if layer.component is not Component.MTP]
        return split_evenly(positions, pp)

    def lines(self, serving: Serving, rank: Rank) -> tuple[LineItem, ...]:
        """Every line of one rank: all but the pool is taken before the pool is sized."""
        defaults = self.defaults(serving, rank.device)
        weights = (*target_weights(serving, rank), *(draft_weights(serving) if rank.last_stage else ()))
        return (
            *(replace(line, inside_budget=False, before_budget=True) for line in weights),
            *_cache_lines(serving, defaults, rank),
            *process_lines(serving, rank.device.total_bytes),
            library_line(serving, BEFORE),
            *_graphs(serving, rank),
            *_context_buffer(serving, defaults, rank),
            overhead_line(
                "later_allocations",
                ByteRange(low_bytes=0, high_bytes=_LATER_HIGH_BYTES),
                AFTER,
                source="assumed: the engine leaves a tenth of what is free for what comes after the dummy run",
                formula="fragments, transfers and larger batches than the dummy run's",
            ),
            working_peak(
                serving,
                tokens=defaults.max_num_batched_tokens,
                draft=draft_architecture(serving) if rank.last_stage else None,
                place=BEFORE,
            ),
            *_logits(serving, defaults, rank),
        )

    def loading(self, serving: Serving, rank: Rank) -> Loading | None:
        """Not known: no start-up log tells what loading takes for a moment."""
        del serving, rank
        return None

    def pool(self, serving: Serving, rank: Rank, available: ByteRange) -> EngineCache | None:
        """Whole blocks of ``available`` at its low end, at the bytes a token of target and draft."""
        defaults = self.defaults(serving, rank.device)
        target, draft = _cells(serving, rank)
        size, per_token = defaults.block_size, target.high_bytes + draft.high_bytes
        blocks = available.low_bytes // (per_token * size) if per_token else 0
        most = float(defaults.max_num_seqs)
        groups = [CacheGroup(layers=target.layers, kind="full", block_size=size)]
        if draft.layers:
            groups.append(CacheGroup(layers=draft.layers, kind="draft", block_size=size))
        return EngineCache(
            available=available,
            block_size=size,
            bytes_per_block=per_token * size,
            blocks=blocks,
            tokens=blocks * size,
            max_concurrency=min(blocks * size / _sequence_tokens(serving, defaults).high_bytes, most),
            groups=tuple(groups),
        )


def split_evenly(positions: Sequence[int], stages: int) -> tuple[tuple[int, ...], ...]:
    """The positions in so many runs of equal length, the first ones longer by one where it does not come out."""
    size, more = divmod(len(positions), stages)
    runs: list[tuple[int, ...]] = []
    start = 0
    for stage in range(stages):
        end = start + size + (1 if stage < more else 0)
        runs.append(tuple(positions[start:end]))
        start = end
    return tuple(runs)


def _cells(serving: Serving, rank: Rank) -> tuple[TokenCell, TokenCell]:
    """A token of the target's layers on this rank, and of the draft's, which are on the last stage."""
    work, dtype = serving.workload, cache_dtype(serving)
    target = token_cell(
        layers_of(serving.target, rank.layers), model_dtype=dtype, kv_dtype=work.kv_cache_dtype, tp=work.tp
    )
    layers = draft_layers(serving) if rank.last_stage and not _keeps_own_buffer(serving) else ()
    return target, token_cell(layers, model_dtype=dtype, kv_dtype=draft_cache_dtype(serving), tp=work.tp)


def _sequence_tokens(serving: Serving, defaults: EngineDefaults) -> ByteRange:
    """Tokens (not bytes) of one full sequence in whole blocks; with speculation up to 3 k + 1 more.

    One generated token, k drafted ones twice (the overlap scheduler runs a step ahead), k - 1 of a one-model head.
    """
    tokens, size = serving.workload.context_tokens, defaults.block_size
    k = serving.num_speculative_tokens
    return ByteRange(
        low_bytes=page_tokens(tokens, size), high_bytes=page_tokens(tokens + (3 * k + 1 if k else 0), size)
    )


def _cache_lines(serving: Serving, defaults: EngineDefaults, rank: Rank) -> Iterator[LineItem]:
    """Need of context x batch: low with windows that keep no more than their own length, high with all kept."""
    batch, tokens = serving.workload.batch, _sequence_tokens(serving, defaults)
    target, draft = _cells(serving, rank)
    for label, owner, cell in (
        ("target_kv_cache", Owner.TARGET, target),
        ("draft_kv_cache", Owner.DRAFT, draft),
    ):
        if owner is Owner.DRAFT and not cell.layers:
            continue
        yield LineItem(
            group=Group.KV_CACHE,
            label=label,
            owner=owner,
            low_bytes=batch * cell.need_at_rest(tokens.low_bytes),
            high_bytes=batch * tokens.high_bytes * cell.high_bytes,
            basis=Basis.DERIVED,
            source=f"{_SOURCE}, _get_kv_size_per_token",
            formula=(
                f"{batch:,} sequences x {tokens.low_bytes:,} to {tokens.high_bytes:,} tokens x "
                f"{cell.high_bytes:,} B in {cell.layers} layers"
            ),
        )


def _keeps_own_buffer(serving: Serving) -> bool:
    return serving.draft is not None and serving.draft.method in PARALLEL_HEADS


def _context_buffer(serving: Serving, defaults: EngineDefaults, rank: Rank) -> Iterator[LineItem]:
    """The dense buffer of a DFlash head: every slot's whole context, whatever is used of it.

    Source: NVIDIA/TensorRT-LLM#16005 (64 slots x 131,091 tokens x 10,240 B a rank = 80 GiB).
    """
    if not _keeps_own_buffer(serving) or not rank.last_stage:
        return
    work = serving.workload
    cell = token_cell(
        draft_layers(serving),
        model_dtype=cache_dtype(serving),
        kv_dtype=draft_cache_dtype(serving),
        tp=work.tp,
    )
    slots, extra = defaults.max_num_seqs, 3 * serving.num_speculative_tokens + 1
    yield overhead_line(
        "draft_context_buffer",
        ByteRange(
            low_bytes=slots * work.context_tokens * cell.high_bytes,
            high_bytes=slots * (work.context_tokens + extra) * cell.high_bytes,
        ),
        BEFORE,
        basis=Basis.DERIVED,
        source="NVIDIA/TensorRT-LLM#16005",
        formula=f"{slots:,} slots x {work.context_tokens:,} to {extra} tokens more x {cell.high_bytes:,} B",
        owner=Owner.DRAFT,
    )


def _graphs(serving: Serving, rank: Rank) -> Iterator[LineItem]:
    if serving.workload.enforce_eager:
        return
    layers = len(rank.layers) + (len(draft_layers(serving)) if rank.last_stage else 0)
    low, high = (layers * _GRAPH_SIZES * size for size in _GRAPH_LAYER_BYTES)
    yield overhead_line(
        "cuda_graphs",
        ByteRange(low_bytes=low, high_bytes=high + _GRAPH_BASE_HIGH_BYTES),
        BEFORE,
        source="assumed to be as large as vLLM's graphs",
        formula=f"{layers} layers x {_GRAPH_SIZES} captured batches x 24 to 768 KiB, plus up to 400 MiB",
        owner=Owner.BOTH if serving.draft is not None else Owner.TARGET,
    )


def _logits(serving: Serving, defaults: EngineDefaults, rank: Rank) -> Iterator[LineItem]:
    """Rows of the dummy run at least; those of the planned batch or the largest graph at most."""
    if not rank.last_stage:
        return
    query = 1 + serving.num_speculative_tokens
    batch = min(serving.workload.batch, defaults.max_num_seqs)
    most = min(max(batch, _GRAPH_BATCH), defaults.max_num_seqs)
    yield logits_line(serving, rows_low=query, rows_high=most * query, place=BEFORE)
