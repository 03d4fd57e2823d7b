"""vLLM's cache for one plan: the need of context x batch as lines, and the pool as the engine would report it.

Adapts ``vllm_layout``/``vllm_pool`` to a Serving. The context of a plan is the engine's ``max_model_len``.
"""

from model_catalog.architecture import ChunkedAttention, LayerSpec
from model_catalog.bounds import Basis, ByteRange
from model_catalog.drafts import READS_HIDDEN_STATES, DraftMethod
from model_catalog.dtypes import BFLOAT16, FLOAT32, find_dtype
from planner.engines.base import CacheGroup, EngineCache, EngineDefaults, Rank, Serving
from planner.engines.vllm_drafting import lookahead_tokens
from planner.engines.vllm_grouping import group_layers
from planner.engines.vllm_layout import CacheSettings, paged_layers
from planner.engines.vllm_pool import PagedNeed, plan_pool, request_need
from planner.memory.breakdown import Group, LineItem, Owner

SOURCE = "vLLM 0.33.0 v1/kv_cache_interface.py, v1/core/kv_cache_utils.py"


def draft_cache_layers(serving: Serving) -> tuple[LayerSpec, ...]:
    """The draft's layers that keep a cache: its own, the target's MTP layers, or none (n-gram).

    All MTP layers are loaded whatever k is, and used again where k exceeds their number.
    """
    draft = serving.draft
    if draft is None or draft.method is DraftMethod.NGRAM:
        return ()
    if draft.method is DraftMethod.MTP:
        return serving.target.architecture.mtp_layers
    return draft.model.architecture.decoder_layers if draft.model else ()


def cache_settings(serving: Serving, defaults: EngineDefaults) -> CacheSettings:
    """The layout settings behind a workload; a float32 model runs, and caches, in 16 bits under ``auto``."""
    workload = serving.workload
    chosen = find_dtype(workload.dtype) or serving.target.architecture.dtype
    model_dtype = BFLOAT16 if workload.dtype == "auto" and chosen == FLOAT32 else chosen
    return CacheSettings(
        max_model_len=workload.context_tokens,
        max_num_batched_tokens=defaults.max_num_batched_tokens,
        async_scheduling=workload.async_scheduling,
        tp=workload.tp,
        pp=workload.pp,
        block_size=defaults.block_size,
        model_dtype=model_dtype,
        kv_dtype=workload.kv_cache_dtype,
        draft_kv_dtype=None if workload.draft_kv_cache_dtype == "auto" else workload.draft_kv_cache_dtype,
        num_speculative_tokens=serving.num_speculative_tokens,
        lookahead_tokens=lookahead_tokens(serving.draft),
        retained_tokens=_retained(serving),
        hybrid_manager=not _drops_hybrid_manager(serving),
    )


def cache_lines(serving: Serving, defaults: EngineDefaults, rank: Rank) -> tuple[LineItem, ...]:
    """Need of context x batch for target and draft on one rank."""
    workload = serving.workload
    need = request_need(
        serving.target.architecture.decoder_layers,
        draft_cache_layers(serving),
        context_tokens=workload.context_tokens,
        batch=workload.batch,
        settings=cache_settings(serving, defaults),
        stage=rank.stage,
    )
    lines = [_line("target_kv_cache", Owner.TARGET, need.target, serving, need)]
    if serving.draft is not None:
        lines.append(_line("draft_kv_cache", Owner.DRAFT, need.draft, serving, need))
    return tuple(lines)


def count_cache_groups(serving: Serving, defaults: EngineDefaults) -> int:
    """Groups of layers with a block table each; 1 where no layer keeps a cache."""
    settings = cache_settings(serving, defaults)
    runs = paged_layers(serving.target.architecture.decoder_layers, draft_cache_layers(serving), settings)
    return max(1, len(group_layers(runs, hybrid_manager=settings.hybrid_manager)))


def engine_pool(serving: Serving, defaults: EngineDefaults, available: ByteRange) -> EngineCache:
    """The pool that ``available`` makes; blocks and concurrency at its low end, which is certain.

    All ranks of an engine agree on the fewest blocks; the caller takes the smallest pool.
    """
    pool = plan_pool(
        serving.target.architecture.decoder_layers,
        draft_cache_layers(serving),
        available_bytes=available.low_bytes,
        settings=cache_settings(serving, defaults),
    )
    return EngineCache(
        available=available,
        block_size=pool.block_size,
        bytes_per_block=pool.bytes_per_block,
        blocks=pool.blocks,
        tokens=pool.tokens,
        max_concurrency=pool.max_concurrency,
        groups=tuple(
            CacheGroup(layers=group.layers, kind=str(group.kind), block_size=group.block_size)
            for group in pool.groups
        ),
    )


def _line(label: str, owner: Owner, size: ByteRange, serving: Serving, need: PagedNeed) -> LineItem:
    blocks = f"{need.blocks_high:,}"
    if need.blocks_low != need.blocks_high:
        blocks = f"{need.blocks_low:,} (windows at rest) to {blocks} (windows with tokens in flight)"
    workload = serving.workload
    share = "" if owner is Owner.TARGET else "; what the draft's layers add to the pool"
    return LineItem.of_size(
        size,
        group=Group.KV_CACHE,
        label=label,
        owner=owner,
        basis=Basis.DERIVED,
        source=SOURCE,
        formula=(
            f"{workload.batch:,} sequences x {workload.context_tokens:,} tokens = {blocks} blocks "
            f"x {need.bytes_per_block:,} B for all layers{share}"
        ),
    )


def _retained(serving: Serving) -> int:
    """Tokens that a chain of several MTP modules keeps below a window (config/vllm.py, use_multi_module_mtp)."""
    if serving.draft is None or serving.draft.method is not DraftMethod.MTP:
        return 0
    modules = min(len(serving.target.architecture.mtp_layers), serving.num_speculative_tokens)
    return max(0, modules - 1)


def _drops_hybrid_manager(serving: Serving) -> bool:
    """Chunked attention (Llama 4) with a draft that reads hidden states: chunks are then kept in full."""
    if serving.draft is None or serving.draft.method not in READS_HIDDEN_STATES:
        return False
    rules = {rule for layer in serving.target.architecture.decoder_layers for rule in layer.caches}
    return any(isinstance(rule, ChunkedAttention) for rule in rules)
