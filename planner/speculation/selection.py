"""Which drafts will do, in which order, and why the others will not.

Pure: gets plans, compatibility and predictions, and ranks. Rejected drafts are kept, each with its reasons.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, Literal

from model_catalog.drafts import Candidate
from model_catalog.units import ceil_share
from planner.engines.base import Draft
from planner.planning import Plan
from planner.speculation.compatibility import Check, Compatibility, CompatibilityVerdict
from planner.speculation.prediction import Prediction
from planner.verdict import Answer, Reason

#: Below this, speculation is not worth the trouble even if the estimate is right.
WORTH_IT: Final = 1.05
#: Codes of rejections that more room would lift.
ROOM_REASONS: Final = frozenset({"does_not_fit", "over_draft_budget", "reading_missing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A draft on the table: where it comes from, what the engine says to the pair, what it may bring.

    ``compatibility`` and ``prediction`` are None where nobody asked (a plan for memory alone). ``elsewhere`` is
    what other engines that were asked about say to the same pair.
    """

    draft: Draft
    candidate: Candidate | None = None
    compatibility: Compatibility | None = None
    prediction: Prediction | None = None
    elsewhere: tuple[Compatibility, ...] = ()

    @property
    def name(self) -> str:
        """The draft's repo, or its method's name where it has no weights of its own."""
        return self.draft.method.value if self.draft.model is None else self.draft.model.snapshot.repo_id

    @property
    def checks(self) -> tuple[Check, ...]:
        """What the engine's rule looked at; nothing where nobody asked."""
        return () if self.compatibility is None else self.compatibility.checks


def rejections(offer: Offer, plan: Plan | None) -> tuple[Reason, ...]:
    """Why this draft will not do; empty where it will. ``plan`` None: the pair cannot be planned at all."""
    reasons: list[Reason] = []
    compatibility = offer.compatibility
    if compatibility is not None and compatibility.verdict is CompatibilityVerdict.REFUSED:
        reasons += [
            Reason(code="incompatible", text=check.text)
            for check in compatibility.checks
            if check.passed is False and check.refuses
        ] or [Reason(code="incompatible", text=f"{compatibility.engine} refuses this pair")]
    if plan is not None:
        reasons += _memory_rejections(plan)
    prediction = offer.prediction
    if prediction is not None and prediction.num_speculative_tokens == 0:
        text = "plain decoding is predicted to be as fast as any k that was allowed"
        reasons.append(Reason(code="off_wins", text=text))
    elif prediction is not None and prediction.speedup is not None and prediction.speedup.high < 1:
        how = "slower, measured here" if prediction.measured else "slower at best"
        text = f"{how}: {prediction.speedup.low:.2f} to {prediction.speedup.high:.2f} times plain decoding"
        reasons.append(Reason(code="slower", text=text))
    return tuple(reasons)


def _memory_rejections(plan: Plan) -> list[Reason]:
    reasons: list[Reason] = []
    if plan.verdict.answer is Answer.DOES_NOT_FIT:
        reasons.append(Reason(code="does_not_fit", text="target and draft together do not fit"))
    if plan.verdict.answer is Answer.UNKNOWN:
        text = next((reason.text for reason in plan.verdict.reasons), "a reading of the device is missing")
        reasons.append(Reason(code="reading_missing", text=text))
    budget = plan.draft_budget
    if budget is not None and budget.within is False and budget.share is not None:
        text = f"the draft takes {ceil_share(budget.share):.1%} of the device, more than {budget.limit_share:.1%}"
        reasons.append(Reason(code="over_draft_budget", text=text))
    return reasons


def promise(prediction: Prediction | None, footprint_bytes: int) -> tuple[float, int]:
    """Sort key, best first: the geometric middle of the predicted range, then the smaller footprint.

    Drafts without a prediction come last. The middle orders drafts; it is never shown as a figure.
    """
    if prediction is None or prediction.speedup is None:
        return (0.0, footprint_bytes)
    return (-sqrt(max(prediction.speedup.low, 0.0) * prediction.speedup.high), footprint_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Whether speculation pays for this request: yes, no or depends, with reasons."""

    answer: Literal["yes", "no", "depends"]
    reasons: tuple[Reason, ...]


def overall_worth(predictions: Sequence[Prediction], reasons: Sequence[Reason]) -> Worth:
    """Yes if the best draft's low end pays, no if no high end does, else it depends."""
    ranges = [prediction.speedup for prediction in predictions if prediction.speedup is not None]
    if not predictions:
        return Worth(answer="no", reasons=tuple(reasons))
    if not ranges:
        return Worth(answer="depends", reasons=tuple(reasons))
    if max(span.low for span in ranges) >= WORTH_IT:
        return Worth(answer="yes", reasons=tuple(reasons))
    if max(span.high for span in ranges) < WORTH_IT:
        return Worth(answer="no", reasons=tuple(reasons))
    return Worth(answer="depends", reasons=tuple(reasons))
