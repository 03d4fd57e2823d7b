"""Where in context x batch a set-up fits, may fit and cannot: the edges of these regions, batch by batch. Pure.

Each edge is a search over ``make_plan`` with everything else held fixed: needs grow with context and batch (a
property test holds that), so at one batch there is one longest context that fits for certain, one beyond which it
cannot fit, and one up to which the draft keeps to its share. Draws nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from model_catalog.errors import UsageError
from planner.capacity import MOST_BATCH, MOST_CONTEXT, largest_that, longest_context, with_workload
from planner.devices import Device
from planner.engines.base import EngineProfile, Serving
from planner.planning import Plan, make_plan
from planner.verdict import Answer

#: Contexts below this are of no interest, unless one was asked for.
_SHORTEST: Final = 512
#: A search begins with steps of this part of its first guess.
_STEP_PART: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FitEdges:
    """The longest contexts at one batch, in tokens; None: not even one token.

    Up to ``fits_tokens`` it fits for certain; up to ``possible_tokens`` it is not impossible; up to
    ``share_tokens`` the draft is not over its share of the device.
    """

    batch: int
    fits_tokens: int | None
    possible_tokens: int | None
    share_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitMap:
    """Edges at rising batches, the batch asked for among them.

    ``shortest_tokens``: where the map begins; at its last row nothing is possible from there on, or the engine
    takes no more sequences. ``longest_tokens``: the longest context that the models allow, None where no config
    states one; ``most_batch``: the most sequences that the engine takes, None where the map ends before that;
    ``searched_tokens``: no edge is sought beyond it. ``unknown``: a reading or a size is missing, so
    of what is not impossible nothing is known.
    """

    shortest_tokens: int
    longest_tokens: int | None
    searched_tokens: int
    most_batch: int | None
    rows: tuple[FitEdges, ...]
    unknown: bool


def shortest_context(serving: Serving) -> int:
    """Where a map of this set-up should begin: a power of two below the context asked for."""
    return max(1, min(_SHORTEST, _power_below(serving.workload.context_tokens) // 2))


def map_fit(
    serving: Serving, devices: Sequence[Device], engine: EngineProfile, *, shortest_tokens: int | None = None
) -> FitMap:
    """The map around the context and batch of ``serving``; it begins at ``shortest_context`` if nothing is said.

    Raises:
        UsageError, ParallelismError: what the engine would refuse at the context and batch asked for.
    """
    make_plan(serving, devices, engine, with_pool=False)
    shortest = shortest_context(serving) if shortest_tokens is None else shortest_tokens
    plans = _Plans(serving, devices, engine)
    stated = longest_context(serving)
    limit = max(stated, serving.workload.context_tokens)  # a longer one is refused, unless none is stated
    rows: list[FitEdges] = []
    unknown, refused = False, False
    for batch in _batches(serving.workload.batch, plans.corners(limit)):
        first = plans.at(shortest, batch)
        if first is None:
            refused = True
            break
        unknown = unknown or first.verdict.answer is Answer.UNKNOWN
        row = plans.edges(batch, limit, rows[-1] if rows else None)
        rows.append(row)
        if batch > serving.workload.batch and (row.possible_tokens or 0) < shortest:
            break
    most = None
    if refused and rows:
        most = plans.most_batch(shortest, rows[-1].batch)
        if most > rows[-1].batch:
            rows.append(plans.edges(most, limit, rows[-1]))
    return FitMap(
        shortest_tokens=shortest,
        longest_tokens=stated if stated < MOST_CONTEXT else None,
        searched_tokens=limit,
        most_batch=most,
        rows=tuple(rows),
        unknown=unknown,
    )


def _is_possible(plan: Plan) -> bool:
    return plan.verdict.answer is not Answer.DOES_NOT_FIT


def _is_certain(plan: Plan) -> bool:
    return plan.verdict.answer is Answer.FITS


def _keeps_share(plan: Plan) -> bool:
    return not plan.draft_over_budget


class _Plans:
    """Plans of one set-up at other contexts and batches, each made once."""

    def __init__(self, serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> None:
        self._serving = serving
        self._devices = devices
        self._engine = engine
        self._made: dict[tuple[int, int], Plan | None] = {}

    def at(self, context_tokens: int, batch: int) -> Plan | None:
        """The plan there; None where the engine refuses it."""
        place = (context_tokens, batch)
        if place not in self._made:
            workload = replace(self._serving.workload, context_tokens=context_tokens, batch=batch)
            try:
                self._made[place] = make_plan(
                    with_workload(self._serving, workload), self._devices, self._engine, with_pool=False
                )
            except UsageError:
                self._made[place] = None
        return self._made[place]

    def most_batch(self, context_tokens: int, taken: int) -> int:
        """The most sequences that the engine takes, given that it takes ``taken`` and not twice as many."""
        takes = self._holder(lambda _: True, context_tokens=context_tokens)
        return largest_that(takes, 2 * taken, taken, step=max(1, taken // _STEP_PART)) or taken

    def corners(self, limit: int) -> set[int]:
        """The largest batches at which the longest context still has each of the answers: an edge bends there."""
        asked = self._serving.workload
        guess = max(1, asked.context_tokens * asked.batch // limit)
        found = {
            largest_that(self._holder(holds, context_tokens=limit), MOST_BATCH, guess)
            for holds in self._questions()
        }
        return {batch for batch in found if batch is not None}

    def edges(self, batch: int, limit: int, before: FitEdges | None) -> FitEdges:
        """The three edges at one batch, each sought from where the smaller batch ``before`` had it."""
        asked = self._serving.workload

        def edge(holds: Callable[[Plan], bool], known: int | None) -> int | None:
            guess = asked.context_tokens * asked.batch // batch
            if before is not None:
                guess = (known or 1) * before.batch // batch
            guess = max(1, min(guess, limit))
            step = max(1, guess // _STEP_PART)
            return largest_that(self._holder(holds, batch=batch), limit, guess, step=step)

        possible = edge(_is_possible, None if before is None else before.possible_tokens)
        fits = edge(_is_certain, None if before is None else before.fits_tokens)
        share: int | None = limit
        if self._serving.draft is not None:
            share = edge(_keeps_share, None if before is None else before.share_tokens)
        return FitEdges(batch=batch, fits_tokens=fits, possible_tokens=possible, share_tokens=share)

    def _questions(self) -> tuple[Callable[[Plan], bool], ...]:
        return (_is_possible, _is_certain, *([_keeps_share] if self._serving.draft is not None else []))

    def _holder(
        self,
        holds: Callable[[Plan], bool],
        *,
        context_tokens: int | None = None,
        batch: int | None = None,
    ) -> Callable[[int], bool]:
        """Whether the answer holds at a number, of tokens where ``batch`` is given, else of sequences."""

        def held(number: int) -> bool:
            plan = self.at(
                number if context_tokens is None else context_tokens, number if batch is None else batch
            )
            return plan is not None and holds(plan)

        return held


def _batches(asked: int, corners: Iterable[int]) -> Iterator[int]:
    """Powers of two, the batch asked for, and where edges bend with the batch after it, in rising order."""
    bends = [batch for corner in corners for batch in (corner, corner + 1)]
    powers = [1 << power for power in range(max(MOST_BATCH, asked).bit_length())]
    yield from sorted({asked, *bends, *powers})


def _power_below(number: int) -> int:
    """The largest power of two that is not above ``number``."""
    return 1 << (number.bit_length() - 1)
