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
