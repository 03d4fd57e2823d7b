"""What to know beside a vLLM command: silent changes that the engine makes, and what it will not take.

Source: vLLM 0.33.0 ``config/speculative.py`` and ``config/vllm.py`` (each function names its place).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from model_catalog.drafts import HEADS, DraftMethod
from planner.commands.model_names import model_name
from planner.commands.vllm_versions import (
    DRAFT_CAPS_TARGET_SINCE,
    FIELD_SINCE,
    METHOD_BY_PATH,
    NEWEST_KNOWN,
    has_field,
    written,
)
from planner.engines.base import Draft
from planner.engines.vllm_shape import release_of
from planner.planning import Plan

_BATCH_RANGES: Final = "num_speculative_tokens_per_batch_size"


def command_notes(
    plan: Plan, version: str, speculation: Mapping[str, Any] | None, *, load_varies: bool
) -> tuple[str, ...]:
    """Notes for this plan and this release, the weightiest first."""
    draft = plan.serving.draft
    notes: list[str] = []
    if draft is not None and speculation is not None:
        notes += flipped_method(plan, draft)
        notes += multi_token_layers(plan, draft)
        notes += _context_notes(plan, draft, version)
        notes += _vocabulary_notes(speculation)
        notes += _load_notes(plan, speculation, version, load_varies=load_varies)
        if plan.serving.workload.pp > 1:
            notes.append("with pipeline parallelism the draft lives on the last stage alone")
    notes += _slots(plan)
    if release_of(version) > NEWEST_KNOWN:
        notes.append(
            f"vLLM {version} is newer than the releases that this command was written for (up to "
            f"{written(NEWEST_KNOWN)})"
        )
    return tuple(notes)


def flipped_method(plan: Plan, draft: Draft) -> Iterator[str]:
    """The draft's path decides over an explicit ``draft_model`` or ``mtp``; only head methods are honoured."""
    if draft.method in HEADS or draft.method is DraftMethod.NGRAM:
        return
    path = model_name(draft.model or plan.serving.target)
    method = next((method for part, method in METHOD_BY_PATH if part in path.lower()), None)
    if method is not None:
        yield (
            f"vLLM takes {path} for a {method} head, because of its name: rename the folder, or serve it from "
            f"a path without that word"
        )


def multi_token_layers(plan: Plan, draft: Draft) -> Iterator[str]:
    """More tokens than MTP layers: the layers run in turn, on their own guesses (the plan refuses uneven k)."""
    layers, k = len(plan.serving.target.architecture.mtp_layers), draft.num_speculative_tokens
    if draft.method is DraftMethod.MTP and draft.model is None and k > layers:
        yield f"k = {k} runs the target's {layers} MTP layer(s) repeatedly: later tokens are accepted less often"


def _context_notes(plan: Plan, draft: Draft, version: str) -> Iterator[str]:
    if draft.model is None or draft.method is not DraftMethod.DRAFT_MODEL:
        return
    own, target = draft.model.architecture.max_context_tokens, plan.serving.target.architecture.max_context_tokens
    if own is None or (target is not None and own >= target):
        return
    if release_of(version) >= DRAFT_CAPS_TARGET_SINCE:
        yield f"the draft caps the context at its own {own:,} tokens"
    else:
        yield f"sequences beyond the draft's {own:,} tokens are not speculated on"


def _vocabulary_notes(speculation: Mapping[str, Any]) -> Iterator[str]:
    if speculation.get("use_heterogeneous_vocab"):
        yield (
            "the vocabularies differ: only tokens that both spell alike are drafted, drafting is greedy, and the "
            "draft's repo must have a tokenizer of its own"
        )


def _load_notes(plan: Plan, speculation: Mapping[str, Any], version: str, *, load_varies: bool) -> Iterator[str]:
    if not load_varies or _BATCH_RANGES in speculation:
        return
    if not has_field(_BATCH_RANGES, version):
        yield (
            f"vLLM {version} drafts as many tokens at any load; {written(FIELD_SINCE[_BATCH_RANGES])} can switch "
            f"speculation off when busy"
        )
    else:
        yield f"speculation stays on up to {plan.defaults.max_num_seqs:,} sequences: no smaller limit is known"


def _slots(plan: Plan) -> Iterator[str]:
    slots, batch = plan.defaults.max_num_seqs, plan.serving.workload.batch
    if batch > slots:
        yield f"vLLM runs {slots:,} sequences at once here: {batch:,} need --max-num-seqs {batch}"
