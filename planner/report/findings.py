"""What a `fit` found, ready to be told: plans with their inverse answers, the drafts judged, the exit answer.

Pure. Does not print, and does not decide what a plan holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from model_catalog.units import ceil_share
from planner.capacity import max_batch, max_context_tokens, with_workload
from planner.devices import Device
from planner.engines.base import Draft, EngineProfile, Serving
from planner.plan import Plan, make_plan
from planner.report.remedies import Remedy, find_remedies
from planner.verdict import Answer, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceSaving:
    """What the engine's sequence slots cost beyond ``batch``: bytes freed on the worst rank by lowering them."""

    max_num_seqs: int
    lowered_to: int
    saved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """One plan with the answers to "how far could it go" and "what would help"."""

    plan: Plan
    max_context_tokens: int | None = None
    max_batch: int | None = None
    sequence_saving: SequenceSaving | None = None
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedDraft:
    """A draft with the pair's set-up; rejected ones carry their reasons."""

    draft: Draft
    set_up: SetUp
    accepted: bool
    reasons: tuple[Reason, ...]

    @property
    def name(self) -> str:
        """The draft's repo, or its method's name where it has no weights of its own."""
        return self.draft.method.value if self.draft.model is None else self.draft.model.snapshot.repo_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that one `fit` found on these devices."""

    devices: tuple[Device, ...]
    alone: SetUp
    drafts: tuple[JudgedDraft, ...]

    @property
    def chosen(self) -> JudgedDraft | None:
        """The first accepted draft."""
        return next((draft for draft in self.drafts if draft.accepted), None)

    @property
    def recommended(self) -> SetUp:
        """Target and chosen draft, or the target alone."""
        return self.chosen.set_up if self.chosen else self.alone

    @property
    def shown(self) -> JudgedDraft | None:
        """The draft whose table people see: the chosen one, or the first asked for."""
        return self.chosen or (self.drafts[0] if self.drafts else None)

    @property
    def answer(self) -> Answer:
        """The answer that becomes the exit code: a draft was asked for and none will do is a "no"."""
        if not self.drafts or self.chosen is not None:
            return self.recommended.plan.verdict.answer
        if self.alone.plan.verdict.answer is Answer.UNKNOWN:
            return Answer.UNKNOWN
        return Answer.DOES_NOT_FIT


def find(
    alone: Serving,
    drafts: Sequence[Draft],
    devices: Sequence[Device],
    engine: EngineProfile,
    *,
    remedies: bool = True,
) -> Findings:
    """Plan the target alone and with each draft.

    Raises:
        UsageError, ParallelismError: what the engine would refuse.
    """
    judged = tuple(_judge_draft(alone, draft, devices, engine, remedies=remedies) for draft in drafts)
    if any(draft.accepted for draft in judged):
        bare = SetUp(plan=make_plan(alone, devices, engine))  # nobody asks how far the target alone could go
    else:
        bare = set_up(alone, devices, engine, remedies=remedies and not drafts)
    return Findings(devices=tuple(devices), alone=bare, drafts=judged)


def set_up(serving: Serving, devices: Sequence[Device], engine: EngineProfile, *, remedies: bool) -> SetUp:
    """Plan one set-up and ask the inverse questions; remedies only where it does not fit for certain.

    Raises:
        UsageError, ParallelismError: what the engine would refuse.
    """
    plan = make_plan(serving, devices, engine)
    known = plan.verdict.answer is not Answer.UNKNOWN
    too_large = plan.draft_budget is not None and plan.draft_budget.within is False
    wanting = plan.verdict.answer in {Answer.DOES_NOT_FIT, Answer.TIGHT} or (known and too_large)
    context = max_context_tokens(serving, devices, engine) if known else None
    batch = max_batch(serving, devices, engine) if known else None
    return SetUp(
        plan=plan,
        max_context_tokens=context,
        max_batch=batch,
        sequence_saving=_sequence_saving(plan, devices),
        remedies=find_remedies(serving, devices, engine, context, batch) if remedies and wanting else (),
    )


def _judge_draft(
    alone: Serving, draft: Draft, devices: Sequence[Device], engine: EngineProfile, *, remedies: bool
) -> JudgedDraft:
    workload = replace(alone.workload, num_speculative_tokens=draft.num_speculative_tokens)
    pair = set_up(replace(alone, draft=draft, workload=workload), devices, engine, remedies=remedies)
    reasons = _rejections(pair.plan)
    return JudgedDraft(draft=draft, set_up=pair, accepted=not reasons, reasons=reasons)


def _rejections(plan: Plan) -> tuple[Reason, ...]:
    reasons: list[Reason] = []
    if plan.verdict.answer is Answer.DOES_NOT_FIT:
        reasons.append(Reason(code="does_not_fit", text="target and draft together do not fit"))
    if plan.verdict.answer is Answer.UNKNOWN:
        reasons.append(Reason(code="reading_missing", text="a reading of the device is missing"))
    budget = plan.draft_budget
    if budget is not None and budget.within is False and budget.share is not None:
        text = f"the draft takes {ceil_share(budget.share):.1%} of the device, more than {budget.limit_share:.1%}"
        reasons.append(Reason(code="over_draft_budget", text=text))
    return tuple(reasons)


def _sequence_saving(plan: Plan, devices: Sequence[Device]) -> SequenceSaving | None:
    serving = plan.serving
    lowered = max(serving.workload.batch, 1)
    if plan.defaults.max_num_seqs <= lowered:
        return None
    fewer = make_plan(
        with_workload(serving, replace(serving.workload, max_num_seqs=lowered)), devices, plan.engine
    )
    saved = min(
        before.breakdown.total.high_bytes - after.breakdown.total.high_bytes
        for before, after in zip(plan.ranks, fewer.ranks, strict=True)
    )
    if saved <= 0:
        return None
    return SequenceSaving(max_num_seqs=plan.defaults.max_num_seqs, lowered_to=lowered, saved_bytes=saved)
