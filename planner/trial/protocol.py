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
            given = json.loads(text)
            name = given.pop("event")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
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
            ProtocolError: a field is missing or unknown.
        """
        try:
            run = cls(**{**given, "accepted_counts": tuple(given["accepted_counts"])})
            positive = (
                *(run.baseline_tokens, run.baseline_seconds, run.baseline_passes),
                *(run.speculative_tokens, run.speculative_seconds, run.passes, run.rounds),
            )
            plausible = all(0 < value < math.inf for value in positive) and sum(run.accepted_counts) == run.rounds
        except (TypeError, KeyError) as error:
            raise ProtocolError(f"not a prompt's run: {error}") from error
        if not plausible:
            raise ProtocolError(f"a prompt's run whose figures cannot be: {run.prompt!r:.80}")
        return run
