"""Before the measuring: shapes are warmed, and where k is open it is chosen, both within a share of the time."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from planner.trial.protocol import DEEPEST_SWEPT
from planner.trial.statistics import tokens_per_pass
from planner.trial.worker.decoding import Decoded
from planner.trial.worker.pair import Group, Pair

#: What a sweep looks at after the deepest, the likeliest first, for the time may be short.
_SWEPT: Final = (4, 2, 6, 3, 5, 1)
_WARM_TOKENS: Final = 24
#: A round or two warm a depth; one that gets fewer than these to be warmed and timed in tells nothing.
_WARM_DEPTH_TOKENS: Final = 3
_FEWEST_ROUNDS: Final = 4
_SWEEP_TOKENS: Final = 48
_SWEEP_GROUPS: Final = 3


def warm(pair: Pair, group: Group, k: int, *, until: float) -> Decoded:
    """The baseline and depth ``k`` once: first calls choose kernels and grow pools.

    ``until``: when to break off, by ``time.perf_counter``; each of the two takes at least one step.
    """
    pair.plain(group, _WARM_TOKENS, until=(time.perf_counter() + until) / 2)
    return pair.speculative(group, _WARM_TOKENS, k, until=until)


def best_depth(pair: Pair, groups: Sequence[Group], *, until: float) -> int:
    """The k with the most tokens a second, by the deepest depth's acceptance and each depth's own step times.

    Times fewer k where the time is short, and the deepest alone where there is none.
    """
    sweep = _Sweep()
    first = warm(pair, groups[0], DEEPEST_SWEPT, until=_share(until, 3))
    sweep.learn(first)
    half = _share(until, 2)
    deep = first
    for group in groups[-_SWEEP_GROUPS:]:
        if time.perf_counter() >= half:
            break
        deep = pair.speculative(group, _SWEEP_TOKENS, DEEPEST_SWEPT, until=half)
        sweep.learn(deep)
    sweep.time(DEEPEST_SWEPT, deep)
    for left, k in zip(range(len(_SWEPT), 0, -1), _SWEPT, strict=True):
        mine = _share(until, left)
        # The deepest takes the longest.
        if time.perf_counter() + _FEWEST_ROUNDS * sweep.round_seconds(DEEPEST_SWEPT) > until:
            break
        pair.speculative(groups[-1], _WARM_DEPTH_TOKENS, k, until=mine)
        sweep.time(k, pair.speculative(groups[-1], _SWEEP_TOKENS, k, until=mine))
    return sweep.best()


def _share(until: float, number: int) -> float:
    """The end of one of ``number`` equal parts of what is left."""
    now = time.perf_counter()
    return now + (until - now) / number


@dataclass(slots=True)
class _Sweep:
    """What a sweep has learned: how often the deepest accepted how many, and what a round of each k takes.

    A k that was not timed is taken as the deepest less the draft steps that it spares: no dearer at least.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (DEEPEST_SWEPT + 1))
    seconds: dict[int, float] = field(default_factory=dict)
    draft_step_seconds: float = 0.0

    def learn(self, deep: Decoded) -> None:
        """Take in the rounds of the deepest depth."""
        self.counts = [a + b for a, b in zip(self.counts, deep.accepted_counts, strict=True)]

    def time(self, k: int, decoded: Decoded) -> None:
        """Take in the time of depth ``k``."""
        self.seconds[k] = decoded.seconds / decoded.passes
        if k == DEEPEST_SWEPT:
            self.draft_step_seconds = decoded.draft_seconds / (k * decoded.passes)

    def round_seconds(self, k: int) -> float:
        """Of a depth that was timed."""
        return self.seconds[k]

    def best(self) -> int:
        """The k that promises most."""
        reached = [sum(self.counts[i:]) for i in range(len(self.counts))]
        rates = [reached[i + 1] / reached[i] if reached[i] else None for i in range(len(reached) - 1)]
        deepest = self.seconds[DEEPEST_SWEPT]
        spared = {k: deepest - (DEEPEST_SWEPT - k) * self.draft_step_seconds for k in range(1, DEEPEST_SWEPT)}
        seconds = spared | self.seconds
        return max(sorted(seconds), key=lambda k: tokens_per_pass(rates, k) / seconds[k])
