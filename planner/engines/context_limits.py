"""How long a context the models of a plan allow, whichever engine runs them."""

from collections.abc import Mapping
from typing import Any, Final

from model_catalog.drafts import HEADS, DraftMethod
from model_catalog.errors import UsageError
from model_catalog.model import Model
from planner.engines.base import Serving

#: Position tables that only grow with the context; others change their values with it (vLLM 0.33.0
#: config/speculative.py, ``_CACHE_ONLY_ROPE_TYPES``).
_GROWING_TABLES: Final = frozenset({"default", "linear", "llama3", "ntk", "proportional"})


def context_limits(serving: Serving) -> tuple[tuple[Model, int], ...]:
    """The models whose configs state a longest context that binds, each with it in tokens.

    Heads that read hidden states are stretched to the target's length where their position table just grows; any
    other head, and a draft model, caps it.
    """
    draft = serving.draft
    models = [serving.target]
    if draft is not None and draft.model is not None:
        stretched = draft.method in HEADS and _only_grows(draft.model.snapshot.config)
        if draft.method is DraftMethod.DRAFT_MODEL or (draft.method in HEADS and not stretched):
            models.append(draft.model)
    stated = ((model, model.architecture.max_context_tokens) for model in models)
    return tuple((model, limit) for model, limit in stated if limit is not None)


def check_context(serving: Serving) -> None:
    """Refuse a context beyond what the configs allow.

    Raises:
        UsageError: naming the model whose limit it is.
    """
    tokens = serving.workload.context_tokens
    for model, limit in context_limits(serving):
        if tokens > limit:
            raise UsageError(
                f"a context of {tokens:,} tokens exceeds its limit of {limit:,}",
                subject=model.snapshot.repo_id,
                hint=f"use --context {limit} or less",
            )


def _only_grows(config: Mapping[str, Any]) -> bool:
    for key in ("rope_parameters", "rope_scaling"):
        rope = config.get(key)
        if isinstance(rope, Mapping):
            kind = rope.get("rope_type", rope.get("type", "default"))
            return kind in _GROWING_TABLES if isinstance(kind, str) else False
    return True
