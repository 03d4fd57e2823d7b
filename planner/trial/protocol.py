"""What parent and child of a trial say to each other: one JSON request, then one JSON event a line.

Standard library only, so that the child needs nothing of ours but this package and the parent needs no torch.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

PROTOCOL_VERSION: Final = 2
#: The largest k of a sweep; theory puts the best one between 3 and 8.
DEEPEST_SWEPT: Final = 8
#: No device holds so many bytes, and no trial lasts so long: a month.
_MOST_COUNTED: Final = 2**60
_LONGEST_SECONDS: Final = 31 * 86_400.0
EventName = Literal["loaded", "warmed", "progress", "result", "error"]
WeightsKind = Literal["real", "dummy"]


class ProtocolError(Exception):
    """The other side said something that this version does not understand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """What the child is to run. Folders hold config.json, and with real weights safetensors and a tokenizer.

    ``weights`` "dummy": random ones made from the configuration; step times and memory are real then, acceptance
    is not. ``num_speculative_tokens`` None: the child sweeps k and takes the best. ``batch``: sequences decoded
    at once. ``temperature`` 0: greedy, else sampling. ``seconds`` bounds warming and measuring; loading comes on
    top. ``device_limits_bytes``: what may be taken of each visible GPU, in their order; empty: no cap.
    ``engine_options``: what the backend's engine is started with.
    """

    target_folder: str
    draft_folder: str
    device: str = "cpu"
    dtype: str = "float32"
    weights: WeightsKind = "real"
    num_speculative_tokens: int | None = None
    new_tokens: int = 128
    batch: int = 1
    temperature: float = 0.0
    seconds: float = 60.0
    seed: int = 0
    threads: int | None = None
    device_limits_bytes: tuple[int, ...] = ()
    engine_options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line of JSON, with the protocol's version."""
        return json.dumps({"protocol": PROTOCOL_VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> "TrialRequest":
        """Read one back.

        Raises:
            ProtocolError: another version, or not a request.
        """
        try:
            given = json.loads(text)
            version = given.pop("protocol")
            if version != PROTOCOL_VERSION:
                raise ProtocolError(f"the request speaks version {version}, this worker {PROTOCOL_VERSION}")
            given["device_limits_bytes"] = tuple(given.get("device_limits_bytes", ()))
            return cls(**given)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ProtocolError(f"not a request: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line from the child."""

    name: EventName
    content: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({"event": self.name, **self.content})

    @classmethod
    def from_json(cls, text: str) -> "Event":
        """Read one back.

        Raises:
            ProtocolError: not an event.
        """
        try:
            given = json.loads(text, parse_float=_finite, parse_constant=_finite)
            name = given.pop("event")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ProtocolError(f"not an event: {text[:200]!r}") from error
        if name not in ("loaded", "warmed", "progress", "result", "error"):
            raise ProtocolError(f"an unknown event: {name!r}")
        return cls(name=name, content=given)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRun:
    """A prompt, or as many as a batch holds, decoded both ways. Seconds are of decoding; prefill stands apart.

    Tokens are those after each sequence's first, which prefill yields; the two ways may generate different
    numbers. A *round* is one sequence's proposals judged once, a *pass* one call of the target for the whole
    batch. ``accepted_counts[i]`` is the number of rounds in which exactly i proposals were accepted.
    ``draft_seconds`` and ``verify_seconds`` are None where the engine does not tell them, ``same_tokens`` where
    outputs are drawn.
    """

    prompt: str
    task: str
    baseline_tokens: int
    baseline_seconds: float
    baseline_passes: int
    speculative_tokens: int
    speculative_seconds: float
    passes: int
    rounds: int
    accepted_counts: tuple[int, ...]
    prefill_seconds: float | None = None
    draft_seconds: float | None = None
    verify_seconds: float | None = None
    same_tokens: bool | None = None
    logit_gap: float | None = None  #: target's logit difference of the two tokens at the first divergence

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "PromptRun":
        """Read one from an event.

        Raises:
            ProtocolError: a field is missing or unknown, or its figure cannot be.
        """
        try:
            run = cls(**{**given, "accepted_counts": tuple(given["accepted_counts"])})
        except (TypeError, KeyError) as error:
            raise ProtocolError(f"not a prompt's run: {error}") from error
        if not run._can_be():
            raise ProtocolError(f"a prompt's run whose figures cannot be: {run.prompt!r:.80}")
        return run

    def _can_be(self) -> bool:
        counts = (self.baseline_tokens, self.baseline_passes, self.speculative_tokens, self.passes, self.rounds)
        return (
            _all_of(str, self.prompt, self.task)
            and all(is_count(value) and value > 0 for value in counts)
            and all(is_count(value) for value in self.accepted_counts)
            and sum(self.accepted_counts) == self.rounds
            and all(_is_time(value) and value > 0 for value in (self.baseline_seconds, self.speculative_seconds))
            and all(
                value is None or _is_time(value)
                for value in (self.prefill_seconds, self.draft_seconds, self.verify_seconds)
            )
            and (self.same_tokens is None or _all_of(bool, self.same_tokens))
            and (self.logit_gap is None or _is_number(self.logit_gap))
        )


def _all_of(kind: type, *values: object) -> bool:
    return all(isinstance(value, kind) for value in values)


def is_count(value: object) -> bool:
    """Whether this is a whole number that something can have been counted or measured to, in bytes or less."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_COUNTED


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and _is_number(value) and 0 <= value <= _LONGEST_SECONDS


def _finite(text: str) -> float:
    """JSON has no NaN and no infinity; Python's reader takes both, and makes one of 1e999."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number")
    return value
