"""What a serving engine is started with in a trial: the plan's settings, so that what runs is what was planned."""

from typing import Any

from planner.planning import Plan
from planner.trial.expectation import longest_tokens
from planner.trial.protocol import TrialRequest


def vllm_options(plan: Plan | None, request: TrialRequest) -> dict[str, Any]:
    """VLLM's EngineArgs of this plan; without a plan for vLLM just enough for the trial's own lengths."""
    if plan is None:
        return {
            "max_model_len": longest_tokens(request),
            "max_num_seqs": request.batch,
            "enforce_eager": request.device == "cpu",
        }
    work = plan.serving.workload
    options: dict[str, Any] = {
        "max_model_len": work.context_tokens,
        "tensor_parallel_size": work.tp,
        "pipeline_parallel_size": work.pp,
        "enforce_eager": work.enforce_eager,
    }
    if work.kv_cache_memory_bytes is not None:
        options["kv_cache_memory_bytes"] = work.kv_cache_memory_bytes
    elif plan.gpu_memory_utilization is not None:
        options["gpu_memory_utilization"] = round(plan.gpu_memory_utilization, 4)
    if work.tp > 1:
        # The engine refuses any degree of the draft but 1 and its own; our command says the latter.
        options["speculative_config"] = {"draft_tensor_parallel_size": work.tp}
    if work.kv_cache_dtype != "auto":
        options["kv_cache_dtype"] = work.kv_cache_dtype
    if work.expert_parallel:
        options["enable_expert_parallel"] = True
    # Also where the plan has the engine's own defaults: started from a program they are others than serving's.
    options["max_num_batched_tokens"] = plan.defaults.max_num_batched_tokens
    options["max_num_seqs"] = max(plan.defaults.max_num_seqs, request.batch)
    given = {"quantization": work.quantization, "block_size": work.block_size}
    return options | {name: value for name, value in given.items() if value is not None}
