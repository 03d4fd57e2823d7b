"""What a trial's outcome means: the verdict, the document, and the refusal of figures that cannot be true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from model_catalog.errors import SpecplanError
from planner.errors import TrialError
from planner.speculation.prediction import Prediction
from planner.trial.protocol import TrialRequest
from planner.trial.result import Answer
from planner.trial.runner import Outcome
from planner.trial.statistics import Estimate, Measured, acceptance_intervals, measure, steady
from planner.trial.verdict import compare_acceptance, compare_memory, compare_speedup, outcome_of

#: A pass of k + 1 positions does all that a plain step does; one that is this much cheaper shows a baseline that
#: ran under worse conditions.
_CHEAPEST_VERIFICATION: Final = 0.6
_FEWEST_OF_A_TASK: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the plan said beforehand, for the trial's conditions: bytes, and the speedup where one is known."""

    memory_bytes: tuple[int, int] | None = None
    prediction: Prediction | None = None
    lines: tuple[Mapping[str, Any], ...] = ()  #: a serving engine's own lines, compared already


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What was seen of the devices while the child ran; None where the driver did not tell."""

    child_peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    others_change_bytes: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A trial with its figures. ``revisions`` are the commits of target and draft, None where there is none."""

    request: TrialRequest
    outcome: Outcome
    measured: Measured
    backend: str = "builtin"
    expected: Expected = Expected()
    watched: Watched = Watched()
    driver: str | None = None
    revisions: tuple[str | None, str | None] = (None, None)

    @property
    def answer(self) -> Answer:
        """Helps or hurts where the whole interval says so; with random weights it stays an assumption."""
        speedup = self.measured.speedup
        if self.request.weights == "dummy":
            return "assumed"
        if speedup.low is not None and speedup.low > 1:
            return "helps"
        if speedup.high is not None and speedup.high < 1:
            return "hurts"
        return "unsure"

    @property
    def held_bytes(self) -> int | None:
        """The allocator's peak, or without an allocator the bytes of weights, caches and logits."""
        memory = self.outcome.memory
        return memory.get("allocated_peak_bytes") or memory.get("tensor_bytes")

    @property
    def comparisons(self) -> tuple[Mapping[str, Any], ...]:
        """Planned beside measured, as far as both are known."""
        real = self.request.weights == "real"
        prediction = self.expected.prediction if real else None
        found = (
            *self.expected.lines,
            compare_memory(self.expected.memory_bytes, self.held_bytes),
            compare_speedup(prediction, self.measured.speedup),
            compare_acceptance(prediction, self.measured),
        )
        return tuple(item for item in found if item is not None)


def summarize(
    request: TrialRequest,
    outcome: Outcome,
    *,
    backend: str = "builtin",
    expected: Expected | None = None,
    watched: Watched | None = None,
    driver: str | None = None,
    revisions: tuple[str | None, str | None] = (None, None),
) -> Summary:
    """Pool the prompts' runs.

    Raises:
        TrialError: a speedup above the tokens per pass, or a verification cheaper than a plain step: no
            speculation can give that, the baseline is mismatched.
    """
    measured = measure(outcome.runs, seed=request.seed)
    length, speedup = measured.mean_acceptance_length, measured.speedup
    if (speedup.low or speedup.value) > (length.high or length.value):
        raise _mismatch(f"a speedup of {speedup.value:.2f} with {length.value:.2f} tokens a pass cannot be")
    verify, step = measured.verify_step_seconds, measured.target_step_seconds
    if verify is not None and verify < _CHEAPEST_VERIFICATION * step:
        raise _mismatch(
            f"a verification of {verify * 1e3:.2f} ms beside a plain step of {step * 1e3:.2f} ms cannot be"
        )
    return Summary(
        request=request,
        outcome=outcome,
        measured=measured,
        backend=backend,
        expected=expected or Expected(),
        watched=watched or Watched(),
        driver=driver,
        revisions=revisions,
    )


def trial_mapping(summary: Summary) -> dict[str, Any]:
    """The trial as the report's ``trial`` object."""
    found, outcome, request = summary.measured, summary.outcome, summary.request
    real = request.weights == "real"
    draft_step = found.draft_step_seconds
    return {
        **_head(request, summary.backend, summary.revisions),
        "device": {"name": outcome.device, "driver": summary.driver},
        "versions": dict(outcome.versions),
        "prompts": found.prompts,
        "prompts_failed": len(outcome.failures),
        "tokens": found.tokens,
        "num_speculative_tokens": found.num_speculative_tokens,
        "how": outcome.how,
        "answer": summary.answer,
        "acceptance_rate": found.acceptance_rate if real else None,
        "acceptance_per_position": list(found.acceptance_per_position) if real else [],
        "acceptance_intervals": _intervals(summary) if real else [],
        "accepted_per_drafted": found.accepted_per_drafted if real else None,
        "mean_acceptance_length": _estimate(found.mean_acceptance_length) if real else None,
        "baseline_tokens_per_second": found.baseline_tokens_per_second,
        "speculative_tokens_per_second": found.speculative_tokens_per_second if real else None,
        "speedup": _estimate(found.speedup) if real else None,
        "repeats_spread": outcome.repeats_spread if real else None,
        "t_target_seconds": found.target_step_seconds,
        "t_draft_seconds": draft_step,
        "t_verify_seconds": found.verify_step_seconds,
        "cost_ratio": None if draft_step is None else draft_step / found.target_step_seconds,
        "speedup_of_step_times": found.predicted_speedup if real else None,
        "memory": {
            "predicted_bytes": None if summary.expected.memory_bytes is None else summary.expected.memory_bytes[1],
            "tensor_bytes": outcome.memory.get("tensor_bytes"),
            "process_peak_bytes": outcome.memory.get("process_peak_bytes"),
            "allocated_peak_bytes": outcome.memory.get("allocated_peak_bytes"),
            "reserved_peak_bytes": outcome.memory.get("reserved_peak_bytes"),
            "device_peak_bytes": summary.watched.child_peak_bytes or summary.watched.device_peak_bytes,
        },
        "lossless": {"checked": found.compared, "diverged": found.diverged, "max_logit_gap": found.max_logit_gap},
        "by_task": by_task(summary) if real else {},
        "engine": dict(outcome.engine),
        "comparisons": [dict(item) for item in summary.comparisons],
        "outcome": outcome_of(summary.comparisons),
        "stopped_by": outcome.stopped_by,
        "notes": [*_stalls(found), *outcome.notes, *summary.watched.notes, *outcome.failures],
    }


def _stalls(found: Measured) -> list[str]:
    if not found.stalled:
        return []
    return [f"{found.stalled} of {found.stalled + found.prompts} runs left out: the machine stalled in them"]


def failed_mapping(request: TrialRequest, error: SpecplanError, *, backend: str) -> dict[str, Any]:
    """A trial without a result: every figure null, and the reason."""
    return {
        **_head(request, backend, (None, None)),
        "device": {"name": request.device, "driver": None},
        "versions": {},
        "prompts": 0,
        "prompts_failed": 0,
        "tokens": 0,
        **dict.fromkeys(
            (
                *("num_speculative_tokens", "how", "answer", "acceptance_rate", "accepted_per_drafted"),
                *("mean_acceptance_length", "baseline_tokens_per_second", "speculative_tokens_per_second"),
                *("speedup", "repeats_spread", "t_target_seconds", "t_draft_seconds", "t_verify_seconds"),
                *("cost_ratio", "speedup_of_step_times", "memory", "lossless", "stopped_by"),
            )
        ),
        "acceptance_per_position": [],
        "acceptance_intervals": [],
        "by_task": {},
        "engine": {},
        "comparisons": [],
        "outcome": "failed",
        "error": {"code": error.code, "message": error.message, "hint": error.hint},
        "notes": [error.message],
    }


def by_task(summary: Summary) -> dict[str, Mapping[str, Any]]:
    """Speedup and accepted tokens a pass of each task."""
    runs = steady(summary.outcome.runs)
    tasks = dict.fromkeys(run.task for run in runs)
    found: dict[str, Mapping[str, Any]] = {}
    for task in tasks:
        measured = measure([run for run in runs if run.task == task], seed=summary.request.seed)
        found[task] = {
            "prompts": measured.prompts,
            "speedup": _estimate(_of_task(measured.speedup, measured.prompts)),
            "mean_acceptance_length": _estimate(_of_task(measured.mean_acceptance_length, measured.prompts)),
        }
    return found


def _of_task(estimate: Estimate, prompts: int) -> Estimate:
    """Of two or three prompts an interval would be wider than anybody believes: the value stands alone."""
    return estimate if prompts >= _FEWEST_OF_A_TASK else replace(estimate, low=None, high=None)


def _head(request: TrialRequest, backend: str, revisions: Sequence[str | None]) -> dict[str, Any]:
    return {
        "backend": backend,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "target_revision": revisions[0],
        "draft_revision": revisions[1],
        "dtype": request.dtype,
        "weights": request.weights,
        "batch": request.batch,
        "temperature": request.temperature,
        "error": None,
    }


def _intervals(summary: Summary) -> list[list[float | None] | None]:
    intervals = acceptance_intervals(summary.outcome.runs, seed=summary.request.seed)
    return [None if interval is None else [interval.low, interval.high] for interval in intervals]


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _mismatch(text: str) -> TrialError:
    return TrialError(
        f"{text}: the two ways did not run under the same conditions",
        subject="trial",
        hint="run it again while nothing else uses the machine",
        code="trial_mismatch",
    )
