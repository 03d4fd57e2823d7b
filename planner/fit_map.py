"""Where in context x batch a set-up fits, may fit and cannot: the edges of these regions, batch by batch. Pure.

Each edge is a search over ``make_plan`` with everything else held fixed: needs grow with context and batch (a
property test holds that), so at one batch there is one longest context that fits for certain, one beyond which it
cannot fit, and one up to which the draft keeps to its share. Draws nothing.
"""

from collections.abc import Callable, Iterator, Sequence
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
    states one. ``unknown``: a reading or a size is missing, so of what is not impossible nothing is known.
    """

    shortest_tokens: int
    longest_tokens: int | None
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
    limit = longest_context(serving)
    rows: list[FitEdges] = []
    unknown = False
    for batch in _batches(serving.workload.batch):
        column = _Batch(serving, devices, engine, batch)
        first = column.plan_at(shortest)
        if first is None:
            break
        unknown = unknown or first.verdict.answer is Answer.UNKNOWN
        row = column.edges(limit, rows[-1] if rows else None)
        rows.append(row)
        if batch > serving.workload.batch and (row.possible_tokens or 0) < shortest:
            break
    return FitMap(
        shortest_tokens=shortest,
        longest_tokens=limit if limit < MOST_CONTEXT else None,
        rows=tuple(rows),
        unknown=unknown,
    )


class _Batch:
    """Plans at one batch, each made once."""

    def __init__(
        self, serving: Serving, devices: Sequence[Device], engine: EngineProfile, batch: int
    ) -> None:
        self._serving = serving
        self._devices = devices
        self._engine = engine
        self._batch = batch
        self._plans: dict[int, Plan | None] = {}

    def plan_at(self, context_tokens: int) -> Plan | None:
        """The plan at this context; None where the engine refuses it."""
        if context_tokens not in self._plans:
            workload = replace(self._serving.workload, context_tokens=context_tokens, batch=self._batch)
            try:
                plan = make_plan(
                    with_workload(self._serving, workload), self._devices, self._engine, with_pool=False
                )
            except UsageError:
                self._plans[context_tokens] = None
            else:
                self._plans[context_tokens] = plan
        return self._plans[context_tokens]

    def edges(self, limit: int, before: FitEdges | None) -> FitEdges:
        """The three edges, each sought from where the smaller batch ``before`` had it."""
        asked = self._serving.workload

        def edge(holds: Callable[[Plan], bool], known: int | None) -> int | None:
            guess = asked.context_tokens * asked.batch // self._batch
            if before is not None:
                guess = 1 if known is None else known * before.batch // self._batch
            guess = max(1, min(guess, limit))
            return largest_that(
                lambda tokens: (plan := self.plan_at(tokens)) is not None and holds(plan),
                limit,
                guess,
                step=max(1, guess // _STEP_PART),
            )

        possible = edge(
            lambda plan: plan.verdict.answer is not Answer.DOES_NOT_FIT, before and before.possible_tokens
        )
        fits = edge(lambda plan: plan.verdict.answer is Answer.FITS, before and before.fits_tokens)
        share = limit
        if self._serving.draft is not None:
            share = edge(lambda plan: not plan.draft_over_budget, before and before.share_tokens)
        return FitEdges(batch=self._batch, fits_tokens=fits, possible_tokens=possible, share_tokens=share)


def _batches(asked: int) -> Iterator[int]:
    """Powers of two, and the batch asked for."""
    batch = 1
    while batch <= max(MOST_BATCH, asked):
        yield batch
        if batch < asked < 2 * batch:
            yield asked
        batch *= 2


def _power_below(number: int) -> int:
    """The largest power of two that is not above ``number``."""
    return 1 << (number.bit_length() - 1)
