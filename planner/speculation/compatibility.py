"""Can this draft serve this target under this engine? The records; each rule is in ``vocabulary_rules``."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

#: The check that the draft's heads divide by the tensor-parallel size.
DRAFT_TP: Final = "draft tp"
#: Checks that an engine's profile makes as well, before it plans: one of the two is enough to be told.
SAID_BY_PROFILES: Final = frozenset({"method", "batch", "target width", "mtp layers"})
#: Checks that concern the target and the request alone: where they fail, so do they for every draft.
ANY_DRAFT: Final = frozenset({"batch", "target state"})


class CompatibilityVerdict(StrEnum):
    """What the engine does with the pair. A fact that could not be read makes it unknown, never accepted."""

    ACCEPTED = "accepted"
    ACCEPTED_WITH_WARNING = "accepted_with_warning"  #: the engine takes it, but it is wrong or capped
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check by the engine, or by us beyond the engine (``by_engine`` False). ``passed`` None: not known.

    ``refuses``: failing it rules the pair out; where False, it is a warning.
    """

    name: str
    passed: bool | None
    text: str
    by_engine: bool = True
    remedy: str | None = None
    refuses: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """All checks of one pair under one engine."""

    engine: str
    verdict: CompatibilityVerdict
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        """Checks that did not pass, or could not be made."""
        return tuple(check for check in self.checks if check.passed is not True)
