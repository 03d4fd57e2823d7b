"""The command that starts a plan under TensorRT-LLM: ``trtllm-serve`` and the YAML file beside it.

Source: NVIDIA/TensorRT-LLM ``tensorrt_llm/commands/serve.py`` (options), ``llmapi/llm_args.py`` (the ``*Decoding
Config`` classes and their ``decoding_type``), ``docs/source/features/speculative-decoding.md``.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from planner.commands.base import StartCommand
from planner.commands.model_names import model_name, model_revision
from planner.engines.base import Draft
from planner.planning import Plan

FILE_NAME: Final = "specplan-tensorrt-llm.yaml"
_DECODING_TYPES: Final = {
    DraftMethod.DRAFT_MODEL: "Draft_Target",
    DraftMethod.EAGLE3: "Eagle3",
    DraftMethod.MTP: "MTP",
    DraftMethod.NGRAM: "NGram",
    DraftMethod.DFLASH: "DFlash",
    DraftMethod.DSPARK: "DSpark",
}
#: The documentation switches the overlap scheduler off for these.
_WITHOUT_OVERLAP: Final = frozenset({DraftMethod.DRAFT_MODEL, DraftMethod.NGRAM})
#: The planner's spellings and TensorRT-LLM's (KvCacheConfig.dtype).
_CACHE_DTYPES: Final = {"fp8": "fp8", "fp8_e4m3": "fp8", "nvfp4": "nvfp4"}
Value = str | int | bool | Mapping[str, str | int] | Mapping[str, str | int | float] | None


def tensorrt_llm_command(
    plan: Plan, *, version: str = "", stops_paying_at_batch: int | None = None
) -> StartCommand:
    """The server's command line and its configuration file.

    ``stops_paying_at_batch``: speculation is switched off from there on (``max_concurrency``). ``version`` is not
    looked at: what differs between releases is in the notes.

    Raises:
        UsageError: for first-generation EAGLE heads, and names that no command line takes.
    """
    del version
    draft = plan.serving.draft
    content = _yaml(dict(_configuration(plan, draft, stops_paying_at_batch)))
    words = ("trtllm-serve", model_name(plan.serving.target), *_serving(plan))
    return StartCommand(
        engine="tensorrt-llm",
        argv=(*words, "--config", FILE_NAME) if content else words,
        files=((FILE_NAME, content),) if content else (),
        notes=tuple(_notes(plan, draft)),
    )


def _serving(plan: Plan) -> Iterator[str]:
    workload = plan.serving.workload
    revision = model_revision(plan.serving.target)
    if revision is not None:
        yield from ("--revision", revision)
    if workload.tp > 1:
        yield from ("--tp_size", str(workload.tp))
    if workload.pp > 1:
        yield from ("--pp_size", str(workload.pp))
    if workload.expert_parallel:
        yield from ("--ep_size", str(workload.tp))
    yield from ("--max_seq_len", str(workload.context_tokens))
    if workload.max_num_seqs is not None:
        yield from ("--max_batch_size", str(workload.max_num_seqs))
    if workload.max_num_batched_tokens is not None:
        yield from ("--max_num_tokens", str(workload.max_num_batched_tokens))


def _configuration(plan: Plan, draft: Draft | None, off_at: int | None) -> Iterator[tuple[str, Value]]:
    cache = _cache(plan)
    if cache:
        yield "kv_cache_config", cache
    if plan.engine.name == "tensorrt-llm" and plan.serving.workload.enforce_eager:
        yield "cuda_graph_config", None
    if draft is None:
        return
    if draft.method in _WITHOUT_OVERLAP:
        yield "disable_overlap_scheduler", True
    yield "speculative_config", _speculation(draft, off_at)


def _cache(plan: Plan) -> dict[str, str | int | float]:
    """The pool's settings; its fraction and blocks only where the plan is TensorRT-LLM's own."""
    workload = plan.serving.workload
    cache: dict[str, str | int | float] = {}
    if workload.kv_cache_dtype != "auto":
        cache["dtype"] = _cache_dtype(workload.kv_cache_dtype)
    if plan.engine.name != "tensorrt-llm":
        return cache
    if plan.gpu_memory_utilization is not None:
        cache["free_gpu_memory_fraction"] = round(plan.gpu_memory_utilization, 3)
    if workload.block_size is not None:
        cache["tokens_per_block"] = workload.block_size
    return cache


def _cache_dtype(name: str) -> str:
    known = _CACHE_DTYPES.get(name)
    if known is None:
        raise UsageError(
            f"TensorRT-LLM has no cache of the dtype {name!r}",
            subject="--kv-cache-dtype",
            hint=f"use auto or one of {', '.join(_CACHE_DTYPES)}",
        )
    return known


def _speculation(draft: Draft, off_at: int | None) -> dict[str, str | int]:
    kind = _DECODING_TYPES.get(draft.method)
    if kind is None:
        raise UsageError(
            f"TensorRT-LLM does not take {draft.method.value} heads",
            subject="--draft",
            hint="choose an EAGLE-3 head",
        )
    config: dict[str, str | int] = {"decoding_type": kind, "max_draft_len": draft.num_speculative_tokens}
    if draft.model is not None:
        config["speculative_model"] = model_name(draft.model)
    if off_at is not None and off_at > 1:
        config["max_concurrency"] = off_at - 1
    return config


def _yaml(tree: Mapping[str, Value]) -> str:
    """Two levels of YAML; strings as JSON strings, which YAML reads the same."""
    lines: list[str] = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            lines.append(f"{key}:")
            lines += [f"  {name}: {json.dumps(inner)}" for name, inner in value.items()]
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    return "".join(f"{line}\n" for line in lines)


def _notes(plan: Plan, draft: Draft | None) -> Iterator[str]:
    workload = plan.serving.workload
    if plan.engine.name != "tensorrt-llm":
        yield (
            "no memory fraction is written: TensorRT-LLM's is a fraction of what is free after loading, not of "
            "the device (its default is 0.9)"
        )
    if draft is not None:
        if draft.method is DraftMethod.DRAFT_MODEL:
            yield "releases that do not know Draft_Target spell it DraftTarget"
            yield "the tokenizers must be the same: TensorRT-LLM does not check"
        if draft.method is DraftMethod.MTP:
            yield "older releases read num_nextn_predict_layers in place of max_draft_len"
        if draft.model is not None and model_revision(draft.model) is not None:
            yield "a draft's revision cannot be said here: download that revision and name the folder"
    if workload.dtype != "auto" or workload.quantization is not None:
        yield "dtype and quantisation are those of the checkpoint: choose one that was published so"
