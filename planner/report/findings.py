"""What a `fit` found, ready to be told: plans with their inverse answers, the drafts judged, the exit answer.

Pure. Does not print, and does not decide what a plan holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from model_catalog.drafts import Discarded
from model_catalog.errors import UsageError
from planner.capacity import max_batch, max_context_tokens, with_workload
from planner.devices import Device
from planner.engines.base import Draft, EngineProfile, Serving
from planner.errors import ParallelismError
from planner.planning import Plan, make_plan
from planner.report.remedies import Remedy, find_remedies
from planner.speculation.compatibility import DRAFT_TP, SAID_BY_PROFILES, CompatibilityVerdict
from planner.speculation.draft_cost import DraftCost, draft_cost
from planner.speculation.prediction import Demand
from planner.speculation.selection import ROOM_REASONS, Offer, Worth, promise, rejections
from planner.speculation.worthwhile import judge_worth
from planner.trial.result import PairTrial
from planner.verdict import Answer, Reason

_NO_TRIALS: Final[Mapping[str, PairTrial]] = MappingProxyType({})


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
    """A draft with the pair's set-up; rejected ones carry their reasons.

    ``set_up`` is None where the engine would refuse to start the pair at all. Only drafts that are shown in full
    have the inverse answers in it.
    """

    offer: Offer
    set_up: SetUp | None
    accepted: bool
    reasons: tuple[Reason, ...]
    cost: DraftCost | None = None
    trial: PairTrial | None = None

    @property
    def draft(self) -> Draft:
        """The draft and k."""
        return self.offer.draft

    @property
    def name(self) -> str:
        """The draft's repo, or its method's name where it has no weights of its own."""
        return self.offer.name

    @property
    def plan(self) -> Plan | None:
        """The pair's plan."""
        return None if self.set_up is None else self.set_up.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that one `fit` found on these devices: ``drafts`` best first, those that will not do last.

    ``discarded`` could not even be sized. ``worth`` is None where nobody asked whether to speculate.
    """

    devices: tuple[Device, ...]
    alone: SetUp
    drafts: tuple[JudgedDraft, ...]
    discarded: tuple[Discarded, ...] = ()
    worth: Worth | None = None
    named: bool = True

    @property
    def chosen(self) -> JudgedDraft | None:
        """The best accepted draft; none where speculation does not pay."""
        if self.worth is not None and self.worth.answer == "no":
            return None
        return next((draft for draft in self.drafts if draft.accepted), None)

    @property
    def recommended(self) -> SetUp:
        """Target and chosen draft, or the target alone."""
        return (self.chosen.set_up if self.chosen else None) or self.alone

    @property
    def shown(self) -> JudgedDraft | None:
        """The draft whose table people see: the chosen one, or the first asked for by name."""
        if self.chosen is not None or not self.named:
            return self.chosen
        return next((draft for draft in self.drafts if draft.set_up is not None), None)

    @property
    def told(self) -> SetUp:
        """The set-up that is told in full."""
        return (self.shown.set_up if self.shown else None) or self.alone

    @property
    def turned_down(self) -> JudgedDraft | None:
        """The named draft that is told as refused: the shown one, or the first that cannot even be sized."""
        if self.chosen is not None or not self.named or not self.drafts:
            return None
        draft = self.shown or self.drafts[0]
        return None if draft.accepted else draft

    @property
    def answer(self) -> Answer:
        """The answer that becomes the exit code: drafts were looked for and none will do is a "no"."""
        if self.chosen is not None or (not self.drafts and self.worth is None):
            answer = self.recommended.plan.verdict.answer
            trial = None if self.chosen is None else self.chosen.trial
            settled = answer is Answer.TIGHT and trial is not None and trial.settles_fit
            return Answer.FITS if settled else answer
        if self.alone.plan.verdict.answer is Answer.UNKNOWN:
            return Answer.UNKNOWN
        return Answer.DOES_NOT_FIT


def find(
    alone: Serving,
    offers: Sequence[Offer],
    devices: Sequence[Device],
    engine: EngineProfile,
    *,
    remedies: bool = True,
    named: bool = True,
    discarded: Sequence[Discarded] = (),
    demand: Demand | None = None,
    trials: Mapping[str, PairTrial] = _NO_TRIALS,
    in_full: bool = True,
) -> Findings:
    """Plan the target alone and with each draft; order the drafts; say whether speculation pays.

    ``named``: the user named the drafts. Asking for what the engine cannot do with the only one is an error, not a
    rejection; that it cannot be split as widely as the target is a rejection all the same, and so is everything
    beside another draft. ``demand`` None: only memory is asked about. ``trials`` by the draft's name: what was
    measured already; the offers' predictions follow it. ``in_full`` False: nothing of it will be shown, so the
    inverse answers and the remedies are left out.

    Raises:
        UsageError, ParallelismError: what the engine would refuse.
    """
    bare = SetUp(plan=make_plan(alone, devices, engine))
    strict = named and len(offers) == 1
    judged = sorted(
        (
            replace(_judge_draft(bare.plan, offer, devices, strict=strict), trial=trials.get(offer.name))
            for offer in offers
        ),
        key=_standing,
    )
    worth = None
    if demand is not None:
        accepted = [draft.offer for draft in judged if draft.accepted]
        rejected = [draft.offer for draft in judged if not draft.accepted]
        worth = judge_worth(bare.plan, accepted, rejected, demand)
    found = Findings(
        devices=tuple(devices),
        alone=bare,
        drafts=tuple(judged),
        discarded=tuple(discarded),
        worth=worth,
        named=named,
    )
    if not in_full:
        return found
    shown = found.shown
    if shown is None:
        return replace(found, alone=set_up(alone, devices, engine, remedies=remedies and not (named and offers)))
    # What makes room does not help a draft that is turned down for another reason.
    lacks_room = all(reason.code in ROOM_REASONS for reason in shown.reasons)
    full = set_up(replace(alone, draft=shown.draft), devices, engine, remedies=remedies and lacks_room)
    drafts = tuple(replace(draft, set_up=full) if draft is shown else draft for draft in judged)
    if not shown.accepted:
        bare = set_up(alone, devices, engine, remedies=False)
    return replace(found, drafts=drafts, alone=bare)


def set_up(serving: Serving, devices: Sequence[Device], engine: EngineProfile, *, remedies: bool) -> SetUp:
    """Plan one set-up and ask the inverse questions; remedies only where it does not fit for certain.

    Raises:
        UsageError, ParallelismError: what the engine would refuse.
    """
    plan = make_plan(serving, devices, engine)
    known = plan.verdict.answer is not Answer.UNKNOWN
    wanting = plan.verdict.answer in {Answer.DOES_NOT_FIT, Answer.TIGHT} or (known and plan.draft_over_budget)
    context = max_context_tokens(serving, devices, engine) if known else None
    batch = max_batch(serving, devices, engine) if known else None
    return SetUp(
        plan=plan,
        max_context_tokens=context,
        max_batch=batch,
        sequence_saving=_sequence_saving(plan, devices),
        remedies=find_remedies(serving, devices, engine, context, batch) if remedies and wanting else (),
    )


def _judge_draft(alone: Plan, offer: Offer, devices: Sequence[Device], *, strict: bool) -> JudgedDraft:
    try:
        plan = make_plan(replace(alone.serving, draft=offer.draft), devices, alone.engine)
    except UsageError as refusal:
        if strict and not isinstance(refusal, ParallelismError):
            raise
        reasons = rejections(offer, None)
        same = {DRAFT_TP} if isinstance(refusal, ParallelismError) else SAID_BY_PROFILES
        if not any(check.name in same and check.passed is False for check in offer.checks):
            reasons = (Reason(code="engine_refuses", text=refusal.message), *reasons)
        return JudgedDraft(offer=offer, set_up=None, accepted=False, reasons=reasons)
    reasons = rejections(offer, plan)
    return JudgedDraft(
        offer=offer,
        set_up=SetUp(plan=plan),
        accepted=not reasons,
        reasons=reasons,
        cost=draft_cost(alone, plan),
    )


def _standing(judged: JudgedDraft) -> tuple[bool, bool, bool, bool, float, int]:
    """Sort key: what will do first; of it what surely fits, what was seen to help, what is surely compatible."""
    compatibility = judged.offer.compatibility
    unsure = compatibility is not None and compatibility.verdict is CompatibilityVerdict.UNKNOWN
    footprint = 0
    if judged.plan is not None and judged.plan.draft_budget is not None and judged.offer.prediction is not None:
        footprint = judged.plan.draft_budget.footprint.high_bytes
    tight = judged.plan is not None and judged.plan.verdict.answer is not Answer.FITS
    # What was seen to help goes before what is only promised.
    promised = not (judged.trial is not None and judged.trial.as_served and judged.trial.answer == "helps")
    return (not judged.accepted, tight, promised, unsure, *promise(judged.offer.prediction, footprint))


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
