"""The report as scripts read it: the schema ``specplan.report/1``. Only here, in trial_document and in
fleet_document is pydantic.

Sizes are integers of bytes, tokens are integers, null is what is not known. Names are a promise: fields may be
added under this schema, never renamed or removed.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, TypeAdapter

from planner.report.fleet_document import FleetEntry
from planner.report.schemas import REPORT_SCHEMA
from planner.report.trial_document import CostEntry, PredictionEntry, TrialEntry

AnswerName = Literal["fits", "tight", "does_not_fit", "unknown"]
GroupName = Literal["target_weights", "draft_weights", "kv_cache", "runtime_overhead", "temporary_buffers"]
BasisName = Literal["exact", "derived", "calibrated", "assumed"]
MethodName = Literal["draft_model", "eagle", "eagle3", "mtp", "ngram", "dflash", "dspark"]


class Part(BaseModel):
    """A part of the report: immutable, and nothing in it that the schema does not name."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)


class Bounds(Part):
    """Bytes between two bounds, both possible."""

    low: NonNegativeInt
    high: NonNegativeInt


class Remark(Part):
    """A warning or a reason: a stable code for scripts, a sentence for people."""

    code: str
    text: str


class Request(Part):
    """What was asked, with the defaults that specplan filled in. Null: left to the engine."""

    target: str
    drafts: list[str]
    context_tokens: int
    batch: int
    num_speculative_tokens: int | None
    draft_budget_share: float
    gpu: str | None
    devices: str | None
    tp: int
    pp: int
    enable_expert_parallel: bool
    memory_limit_bytes: int | None
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
    async_scheduling: bool
    kv_cache_memory_bytes: int | None
    offline: bool


class Engine(Part):
    """The engine as planned. ``utilization_window`` holds the fractions certain to work; null where none is."""

    name: str
    version_assumed: str
    budget_base: Literal["total", "free", "free_before_load", "free_after_load"]
    gpu_memory_utilization: float | None
    utilization_window: tuple[float, float] | None
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    default_gpu_memory_utilization: float | None = None


class DeviceEntry(Part):
    """A device. ``engine_total_bytes`` is CUDA's total, the base of an engine's budget."""

    index: int
    uuid: str | None
    name: str
    total_bytes: int | None
    reserved_bytes: int | None
    engine_total_bytes: Bounds | None
    free_bytes: int | None
    used_by_others_bytes: int | None
    unified: bool
    mig: bool
    source: Literal["nvml", "declared", "host"]
    notes: list[str]
    driver_version: str | None = None


class AssumptionEntry(Part):
    """A value that the model's configuration leaves unsaid."""

    key: str
    value: str
    reason: str


class Target(Part):
    """The target, whole (not per rank). Where a figure is a range, the single field holds its high end.

    ``fingerprint``: of a local folder's configuration and weight files; null for what has a commit.
    """

    repo_id: str
    revision: str | None
    source: Literal["hub", "cache", "local", "catalogue"]
    architecture: str
    parameters: int | None
    stored_bytes: int | None
    resident_bytes: int | None
    download_bytes: int | None
    load_peak_bytes: int | None
    host_memory_bytes: int | None
    kv_bytes_per_token: Bounds
    state_bytes_per_sequence: int
    cache_bytes: Bounds
    assumptions: list[AssumptionEntry]
    fingerprint: str | None = None


class Item(Part):
    """One line of the memory plan."""

    group: GroupName
    label: str
    owner: Literal["target", "draft", "both"]
    low_bytes: NonNegativeInt
    high_bytes: NonNegativeInt
    basis: BasisName
    source: str
    formula: str
    inside_budget: bool
    before_budget: bool = False


class RankMemory(Part):
    """The memory plan of one rank; ``device`` is a position in the report's ``devices``.

    ``pool_overshoot``: bytes that the engine's pool takes beyond its budget for each byte of it.
    """

    rank: int
    stage: int
    device: int
    items: list[Item]
    total_low_bytes: NonNegativeInt
    total_high_bytes: NonNegativeInt
    budget_bytes: int | None
    pool_overshoot: float = Field(default=0.0, ge=0)


class Memory(Part):
    """Ranks that differ; equal devices of one pipeline stage share an entry."""

    per_rank: list[RankMemory]


class CacheGroupEntry(Part):
    """Layers that share block tables."""

    layers: int
    kind: str
    block_size: int


class EngineCacheEntry(Part):
    """The engine's own pool on the rank that binds it."""

    available_bytes: Bounds
    block_size: int
    bytes_per_block: int
    blocks: int
    tokens: int
    max_concurrency: float
    groups: list[CacheGroupEntry]


class RemedyEntry(Part):
    """One change that makes it fit for certain, re-planned before it was written here."""

    option: str
    value: str
    text: str


class VerdictEntry(Part):
    """The answer. ``headroom_bytes`` is negative where memory is short; null where a reading is missing."""

    answer: AnswerName
    headroom_bytes: int | None
    binding: str
    max_context_tokens: int | None
    max_batch: int | None
    reasons: list[Remark]
    remedies: list[RemedyEntry] = Field(default_factory=list)


class Budget(Part):
    """What the draft may take and takes, on the rank where it takes the largest share."""

    limit_share: float
    share: float | None
    weights_share: float | None
    footprint_bytes: Bounds


class CheckEntry(Part):
    """One check of a pair: by the engine, or by specplan beyond the engine. ``passed`` null: not known."""

    name: str
    passed: bool | None
    by_engine: bool
    text: str
    remedy: str | None


class CompatibilityEntry(Part):
    """What the engine says to the pair."""

    engine: str
    verdict: Literal["accepted", "accepted_with_warning", "refused", "unknown"]
    checks: list[CheckEntry]


class Candidate(Part):
    """One draft: accepted, or rejected with reasons. What could not be sized has null memory."""

    repo_id: str | None
    revision: str | None
    method: MethodName
    origin: Literal["named", "curated", "built_in", "cache", "hub"] | None = None
    source: str | None = None
    num_speculative_tokens: int | None
    accepted: bool
    reasons: list[Remark]
    rank: int | None
    compatibility: CompatibilityEntry | None = None
    budget: Budget | None
    memory: Memory | None
    engine_cache: EngineCacheEntry | None
    verdict: VerdictEntry | None
    cost: CostEntry | None = None
    prediction: PredictionEntry | None = None
    fingerprint: str | None = None
    trial: TrialEntry | None = None


class Worthwhile(Part):
    """Is speculation worth it for this request?"""

    answer: Literal["yes", "no", "depends"]
    reasons: list[Remark]


class Recommendation(Part):
    """What to run. ``command`` is argv; ``command_text`` is the same, quoted for a shell."""

    draft: str
    method: MethodName
    num_speculative_tokens: int
    command: list[str]
    command_text: str
    python: str | None
    notes: list[str] = Field(default_factory=list)


class ElsewhereEntry(Part):
    """What another engine makes of the pair, and its command (with a note where memory lacks) or why none."""

    engine: str
    version: str
    compatibility: CompatibilityEntry | None
    command: list[str] | None
    command_text: str | None
    python: str | None
    files: dict[str, str]
    why_not: str | None
    notes: list[str] = Field(default_factory=list)


class ProblemEntry(Part):
    """A known problem that the plan shows, with its remedies."""

    code: str
    symptom: str
    evidence: str
    remedies: list[str]


class Report(Part):
    """The report: ``memory`` and ``verdict`` describe the target with the chosen draft, or alone without one."""

    schema_name: Literal["specplan.report/1"] = Field(alias="schema")
    specplan_version: str
    created_at: str
    request: Request
    exit_code: int
    warnings: list[Remark]
    engine: Engine
    devices: list[DeviceEntry]
    target: Target
    memory: Memory
    engine_cache: EngineCacheEntry | None
    verdict: VerdictEntry
    candidates: list[Candidate]
    worthwhile: Worthwhile | None = None
    recommendation: Recommendation | None = None
    problems: list[ProblemEntry] = Field(default_factory=list)
    elsewhere: list[ElsewhereEntry] = Field(default_factory=list)
    fleet: FleetEntry | None = None


class ErrorEntry(Part):
    """What failed, on which subject, what to do next."""

    code: str
    message: str
    subject: str
    hint: str


class FailureReport(Part):
    """What is written where there is no report."""

    schema_name: Literal["specplan.report/1"] = Field(alias="schema")
    exit_code: int
    error: ErrorEntry


_EITHER: Final[TypeAdapter[Report | FailureReport]] = TypeAdapter(Report | FailureReport)


def read_report(document: Mapping[str, Any]) -> Report | FailureReport:
    """Check a parsed JSON document against the schema.

    Raises:
        ValueError: naming each field that does not belong or does not hold what it should.
    """
    return _EITHER.validate_python(document)


def report_mapping(report: Report) -> dict[str, Any]:
    """A JSON-ready mapping with every field, null where unknown."""
    return report.model_dump(mode="json", by_alias=True)


def report_json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the report and of the failure document."""
    schema = _EITHER.json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": REPORT_SCHEMA,
        **schema,
    }
