"""The command that starts a plan under llama.cpp's server.

The files it loads are GGUF conversions, whose names no repository of the original weights tells: ``TARGET.gguf``
and ``DRAFT.gguf`` stand for them. Source: llama.cpp ``common/arg.cpp`` (names; ``--draft``, ``--draft-max`` and
``-cd`` are gone), ``tools/server/server-context.cpp`` (without ``--spec-type`` an ordinary draft is loaded and
dropped again), ``common/speculative.cpp``.
"""

from collections.abc import Iterator
from typing import Final

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.gguf_types import file_type
from planner.commands.base import StartCommand
from planner.commands.model_names import model_name
from planner.devices import DeviceSource
from planner.engines.base import Draft
from planner.engines.llama_cpp_cache import CACHE_TYPES
from planner.planning import Plan

TARGET_FILE: Final = "TARGET.gguf"
DRAFT_FILE: Final = "DRAFT.gguf"
_TYPES: Final = {
    DraftMethod.DRAFT_MODEL: "draft-simple",
    DraftMethod.EAGLE3: "draft-eagle3",
    DraftMethod.MTP: "draft-mtp",
    DraftMethod.DFLASH: "draft-dflash",
    DraftMethod.DSPARK: "draft-dspark",
    DraftMethod.NGRAM: "ngram-simple",
}
#: Cache types by the planner's spelling and its own; it has no 8-bit float, so fp8 is left to the reader.
_CACHE_TYPES: Final = {
    "bfloat16": "bf16",
    "float16": "f16",
    "fp16": "f16",
    "float32": "f32",
    **{name: name for name in CACHE_TYPES},
}
_BATCH_TOKENS: Final = 2048  # n_batch, which no pass exceeds


def llama_cpp_command(plan: Plan, *, version: str = "", stops_paying_at_batch: int | None = None) -> StartCommand:
    """The server's command line. Every size is said, so that ``--fit`` changes nothing.

    Raises:
        UsageError: for first-generation EAGLE heads.
    """
    del version
    draft, workload = plan.serving.draft, plan.serving.workload
    words = ["llama-server", "--model", TARGET_FILE]
    # Slots divide the context between them, unless the cache is unified.
    words += ["--parallel", str(workload.batch), "--ctx-size", str(workload.context_tokens * workload.batch)]
    if workload.max_num_batched_tokens is not None:
        words += ["--ubatch-size", str(workload.max_num_batched_tokens)]
        words += ["--batch-size", str(max(workload.max_num_batched_tokens, _BATCH_TOKENS))]
    words += [*_places(plan), *_cache_types(workload.kv_cache_dtype, "--cache-type"), "--fit", "off"]
    if draft is not None:
        words += _speculation(plan, draft)
    return StartCommand(
        engine="llama.cpp", argv=tuple(words), notes=tuple(_notes(plan, draft, stops_paying_at_batch))
    )


def _speculation(plan: Plan, draft: Draft) -> Iterator[str]:
    kind = _TYPES.get(draft.method)
    if kind is None:
        raise UsageError(
            f"llama.cpp does not take {draft.method.value} heads", subject="--draft", hint="choose an EAGLE-3 head"
        )
    yield from ("--spec-type", kind)
    if draft.model is not None:
        yield from ("--spec-draft-model", DRAFT_FILE)
        if _in_host_memory(plan):
            yield from ("--spec-draft-ngl", "0", "--spec-draft-device", "none")
        else:
            yield from ("--spec-draft-ngl", "all")
            if _is_planned_here(plan) and _devices(plan) > 1:
                yield from ("--spec-draft-device", "CUDA0")  # else its layers are dealt over all GPUs too
        yield from _cache_types(plan.serving.workload.draft_kv_cache_dtype, "--spec-draft-type")
    if draft.method is DraftMethod.NGRAM:
        yield from ("--spec-ngram-simple-size-m", str(draft.num_speculative_tokens))
    else:
        yield from ("--spec-draft-n-max", str(draft.num_speculative_tokens))


def _places(plan: Plan) -> Iterator[str]:
    if _in_host_memory(plan):
        # The prompt cache would take up to 8 GiB more of the same memory.
        yield from ("--device", "none", "--n-gpu-layers", "0", "--cache-ram", "0")
        return
    yield from ("--n-gpu-layers", "all")
    if _is_planned_here(plan) and _devices(plan) > 1:
        # By default layers are dealt by what is free at the start, which differs from start to start.
        yield from ("--tensor-split", ",".join(["1"] * _devices(plan)))


def _in_host_memory(plan: Plan) -> bool:
    return plan.ranks[0].rank.device.source is DeviceSource.HOST


def _is_planned_here(plan: Plan) -> bool:
    """Whether the plan itself is of llama.cpp, so that its dealing of layers is to be kept."""
    return plan.engine.name == "llama.cpp"


def _devices(plan: Plan) -> int:
    return plan.serving.workload.tp * plan.serving.workload.pp


def _cache_types(dtype: str, option: str) -> Iterator[str]:
    kind = _CACHE_TYPES.get(dtype)
    if kind is not None:
        yield from (f"{option}-k", kind, f"{option}-v", kind)


def _notes(plan: Plan, draft: Draft | None, stops_paying_at_batch: int | None) -> Iterator[str]:
    workload = plan.serving.workload
    yield f"{TARGET_FILE} stands for a GGUF file of {model_name(plan.serving.target)}"
    if draft is not None and draft.model is not None:
        yield f"{DRAFT_FILE} stands for a GGUF file of {model_name(draft.model)}"
    if draft is not None and draft.method is DraftMethod.MTP:
        yield "the GGUF file must hold the multi-token-prediction layers: many conversions drop them"
    if draft is not None:
        yield "a pair that llama.cpp does not take is only logged: the server goes on without speculation"
    asked = {workload.kv_cache_dtype, workload.draft_kv_cache_dtype} - {"auto", *_CACHE_TYPES}
    if asked:
        yield f"llama.cpp has no {' or '.join(sorted(asked))} cache: q8_0 (8.5 bits) is the nearest"
    if _in_host_memory(plan):
        yield "--cache-ram 0: prompts are not kept in host memory; --cache-ram N takes up to N MiB beside the plan"
    if _is_planned_here(plan):
        kind = workload.quantization
        text = "of the checkpoint's own type" if kind is None else f"of type {file_type(kind).upper()}"
        yield f"planned with GGUF files {text}; llama.cpp reads the type from the file"
    elif workload.quantization is not None or workload.dtype != "auto":
        yield "dtype and quantisation are those of the GGUF file"
    if workload.tp * workload.pp > 1:
        yield "llama.cpp deals whole layers to the visible GPUs; it is not tensor parallelism"
    if draft is not None and stops_paying_at_batch is not None:
        yield f"speculation stays on at any load, and stops paying at about {stops_paying_at_batch:,} sequences"
