"""What a saved plan is, what may differ from it, and what a look at the devices found: records, and their worst.

Reads no file and no device; what a report may hold is ``report.saved_plan``'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from model_catalog.units import to_gib
from planner.devices import Device, DeviceSource
from planner.memory.breakdown import MemoryBreakdown
from planner.verdict import Answer, RankVerdict, Window


class Level(StrEnum):
    """What a difference means for the plan."""

    BREAKS = "breaks"
    DOUBT = "doubt"
    NOTE = "note"


class Standing(StrEnum):
    """The answer."""

    HOLDS = "holds"
    CANNOT_TELL = "cannot_tell"
    DOES_NOT_HOLD = "does_not_hold"


class Code(StrEnum):
    """What differs. Names are a promise to scripts."""

    DEVICE_GONE = "device_gone"
    DEVICE_HIDDEN = "device_hidden"
    DEVICE_UNREADABLE = "device_unreadable"
    NO_SUCH_GPU = "no_such_gpu"
    MATCHED_BY_NAME = "matched_by_name"
    DRIVER_CHANGED = "driver_changed"
    TOTAL_CHANGED = "total_changed"
    MEMORY_TAKEN = "memory_taken"
    MEMORY_FREED = "memory_freed"
    FREE_BELOW_REQUIRED = "free_below_required"
    READING_MISSING = "reading_missing"
    DOES_NOT_FIT = "does_not_fit"
    TIGHT = "tight"
    SETTLED_BY_TRIAL = "settled_by_trial"
    WEIGHTS_INCOMPLETE = "weights_incomplete"
    START_REFUSED = "start_refused"
    OTHER_FRACTION = "other_fraction"
    FITS_NOW = "fits_now"
    MODEL_MOVED = "model_moved"
    MODEL_CHANGED = "model_changed"
    MODEL_GONE = "model_gone"
    MODEL_NOT_COMPARED = "model_not_compared"
    ENGINE_VERSION = "engine_version"
    ENGINE_MISSING = "engine_missing"
    ENGINE_NOT_COMPARED = "engine_not_compared"


#: Waiting does not bring these back.
_PERMANENT: Final = frozenset({Code.DEVICE_HIDDEN, Code.NO_SUCH_GPU, Code.WEIGHTS_INCOMPLETE})


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDevice:
    """A device as the plan saw it; ``position`` is its place in the report."""

    position: int
    uuid: str | None
    name: str
    total_bytes: int | None
    free_bytes: int | None
    driver_version: str | None
    source: DeviceSource

    @property
    def label(self) -> str:
        """How people tell it from others."""
        return f"{self.name} ({self.uuid or f'device {self.position}'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRank:
    """A rank's lines and every device that carries them: equal devices of one stage share a report's entry."""

    rank: int
    positions: tuple[int, ...]
    breakdown: MemoryBreakdown
    pool_overshoot: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan as a report holds it. ``fraction`` is fixed: whoever chose it, the command to start has it.

    ``settled_by_trial``: it was tight, and a trial showed that it fits. ``start_fraction``: beside a pinned pool,
    the fraction of the total that must be free at the start all the same (vLLM's ``request_memory``).
    """

    devices: tuple[SavedDevice, ...]
    ranks: tuple[SavedRank, ...]
    budget_base: str
    fraction: float | None
    memory_limit_bytes: int | None
    kv_cache_memory_bytes: int | None
    answer: Answer
    headroom_bytes: int | None
    weights_incomplete: bool = False
    settled_by_trial: bool = False
    start_fraction: float | None = None

    @property
    def source(self) -> DeviceSource:
        """Where its devices came from; all from one place."""
        return self.devices[0].source


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as planned: a code for scripts, a sentence for people."""

    code: Code
    level: Level
    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankNow:
    """One rank on one device: the plan's, today's (None where it is not there), and today's verdict."""

    rank: int
    saved: SavedDevice
    device: Device | None
    verdict: RankVerdict | None

    @property
    def answer(self) -> Answer:
        """Unknown where there is no device."""
        return Answer.UNKNOWN if self.verdict is None else self.verdict.answer

    @property
    def headroom_bytes(self) -> int | None:
        """Below zero: what is missing at worst."""
        return None if self.verdict is None else self.verdict.headroom_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """What a look at the devices found. ``window``: the memory fractions that are certain to work now."""

    ranks: tuple[RankNow, ...]
    differences: tuple[Difference, ...]
    window: Window | None

    @property
    def standing(self) -> Standing:
        """The answer as far as the devices decide it."""
        return standing_of(self.differences)

    @property
    def may_settle(self) -> bool:
        """Whether what is wrong may pass by itself."""
        return not any(found.code in _PERMANENT for found in self.differences)

    @property
    def tightest(self) -> RankNow | None:
        """The rank with the least headroom; None where none could be judged."""
        known = [now for now in self.ranks if now.headroom_bytes is not None]
        return min(known, key=lambda now: now.headroom_bytes or 0, default=None)


def standing_of(differences: Sequence[Difference]) -> Standing:
    """The worst that the differences mean together."""
    levels = {found.level for found in differences}
    if Level.BREAKS in levels:
        return Standing.DOES_NOT_HOLD
    return Standing.CANNOT_TELL if Level.DOUBT in levels else Standing.HOLDS


def of_device(code: Code, level: Level, saved: SavedDevice, text: str) -> Difference:
    """A difference of one of the plan's devices."""
    return Difference(code=code, level=level, subject=saved.label, text=text)


def need_text(size_bytes: int) -> str:
    """A need in words."""
    return f"{to_gib(size_bytes, 'up')} GiB"


def room_text(size_bytes: int) -> str:
    """Room in words."""
    return f"{to_gib(size_bytes, 'down')} GiB"
