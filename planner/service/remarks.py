"""What is said beside an answer: collected here; shown by whoever asked."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from planner.verdict import Reason


class Step(Protocol):
    """Something that takes its time, as it goes on."""

    def say(self, text: str) -> None:
        """Something else goes on now."""

    def count(self, done: int, total: int) -> None:
        """So much of it is done."""

    def at_most(self, seconds: float) -> None:
        """It ends after so long, whatever comes."""


class UnseenStep:
    """A step that nobody sees."""

    def say(self, text: str) -> None:
        """Nobody sees it."""

    def count(self, done: int, total: int) -> None:
        """Nobody sees it."""

    def at_most(self, seconds: float) -> None:
        """Nobody sees it."""


class RemarkSink(Protocol):
    """Takes what is to be said while a plan is made."""

    @property
    def remarks(self) -> Sequence[Reason]:
        """Every note and warning so far, in order."""

    def note(self, code: str, text: str) -> None:
        """Take what stands beside the answer; ``code`` is for scripts."""

    def warn(self, code: str, text: str) -> None:
        """Take what changes how far the answer can be trusted."""

    def step(self, text: str) -> AbstractContextManager[Step]:
        """What is being done while the block runs, for people who wait."""


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

    def step(self, text: str) -> AbstractContextManager[Step]:  # noqa: ARG002 - nobody waits
        """A step that nobody sees."""
        return nullcontext(UnseenStep())
