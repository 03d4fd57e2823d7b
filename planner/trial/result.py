"""A trial that is over, as the report and later plans read it: one JSON-ready mapping and what follows from it.

A document that was stored is read back by the same code as one that was just made, so both mean the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from model_catalog.bounds import Basis
from model_catalog.errors import SpecplanError
from planner.speculation.prediction import Acceptance, StepTimes
from planner.speculation.ranges import Range

#: A trial sees too few rounds to say that every proposal is accepted; a rate of 1 would mean endless speed.
_SUREST: Final = 0.99
Outcome = Literal["confirms", "contradicts", "failed"]
#: "assumed": the weights were random, so only memory and step times were measured.
Answer = Literal["helps", "hurts", "unsure", "assumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTrial:
    """One pair's trial. ``document`` is the report's ``trial`` object.

    ``as_served``: it ran as the planned engine would run it, so its speedup is the engine's; otherwise only its
    acceptance carries over. ``error`` is set where the trial failed in this very run. ``remembered``: measured
    earlier, on this machine.
    """

    document: Mapping[str, Any]
    as_served: bool = False
    remembered: bool = False
    error: SpecplanError | None = None

    @property
    def outcome(self) -> Outcome:
        """Whether the plan was right."""
        found: Outcome = self.document["outcome"]
        return found

    @property
    def worse_than_planned(self) -> bool:
        """Contradicts the plan to the user's harm: more memory, or less speed."""
        return any(item["agrees"] is False and item["harmful"] for item in self.document["comparisons"])

    @property
    def settles_fit(self) -> bool:
        """Started with the plan's own settings, as vLLM alone is, it served: a plan that was tight does fit."""
        served = self.as_served and self.answer is not None and self.document["backend"] == "vllm"
        return served and not self.worse_than_planned

    @property
    def answer(self) -> Answer | None:
        """Whether the draft helps; None where the trial failed."""
        found: Answer | None = self.document["answer"]
        return found

    @property
    def num_speculative_tokens(self) -> int | None:
        """The k that was measured."""
        k: int | None = self.document["num_speculative_tokens"]
        return k

    @property
    def source(self) -> str:
        """Where its figures come from, in words."""
        day = str(self.document["measured_at"])[:10]
        name = self.document["device"]["name"]
        return f"measured here on {day}: {self.document['backend']} backend, {name}"

    @property
    def speedup(self) -> Range | None:
        """The 95 % interval, or the value alone where one prompt was measured; None with random weights."""
        found = self.document["speedup"]
        if found is None:
            return None
        value: float = found["value"]
        return Range(low=_or(found["low"], value), high=_or(found["high"], value))

    @property
    def acceptance(self) -> Acceptance | None:
        """Conditional rates by position with their intervals, up to the first that was never reached."""
        positions = []
        for bounds in self.document["acceptance_intervals"]:
            if bounds is None:
                break
            positions.append(Range(low=min(bounds[0], _SUREST), high=min(bounds[1], _SUREST)))
        if not positions or self.answer in {None, "assumed"}:
            return None
        return Acceptance(
            rate=positions[0], source=self.source, basis=Basis.CALIBRATED, per_position=tuple(positions)
        )

    @property
    def step_times(self) -> StepTimes | None:
        """Times of single steps at the trial's k and batch; None where the engine does not tell them."""
        found = self.document
        seconds = [found[key] for key in ("t_target_seconds", "t_draft_seconds", "t_verify_seconds")]
        k = self.num_speculative_tokens
        if k is None or any(value is None for value in seconds):
            return None
        target, draft, verify = (Range.point(float(value)) for value in seconds)
        return StepTimes(
            target_seconds=target,
            draft_seconds=draft,
            verify_seconds=verify,
            overhead_seconds=Range.point(0.0),
            source=self.source,
            basis=Basis.CALIBRATED,
            measured_up_to_tokens=int(found["batch"]) * (k + 1),
        )


def is_trial_document(given: object) -> bool:
    """Whether a mapping that was read from a file is a whole trial document, with figures that can be."""
    if not isinstance(given, Mapping) or not given.keys() >= _NEEDED:
        return False
    speedup, device = given["speedup"], given["device"]
    numbers = [given[key] for key in ("t_target_seconds", "t_draft_seconds", "t_verify_seconds")]
    if isinstance(speedup, Mapping):
        numbers += [speedup.get(key) for key in ("value", "low", "high")]
        if speedup.get("value") is None:
            return False
    return (
        (speedup is None or isinstance(speedup, Mapping))
        and isinstance(device, Mapping)
        and isinstance(device.get("name"), str)
        and given["outcome"] in get_args(Outcome)
        and (given["answer"] is None or given["answer"] in get_args(Answer))
        and all(value is None or _is_positive(value) for value in numbers)
        and all(_is_count(given[key]) for key in ("batch", "num_speculative_tokens"))
        and all(isinstance(given[key], str) for key in ("measured_at", "backend"))
        and _are_rates(given["acceptance_intervals"])
        and _are_comparisons(given["comparisons"])
    )


_NEEDED = frozenset(
    {
        *("backend", "device", "measured_at", "outcome", "answer", "comparisons", "num_speculative_tokens"),
        *("batch", "speedup", "acceptance_intervals", "t_target_seconds", "t_draft_seconds", "t_verify_seconds"),
    }
)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _are_rates(given: object) -> bool:
    return isinstance(given, Sequence) and all(
        bounds is None
        or (
            isinstance(bounds, Sequence)
            and len(bounds) == 2
            and all(isinstance(bound, int | float) for bound in bounds)
            and 0 <= bounds[0] <= bounds[1] <= 1
        )
        for bounds in given
    )


def _are_comparisons(given: object) -> bool:
    return isinstance(given, Sequence) and all(
        isinstance(item, Mapping) and item.keys() >= {"name", "agrees", "harmful", "text"} for item in given
    )
