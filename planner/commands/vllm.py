"""The command that starts a plan under vLLM: ``vllm serve`` for a shell, ``LLM(...)`` for Python.

Both forms come from one list of settings, so they cannot disagree. Source: vLLM 0.33.0 ``engine/arg_utils.py``
(names), ``config/speculative.py`` (the speculative configuration); ``vllm_versions`` says since when.
What a reader should know beside the command is in ``vllm_notes``.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.units import floor_share
from planner.commands.base import StartCommand
from planner.commands.model_names import model_name, model_revision, setting
from planner.commands.vllm_notes import command_notes
from planner.commands.vllm_versions import check_field, check_method, check_served, check_version, has_field
from planner.engines.base import Draft
from planner.engines.vllm_shape import release_of
from planner.planning import Plan

#: One engine setting under its Python name; True is a bare flag, False its --no- form.
Setting = tuple[str, str | int | float | bool]

_INHERIT: Final = "auto"


def vllm_command(
    plan: Plan, *, version: str, load_varies: bool = False, stops_paying_at_batch: int | None = None
) -> StartCommand:
    """The command for this plan, in both forms.

    ``load_varies``: many and few sequences by turns, so that speculation is switched off from
    ``stops_paying_at_batch`` sequences on (see ``Prediction``), where that is known.

    Raises:
        UsageError: what this release cannot be told, or would refuse, with the first release that takes it.
    """
    check_version(version)
    draft = plan.serving.draft
    for model in (plan.serving.target, None if draft is None else draft.model):
        if model is not None:
            check_served(model.architecture.name, model.snapshot.repo_id, version)
    settings = (*_model_settings(plan), *_engine_settings(plan, version))
    off_at = stops_paying_at_batch if load_varies else None
    speculation = None if draft is None else speculative_config(plan, draft, version, off_at)
    name = model_name(plan.serving.target)
    return StartCommand(
        engine="vllm",
        argv=("vllm", "serve", name, *_words(settings, speculation)),
        python=_python(name, _offline_settings(plan, settings), speculation),
        notes=command_notes(plan, version, speculation, load_varies=load_varies),
    )


def speculative_config(plan: Plan, draft: Draft, version: str, off_at: int | None = None) -> dict[str, Any]:
    """The mapping behind ``--speculative-config``. The method is always named: vLLM's guess follows the path.

    ``off_at``: the batch from which nothing is drafted.

    Raises:
        UsageError: for a method or a field that this release does not have, and for k below 1.
    """
    check_method(draft.method, version)
    k, workload = draft.num_speculative_tokens, plan.serving.workload
    if k < 1:
        raise UsageError(
            "num_speculative_tokens must be 1 or more", subject="vLLM", hint="use --draft none to serve without"
        )
    config: dict[str, Any] = {"method": draft.method.value}
    if draft.model is not None:
        config["model"] = model_name(draft.model)
        revision = model_revision(draft.model)
        if revision is not None:
            config["revision"] = revision
    config["num_speculative_tokens"] = k
    if draft.model is not None and workload.tp > 1:
        config["draft_tensor_parallel_size"] = workload.tp
    if _vocabularies_differ(plan, draft):
        check_field("use_heterogeneous_vocab", version, why="a draft with another vocabulary")
        config["use_heterogeneous_vocab"] = True
    own = workload.draft_kv_cache_dtype
    if draft.method is not DraftMethod.NGRAM and own not in {_INHERIT, workload.kv_cache_dtype}:
        check_field("kv_cache_dtype", version, why="a draft cache in another dtype than the target's")
        config["kv_cache_dtype"] = setting(own, "--draft-kv-cache-dtype")
    ranges = _ranges(plan, k, off_at)
    if ranges is not None and has_field("num_speculative_tokens_per_batch_size", version):
        config["num_speculative_tokens_per_batch_size"] = ranges
    return config


def _vocabularies_differ(plan: Plan, draft: Draft) -> bool:
    """Config sizes, which vLLM compares for stand-alone drafts only (verify_equal_vocab_size_if_draft_model)."""
    if draft.model is None or draft.method is not DraftMethod.DRAFT_MODEL:
        return False
    return plan.serving.target.architecture.vocabulary_size != draft.model.architecture.vocabulary_size


def _ranges(plan: Plan, k: int, off_at: int | None) -> list[list[int]] | None:
    """Inclusive batch ranges with their k, the first from 1 on; 0 drafts nothing (v1/spec_decode/dynamic)."""
    most = plan.defaults.max_num_seqs
    if off_at is None or not 1 < off_at <= most:
        return None
    return [[1, off_at - 1, k], [off_at, most, 0]]


def _model_settings(plan: Plan) -> Iterator[Setting]:
    workload = plan.serving.workload
    revision = model_revision(plan.serving.target)
    if revision is not None:
        yield "revision", revision
    if workload.tp > 1:
        yield "tensor_parallel_size", workload.tp
    if workload.pp > 1:
        yield "pipeline_parallel_size", workload.pp
    if workload.expert_parallel:
        yield "enable_expert_parallel", True
    yield "max_model_len", workload.context_tokens
    if workload.dtype != _INHERIT:
        yield "dtype", setting(workload.dtype, "--dtype")
    if workload.quantization is not None:
        yield "quantization", setting(workload.quantization, "--quantization")
    if workload.kv_cache_dtype != _INHERIT:
        yield "kv_cache_dtype", setting(workload.kv_cache_dtype, "--kv-cache-dtype")


def _engine_settings(plan: Plan, version: str) -> Iterator[Setting]:
    workload = plan.serving.workload
    if workload.kv_cache_memory_bytes is not None:
        yield "kv_cache_memory_bytes", workload.kv_cache_memory_bytes
    default = 0.92 if release_of(version) >= (0, 20) else 0.9
    fraction = _fraction(plan, default)
    if fraction is not None and fraction != default:
        yield "gpu_memory_utilization", fraction
    if workload.max_num_seqs is not None:
        yield "max_num_seqs", workload.max_num_seqs
    if workload.max_num_batched_tokens is not None:
        yield "max_num_batched_tokens", workload.max_num_batched_tokens
    if workload.block_size is not None:
        yield "block_size", workload.block_size
    if workload.enforce_eager:
        yield "enforce_eager", True
    if not workload.async_scheduling:
        yield "async_scheduling", False


def _fraction(plan: Plan, default: float) -> float | None:
    """The plan's fraction. Beside a pinned cache it decides nothing but the start-up check, which it must pass.

    Source: v1/worker/gpu_worker.py (``request_memory`` runs before the pinned size is looked at).
    """
    workload = plan.serving.workload
    if workload.kv_cache_memory_bytes is None:
        return plan.gpu_memory_utilization
    if workload.gpu_memory_utilization is not None:
        return workload.gpu_memory_utilization
    free = [
        (rank.rank.device.free_bytes - rank.breakdown.outside_budget.high_bytes) / total.high_bytes
        for rank in plan.ranks
        if rank.rank.device.free_bytes is not None and (total := rank.rank.device.engine_total_bytes) is not None
    ]
    least = floor_share(min(free, default=1.0))
    return min(default, least) if least > 0 else None


def _offline_settings(plan: Plan, settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """``LLM()`` has larger defaults than the server for these two, so the plan's own are spelled out."""
    pinned = {
        "max_num_seqs": plan.defaults.max_num_seqs,
        "max_num_batched_tokens": plan.defaults.max_num_batched_tokens,
    }
    return (*(given for given in settings if given[0] not in pinned), *pinned.items())


def _words(settings: Sequence[Setting], speculation: dict[str, Any] | None) -> Iterator[str]:
    for name, value in settings:
        option = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{option}" if value else f"--no-{option}"
        else:
            yield from (f"--{option}", _figure(value))
    if speculation is not None:
        yield from ("--speculative-config", json.dumps(speculation, ensure_ascii=True))


def _figure(value: str | int | float) -> str:
    """Three decimals for a fraction, as the window's bounds have; more only where the user gave more."""
    if isinstance(value, float):
        return f"{value:.3f}" if round(value, 3) == value else repr(value)
    return str(value)


def _python(name: str, settings: Sequence[Setting], speculation: dict[str, Any] | None) -> str:
    """A script that runs as it stands; every string goes through ``repr``."""
    arguments: list[tuple[str, object]] = [("model", name), *settings]
    if speculation is not None:
        arguments.append(("speculative_config", speculation))
    return "\n".join(
        (
            "from vllm import LLM, SamplingParams",
            "",
            'if __name__ == "__main__":',
            "    llm = LLM(",
            *(f"        {key}={value!r}," for key, value in arguments),
            "    )",
            '    [answer] = llm.generate(["The capital of France is"], SamplingParams(max_tokens=64))',
            "    print(answer.outputs[0].text)",
            "",
        )
    )
