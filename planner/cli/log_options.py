"""The options of `explain-log`, and a log's settings with what the user added to them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import click

from planner.cli.options import apply, offline_option, output_options, valued
from planner.cli.typed_names import complete_draft, complete_engine, complete_gpu, complete_model
from planner.logs.settings import LogSettings
from planner.service.request import PlanOptions
from planner.service.values import COUNT, FRACTION, SIZE

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
#: Options by the settings that they stand for.
_ADDED: Final = {
    "model": "model",
    "context": "context_tokens",
    "tp": "tp",
    "pp": "pp",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "kv_cache_memory": "kv_cache_memory_bytes",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "block_size": "block_size",
    "num_speculative_tokens": "num_speculative_tokens",
}


def log_options() -> Callable[[Decorated], Decorated]:
    """Where the engine ran, what it ran, and what becomes of the answer."""
    return apply(
        click.option(
            "--model",
            metavar="TARGET",
            shell_complete=complete_model,
            help="The model, where the log names it by a folder elsewhere.",
        ),
        click.option("--draft", metavar="REPO", shell_complete=complete_draft, help="The same for the draft."),
        click.option(
            "--gpu",
            metavar="NAME[:N]",
            shell_complete=complete_gpu,
            help="The card that it ran on: h100-80gb. See `specplan gpus`.",
        ),
        click.option("--devices", metavar="LIST", help="It ran on these devices of this machine."),
        click.option("--driver", metavar="VERSION", help="The driver there: calibrations are kept apart by it."),
        click.option(
            "--engine",
            metavar="NAME==VERSION",
            shell_complete=complete_engine,
            help="The engine's release, where the log lacks it.",
        ),
        valued("--context", "--max-model-len", "context", value=COUNT, text="As in the engine.  [of the log]"),
        valued("--tp", value=COUNT, text="Tensor parallel degree.  [of the log]"),
        valued("--pp", value=COUNT, text="Pipeline parallel degree.  [of the log]"),
        click.option("--dtype", metavar="NAME", help="As the engine names it.  [of the log]"),
        click.option("--quantization", metavar="NAME", help="As the engine names it.  [of the log]"),
        click.option("--kv-cache-dtype", metavar="NAME", help="As the engine names it.  [of the log]"),
        valued("--gpu-memory-utilization", value=FRACTION, text="As in the engine.  [of the log]"),
        valued("--kv-cache-memory", value=SIZE, text="The pool's size, where it was pinned.  [of the log]"),
        valued("--max-num-batched-tokens", value=COUNT, text="As in the engine.  [of the log]"),
        valued("--max-num-seqs", value=COUNT, text="As in the engine.  [of the log]"),
        valued("--block-size", value=COUNT, text="As in the engine.  [of the log]"),
        valued("--num-speculative-tokens", value=COUNT, text="Tokens drafted a step.  [of the log]"),
        offline_option(),
        click.option("--save", is_flag=True, help="Keep the measured overheads for later plans of this set-up."),
        output_options(),
    )


def with_options(settings: LogSettings, given: Mapping[str, Any]) -> LogSettings:
    """The log's settings; what the user says wins."""
    said = {field: given[option] for option, field in _ADDED.items() if given.get(option) is not None}
    if given.get("driver") is not None:
        said["driver"] = given["driver"]
    if "max_num_batched_tokens" in said:
        said["tokens_asked"] = True
    return replace(settings, **said)


def plan_options(settings: LogSettings, given: Mapping[str, Any], *, engine: str) -> PlanOptions:
    """What the parts of `fit` that are shared want to know."""
    return PlanOptions(
        context=settings.context_tokens or 1,
        batch=1,
        drafts=(),
        draft_budget=1.0,
        num_speculative_tokens=None,
        gpu=given.get("gpu"),
        devices=given.get("devices"),
        tp=settings.tp,
        pp=settings.pp or 1,
        enable_expert_parallel=settings.expert_parallel,
        memory_limit=None,
        engine=engine,
        dtype=settings.dtype or "auto",
        quantization=None,
        kv_cache_dtype=settings.kv_cache_dtype or "auto",
        draft_kv_cache_dtype="auto",
        gpu_memory_utilization=settings.gpu_memory_utilization,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=settings.max_num_seqs,
        block_size=settings.block_size,
        enforce_eager=bool(settings.enforce_eager),
        no_async_scheduling=settings.async_scheduling is False,
        kv_cache_memory=settings.kv_cache_memory_bytes,
        offline=bool(given.get("offline")),
    )
