"""The options of the commands, and the record that `fit` gets once they are read. Reads nothing else."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

import click

from model_catalog.errors import UsageError
from planner.cli.output import ColorChoice, Output
from planner.cli.values import COUNT, FRACTION, SHARE, SIZE, TOKEN_RANGE, TokenRange, Value
from planner.speculation.prediction import Demand, Task
from planner.workload import Workload

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
DEFAULT_SPECULATIVE_TOKENS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What `fit` and `gpus` were asked, as typed; None means: not said.

    ``drafts`` are repo ids or ``none``, ``mtp``, ``ngram``; ``gpu`` and ``devices`` say where, ``tp`` how wide.
    """

    context: int
    batch: int
    drafts: tuple[str, ...]
    draft_budget: float
    num_speculative_tokens: TokenRange | None
    gpu: str | None = None
    fallback_gpu: str | None = None
    driver: str | None = None
    devices: str | None = None
    tp: int | None
    pp: int
    enable_expert_parallel: bool
    memory_limit: int | None
    engine: str
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    draft_kv_cache_dtype: str
    gpu_memory_utilization: float | None
    max_num_batched_tokens: int | None
    max_num_seqs: int | None
    block_size: int | None
    enforce_eager: bool
    no_async_scheduling: bool
    kv_cache_memory: int | None
    offline: bool
    verbose: bool = False
    explain: bool = False
    task: str = Task.MIXED.value
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    also_for: tuple[str, ...] = ()

    @property
    def engine_name(self) -> str:
        """The engine without its release."""
        return self.engine.partition("==")[0].strip().lower()

    @property
    def gguf(self) -> bool:
        """Whether weights are GGUF files, target's and draft's, of the type ``--quantization`` names."""
        return self.engine_name == "llama.cpp"

    def demand(self) -> Demand:
        """The load of a prediction: half of the context each for prompt and output, 1024 at most.

        Raises:
            UsageError: where the context cannot hold both.
        """
        half = max(1, min(self.context // 2, 1024))
        prompt = self.prompt_tokens or max(1, min(half, self.context - (self.output_tokens or half)))
        output = self.output_tokens or max(1, min(half, self.context - prompt))
        if prompt + output > self.context > 1:
            raise UsageError(
                f"a prompt of {prompt:,} and an output of {output:,} exceed the context of {self.context:,}",
                subject="--prompt-tokens, --output-tokens",
                hint=f"use --context {prompt + output} or more, or fewer tokens",
            )
        return Demand(
            task=Task(self.task),
            batch=self.batch,
            context_tokens=self.context,
            prompt_tokens=prompt,
            output_tokens=output,
        )

    def workload(self, tp: int) -> Workload:
        """The planner's request, without a draft."""
        return Workload(
            context_tokens=self.context,
            batch=self.batch,
            tp=tp,
            pp=self.pp,
            expert_parallel=self.enable_expert_parallel,
            dtype=self.dtype,
            quantization=self.quantization,
            kv_cache_dtype=self.kv_cache_dtype,
            draft_kv_cache_dtype=self.draft_kv_cache_dtype,
            gpu_memory_utilization=self.gpu_memory_utilization,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_num_seqs=self.max_num_seqs,
            block_size=self.block_size,
            enforce_eager=self.enforce_eager,
            async_scheduling=not self.no_async_scheduling,
            kv_cache_memory_bytes=self.kv_cache_memory,
            memory_limit_bytes=self.memory_limit,
            draft_budget_share=self.draft_budget,
        )


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


def valued(*names: str, value: Value, text: str, default: str | None = None) -> Callable[[Decorated], Decorated]:
    """An option that is read as a ``Value``."""
    return click.option(
        *names,
        metavar=value.metavar,
        callback=value.callback,
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
            help="Plan for a declared GPU or a size: h100-80gb:2, 24GiB. See `specplan gpus`.",
        ),
        click.option("--fallback-gpu", metavar="NAME[:N]", help="The same, where no live device is found."),
        click.option("--devices", metavar="LIST", help="Live devices by index or UUID (0,1), or cpu.  [all]"),
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
            "--json", "json_target", metavar="PATH", help="Write the document there; - for stdout alone."
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
