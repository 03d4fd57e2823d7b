"""The Python door: ``from planner import plan``. What `specplan fit` answers, returned instead of printed.

Prints nothing, ends nothing, reads no command line. A request that cannot be answered raises the error that the
command line would turn into its exit code; a "no" is an answer, not an error.
"""

import os
from collections.abc import Sequence
from typing import Final

from model_catalog.errors import ModelError, NetworkError, SpecplanError, UsageError
from planner.errors import HardwareError
from planner.service.fitting import plan_fit
from planner.service.remarks import CollectedRemarks
from planner.service.request import PlanOptions
from planner.service.result import FitResult
from planner.service.values import COUNT, FRACTION, SHARE, SIZE, TOKEN_RANGE, Read_co, TokenRange, Value
from planner.speculation.prediction import Task

__all__ = [
    "FitResult",
    "HardwareError",
    "ModelError",
    "NetworkError",
    "SpecplanError",
    "UsageError",
    "plan",
]

_TASKS: Final = ", ".join(task.value for task in Task)


def plan(
    target: str | os.PathLike[str],
    *,
    drafts: str | Sequence[str] = (),
    context: int = 8192,
    batch: int = 1,
    gpu: str | None = None,
    fallback_gpu: str | None = None,
    devices: str | None = None,
    driver: str | None = None,
    tp: int | None = None,
    pp: int = 1,
    enable_expert_parallel: bool = False,
    memory_limit: int | str | None = None,
    engine: str = "vllm",
    dtype: str = "auto",
    quantization: str | None = None,
    kv_cache_dtype: str = "auto",
    draft_kv_cache_dtype: str = "auto",
    gpu_memory_utilization: float | None = None,
    kv_cache_memory: int | str | None = None,
    max_num_batched_tokens: int | None = None,
    max_num_seqs: int | None = None,
    block_size: int | None = None,
    enforce_eager: bool = False,
    no_async_scheduling: bool = False,
    draft_budget: float | str = "15%",
    num_speculative_tokens: int | str | tuple[int, int] | None = None,
    task: str = "mixed",
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    also_for: str | Sequence[str] = (),
    offline: bool = False,
    fresh: bool = False,
) -> FitResult:
    """Does the target fit, with which draft, how much faster, and what would make it fit?

    Every argument is the option of `specplan fit` of the same name (``drafts``: ``--draft``, repeated), with its
    default and meaning. ``target`` and ``drafts`` are Hub repos (``org/name``, ``org/name@revision``), folders or
    catalogue names; ``drafts`` also ``mtp``, ``ngram``, ``none``. Tokens are counts; ``memory_limit`` and
    ``kv_cache_memory`` are bytes, or text with a unit (``"24GiB"``); ``draft_budget`` and
    ``gpu_memory_utilization`` are shares; ``num_speculative_tokens`` is k, or the range to choose from, ``(3, 8)``
    or ``"3-8"``. Without ``gpu`` the live devices are read.

    No trial is run and none of an earlier one is used: the answer is that of `specplan fit --no-trial`. Overheads
    that `explain-log --save` kept count, unless ``fresh``.

    Raises:
        UsageError: an argument that cannot be meant so, or a set-up that the engine refuses.
        ModelError: a model is missing, gated, malformed or not understood.
        HardwareError: the live devices cannot be read, and no GPU was named.
        NetworkError: the Hub cannot be asked, and nothing is cached.
    """
    options = PlanOptions(
        context=_read(COUNT, context, "context"),
        batch=_read(COUNT, batch, "batch"),
        drafts=_names(drafts),
        draft_budget=_read(SHARE, draft_budget, "draft_budget"),
        num_speculative_tokens=_token_range(num_speculative_tokens),
        gpu=gpu,
        fallback_gpu=fallback_gpu,
        driver=driver,
        devices=devices,
        tp=_read_or_none(COUNT, tp, "tp"),
        pp=_read(COUNT, pp, "pp"),
        enable_expert_parallel=enable_expert_parallel,
        memory_limit=_read_or_none(SIZE, memory_limit, "memory_limit"),
        engine=engine,
        dtype=dtype,
        quantization=quantization,
        kv_cache_dtype=kv_cache_dtype,
        draft_kv_cache_dtype=draft_kv_cache_dtype,
        gpu_memory_utilization=_read_or_none(FRACTION, gpu_memory_utilization, "gpu_memory_utilization"),
        max_num_batched_tokens=_read_or_none(COUNT, max_num_batched_tokens, "max_num_batched_tokens"),
        max_num_seqs=_read_or_none(COUNT, max_num_seqs, "max_num_seqs"),
        block_size=_read_or_none(COUNT, block_size, "block_size"),
        enforce_eager=enforce_eager,
        no_async_scheduling=no_async_scheduling,
        kv_cache_memory=_read_or_none(SIZE, kv_cache_memory, "kv_cache_memory"),
        offline=offline,
        task=_task(task),
        prompt_tokens=_read_or_none(COUNT, prompt_tokens, "prompt_tokens"),
        output_tokens=_read_or_none(COUNT, output_tokens, "output_tokens"),
        also_for=_names(also_for),
    )
    return plan_fit(os.fspath(target), options, CollectedRemarks(), fresh=fresh)


def _read(value: Value[Read_co], given: float | str, argument: str) -> Read_co:
    """By the rules of the option, whether it came as a number or as text."""
    return value.parse(str(given), argument)


def _read_or_none(value: Value[Read_co], given: float | str | None, argument: str) -> Read_co | None:
    return None if given is None else _read(value, given, argument)


def _token_range(given: int | str | tuple[int, int] | None) -> TokenRange | None:
    if given is None:
        return None
    text = "-".join(map(str, given)) if isinstance(given, tuple) else str(given)
    return TOKEN_RANGE.parse(text, "num_speculative_tokens")


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name is a name, not a sequence of letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def _task(given: str) -> str:
    if given not in {task.value for task in Task}:
        raise UsageError(f"{given!r} is no task that is known", subject="task", hint=f"use one of {_TASKS}")
    return given
