"""From the runs of single prompts to acceptance, lengths and a speedup with its interval.

Source of the estimates: Leviathan et al. (arXiv:2211.17192) for tokens per pass; the interval is a percentile
bootstrap over prompts (Efron), for prompts, not tokens, are what is sampled independently.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from planner.trial.protocol import PromptRun

RESAMPLES: Final = 2000
_LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval; the bounds are None where fewer than two prompts were measured."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the prompts say together.

    ``acceptance_per_position[i]``: how often proposal i was accepted where all before it were (conditional).
    ``acceptance_rate``: accepted over judged proposals, the conditional rate over all positions.
    ``accepted_per_drafted``: accepted over all drafted, judged or not (what engines log).
    ``predicted_speedup``: from the step times of this very run, L t_T / (k t_D + t_V).
    """

    prompts: int
    tokens: int
    num_speculative_tokens: int
    acceptance_per_position: tuple[float | None, ...]
    acceptance_rate: float | None
    accepted_per_drafted: float
    mean_acceptance_length: Estimate
    baseline_tokens_per_second: float
    speculative_tokens_per_second: float
    speedup: Estimate
    target_step_seconds: float
    draft_step_seconds: float
    verify_step_seconds: float
    predicted_speedup: float
    diverged: int
    max_logit_gap: float | None


def measure(runs: Sequence[PromptRun], *, seed: int = 0) -> Measured:
    """Pool the runs of one k.

    Raises:
        ValueError: no run at all.
    """
    if not runs:
        raise ValueError("no prompt was measured")
    k = max(len(run.accepted_counts) for run in runs) - 1
    counts = [sum(_count(run, i) for run in runs) for i in range(k + 1)]
    rounds = sum(run.rounds for run in runs)
    tokens = sum(run.tokens for run in runs)
    baseline = sum(run.baseline_seconds for run in runs)
    speculative = sum(run.speculative_seconds for run in runs)
    accepted = sum(i * count for i, count in enumerate(counts))
    reached = [sum(counts[i:]) for i in range(k + 1)]
    # A round that accepts i < k judges i + 1 proposals, one that accepts all judges k.
    judged = sum(min(i + 1, k) * count for i, count in enumerate(counts))
    drafted = sum(run.drafted for run in runs)
    step, draft, verify = (
        baseline / tokens,
        sum(run.draft_seconds for run in runs) / max(drafted, 1),
        sum(run.verify_seconds for run in runs) / rounds,
    )
    length = 1 + accepted / rounds
    gaps = [run.logit_gap for run in runs if run.logit_gap is not None]
    return Measured(
        prompts=len(runs),
        tokens=tokens,
        num_speculative_tokens=k,
        acceptance_per_position=tuple(reached[i + 1] / reached[i] if reached[i] else None for i in range(k)),
        acceptance_rate=accepted / judged if judged else None,
        accepted_per_drafted=accepted / drafted if drafted else 0.0,
        mean_acceptance_length=_bootstrap(runs, _length, seed),
        baseline_tokens_per_second=tokens / baseline,
        speculative_tokens_per_second=tokens / speculative,
        speedup=_bootstrap(runs, _speedup, seed),
        target_step_seconds=step,
        draft_step_seconds=draft,
        verify_step_seconds=verify,
        predicted_speedup=length * step / (k * draft + verify),
        diverged=sum(not run.same_tokens for run in runs),
        max_logit_gap=max(gaps) if gaps else None,
    )


def tokens_per_pass(conditional: Sequence[float | None], k: int) -> float:
    """L of the first ``k`` positions: 1 + the sum of the products of their conditional rates.

    A position that was never reached counts as never accepted.
    """
    length, survives = 1.0, 1.0
    for rate in conditional[:k]:
        survives *= rate or 0.0
        length += survives
    return length


def _count(run: PromptRun, accepted: int) -> int:
    return run.accepted_counts[accepted] if accepted < len(run.accepted_counts) else 0


def _speedup(runs: Sequence[PromptRun]) -> float:
    return sum(run.baseline_seconds for run in runs) / sum(run.speculative_seconds for run in runs)


def _length(runs: Sequence[PromptRun]) -> float:
    accepted = sum(i * count for run in runs for i, count in enumerate(run.accepted_counts))
    return 1 + accepted / sum(run.rounds for run in runs)


def _bootstrap(
    runs: Sequence[PromptRun], statistic: Callable[[Sequence[PromptRun]], float], seed: int
) -> Estimate:
    value = statistic(runs)
    if len(runs) < 2:
        return Estimate(value=value, low=None, high=None)
    chance = random.Random(seed)  # noqa: S311 - resampling, no secret
    drawn = sorted(statistic(chance.choices(runs, k=len(runs))) for _ in range(RESAMPLES))
    tail = round((1 - _LEVEL) / 2 * RESAMPLES)
    return Estimate(value=value, low=drawn[tail], high=drawn[-1 - tail])
