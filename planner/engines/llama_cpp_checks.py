"""What llama.cpp's server refuses or has no option for, and what of it is not known here.

Sources: llama.cpp b11434 ``common/arg.cpp`` (cache types), ``src/llama-context.cpp`` (blocks divide a head),
``src/llama-cparams.h`` (LLAMA_MAX_SEQ), ``common/speculative.cpp`` (draft types).
"""

from typing import Final

from model_catalog.architecture import (
    ChunkedAttention,
    Component,
    CrossAttention,
    FullAttention,
    LatentAttention,
    SlidingWindow,
)
from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.model import Model
from planner.engines.base import Serving
from planner.engines.context_limits import check_context
from planner.engines.llama_cpp_cache import CACHE_TYPES, cache_type
from planner.errors import ParallelismError
from planner.workload import Workload

_MOST_SLOTS: Final = 256  # LLAMA_MAX_SEQ


def check_serving(serving: Serving) -> None:
    """All checks.

    Raises:
        UsageError: an option that the server has not, a cache that is not known, a draft that it does not take.
        ParallelismError: more devices than layers.
    """
    check_context(serving)
    _check_options(serving.workload)
    _check_devices(serving)
    draft = serving.draft
    if draft is not None and draft.method is DraftMethod.EAGLE:
        raise UsageError(
            "llama.cpp does not take first-generation EAGLE heads",
            subject="--draft",
            hint="choose an EAGLE-3 head, a draft model, mtp or ngram",
        )
    _check_cache(serving.target, serving.workload.kv_cache_dtype, "--kv-cache-dtype")
    if draft is not None and draft.method is not DraftMethod.NGRAM:
        _check_cache(
            draft.model or serving.target, serving.workload.draft_kv_cache_dtype, "--draft-kv-cache-dtype"
        )


def _check_options(workload: Workload) -> None:
    unknown = {
        "--gpu-memory-utilization": workload.gpu_memory_utilization is not None,
        "--kv-cache-memory": workload.kv_cache_memory_bytes is not None,
        "--block-size": workload.block_size is not None,
        "--enable-expert-parallel": workload.expert_parallel,
        "--max-num-seqs": workload.max_num_seqs not in {None, workload.batch},
    }
    for option, given in unknown.items():
        if given:
            raise UsageError(
                "llama.cpp has no such setting: its slots and its context are what it allocates",
                subject=option,
                hint="leave it out, and say --context and --batch",
            )
    if workload.batch > _MOST_SLOTS:
        raise UsageError(
            f"llama.cpp serves at most {_MOST_SLOTS} sequences at once",
            subject="--batch",
            hint=f"use --batch {_MOST_SLOTS} or less",
        )


def _check_devices(serving: Serving) -> None:
    count = serving.workload.tp * serving.workload.pp
    layers = len(serving.target.architecture.decoder_layers)
    if count > layers:
        raise ParallelismError(
            f"{count} devices exceed its {layers} layers",
            subject=serving.target.snapshot.repo_id,
            hint=f"use {layers} or fewer devices",
        )


def _check_cache(model: Model, dtype: str, option: str) -> None:
    kind = cache_type(dtype)
    if kind is None:
        raise UsageError(
            f"llama.cpp has no {dtype} cache", subject=option, hint=f"use auto or one of {', '.join(CACHE_TYPES)}"
        )
    subject = model.snapshot.repo_id
    rules = [rule for layer in model.architecture.layers for rule in layer.caches]
    encoder = any(layer.component is Component.ENCODER for layer in model.architecture.layers)
    if encoder or any(isinstance(rule, CrossAttention) for rule in rules):
        raise UsageError(
            "llama.cpp's server runs decoders only", subject=subject, hint="use --engine transformers"
        )
    latent = any(isinstance(rule, LatentAttention) for rule in rules)
    if latent and any(isinstance(rule, SlidingWindow) for rule in rules):
        raise UsageError(
            "how llama.cpp caches windows beside compressed rows is not known here",
            subject=subject,
            hint="use --engine vllm",
        )
    for rule in rules:
        if isinstance(rule, FullAttention | SlidingWindow | ChunkedAttention) and (
            rule.key_dim % kind.block_elements or rule.value_dim % kind.block_elements
        ):
            raise UsageError(
                f"blocks of {kind.block_elements} do not divide its heads of {rule.key_dim} elements",
                subject=f"{option} {dtype}",
                hint="use --kv-cache-dtype f16",
            )
