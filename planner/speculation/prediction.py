"""The records of a speedup prediction: what was assumed, from where, and what follows."""

from dataclasses import dataclass
from enum import StrEnum

from model_catalog.bounds import Basis
from planner.speculation.ranges import Range


class Task(StrEnum):
    """What is generated; acceptance depends on it as much as on the draft."""

    CHAT = "chat"
    CODE = "code"
    SUMMARISE = "summarise"
    TRANSLATE = "translate"
    MATH = "math"
    RAG = "rag"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The load that a prediction is for. ``temperature`` None: unknown, so priors span greedy and sampling."""

    task: Task = Task.MIXED
    batch: int = 1
    context_tokens: int = 8192
    prompt_tokens: int = 1024
    output_tokens: int = 1024
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Conditional acceptance rate per position, as a range, with its source.

    ``per_position`` holds conditional rates where a source gives them (position 1 first); each position beyond
    is taken as ``decay_per_position`` times the one before, because flat extrapolation is too hopeful. ``rate``
    is the first position's. ``basis``: calibrated (measured for this pair), derived (published for it) or
    assumed (a family prior).
    """

    rate: Range
    source: str
    basis: Basis
    per_position: tuple[Range, ...] = ()
    decay_per_position: float = 0.97


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of one step at the demand's batch: target on one token a sequence, draft on one, target on k + 1.

    ``measured_up_to_tokens`` is the largest token count (batch x (k + 1)) that measurements cover, also for a
    model built on them. Beyond it nothing is extrapolated.

    Bounds of the seconds share causes (one bandwidth, one launch cost), so ratios of them are known better than
    their quotients: ``cost_ratio`` is draft / target, ``cycle_ratio`` (all drafting + verify + overhead) / target,
    each under one assumption at a time. None: to be taken from the seconds.
    """

    target_seconds: Range
    draft_seconds: Range
    verify_seconds: Range
    overhead_seconds: Range
    source: str
    basis: Basis
    measured_up_to_tokens: int | None = None
    cost_ratio: Range | None = None
    cycle_ratio: Range | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Expected speedup of one draft at its best k, as a range.

    ``cost_ratio`` is t_draft / t_target. ``ceiling_speedup`` is 1 / (1 - highest acceptance): a ceiling, not an
    estimate. ``break_even_acceptance``: the rate below which speculation loses at this k.
    ``stops_paying_at_batch``: the smallest power-of-two batch whose whole range lies below 1 (None: none up to
    what the model covers). ``speedup`` None where the demand lies beyond what can be told; ``notes`` say why.
    """

    num_speculative_tokens: int
    acceptance: Acceptance
    mean_acceptance_length: Range
    cost_ratio: Range
    cost_source: str
    speedup: Range | None
    end_to_end_speedup: Range | None
    ceiling_speedup: float
    break_even_acceptance: float | None
    stops_paying_at_batch: int | None
    by_num_speculative_tokens: tuple[tuple[int, Range], ...] = ()
    notes: tuple[str, ...] = ()
    measured: bool = False  #: ``speedup`` was measured on this machine, not predicted
