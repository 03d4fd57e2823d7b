"""What SGLang and TensorRT-LLM refuse alike, or what this planner cannot price under them; and the draft's layers.

Heads are split as in vLLM, whose rule is taken over: SGLang 0.5.23 ``configs/model_config.py``
(``get_num_kv_heads``: divided, at least one), NVIDIA/TensorRT-LLM ``_torch/pyexecutor/resource_manager.py``.
"""

from collections.abc import Collection

from model_catalog.architecture import ArchitectureSpec, LayerSpec
from model_catalog.drafts import DraftMethod
from model_catalog.dtypes import BFLOAT16, FLOAT32, DType, find_dtype
from model_catalog.errors import UsageError
from planner.engines.base import Serving
from planner.engines.context_limits import check_context
from planner.engines.token_cells import refuse_unpriced
from planner.engines.vllm_checks import check_parallelism


def check_serving(serving: Serving, engine: str, *, cache_dtypes: Collection[str]) -> None:
    """Refuse degrees that do not divide, layers without a price by the token, drafts that cannot be.

    Raises:
        ParallelismError: naming the figure that does not divide.
        UsageError: for the rest.
    """
    workload, draft, subject = serving.workload, serving.draft, serving.target.snapshot.repo_id
    for dtype, option in (
        (workload.kv_cache_dtype, "--kv-cache-dtype"),
        (workload.draft_kv_cache_dtype, "--draft-kv-cache-dtype"),
    ):
        if dtype not in cache_dtypes:
            raise UsageError(
                f"{engine} has no cache of the dtype {dtype!r}",
                subject=option,
                hint=f"use one of {', '.join(cache_dtypes)}",
            )
    check_parallelism(serving.target, workload.tp, workload.pp)
    refuse_unpriced(serving.target, engine)
    if draft is not None:
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
        if draft.model is not None:
            check_parallelism(draft.model, workload.tp, 1)
            refuse_unpriced(draft.model, engine)
    check_context(serving)


def refuse_pinned_cache(serving: Serving, engine: str, why: str, instead: str) -> None:
    """Refuse ``--kv-cache-memory``, which this engine has no setting for.

    Raises:
        UsageError: if it was asked for.
    """
    if serving.workload.kv_cache_memory_bytes is not None:
        raise UsageError(
            f"{engine}'s cache pool cannot be pinned to a size: {why}",
            subject="--kv-cache-memory",
            hint=instead,
        )


def draft_layers(serving: Serving) -> tuple[LayerSpec, ...]:
    """The draft's layers that keep a cache: its own, the target's MTP layers, or none (n-gram)."""
    draft = serving.draft
    if draft is None or draft.method is DraftMethod.NGRAM:
        return ()
    if draft.method is DraftMethod.MTP:
        return serving.target.architecture.mtp_layers
    return draft.model.architecture.decoder_layers if draft.model else ()


def draft_architecture(serving: Serving) -> ArchitectureSpec | None:
    """What the draft computes with: its own widths, or the target's for MTP; None for n-gram."""
    draft = serving.draft
    if draft is None or draft.method is DraftMethod.NGRAM:
        return None
    return draft.model.architecture if draft.model else serving.target.architecture


def cache_dtype(serving: Serving) -> DType:
    """The dtype of a cache under ``auto``: the model's, where a float32 model runs in 16 bits."""
    workload = serving.workload
    chosen = find_dtype(workload.dtype) or serving.target.architecture.dtype
    return BFLOAT16 if workload.dtype == "auto" and chosen == FLOAT32 else chosen


def draft_cache_dtype(serving: Serving) -> str:
    """The draft's cache dtype: the target's unless said otherwise."""
    own = serving.workload.draft_kv_cache_dtype
    return serving.workload.kv_cache_dtype if own == "auto" else own
