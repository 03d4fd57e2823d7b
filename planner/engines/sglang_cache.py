"""SGLang's pool: so many token slots of one size, shared with the draft, which is charged by a rule of thumb.

The engine charges a draft (EAGLE, EAGLE-3, MTP, stand-alone) as so many more layers *of the target's*. A draft
with other heads takes more or less than that: both figures are kept apart here, and what exceeds the charge lies
outside the budget.

Source: SGLang 0.5.23 ``model_executor/pool_configurator.py`` (``DefaultPoolConfigurator``,
``HybridSWAPoolConfigurator``, ``_dflash_draft_cell_size``); ``mem_cache/allocation_sizing.py`` (twice a step's
draft tokens are held past a sequence's end).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import LayerSpec
from model_catalog.bounds import Basis, ByteRange
from model_catalog.drafts import PARALLEL_HEADS
from planner.engines.base import CacheGroup, EngineCache, EngineDefaults, Rank, Serving, layers_of
from planner.engines.server_checks import cache_dtype, draft_cache_dtype, draft_layers
from planner.engines.token_cells import TokenCell, page_tokens, token_cell
from planner.memory.breakdown import Group, LineItem, Owner

SOURCE: Final = "SGLang 0.5.23 model_executor/pool_configurator.py"
#: ``swa_full_tokens_ratio``: slots of windowed layers for each slot of full ones, in tenths, where the engine
#: keeps them apart; it does for some architectures only, so the high bound counts windows whole.
WINDOW_TENTHS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCells:
    """One token on one rank: the target's cell, what the engine charges for the draft, what the draft takes."""

    target: TokenCell
    charged: ByteRange
    taken: ByteRange

    @property
    def certain_bytes(self) -> int:
        """Bytes charged for a token at most."""
        return self.target.high_bytes + self.charged.high_bytes

    @property
    def excess(self) -> ByteRange:
        """What the draft takes of a token beyond its charge."""
        return ByteRange(
            low_bytes=max(0, self.taken.low_bytes - self.charged.high_bytes),
            high_bytes=max(0, self.taken.high_bytes - self.charged.low_bytes),
        )


def sglang_cell(serving: Serving, layers: Sequence[LayerSpec]) -> TokenCell:
    """The target's cell over these layers."""
    work = serving.workload
    return token_cell(layers, model_dtype=cache_dtype(serving), kv_dtype=work.kv_cache_dtype, tp=work.tp)


def pair_cells(serving: Serving, rank: Rank) -> PairCells:
    """All three figures on this rank; nothing for a draft without layers of its own."""
    target = sglang_cell(serving, layers_of(serving.target, rank.layers))
    layers = draft_layers(serving)
    if not layers or serving.draft is None:
        return PairCells(target=target, charged=ByteRange.point(0), taken=ByteRange.point(0))
    own = token_cell(
        layers,
        model_dtype=cache_dtype(serving),
        kv_dtype=draft_cache_dtype(serving),
        tp=serving.workload.tp,
    )
    taken = ByteRange(low_bytes=own.low_bytes(WINDOW_TENTHS), high_bytes=own.high_bytes)
    if serving.draft.method in PARALLEL_HEADS:
        return PairCells(target=target, charged=taken, taken=taken)
    return PairCells(target=target, charged=_charge(target, len(layers)), taken=taken)


def pool_overshoot(serving: Serving, rank: Rank) -> float:
    """Bytes that the pools of target and draft take beyond the budget, for each byte that is charged."""
    cells = pair_cells(serving, rank)
    return cells.excess.high_bytes / cells.certain_bytes if cells.certain_bytes else 0.0


def sglang_cache_lines(serving: Serving, defaults: EngineDefaults, rank: Rank) -> tuple[LineItem, ...]:
    """Need of context x batch as the engine charges it, and what the draft takes beyond its charge."""
    cells, slots = pair_cells(serving, rank), sequence_slots(serving, defaults)
    batch = serving.workload.batch
    low, high = batch * slots.low_bytes, batch * slots.high_bytes
    held = f"{low:,} to {high:,} slots" if low != high else f"{high:,} slots"
    own = cells.target
    cell_low = own.low_bytes(WINDOW_TENTHS)
    # Where every layer has a window, its tokens are dropped beyond it, and no layer makes the pool longer.
    at_rest = low * cell_low if own.whole.high_bytes else batch * own.need_at_rest(slots.low_bytes)
    text = f"{held} x {_span(cell_low, own.high_bytes)} B in {own.layers} layers"
    size = ByteRange(low_bytes=at_rest, high_bytes=high * own.high_bytes)
    lines = [_line("target_kv_cache", Owner.TARGET, size, text)]
    if draft_layers(serving):
        charged = cells.charged
        size = ByteRange(low_bytes=low * charged.low_bytes, high_bytes=high * charged.high_bytes)
        text = f"{held} x {_span(charged.low_bytes, charged.high_bytes)} B, as the engine charges its layers"
        lines.append(_line("draft_kv_cache", Owner.DRAFT, size, text))
    excess = cells.excess
    if excess.high_bytes:
        size = ByteRange(low_bytes=low * excess.low_bytes, high_bytes=high * excess.high_bytes)
        taken = _span(cells.taken.low_bytes, cells.taken.high_bytes)
        text = f"{held} x {_span(excess.low_bytes, excess.high_bytes)} B: the draft takes {taken} B a token"
        lines.append(_line("draft_kv_cache_excess", Owner.DRAFT, size, text, inside_budget=False))
    return tuple(lines)


def sequence_slots(serving: Serving, defaults: EngineDefaults) -> ByteRange:
    """Token slots of one full sequence (not bytes): its context; with speculation twice a step's tokens more."""
    tokens, page = serving.workload.context_tokens, defaults.block_size
    ahead = 2 * (serving.num_speculative_tokens + 1) if serving.draft is not None else 0
    return ByteRange(low_bytes=page_tokens(tokens, page), high_bytes=page_tokens(tokens + ahead, page))


def sglang_pool(serving: Serving, defaults: EngineDefaults, rank: Rank, available: ByteRange) -> EngineCache:
    """``available // cell``, in whole pages, at the low end of what is available: what is certain to be had."""
    cells, page = pair_cells(serving, rank), defaults.block_size
    pages = available.low_bytes // cells.certain_bytes // page if cells.certain_bytes else 0
    tokens = pages * page
    per_sequence = sequence_slots(serving, defaults).high_bytes
    kind = "full" if not cells.target.local else "full, windows counted whole"
    groups = [CacheGroup(layers=cells.target.layers, kind=kind, block_size=page)]
    if draft_layers(serving):
        groups.append(CacheGroup(layers=len(draft_layers(serving)), kind="draft", block_size=page))
    return EngineCache(
        available=available,
        block_size=page,
        bytes_per_block=cells.certain_bytes * page,
        blocks=pages,
        tokens=tokens,
        max_concurrency=min(tokens / per_sequence, float(defaults.max_num_seqs)),
        groups=tuple(groups),
    )


def _charge(target: TokenCell, count: int) -> ByteRange:
    """So many layers as the target's: of all its layers on average, or of its full ones where windows are apart.

    The engine rounds the sum down to a byte.
    """
    if not target.layers:
        return ByteRange.point(0)
    sizes = {target.high_bytes * (target.layers + count) // target.layers - target.high_bytes}
    full_layers = target.layers - target.local_layers
    if full_layers:
        sizes |= {size * count // full_layers for size in (target.whole.low_bytes, target.whole.high_bytes)}
    return ByteRange(low_bytes=min(sizes), high_bytes=max(sizes))


def _span(low: int, high: int) -> str:
    return f"{high:,}" if low == high else f"{low:,} to {high:,}"


def _line(label: str, owner: Owner, size: ByteRange, formula: str, *, inside_budget: bool = True) -> LineItem:
    return LineItem.of_size(
        size,
        group=Group.KV_CACHE,
        label=label,
        owner=owner,
        basis=Basis.DERIVED,
        source=SOURCE,
        formula=formula,
        inside_budget=inside_budget,
    )
