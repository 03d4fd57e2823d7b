"""What vLLM refuses before it allocates anything, a context beyond the configs aside (``context_limits``).

Source: vLLM 0.33.0 ``config/model.py`` (verify_with_parallel_config), ``config/speculative.py``,
``config/vllm.py`` (_set_max_num_scheduled_tokens), ``model_executor/models`` (llama_eagle3.py, qwen3_dflash.py:
widths).
"""

from typing import Final

from model_catalog.architecture import LatentAttention
from model_catalog.drafts import HEADS, DraftMethod
from model_catalog.errors import UsageError
from model_catalog.model import Model
from planner.engines.base import Draft, Serving
from planner.engines.vllm_drafting import lookahead_tokens
from planner.engines.vllm_heads import lacks_token_table
from planner.engines.vllm_shape import latent_rule
from planner.errors import ParallelismError
from planner.memory.kv_cache import kv_format

_KERNEL_BLOCK_TOKENS: Final = 16
_DEGREES: Final = (1, 2, 4, 8, 16, 32)


def check_parallelism(model: Model, tp: int, pp: int) -> None:
    """Refuse degrees that the model's heads, vocabulary or layers cannot be divided by.

    Raises:
        ParallelismError: naming the figure that does not divide.
    """
    architecture, subject = model.architecture, model.snapshot.repo_id
    latent = any(isinstance(rule, LatentAttention) for layer in architecture.layers for rule in layer.caches)
    heads, kv_heads = architecture.attention_heads, 0 if latent else architecture.kv_heads
    hint = f"use --tp {' or '.join(str(degree) for degree in _DEGREES if _deals(degree, heads, kv_heads))}"
    if heads % tp:
        raise ParallelismError(f"tp {tp} does not divide its {heads} attention heads", subject=subject, hint=hint)
    if not _deals(tp, heads, kv_heads):
        raise ParallelismError(
            f"tp {tp} and its {kv_heads} KV heads do not divide each other", subject=subject, hint=hint
        )
    layers = len(architecture.decoder_layers)
    if pp > layers:
        raise ParallelismError(
            f"pp {pp} exceeds its {layers} layers", subject=subject, hint=f"use --pp {layers} or less"
        )


def check_block_size(serving: Serving) -> None:
    """Refuse blocks that no attention kernel on CUDA takes: all want a multiple of 16 tokens.

    Source: vLLM 0.33.0 v1/attention/backends, ``get_supported_kernel_block_sizes``.

    Raises:
        UsageError: for another size.
    """
    size = serving.workload.block_size
    if size is not None and size % _KERNEL_BLOCK_TOKENS:
        raise UsageError(
            f"no attention kernel takes blocks of {size} tokens",
            subject="--block-size",
            hint=f"use a multiple of {_KERNEL_BLOCK_TOKENS}, or leave it out",
        )


def check_cache_dtype(serving: Serving) -> None:
    """Refuse the packed rows of latent attention for a target that has none: no backend takes them.

    Raises:
        UsageError: naming what such a target takes.
    """
    target, name = serving.target, serving.workload.kv_cache_dtype
    packed = kv_format(name, target.architecture.dtype).packed_latent
    if packed and latent_rule(target.architecture.decoder_layers) is None:
        raise UsageError(
            f"{name} is for multi-head latent attention, which {target.snapshot.repo_id} has not",
            subject="--kv-cache-dtype",
            hint="use fp8, or leave it out",
        )


def check_draft(serving: Serving) -> None:
    """Refuse speculation that cannot start with this target.

    The draft is split over the target's TP ranks whatever ``draft_tensor_parallel_size`` says, so
    ``check_parallelism`` holds its own heads against the same degree.

    Raises:
        UsageError: MTP without MTP layers, a k that the engine does not take, a head for another width.
        ParallelismError: a head without a token table on several pipeline stages.
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
    _check_tokens(serving, draft)
    if draft.method in HEADS and draft.model is not None:
        _check_head(serving, draft.model)


def _check_tokens(serving: Serving, draft: Draft) -> None:
    """Hold k against the number of MTP layers, and the token budget against what one sequence drafts."""
    k, subject = draft.num_speculative_tokens, serving.target.snapshot.repo_id
    layers = len(serving.target.architecture.mtp_layers)
    if draft.method is DraftMethod.MTP and k > layers and k % layers:
        raise UsageError(
            f"num_speculative_tokens {k} is no multiple of its {layers} MTP layers",
            subject=subject,
            hint=f"use --num-speculative-tokens {k // layers * layers}",
        )
    slots, tokens = lookahead_tokens(draft), serving.workload.max_num_batched_tokens
    if tokens is not None and tokens <= slots:
        raise UsageError(
            f"max_num_batched_tokens {tokens} leaves no room beside the {slots} slots that drafting reserves",
            subject=subject,
            hint=f"use --max-num-batched-tokens {slots + 1} or more, or fewer --num-speculative-tokens",
        )


def _check_head(serving: Serving, head: Model) -> None:
    """A head is trained on the hidden states of one target."""
    subject, target = head.snapshot.repo_id, serving.target
    stated = head.snapshot.config.get("target_hidden_size")
    width = stated if isinstance(stated, int) and stated > 0 else head.architecture.hidden_size
    if width != target.architecture.hidden_size:
        raise UsageError(
            f"it reads hidden states of {width:,} elements; {target.snapshot.repo_id} has "
            f"{target.architecture.hidden_size:,}",
            subject=subject,
            hint="name a head that was trained for this target",
        )
    if lacks_token_table(serving, head):
        raise ParallelismError(
            "it stores no token table, and with pipeline stages the target's is on another stage",
            subject=subject,
            hint="use --pp 1, or name a draft model",
        )


def _deals(tp: int, heads: int, kv_heads: int) -> bool:
    """Whether each rank gets as many heads, and whole KV heads or copies of one; no heads are 0."""
    return heads % tp == 0 and (not kv_heads or kv_heads % tp == 0 or tp % kv_heads == 0)
