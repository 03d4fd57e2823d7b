"""Signs of common problems in a plan, a pair's checks and a prediction: each a sentence with figures, or None.

Owns what specplan can see before anything runs. What to do about it stands in ``diagnosis``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from model_catalog.architecture import ChunkedAttention, RecurrentState
from model_catalog.drafts import READS_HIDDEN_STATES, DraftMethod
from model_catalog.units import GIB, ceil_share, to_gib
from planner.devices import DeviceSource
from planner.engines.sglang_cache import pair_cells
from planner.engines.vllm_shape import release_of
from planner.planning import Plan, RankPlan
from planner.speculation.compatibility import Check, Compatibility, CompatibilityVerdict
from planner.speculation.prediction import Prediction
from planner.verdict import Answer

#: Less than this held by others is a desktop or a monitor, not a problem.
_WORTH_NAMING_BYTES = GIB // 2
#: vLLM charges graphs to the budget from here on (its own log says "default since v0.21.0").
_GRAPHS_CHARGED_SINCE = (0, 21)
#: Checks about the two vocabularies, by the names that ``vocabulary_rules`` gives them.
_VOCABULARY_CHECKS = frozenset(
    {"vocab_size", "vocabulary size", "vocabulary type", "get_vocab", "token texts", "bos and eos"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a diagnosis looks at; ``compatibility`` and ``prediction`` are None where nobody asked."""

    plan: Plan
    compatibility: Compatibility | None = None
    prediction: Prediction | None = None

    @property
    def bound(self) -> RankPlan:
        """The rank with the least room."""
        return self.plan.ranks[self.plan.binding_rank]


Sign = Callable[[Case], str | None]


def memory_missing(case: Case) -> str | None:
    """The lines do not fit, or not for certain."""
    missing = case.bound.verdict.headroom_bytes
    if case.plan.verdict.answer not in {Answer.DOES_NOT_FIT, Answer.TIGHT} or missing is None or missing >= 0:
        return None
    return (
        f"rank {case.bound.rank.index} is short of {to_gib(-missing, 'up')} GiB at worst; the largest line is "
        f"{case.bound.verdict.largest_line}"
    )


def reading_missing(case: Case) -> str | None:
    """Nothing can be said, because a figure was not read."""
    if case.plan.verdict.answer is not Answer.UNKNOWN:
        return None
    return next((reason.text for reason in case.plan.verdict.reasons), "a reading is missing")


def no_room_for_one(case: Case) -> str | None:
    """The pool cannot hold one sequence of the planned context."""
    cache = case.plan.cache
    if cache is None or cache.max_concurrency >= 1:
        return None
    tokens = case.plan.serving.workload.context_tokens
    return f"the pool holds {cache.tokens:,} tokens, and one sequence may have {tokens:,}"


def pool_below_batch(case: Case) -> str | None:
    """One sequence fits, but not as many as are to be held at once."""
    cache, batch = case.plan.cache, case.plan.serving.workload.batch
    if cache is None or not 1 <= cache.max_concurrency < batch:
        return None
    return f"the pool holds {cache.max_concurrency:.1f} full sequences, {batch:,} were asked for"


def fraction_not_free(case: Case) -> str | None:
    """The engine asks for more at start than is free."""
    if case.plan.engine.budget_base != "total":
        return None
    for rank in case.plan.ranks:
        beside, total = rank.verdict.beside_bytes, rank.rank.device.total_bytes
        if beside is None or beside >= 0 or total is None or rank.rank.device.free_bytes is None:
            continue
        return (
            f"{case.plan.gpu_memory_utilization} of {rank.rank.device.name} and what lies beside it is "
            f"{to_gib(-beside, 'up')} GiB more than the {to_gib(rank.rank.device.free_bytes, 'down')} GiB free"
        )
    return None


def fraction_leaves_too_little(case: Case) -> str | None:
    """A fraction of free memory whose rest does not hold what comes after the pool."""
    if case.plan.engine.budget_base == "total":
        return None
    for rank in case.plan.ranks:
        beside = rank.verdict.beside_bytes
        if beside is not None and beside < 0:
            later = rank.breakdown.after_budget
            return (
                f"{case.plan.gpu_memory_utilization} leaves {to_gib(-beside, 'up')} GiB too little on rank "
                f"{rank.rank.index} for the {to_gib(later.high_bytes, 'up')} GiB that may come after the pool"
            )
    return None


def draft_cache_miscounted(case: Case) -> str | None:
    """SGLang charges the draft's cache as so many of the target's layers, and the draft's are larger."""
    if case.plan.engine.name != "sglang":
        return None
    for rank in case.plan.ranks:
        cells = pair_cells(case.plan.serving, rank.rank)
        if cells.excess.high_bytes and case.plan.cache is not None:
            beyond = cells.excess.high_bytes * case.plan.cache.tokens
            return (
                f"the draft keeps {cells.taken.high_bytes:,} B a token on each rank and is charged "
                f"{cells.charged.low_bytes:,} B: a full pool takes {to_gib(beyond, 'up')} GiB beyond its budget"
            )
    return None


def window_empty(case: Case) -> str | None:
    """No memory fraction is certain to work."""
    codes = {"utilization_window_empty", "utilization_window_uncertain"}
    return next((reason.text for reason in case.plan.verdict.reasons if reason.code in codes), None)


def others_hold_memory(case: Case) -> str | None:
    """Other processes hold a part of a device that the plan uses."""
    for rank in case.plan.ranks:
        device = rank.rank.device
        used = device.used_by_others_bytes
        if used is None or used < _WORTH_NAMING_BYTES or device.source is DeviceSource.HOST:
            continue  # host memory is always shared with what else runs there
        names = [f"{process.name or 'pid'} ({process.pid})" for process in device.processes[:3]]
        return f"{to_gib(used)} GiB of {device.name} are held by others" + (
            f": {', '.join(names)}" if names else ""
        )
    return None


def graphs_tip_it(case: Case) -> str | None:
    """Without CUDA graphs it would fit; or a release that captures them after the cache has taken the rest."""
    workload, plan = case.plan.serving.workload, case.plan
    if workload.enforce_eager or plan.engine.name != "vllm" or workload.kv_cache_memory_bytes is not None:
        return None  # a pinned pool takes no account of graphs
    lines = [item for item in case.bound.breakdown.items if item.label.startswith("cuda_graph")]
    most = sum(item.high_bytes for item in lines)
    missing = case.bound.verdict.headroom_bytes
    if missing is not None and missing < 0 <= missing + most:
        return f"CUDA graphs may take {to_gib(most, 'up')} GiB; without them nothing would be missing"
    if release_of(plan.engine.version) < _GRAPHS_CHARGED_SINCE:
        return f"vLLM {plan.engine.version} captures graphs ({to_gib(most, 'up')} GiB at most) beside its budget"
    return None


def draft_over_budget(case: Case) -> str | None:
    """The draft takes more of the device than allowed."""
    budget = case.plan.draft_budget
    if budget is None or budget.within is not False or budget.share is None:
        return None
    weights = (
        "" if budget.weights_share is None else f" (its weights alone: {ceil_share(budget.weights_share):.1%})"
    )
    return (
        f"the draft takes {ceil_share(budget.share):.1%} of a device{weights}, of {budget.limit_share:.1%} allowed"
    )


def draft_caps_context(case: Case) -> str | None:
    """A stand-alone draft with a shorter context than its target."""
    draft, target = case.plan.serving.draft, case.plan.serving.target.architecture.max_context_tokens
    if draft is None or draft.model is None or draft.method is not DraftMethod.DRAFT_MODEL:
        return None
    own = draft.model.architecture.max_context_tokens
    if own is None or (target is not None and target <= own):
        return None
    far = "no stated limit" if target is None else f"{target:,}"
    return f"the draft takes {own:,} tokens, the target {far}"


def state_multiplied(case: Case) -> str | None:
    """Recurrent layers keep a state for each drafted token."""
    k = case.plan.serving.num_speculative_tokens
    layers = case.plan.serving.target.architecture.decoder_layers
    count = sum(any(isinstance(rule, RecurrentState) for rule in layer.caches) for layer in layers)
    if not k or not count or case.plan.engine.name != "vllm":
        return None
    return f"{count} recurrent layers keep {k + 1} states for each sequence, not one"


def chunks_kept_whole(case: Case) -> str | None:
    """Chunked attention loses its saving beside a draft that reads hidden states."""
    draft = case.plan.serving.draft
    if case.plan.engine.name != "vllm" or draft is None or draft.method not in READS_HIDDEN_STATES:
        return None
    layers = case.plan.serving.target.architecture.decoder_layers
    count = sum(any(isinstance(rule, ChunkedAttention) for rule in layer.caches) for layer in layers)
    return f"{count} chunked layers keep the whole context beside {draft.method.value}" if count else None


def mtp_unused(case: Case) -> str | None:
    """The target ships layers for drafting that the plan leaves out."""
    count, draft = len(case.plan.serving.target.architecture.mtp_layers), case.plan.serving.draft
    if not count or (draft is not None and draft.method is DraftMethod.MTP):
        return None
    return f"the target ships {count} multi-token-prediction layer(s), which are not loaded"


def vocabulary_refused(case: Case) -> str | None:
    """The engine will not take the pair for its vocabularies."""
    if case.compatibility is None or case.compatibility.verdict is not CompatibilityVerdict.REFUSED:
        return None
    return _text_of(case, lambda check: check.by_engine and check.name in _VOCABULARY_CHECKS)


def tokens_differ(case: Case) -> str | None:
    """The engine takes the pair, though ids differ."""
    return _text_of(case, lambda check: check.name == "same tokens")


def method_flipped(case: Case) -> str | None:
    """The draft's path makes vLLM load it as something else."""
    return _text_of(case, lambda check: check.name == "path")


def pair_unknown(case: Case) -> str | None:
    """A check of the pair could not be made."""
    if case.compatibility is None or case.compatibility.verdict is not CompatibilityVerdict.UNKNOWN:
        return None
    return next((check.text for check in case.compatibility.checks if check.passed is None), None)


def _text_of(case: Case, wanted: Callable[[Check], bool]) -> str | None:
    checks = () if case.compatibility is None else case.compatibility.checks
    return next((check.text for check in checks if check.passed is False and wanted(check)), None)


def acceptance_too_low(case: Case) -> str | None:
    """Acceptance may lie below what pays at this k."""
    prediction = case.prediction
    if prediction is None or prediction.break_even_acceptance is None:
        return None
    rate, needed = prediction.acceptance.rate, prediction.break_even_acceptance
    if rate.low >= needed:
        return None
    return (
        f"k = {prediction.num_speculative_tokens} pays from an acceptance of {needed:.2f} on; "
        f"{rate.low:.2f} to {rate.high:.2f} are expected"
    )


def may_be_slower(case: Case) -> str | None:
    """The predicted range reaches below plain decoding."""
    speedup = None if case.prediction is None else case.prediction.speedup
    if speedup is None or speedup.low >= 1:
        return None
    return f"{speedup.low:.2f} to {speedup.high:.2f} times plain decoding is predicted"


def stops_paying(case: Case) -> str | None:
    """The server takes more sequences than speculation pays for."""
    stop = None if case.prediction is None else case.prediction.stops_paying_at_batch
    slots = case.plan.defaults.max_num_seqs
    if stop is None or stop > slots:
        return None
    return f"it stops paying at about {stop:,} sequences at once, and the server takes {slots:,}"
