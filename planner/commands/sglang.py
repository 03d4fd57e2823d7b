"""The command that starts a plan under SGLang.

Source: SGLang 0.5.23 ``arg_groups/fields/*.py`` (names), ``arg_groups/speculative_hook.py`` (which of steps, top-k
and draft tokens go together), ``arg_groups/kv_cache_hook.py``.
"""

from collections.abc import Iterator
from typing import Final

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from planner.commands.base import StartCommand
from planner.commands.model_names import model_name, model_revision, setting
from planner.engines.base import Draft
from planner.planning import Plan

KNOWN_VERSION: Final = "0.5.23"
_ALGORITHMS: Final = {
    DraftMethod.DRAFT_MODEL: "STANDALONE",
    DraftMethod.EAGLE: "EAGLE",
    DraftMethod.EAGLE3: "EAGLE3",
    DraftMethod.MTP: "NEXTN",
    DraftMethod.NGRAM: "NGRAM",
    DraftMethod.DFLASH: "DFLASH",
    DraftMethod.DSPARK: "DSPARK",
}
#: Algorithms that draft step by step: k steps of one token make a chain, and the root counts as a draft token.
_CHAINS: Final = frozenset({DraftMethod.DRAFT_MODEL, DraftMethod.EAGLE, DraftMethod.EAGLE3, DraftMethod.MTP})
#: ``max_running_requests`` where speculation is on and nothing is said.
_DEFAULT_REQUESTS: Final = 48
#: The planner's spellings and SGLang's; it takes no others of them.
_CACHE_DTYPES: Final = {
    "fp8": "fp8_e4m3",
    "fp8_e4m3": "fp8_e4m3",
    "fp8_e5m2": "fp8_e5m2",
    "bfloat16": "bfloat16",
    "nvfp4": "nvfp4",
}


def sglang_command(
    plan: Plan, *, version: str = KNOWN_VERSION, stops_paying_at_batch: int | None = None
) -> StartCommand:
    """The server's command line. A memory fraction is written where the plan is SGLang's own.

    Another engine's plan has one that means something else, so SGLang is then left to choose.

    ``stops_paying_at_batch``: mentioned, as SGLang has no switch by batch size.

    Raises:
        UsageError: for cache dtypes that SGLang does not have, and names that no command line takes.
    """
    draft = plan.serving.draft
    words = ("python", "-m", "sglang.launch_server", "--model-path", model_name(plan.serving.target))
    speculation = () if draft is None else tuple(_speculation(plan, draft))
    return StartCommand(
        engine="sglang",
        argv=(*words, *_serving(plan), *speculation),
        notes=tuple(_notes(plan, version, stops_paying_at_batch)),
    )


def _serving(plan: Plan) -> Iterator[str]:
    workload = plan.serving.workload
    revision = model_revision(plan.serving.target)
    if revision is not None:
        yield from ("--revision", revision)
    if workload.tp > 1:
        yield from ("--tp-size", str(workload.tp))
    if workload.pp > 1:
        yield from ("--pp-size", str(workload.pp))
    if workload.expert_parallel:
        yield from ("--ep-size", str(workload.tp))
    yield from ("--context-length", str(workload.context_tokens))
    if workload.dtype != "auto":
        yield from ("--dtype", setting(workload.dtype, "--dtype"))
    if workload.quantization is not None:
        yield from ("--quantization", setting(workload.quantization, "--quantization"))
    if workload.kv_cache_dtype != "auto":
        yield from ("--kv-cache-dtype", _cache_dtype(workload.kv_cache_dtype))
    yield from _memory(plan)
    if workload.max_num_seqs is not None:
        yield from ("--max-running-requests", str(workload.max_num_seqs))
    elif plan.serving.draft is not None and workload.batch > _DEFAULT_REQUESTS:
        yield from ("--max-running-requests", str(workload.batch))


def _memory(plan: Plan) -> Iterator[str]:
    """What moves memory, where the plan is SGLang's own."""
    workload = plan.serving.workload
    if plan.engine.name != "sglang":
        return
    if plan.gpu_memory_utilization is not None:
        yield from ("--mem-fraction-static", f"{plan.gpu_memory_utilization:.3f}")
    if workload.max_num_batched_tokens is not None:
        yield from ("--chunked-prefill-size", str(workload.max_num_batched_tokens))
    if workload.block_size is not None:
        yield from ("--page-size", str(workload.block_size))
    if workload.enforce_eager:
        yield "--disable-cuda-graph"


def _speculation(plan: Plan, draft: Draft) -> Iterator[str]:
    k, workload = draft.num_speculative_tokens, plan.serving.workload
    yield from ("--speculative-algorithm", _ALGORITHMS[draft.method])
    if draft.model is not None:
        yield from ("--speculative-draft-model-path", model_name(draft.model))
        revision = model_revision(draft.model)
        if revision is not None:
            yield from ("--speculative-draft-model-revision", revision)
    if draft.method in _CHAINS:
        yield from ("--speculative-num-steps", str(k), "--speculative-eagle-topk", "1")
        yield from ("--speculative-num-draft-tokens", str(k + 1))
    elif draft.method is DraftMethod.NGRAM:
        yield from ("--speculative-num-draft-tokens", str(k + 1))
    elif draft.method is DraftMethod.DSPARK:
        yield from ("--speculative-dspark-block-size", str(k))
    own = workload.draft_kv_cache_dtype
    if draft.method is not DraftMethod.NGRAM and own not in {"auto", workload.kv_cache_dtype}:
        yield from ("--speculative-draft-kv-cache-dtype", _cache_dtype(own))


def _cache_dtype(name: str) -> str:
    known = _CACHE_DTYPES.get(name)
    if known is None:
        raise UsageError(
            f"SGLang has no cache of the dtype {name!r}",
            subject="--kv-cache-dtype",
            hint=f"use auto or one of {', '.join(_CACHE_DTYPES)}",
        )
    return known


def _notes(plan: Plan, version: str, stops_paying_at_batch: int | None) -> Iterator[str]:
    draft, workload = plan.serving.draft, plan.serving.workload
    fraction = workload.gpu_memory_utilization or plan.gpu_memory_utilization
    if fraction is not None and plan.engine.name != "sglang":
        yield (
            "no memory fraction is written: SGLang's --mem-fraction-static covers weights and cache only, and its "
            "own choice leaves room for the rest"
        )
    if draft is not None and draft.method is DraftMethod.DFLASH:
        yield "the head's own block size decides how many tokens are drafted"
    if draft is not None and stops_paying_at_batch is not None:
        yield f"speculation stays on at any load, and stops paying at about {stops_paying_at_batch:,} sequences"
    if workload.kv_cache_memory_bytes is not None:
        yield "the pinned cache size has no counterpart in bytes: SGLang takes tokens (--max-total-tokens)"
    if version != KNOWN_VERSION:
        yield f"written for SGLang {KNOWN_VERSION}; {version} was asked for"
