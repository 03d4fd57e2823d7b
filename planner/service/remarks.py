"""What is said beside an answer: collected here; shown by whoever asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from planner.verdict import Reason


class RemarkSink(Protocol):
    """Takes what is to be said while a plan is made."""

    @property
    def remarks(self) -> Sequence[Reason]:
        """Every note and warning so far, in order."""

    def note(self, code: str, text: str) -> None:
        """Take what stands beside the answer; ``code`` is for scripts."""

    def warn(self, code: str, text: str) -> None:
        """Take what changes how far the answer can be trusted."""

    def advance(self, text: str) -> None:
        """Take what is being done just now, for people who watch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedRemarks:
    """Keeps notes and warnings, and shows nobody anything."""

    remarks: list[Reason] = field(default_factory=list)

    def note(self, code: str, text: str) -> None:
        """Keep a note."""
        self.remarks.append(Reason(code=code, text=text))

    def warn(self, code: str, text: str) -> None:
        """Keep a warning."""
        self.remarks.append(Reason(code=code, text=text))

    def advance(self, text: str) -> None:
        """Nobody watches."""
