"""How long a context the models of a plan allow, whichever engine runs them."""

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.model import Model
from planner.engines.base import Serving


def context_limits(serving: Serving) -> tuple[tuple[Model, int], ...]:
    """The models whose configs state a longest context that binds, each with it in tokens.

    Heads that read hidden states are stretched to the target's length; a draft model caps it.
    """
    draft = serving.draft
    models = [serving.target]
    if draft is not None and draft.method is DraftMethod.DRAFT_MODEL and draft.model is not None:
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
