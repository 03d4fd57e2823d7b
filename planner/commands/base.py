"""A command to start what was planned: argv for a shell, and the Python form where the engine has one."""

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCommand:
    """``argv`` is safe to run without a shell; ``text`` is the same quoted for one. ``files``: name -> content."""

    engine: str
    argv: tuple[str, ...]
    python: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The command line, quoted for a POSIX shell."""
        return shlex.join(self.argv)

    @property
    def lines(self) -> tuple[str, ...]:
        """The same over several lines, one option each, joined by backslashes: still one command to paste."""
        words = [shlex.quote(word) for word in self.argv]
        rows: list[list[str]] = [[]]
        for word in words:
            if word.startswith("--") and rows[-1]:
                rows.append([])
            rows[-1].append(word)
        last = len(rows) - 1
        return tuple(
            ("  " if number else "") + " ".join(row) + ("" if number == last else " \\")
            for number, row in enumerate(rows)
        )
