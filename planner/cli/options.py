"""The options of the commands, and how they become the request that `fit` gets. Reads nothing else."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import click

from planner.cli.output import ColorChoice, Output
from planner.cli.typed_names import (
    complete_devices,
    complete_draft,
    complete_engine,
    complete_file,
    complete_gpu,
)
from planner.service.request import PlanOptions
from planner.service.values import COUNT, FRACTION, SHARE, SIZE, TOKEN_RANGE, Value
from planner.speculation.prediction import Task

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def split_options(given: Mapping[str, Any]) -> tuple[PlanOptions, Output]:
    """The plan's options and the output's, out of what click read."""
    names = {field.name for field in fields(PlanOptions)}
    return PlanOptions(**{name: value for name, value in given.items() if name in names}), read_output(given)


def read_output(given: Mapping[str, Any]) -> Output:
    """The output's options, out of what click read."""
    return Output(
        json_target=given["json_target"],
        quiet=given["quiet"],
        progress=not given["no_progress"],
        color=_color(given["color"]),
    )


def _color(name: str) -> ColorChoice:
    choices: dict[str, ColorChoice] = {"always": "always", "never": "never"}
    return choices.get(name, "auto")


def apply(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """One decorator out of several, shown in the help in this order."""

    def decorate(function: Decorated) -> Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def valued(
    *names: str, value: Value[object], text: str, default: str | None = None
) -> Callable[[Decorated], Decorated]:
    """An option that is read as a ``Value``."""

    def callback(_context: click.Context, parameter: click.Parameter, given: str | None) -> object:
        return None if given is None else value.parse(given, parameter.opts[0])

    return click.option(
        *names,
        metavar=value.metavar,
        callback=callback,
        default=default,
        show_default=default is not None,
        help=text,
    )


def draft_options() -> Callable[[Decorated], Decorated]:
    """Which drafts, and how much they may take."""
    return apply(
        click.option(
            "--draft",
            "drafts",
            multiple=True,
            metavar="REPO",
            shell_complete=complete_draft,
            help="Only this draft: a model, mtp, ngram, or none. Repeatable.  [all that are found]",
        ),
        valued(
            "--draft-budget",
            value=SHARE,
            default="15%",
            text="Share of a device's total memory that all of the draft may take.",
        ),
        valued(
            "--num-speculative-tokens",
            value=TOKEN_RANGE,
            text="Tokens drafted a step, or a range to choose from.  [3-8]",
        ),
    )


def demand_options() -> Callable[[Decorated], Decorated]:
    """What is generated, for the predicted speedup."""
    return apply(
        click.option(
            "--task",
            type=click.Choice([task.value for task in Task]),
            default=Task.MIXED.value,
            show_default=True,
            help="What is generated; acceptance depends on it.",
        ),
        click.option(
            "--also-for",
            multiple=True,
            metavar="ENGINE",
            shell_complete=complete_engine,
            help="Also say what this engine makes of the pair, with its command: sglang, llama.cpp, ...",
        ),
        valued("--prompt-tokens", value=COUNT, text="Prompt length.  [half of the context, at most 1024]"),
        valued("--output-tokens", value=COUNT, text="Output length.  [half of the context, at most 1024]"),
    )


def where_options() -> Callable[[Decorated], Decorated]:
    """On which devices."""
    return apply(
        click.option(
            "--gpu",
            metavar="NAME[:N]",
            shell_complete=complete_gpu,
            help="Plan for a declared GPU or a size: h100-80gb:2, 24GiB. See `specplan gpus`.",
        ),
        click.option(
            "--fallback-gpu",
            metavar="NAME[:N]",
            shell_complete=complete_gpu,
            help="The same, where no live device is found.",
        ),
        click.option(
            "--devices",
            metavar="LIST",
            shell_complete=complete_devices,
            help="Live devices by index or UUID (0,1), or cpu.  [all]",
        ),
        click.option("--driver", metavar="VERSION", help="With --gpu: use what was measured under this driver."),
    )


def workload_options() -> Callable[[Decorated], Decorated]:
    """How much is served at once."""
    return apply(
        valued(
            "--context",
            "--max-model-len",
            "context",
            value=COUNT,
            default="8192",
            text="Tokens a sequence: prompt and output together.",
        ),
        valued("--batch", value=COUNT, default="1", text="Sequences held at once, all of full context."),
    )


def engine_options() -> Callable[[Decorated], Decorated]:
    """The engine and the knobs that move memory."""
    return apply(
        click.option(
            "--engine",
            default="vllm",
            show_default=True,
            metavar="NAME[==VERSION]",
            shell_complete=complete_engine,
            help="The serving engine: vllm, sglang, tensorrt-llm, llama.cpp or transformers.",
        ),
        valued("--tp", value=COUNT, text="Tensor parallel degree.  [devices / pp]"),
        valued("--pp", value=COUNT, default="1", text="Pipeline parallel degree."),
        click.option(
            "--enable-expert-parallel", is_flag=True, help="Deal experts out whole instead of cutting them."
        ),
        valued("--memory-limit", value=SIZE, text="Never plan beyond this much of a device (shared cards)."),
        click.option("--dtype", default="auto", metavar="NAME", help="As the engine names it."),
        click.option("--quantization", metavar="NAME", help="As the engine names it: fp8, q4_k_m, ..."),
        click.option(
            "--kv-cache-dtype", default="auto", metavar="NAME", help="As the engine names it: fp8, q8_0, ..."
        ),
        click.option(
            "--draft-kv-cache-dtype", default="auto", metavar="NAME", help="The same for the draft's cache."
        ),
        valued("--gpu-memory-utilization", value=FRACTION, text="The engine's fraction.  [one that works]"),
        valued("--kv-cache-memory", value=SIZE, text="Pin the cache pool to this size."),
        valued("--max-num-batched-tokens", value=COUNT, text="As in the engine.  [its default]"),
        valued("--max-num-seqs", value=COUNT, text="As in the engine.  [its default]"),
        valued("--block-size", value=COUNT, text="As in the engine.  [its default]"),
        click.option("--enforce-eager", is_flag=True, help="Without CUDA graphs."),
        click.option("--no-async-scheduling", is_flag=True, help="As in the engine."),
    )


def detail_options() -> Callable[[Decorated], Decorated]:
    """How much is told."""
    return apply(
        click.option("--verbose", is_flag=True, help="Show every line of every rank."),
        click.option("--explain", is_flag=True, help="Show every line's formula, numbers, basis and source."),
    )


def offline_option() -> Callable[[Decorated], Decorated]:
    """No network."""
    return apply(
        click.option("--offline", is_flag=True, help="No network: local folders, the Hub cache, the catalogue.")
    )


def output_options() -> Callable[[Decorated], Decorated]:
    """Where the answer goes; read back by ``read_output``."""
    return apply(
        click.option(
            "--json",
            "json_target",
            metavar="PATH",
            shell_complete=complete_file,
            help="Write the document there; - for stdout alone.",
        ),
        click.option("--quiet", is_flag=True, help="One line of answer, no notes."),
        click.option("--no-progress", is_flag=True, help="Do not say what is being done."),
        click.option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            help="Colour. NO_COLOR is obeyed.",
        ),
        click.option("--debug", is_flag=True, help="Show tracebacks of errors."),
    )
