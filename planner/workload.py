"""What is to be served, and with which engine settings. None always means: the engine's own default."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The request.

    ``context_tokens``: tokens a sequence (prompt + output); ``batch``: sequences held at once. Dtype names are the
    engine's own spellings (``auto``, ``bfloat16``, ``fp8``). ``memory_limit_bytes`` caps what may be planned on
    one device. How many tokens are drafted is the draft's (``engines.base.Draft``).
    """

    context_tokens: int = 8192
    batch: int = 1
    tp: int = 1
    pp: int = 1
    expert_parallel: bool = False
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    draft_kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    async_scheduling: bool = True
    kv_cache_memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    draft_budget_share: float = 0.15
