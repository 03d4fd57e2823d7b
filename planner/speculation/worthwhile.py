"""Is speculation worth it here at all? Reasons from this request, not from rules of thumb.

Evidence, all in public threads and papers: gains shrink with concurrency and may turn negative (vLLM's own
benchmarks; EAGLE-3 batch tables); separate drafts lose more often on small targets (hf-bench: 46 % below 10 B, 5 %
above 40 B); only decoding speeds up; a draft nearly as deep as its target loses even at full acceptance.
"""

from collections.abc import Sequence
from typing import Final

from model_catalog.drafts import DraftMethod
from planner.planning import Plan
from planner.speculation.compatibility import ANY_DRAFT
from planner.speculation.prediction import Demand
from planner.speculation.selection import Offer, Worth, overall_worth
from planner.verdict import Answer, Reason

_SMALL_TARGET_PARAMETERS: Final = 10**10
_DEEP_DRAFT: Final = 0.7


def judge_worth(alone: Plan, accepted: Sequence[Offer], rejected: Sequence[Offer], demand: Demand) -> Worth:
    """Yes, no or depends, with the reasons that a person would weigh.

    ``accepted`` are the drafts that fit and may serve, best first.
    """
    reasons = [
        *_no_draft(alone, accepted, rejected),
        *_best(accepted),
        *_concurrency(accepted, demand),
        *_size(alone, accepted),
        *_depth(alone, [*accepted, *rejected]),
        *_lengths(demand),
        *_alternatives(alone, accepted, rejected),
    ]
    predictions = [offer.prediction for offer in accepted if offer.prediction is not None]
    return overall_worth(predictions, reasons)


def _no_draft(alone: Plan, accepted: Sequence[Offer], rejected: Sequence[Offer]) -> list[Reason]:
    if accepted:
        return []
    if alone.verdict.answer is Answer.DOES_NOT_FIT:
        return [Reason(code="target_does_not_fit", text="the target does not fit even without a draft")]
    if not rejected:
        return [Reason(code="no_candidate", text="no draft is known for this target")]
    if len(rejected) == 1:
        return [Reason(code="no_draft_will_do", text=f"the only candidate, {rejected[0].name}, will not do")]
    return [Reason(code="no_draft_will_do", text=f"none of {len(rejected)} candidates will do")]


def _best(accepted: Sequence[Offer]) -> list[Reason]:
    if not accepted:
        return []
    best = accepted[0]
    if best.prediction is None or best.prediction.speedup is None:
        why = f": {best.prediction.notes[0]}" if best.prediction and best.prediction.notes else ""
        text = f"the speedup of {best.name} cannot be told for this load{why}"
        return [Reason(code="not_predicted", text=text)]
    span = best.prediction.speedup
    times = f"{span.low:.2f} to {span.high:.2f} times as fast"
    if best.prediction.measured:
        return [Reason(code="measured", text=f"{best.name} decoded {times}, measured here")]
    return [Reason(code="predicted", text=f"{best.name} is predicted to decode {times}")]


def _concurrency(accepted: Sequence[Offer], demand: Demand) -> list[Reason]:
    stops = [
        offer.prediction.stops_paying_at_batch
        for offer in accepted
        if offer.prediction is not None and offer.prediction.stops_paying_at_batch is not None
    ]
    if stops and demand.batch >= max(stops):
        text = f"at {demand.batch:,} sequences at once every draft is predicted to have stopped paying"
        return [Reason(code="concurrency", text=text)]
    if stops:
        text = f"it stops paying at about {max(stops):,} sequences at once; switch it off above that"
        return [Reason(code="concurrency", text=text)]
    if demand.batch >= 16:
        return [Reason(code="concurrency", text=f"at {demand.batch:,} sequences at once gains are small: measure")]
    return []


def _size(alone: Plan, accepted: Sequence[Offer]) -> list[Reason]:
    parameters = alone.serving.target.weights.parameters
    separate = [offer for offer in accepted if offer.draft.method is DraftMethod.DRAFT_MODEL]
    if parameters is None or parameters >= _SMALL_TARGET_PARAMETERS or not separate:
        return []
    if any(offer.prediction is not None and offer.prediction.measured for offer in separate):
        return []  # what others saw does not matter where it was measured here
    text = "on targets below 10 B parameters a separate draft model loses about as often as it wins; prefer a head"
    return [Reason(code="small_target", text=text)]


def _depth(alone: Plan, offers: Sequence[Offer]) -> list[Reason]:
    target_layers = len(alone.serving.target.architecture.decoder_layers)
    deep = [
        offer.name
        for offer in offers
        if offer.draft.method is DraftMethod.DRAFT_MODEL
        and offer.draft.model is not None
        and len(offer.draft.model.architecture.decoder_layers) > _DEEP_DRAFT * target_layers
    ]
    if not deep:
        return []
    text = f"{', '.join(deep[:3])}: nearly as deep as the target, and depth, not size, sets a draft's time"
    return [Reason(code="deep_draft", text=text)]


def _lengths(demand: Demand) -> list[Reason]:
    if demand.output_tokens * 4 > demand.prompt_tokens:
        return []
    text = (
        f"{demand.output_tokens:,} new tokens after {demand.prompt_tokens:,} of prompt: only decoding speeds up, "
        "so the whole request gains less"
    )
    return [Reason(code="short_output", text=text)]


def _alternatives(alone: Plan, accepted: Sequence[Offer], rejected: Sequence[Offer]) -> list[Reason]:
    reasons: list[Reason] = []
    if alone.verdict.answer is Answer.DOES_NOT_FIT:
        return reasons
    methods = {offer.draft.method for offer in accepted}
    if alone.serving.target.architecture.mtp_layers and DraftMethod.MTP in methods:
        text = "the target ships its own multi-token-prediction layers: try them before a separate draft"
        reasons.append(Reason(code="built_in_mtp", text=text))
    if not any(_rules_out_ngram(offer) for offer in rejected):
        text = "n-gram drafting loads no weights and helps where the output repeats the prompt (code edits, RAG)"
        reasons.append(Reason(code="ngram_is_free", text=text))
    return reasons


def _rules_out_ngram(rejected: Offer) -> bool:
    """N-gram drafting itself was turned down, or the engine takes no draft of any kind here."""
    every = any(check.name in ANY_DRAFT and check.passed is False for check in rejected.checks)
    return rejected.draft.method is DraftMethod.NGRAM or every
