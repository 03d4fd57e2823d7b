"""What a plan was asked for, as the command line and Python both hand it on. Reads nothing."""

from dataclasses import dataclass
from typing import Final

from model_catalog.errors import UsageError
from planner.service.values import TokenRange
from planner.speculation.prediction import Demand, Task
from planner.workload import Workload

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

    def check_sequences(self) -> None:
        """Refuse more sequences at once than the engine is told to hold.

        Raises:
            UsageError: ``--batch`` and ``--max-num-seqs`` contradict each other.
        """
        if self.max_num_seqs is not None and self.max_num_seqs < self.batch:
            raise UsageError(
                f"the engine would hold {self.max_num_seqs:,} sequences at once, and {self.batch:,} are asked for",
                subject="--batch and --max-num-seqs",
                hint=f"use --max-num-seqs {self.batch} or more, or --batch {self.max_num_seqs}: the others wait",
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
