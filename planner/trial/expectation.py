"""What the plan expects of a trial, for the trial's own conditions: memory of its backend, and the speedup.

The trial's context is short and its backend is not the engine that the user plans for, so neither the plan's bytes
nor its range would be a fair thing to hold the measurement against.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from model_catalog.drafts import DraftMethod
from model_catalog.dtypes import FLOAT32, find_dtype
from model_catalog.model import Model, describe
from planner.devices import Device, DeviceSource
from planner.engines.base import Draft, Serving
from planner.engines.transformers import TransformersProfile
from planner.memory.breakdown import Group
from planner.planning import Plan, make_plan
from planner.speculation.prediction import Demand, Prediction
from planner.speculation.speedup import predict
from planner.trial.prompts import groups
from planner.trial.protocol import DEEPEST_SWEPT, TrialRequest
from planner.workload import Workload

#: The built-in backend: transformers with our own loop, which takes batches.
TRIAL_PROFILE: Final = TransformersProfile(name="the trial's own loop", one_at_a_time=False)
#: A prompt of the trial, in tokens of an ordinary tokenizer; only the speedup's attention part depends on it.
_PROMPT_TOKENS: Final = 48


def trial_dtype(target: Model, dtype: str, device: str) -> str:
    """The type that both models run in: as asked, else the checkpoint's; a GPU gets no float32, as in engines."""
    wanted = find_dtype(dtype) or target.architecture.dtype
    return "bfloat16" if wanted is FLOAT32 and dtype == "auto" and device == "cuda" else wanted.name


def longest_tokens(request: TrialRequest) -> int:
    """Tokens of the longest sequence that a trial may hold: a byte is a token at most, and a round overshoots."""
    return tokens_beside_new(request.num_speculative_tokens) + request.new_tokens


def tokens_beside_new(num_speculative_tokens: int | None) -> int:
    """What the longest sequence of a trial holds beside the new tokens that were asked for."""
    longest = max(len(prompt.text.encode()) for (prompt,) in groups(1))
    return longest + (num_speculative_tokens or DEEPEST_SWEPT) + 1


def plan_trial(
    target: Model, draft: Model, devices: Sequence[Device], request: TrialRequest, *, context_tokens: int, k: int
) -> Plan:
    """The memory plan of the trial itself, with layers dealt over all devices.

    Raises:
        UsageError: a context that the models do not take.
    """
    workload = Workload(context_tokens=context_tokens, batch=request.batch, pp=len(devices), dtype=request.dtype)
    models = [describe(model.snapshot, dtype=request.dtype) for model in (target, draft)]
    pair = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=k, model=models[1])
    serving = Serving(target=models[0], draft=pair, workload=workload)
    return make_plan(serving, devices, TRIAL_PROFILE, with_pool=False)


def held_range(plan: Plan, *, temporary: bool) -> tuple[int, int]:
    """Bytes of weights, caches and logits over all ranks; with ``temporary`` of activations too, as an allocator
    counts them. Contexts and the process itself are left out.
    """
    groups = {Group.TARGET_WEIGHTS, Group.DRAFT_WEIGHTS, Group.KV_CACHE}
    lines = [
        line
        for rank in plan.ranks
        for line in rank.breakdown.items
        if line.group in groups or line.label == "logits" or (temporary and line.group is Group.TEMPORARY_BUFFERS)
    ]
    return sum(line.low_bytes for line in lines), sum(line.high_bytes for line in lines)


def expected_prediction(
    target: Model, draft: Model, device: Device, request: TrialRequest, *, k: int, graphs: bool
) -> Prediction | None:
    """The speedup for the trial's batch, lengths and launches; None on a CPU: its step times are not modelled."""
    if device.source is DeviceSource.HOST:
        return None
    tokens = _PROMPT_TOKENS + request.new_tokens
    workload = Workload(context_tokens=tokens, batch=request.batch, dtype=request.dtype, enforce_eager=not graphs)
    demand = replace(
        Demand(batch=request.batch),
        context_tokens=tokens,
        prompt_tokens=_PROMPT_TOKENS,
        output_tokens=request.new_tokens,
        temperature=request.temperature,
    )
    pair = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=k, model=draft)
    return predict(target, pair, device, workload, demand, k_range=(k, k))
