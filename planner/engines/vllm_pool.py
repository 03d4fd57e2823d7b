"""Blocks, tokens and concurrency of vLLM's cache pool, and what a given load holds in it.

Owns the counting over the groups of ``vllm_grouping``. Does not know where the bytes available come from
(the engine's budget) nor what the weights take.

Source: vLLM 0.32.0, ``v1/core/kv_cache_utils.py`` (blocks, concurrency, the start-up check) and
``v1/core/kv_cache_manager.py`` (slots for look-ahead tokens, capped at the model's length).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from model_catalog.architecture import LayerSpec
from model_catalog.bounds import ByteRange
from model_catalog.errors import UsageError
from model_catalog.units import ceil_div
from planner.engines.vllm_grouping import LayerGroup, group_layers
from planner.engines.vllm_layout import CacheSettings, paged_layers

#: The pool keeps one block back as the target of empty block-table entries.
NULL_BLOCKS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedPool:
    """A pool of ``blocks`` blocks, as the engine reports it.

    ``bytes_per_block`` is the widest pipeline stage's. ``blocks_per_request`` is the charge of one request of
    the longest length; ``max_concurrency`` and ``tokens`` are the two figures of the engine's start-up log.
    """

    available_bytes: int
    block_size: int
    bytes_per_block: int
    blocks: int
    blocks_per_request: int
    tokens: int
    max_concurrency: float
    groups: tuple[LayerGroup, ...]

    @property
    def serves_longest_request(self) -> bool:
        """Whether the engine starts: one request of the longest length fits beside the reserved block."""
        needed = (self.blocks_per_request + NULL_BLOCKS) * self.bytes_per_block
        return needed <= self.available_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedNeed:
    """What a load holds in the pool of one rank; ``target + draft == total`` at both bounds.

    ``draft`` is what speculation adds: the pool with it less the pool without, never below zero. It may be
    zero where a draft's layers fill places that padding took before.
    """

    target: ByteRange
    draft: ByteRange
    total: ByteRange
    blocks_low: int
    blocks_high: int
    bytes_per_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    groups: tuple[LayerGroup, ...]
    bytes_per_block: int


def plan_pool(
    target_layers: Sequence[LayerSpec],
    draft_layers: Sequence[LayerSpec],
    *,
    available_bytes: int,
    settings: CacheSettings,
) -> PagedPool:
    """The pool the engine makes of ``available_bytes`` on each rank.

    Raises:
        UsageError: for an unknown cache dtype, layers the engine cannot lay out, or none that keeps a cache.
    """
    pool = _lay_out(target_layers, draft_layers, settings)
    if not pool.groups:
        raise UsageError(
            "none of the layers keeps a cache, so there is no pool to plan",
            subject="KV cache layout",
            hint="plan this model without a KV cache",
        )
    in_flight = settings.in_flight_tokens
    charged = sum(group.blocks_charged(settings.max_model_len, in_flight) for group in pool.groups)
    blocks = available_bytes // pool.bytes_per_block
    concurrency = blocks / charged
    return PagedPool(
        available_bytes=available_bytes,
        block_size=min(group.block_size for group in pool.groups),
        bytes_per_block=pool.bytes_per_block,
        blocks=blocks,
        blocks_per_request=charged,
        tokens=int(concurrency * settings.max_model_len),
        max_concurrency=concurrency,
        groups=pool.groups,
    )


def request_need(
    target_layers: Sequence[LayerSpec],
    draft_layers: Sequence[LayerSpec],
    *,
    context_tokens: int,
    batch: int,
    settings: CacheSettings,
    stage: int | None = None,
) -> PagedNeed:
    """What ``batch`` sequences of ``context_tokens`` hold in the pool of one rank, its reserved block included.

    High: one request at the engine's own charge, with windows still holding the tokens in flight, and the others
    at rest beside what they share of these. Low: what a decoding request keeps, windows at their own length.
    Look-ahead slots come on top of the context, but not past ``max_model_len``. ``stage`` None: the widest
    pipeline stage.

    Raises:
        UsageError: for an unknown cache dtype or layers the engine cannot lay out.
    """
    with_draft = _lay_out(target_layers, draft_layers, settings, stage)
    blocks_low, blocks_high = _blocks(
        with_draft, context_tokens, batch, _lookahead(draft_layers, settings), settings
    )
    total = _size(with_draft, blocks_low, blocks_high)

    plain = replace(settings, num_speculative_tokens=0, lookahead_tokens=0, retained_tokens=0)
    alone = _lay_out(target_layers, (), plain, stage)
    alone_size = _size(alone, *_blocks(alone, context_tokens, batch, 0, plain))
    draft_high = max(0, total.high_bytes - alone_size.high_bytes)
    draft_low = min(draft_high, max(0, total.low_bytes - alone_size.low_bytes))
    return PagedNeed(
        target=ByteRange(low_bytes=total.low_bytes - draft_low, high_bytes=total.high_bytes - draft_high),
        draft=ByteRange(low_bytes=draft_low, high_bytes=draft_high),
        total=total,
        blocks_low=blocks_low,
        blocks_high=blocks_high,
        bytes_per_block=with_draft.bytes_per_block,
    )


def _lay_out(
    target_layers: Sequence[LayerSpec],
    draft_layers: Sequence[LayerSpec],
    settings: CacheSettings,
    stage: int | None = None,
) -> _Pool:
    runs = paged_layers(target_layers, draft_layers, settings)
    groups = group_layers(runs, hybrid_manager=settings.hybrid_manager)
    stages = range(settings.pp) if stage is None else (stage,)
    widest = max((group.stage_page_bytes(number) for group in groups for number in stages), default=0)
    return _Pool(groups=groups, bytes_per_block=widest)


def _lookahead(draft_layers: Sequence[LayerSpec], settings: CacheSettings) -> int:
    if settings.lookahead_tokens is not None:
        return settings.lookahead_tokens
    return settings.num_speculative_tokens if draft_layers else 0


def _blocks(
    pool: _Pool, context_tokens: int, batch: int, lookahead_tokens: int, settings: CacheSettings
) -> tuple[int, int]:
    tokens = max(context_tokens, min(context_tokens + lookahead_tokens, settings.max_model_len))
    in_flight = settings.in_flight_tokens
    low = sum(group.blocks_at_rest(tokens, in_flight) for group in pool.groups)
    high = sum(_most_blocks(group, tokens, batch, in_flight) for group in pool.groups)
    return batch * low + NULL_BLOCKS, high + NULL_BLOCKS


def _most_blocks(group: LayerGroup, tokens: int, batch: int, in_flight: int) -> int:
    """Blocks that ``batch`` requests hold in one group at worst.

    Tokens in flight are shared by all requests, so only one of them can be charged for all; the others hold their
    window, a block more where it starts inside one, and between them the blocks of the tokens in flight.
    """
    charged = group.blocks_charged(tokens, in_flight)
    settled = min(charged, group.blocks_charged(tokens, 0) + 1)
    shared = (batch - 1) * settled + charged + ceil_div(in_flight, group.block_size)
    return min(batch * charged, shared)


def _size(pool: _Pool, blocks_low: int, blocks_high: int) -> ByteRange:
    return ByteRange(low_bytes=blocks_low * pool.bytes_per_block, high_bytes=blocks_high * pool.bytes_per_block)
