"""The report's figures of speed: a pair as predicted, and its ``trial`` as measured. Null is what is not known."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, le=1)]


class TrialPart(BaseModel):
    """Immutable, and nothing in it that the schema does not name."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RangeEntry(TrialPart):
    """Two ends of a prediction."""

    low: float
    high: float


class SourcedRange(RangeEntry):
    """Two ends, and where they come from."""

    source: str


class TokensEntry(TrialPart):
    """The predicted decode speedup at one k."""

    num_speculative_tokens: int
    speedup: RangeEntry


class PredictionEntry(TrialPart):
    """The predicted speedup at the best k. ``ceiling_speedup`` is 1 / (1 - acceptance): a ceiling, no estimate."""

    num_speculative_tokens: int
    acceptance: SourcedRange
    mean_acceptance_length: RangeEntry
    cost_ratio: SourcedRange
    speedup: RangeEntry | None
    ceiling_speedup: float
    end_to_end_speedup: RangeEntry | None
    break_even_acceptance: float | None
    stops_paying_at_batch: int | None
    by_num_speculative_tokens: list[TokensEntry]
    notes: list[str]


class CostEntry(TrialPart):
    """What the draft costs the target: cached tokens and full sequences without and with it."""

    kv_tokens_alone: RangeEntry | None
    kv_tokens_with_draft: RangeEntry | None
    kv_tokens_lost_share: RangeEntry | None
    max_concurrency_alone: float | None
    max_concurrency_with_draft: float | None


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
