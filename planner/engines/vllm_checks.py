"""What vLLM refuses before it allocates anything, a context beyond the configs aside (``context_limits``).

Source: vLLM 0.33.0 ``config/model.py`` (verify_with_parallel_config), ``config/speculative.py``.
"""

from model_catalog.architecture import LatentAttention
from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.model import Model
from planner.engines.base import Serving
from planner.errors import ParallelismError


def check_parallelism(model: Model, tp: int, pp: int) -> None:
    """Refuse degrees that the model's heads, vocabulary or layers cannot be divided by.

    Raises:
        ParallelismError: naming the figure that does not divide.
    """
    architecture, subject = model.architecture, model.snapshot.repo_id
    heads, kv_heads = architecture.attention_heads, architecture.kv_heads
    if heads and heads % tp:
        raise ParallelismError(
            f"tp {tp} does not divide its {heads} attention heads",
            subject=subject,
            hint=f"use --tp {' or '.join(map(str, _divisors(heads)))}",
        )
    latent = any(isinstance(rule, LatentAttention) for layer in architecture.layers for rule in layer.caches)
    if kv_heads and not latent and kv_heads % tp and tp % kv_heads:
        raise ParallelismError(
            f"tp {tp} and its {kv_heads} KV heads do not divide each other",
            subject=subject,
            hint=f"use --tp {' or '.join(map(str, _divisors(heads or kv_heads)))}",
        )
    layers = len(architecture.decoder_layers)
    if pp > layers:
        raise ParallelismError(
            f"pp {pp} exceeds its {layers} layers", subject=subject, hint=f"use --pp {layers} or less"
        )


def check_draft(serving: Serving) -> None:
    """Refuse speculation that cannot start with this target.

    Raises:
        UsageError: MTP without MTP layers, or a k that the engine does not take.
    """
    draft = serving.draft
    if draft is None:
        return
    subject = serving.target.snapshot.repo_id
    if draft.num_speculative_tokens < 1:
        raise UsageError(
            "num_speculative_tokens must be 1 or more",
            subject=subject,
            hint="use --draft none to plan without speculation",
        )
    if draft.method is DraftMethod.MTP and not serving.target.architecture.mtp_layers:
        raise UsageError(
            "it ships no multi-token-prediction layers",
            subject=subject,
            hint="name a draft model with --draft ORG/NAME, or use --draft none",
        )


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(degree for degree in (1, 2, 4, 8, 16, 32) if number % degree == 0)
