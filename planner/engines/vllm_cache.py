"""vLLM's cache for one plan: the need of context x batch as lines, and the pool as the engine would report it.

Adapts ``vllm_layout``/``vllm_pool`` to a Serving. The context of a plan is the engine's ``max_model_len``.
"""

from model_catalog.architecture import Component, LayerSpec
from model_catalog.bounds import Basis, ByteRange
from planner.engines.base import CacheGroup, Draft, DraftMethod, EngineCache, EngineDefaults, Rank, Serving
from planner.engines.vllm_layout import CacheSettings
from planner.engines.vllm_pool import PagedNeed, plan_pool, request_need
from planner.memory.breakdown import Group, LineItem, Owner

SOURCE = "vLLM 0.33.0 v1/kv_cache_interface.py, v1/core/kv_cache_utils.py"


def draft_cache_layers(serving: Serving) -> tuple[LayerSpec, ...]:
    """The draft's layers that keep a cache: its own, the target's MTP layers, or none (n-gram)."""
    draft = serving.draft
    if draft is None or draft.method is DraftMethod.NGRAM:
        return ()
    if draft.method is DraftMethod.MTP:
        return serving.target.architecture.mtp_layers
    return draft.model.architecture.decoder_layers if draft.model else ()


def target_cache_layers(serving: Serving) -> tuple[LayerSpec, ...]:
    """The target's layers without MTP, encoder layers included (they keep nothing)."""
    layers = serving.target.architecture.layers
    return tuple(layer for layer in layers if layer.component is not Component.MTP)


def cache_settings(serving: Serving, defaults: EngineDefaults) -> CacheSettings:
    """The layout settings behind a workload."""
    workload = serving.workload
    return CacheSettings(
        max_model_len=workload.context_tokens,
        max_num_batched_tokens=defaults.max_num_batched_tokens,
        async_scheduling=workload.async_scheduling,
        tp=workload.tp,
        pp=workload.pp,
        block_size=workload.block_size,
        model_dtype=serving.target.architecture.dtype,
        kv_dtype=workload.kv_cache_dtype,
        draft_kv_dtype=None if workload.draft_kv_cache_dtype == "auto" else workload.draft_kv_cache_dtype,
        num_speculative_tokens=serving.num_speculative_tokens,
        retained_tokens=_retained(serving.draft, serving),
    )


def cache_lines(serving: Serving, defaults: EngineDefaults) -> tuple[LineItem, ...]:
    """Need of context x batch for target and draft on one rank."""
    workload = serving.workload
    need = request_need(
        target_cache_layers(serving),
        draft_cache_layers(serving),
        context_tokens=workload.context_tokens,
        batch=workload.batch,
        settings=cache_settings(serving, defaults),
    )
    lines = [_line("target_kv_cache", Owner.TARGET, need.target, serving, need)]
    if serving.draft is not None and serving.draft.method is not DraftMethod.NGRAM:
        lines.append(_line("draft_kv_cache", Owner.DRAFT, need.draft, serving, need))
    return tuple(lines)


def engine_pool(serving: Serving, defaults: EngineDefaults, rank: Rank, available: ByteRange) -> EngineCache:
    """The pool that ``available`` makes; blocks and concurrency at its low end, which is certain.

    ``rank`` only names where the bytes are: every rank of a pipeline agrees on the fewest blocks.
    """
    pool = plan_pool(
        target_cache_layers(serving),
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
    return LineItem(
        group=Group.KV_CACHE,
        label=label,
        owner=owner,
        low_bytes=size.low_bytes,
        high_bytes=size.high_bytes,
        basis=Basis.DERIVED,
        source=SOURCE,
        formula=(
            f"{workload.batch:,} sequences x {workload.context_tokens:,} tokens = {blocks} blocks "
            f"x {need.bytes_per_block:,} B for all layers{share}"
        ),
    )


def _retained(draft: Draft | None, serving: Serving) -> int:
    """Tokens that a chain of several MTP modules keeps below a window."""
    if draft is None or draft.method is not DraftMethod.MTP:
        return 0
    return max(0, len(serving.target.architecture.mtp_layers) - 1)
