"""What a trial's outcome means: the verdict, the document, and the refusal of figures that cannot be true."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from planner.errors import TrialError
from planner.trial.protocol import TrialRequest
from planner.trial.runner import Outcome
from planner.trial.statistics import Estimate, Measured, measure

Answer = Literal["helps", "hurts", "unsure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A trial with its figures. ``planned_bytes``: what the plan says of the tensors that the child holds."""

    request: TrialRequest
    outcome: Outcome
    measured: Measured
    planned_bytes: int | None = None

    @property
    def answer(self) -> Answer:
        """Helps or hurts where the whole interval says so."""
        speedup = self.measured.speedup
        if speedup.low is not None and speedup.low > 1:
            return "helps"
        if speedup.high is not None and speedup.high < 1:
            return "hurts"
        return "unsure"

    @property
    def tensor_bytes(self) -> int | None:
        """Bytes of the weights, caches and logits that the child held at most."""
        return self.outcome.memory.get("tensor_bytes")


def summarize(request: TrialRequest, outcome: Outcome, planned_bytes: int | None = None) -> Summary:
    """Pool the prompts' runs.

    Raises:
        TrialError: a speedup above the tokens per pass, which no speculation can give: the baseline is mismatched.
    """
    measured = measure(outcome.runs, seed=request.seed)
    length, speedup = measured.mean_acceptance_length, measured.speedup
    if (speedup.low or speedup.value) > (length.high or length.value):
        raise TrialError(
            f"a speedup of {speedup.value:.2f} with {length.value:.2f} tokens a pass cannot be: the two ways "
            "did not run under the same conditions",
            subject="trial",
            hint="run it again while nothing else uses the machine",
            code="trial_mismatch",
        )
    return Summary(request=request, outcome=outcome, measured=measured, planned_bytes=planned_bytes)


def trial_mapping(summary: Summary) -> dict[str, Any]:
    """The trial as the report's ``trial`` object."""
    found, outcome = summary.measured, summary.outcome
    return {
        "backend": "builtin",
        "device": {"name": outcome.device},
        "versions": dict(outcome.versions),
        "target_revision": None,
        "draft_revision": None,
        "dtype": summary.request.dtype,
        "prompts": found.prompts,
        "prompts_failed": len(outcome.failures),
        "tokens": found.tokens,
        "num_speculative_tokens": found.num_speculative_tokens,
        "batch": summary.request.batch,
        "acceptance_rate": found.acceptance_rate,
        "acceptance_per_position": list(found.acceptance_per_position),
        "accepted_per_drafted": found.accepted_per_drafted,
        "mean_acceptance_length": _estimate(found.mean_acceptance_length),
        "baseline_tokens_per_second": found.baseline_tokens_per_second,
        "speculative_tokens_per_second": found.speculative_tokens_per_second,
        "speedup": _estimate(found.speedup),
        "t_target_seconds": found.target_step_seconds,
        "t_draft_seconds": found.draft_step_seconds,
        "t_verify_seconds": found.verify_step_seconds,
        "cost_ratio": None
        if found.draft_step_seconds is None
        else found.draft_step_seconds / found.target_step_seconds,
        "speedup_of_step_times": found.predicted_speedup,
        "memory": {
            "predicted_bytes": summary.planned_bytes,
            "tensor_bytes": summary.tensor_bytes,
            "allocated_peak_bytes": outcome.memory.get("allocated_peak_bytes"),
            "reserved_peak_bytes": outcome.memory.get("reserved_peak_bytes"),
            "device_peak_bytes": None,
        },
        "lossless": {
            "checked": found.compared,
            "diverged": found.diverged,
            "max_logit_gap": found.max_logit_gap,
        },
        "by_task": by_task(summary),
        "stopped_by": outcome.stopped_by,
        "notes": list(outcome.failures),
    }


def by_task(summary: Summary) -> dict[str, Mapping[str, Any]]:
    """Speedup and accepted tokens a pass of each task."""
    tasks = dict.fromkeys(run.task for run in summary.outcome.runs)
    found: dict[str, Mapping[str, Any]] = {}
    for task in tasks:
        measured = measure([run for run in summary.outcome.runs if run.task == task], seed=summary.request.seed)
        found[task] = {
            "prompts": measured.prompts,
            "speedup": _estimate(measured.speedup),
            "mean_acceptance_length": _estimate(measured.mean_acceptance_length),
        }
    return found


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
