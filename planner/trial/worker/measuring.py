"""The order of a trial: warm every shape, choose k, then run prompts both ways until the interval is narrow."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

from planner.trial.prompts import groups
from planner.trial.protocol import Event, PromptRun, TrialRequest
from planner.trial.statistics import measure, steady
from planner.trial.worker.caches import CachedModel
from planner.trial.worker.depth import best_depth, warm
from planner.trial.worker.faults import code_of
from planner.trial.worker.pair import Group, Pair

#: Warming and choosing k take at most this share of the time, and no longer than these seconds.
_BEFORE_SHARE: Final = 1 / 3
_BEFORE_SECONDS: Final = 90.0
#: A round of all tasks; intervals are looked at after whole rounds, in which no task weighs more than another.
_TASKS: Final = 6
#: Two rounds of all tasks before the interval may end the trial; one where every run holds several prompts.
_LEAST_RUNS: Final = 12
_LEAST_RUNS_OF_BATCHES: Final = 6
_NARROW_ENOUGH: Final = 0.05


class Trial:
    """One trial of one pair; what it says goes to ``send``. ``tokenizer`` None: the weights are dummies."""

    def __init__(
        self,
        target: CachedModel,
        draft: CachedModel,
        tokenizer: Any,
        request: TrialRequest,
        send: Callable[[Event], None],
    ) -> None:
        self._pair = Pair(target, draft, None if request.weights == "dummy" else tokenizer, request)
        self._request = request
        self._send = send

    def run(self) -> None:
        """Measure; ends with the event ``result``, ``seconds`` after the start and one more run at most.

        Raises:
            RuntimeError: out of memory, or every prompt failed.
            UncroppableCacheError: a model cannot take rejected tokens back.
        """
        start = time.perf_counter()
        end = start + self._request.seconds
        all_groups = groups(self._request.batch)
        k = self._prepare(all_groups, start + min(_BEFORE_SHARE * self._request.seconds, _BEFORE_SECONDS))
        self._send(Event(name="warmed", content={"num_speculative_tokens": k}))
        runs, failures, stopped_by = self._measure(all_groups, k, end)
        self._send(
            Event(
                name="result",
                content={
                    "num_speculative_tokens": k,
                    "stopped_by": stopped_by,
                    "failures": failures,
                    "memory": self._pair.memory(),
                    "repeats_spread": repeats_spread(runs),
                    "how": "eager",
                },
            )
        )

    def _prepare(self, all_groups: Sequence[Group], until: float) -> int:
        k = self._request.num_speculative_tokens
        if k is None:
            return best_depth(self._pair, all_groups, until=until)
        warm(self._pair, all_groups[0], k, until=until)
        return k

    def _measure(self, all_groups: Sequence[Group], k: int, end: float) -> tuple[list[PromptRun], list[str], str]:
        """The runs, what failed, and why it ended."""
        runs: list[PromptRun] = []
        failures: list[str] = []
        for number, group in enumerate(all_groups):
            if runs and time.perf_counter() >= end:
                return runs, failures, "time"
            try:
                run = self._pair.both_ways(group, k, number=number)
            except (RuntimeError, IndexError) as error:
                if code_of(error) is not None:
                    raise  # memory or device are gone: no further prompt can fare better
                failures.append(f"{'+'.join(prompt.name for prompt in group)}: {error}"[:300])
                continue
            runs.append(run)
            self._send(Event(name="progress", content={"run": asdict(run), "of": len(all_groups)}))
            if self._is_narrow(runs):
                return runs, failures, "interval"
        if not runs:
            raise RuntimeError(f"every prompt failed, the first with {failures[0]}")
        return runs, failures, "prompts"

    def _is_narrow(self, runs: Sequence[PromptRun]) -> bool:
        least = _LEAST_RUNS if self._request.batch == 1 else _LEAST_RUNS_OF_BATCHES
        if len(runs) < least or len(runs) % _TASKS:
            return False
        speedup = measure(runs).speedup
        if speedup.low is None or speedup.high is None:
            return False
        return (speedup.high - speedup.low) / 2 < _NARROW_ENOUGH * speedup.value


def repeats_spread(runs: Sequence[PromptRun]) -> float | None:
    """How far the speedups of the first and the second half of the runs lie apart, relative to that of all.

    None where there are fewer than two runs. The halves hold other prompts, so the machine's own drift is less.
    """
    runs = steady(runs)
    half = len(runs) // 2
    if not half:
        return None
    return abs(_speedup(runs[:half]) - _speedup(runs[half:])) / _speedup(runs)


def _speedup(runs: Sequence[PromptRun]) -> float:
    speculative = sum(run.speculative_tokens for run in runs) / sum(run.speculative_seconds for run in runs)
    baseline = sum(run.baseline_tokens for run in runs) / sum(run.baseline_seconds for run in runs)
    return speculative / baseline
