"""The report's ``trial`` object: one pair as it was measured. Null is what was not measured or is not told."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, le=1)]


class TrialPart(BaseModel):
    """Immutable, and nothing in it that the schema does not name."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class EstimateEntry(TrialPart):
    """A value with its 95 % interval; null bounds where one run was measured."""

    value: Positive
    low: Positive | None
    high: Positive | None


class SpanEntry(TrialPart):
    """Two ends."""

    low: float
    high: float


class TrialDevice(TrialPart):
    """Where it ran."""

    name: str
    driver: str | None


class TrialMemory(TrialPart):
    """Bytes: planned at most; tensors held; peaks of the process, the allocator and, by the driver, the device."""

    predicted_bytes: NonNegativeInt | None
    tensor_bytes: NonNegativeInt | None
    process_peak_bytes: NonNegativeInt | None
    allocated_peak_bytes: NonNegativeInt | None
    reserved_peak_bytes: NonNegativeInt | None
    device_peak_bytes: NonNegativeInt | None


class LosslessEntry(TrialPart):
    """Runs whose tokens were held against plain decoding, and the widest logit gap where they part first."""

    checked: NonNegativeInt
    diverged: NonNegativeInt
    max_logit_gap: float | None


class TaskEntry(TrialPart):
    """One task's figures."""

    prompts: NonNegativeInt
    speedup: EstimateEntry
    mean_acceptance_length: EstimateEntry


class ComparisonEntry(TrialPart):
    """A planned figure beside the measured one. ``agrees`` null: told, but it decides nothing."""

    name: str
    planned: SpanEntry
    measured: SpanEntry
    agrees: bool | None
    harmful: bool
    text: str


class TrialErrorEntry(TrialPart):
    """Why a trial has no result."""

    code: str
    message: str
    hint: str


class TrialEntry(TrialPart):
    """A measured trial of one pair."""

    backend: Literal["builtin", "vllm", "llama.cpp"]
    measured_at: str
    device: TrialDevice
    versions: dict[str, str]
    target_revision: str | None
    draft_revision: str | None
    dtype: str
    weights: Literal["real", "dummy"]
    batch: int
    temperature: float
    prompts: NonNegativeInt
    prompts_failed: NonNegativeInt
    tokens: NonNegativeInt
    num_speculative_tokens: int | None
    how: str | None
    answer: Literal["helps", "hurts", "unsure", "assumed"] | None
    acceptance_rate: Rate | None
    acceptance_per_position: list[Rate | None]
    acceptance_intervals: list[tuple[Rate, Rate] | None]
    accepted_per_drafted: Rate | None
    mean_acceptance_length: EstimateEntry | None
    baseline_tokens_per_second: Positive | None
    speculative_tokens_per_second: Positive | None
    speedup: EstimateEntry | None
    repeats_spread: float | None
    t_target_seconds: Positive | None
    t_draft_seconds: Positive | None
    t_verify_seconds: Positive | None
    cost_ratio: Positive | None
    speedup_of_step_times: Positive | None
    memory: TrialMemory | None
    lossless: LosslessEntry | None
    by_task: dict[str, TaskEntry]
    engine: dict[str, Any]
    comparisons: list[ComparisonEntry]
    outcome: Literal["confirms", "contradicts", "failed"]
    error: TrialErrorEntry | None
    stopped_by: str | None
    notes: list[str]
