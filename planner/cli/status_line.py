"""What is going on, for people who wait: one line on a terminal, redrawn and wiped; elsewhere seldom a plain line.

Steps nest: "reading drafts, 3 of 12" stays while each of them is read. Nothing is shown of what takes less than a
second. Everything else that is written wipes the line first (``wiped``). Owns no wording.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from planner.report.plain import safe_line

#: Before anything is shown on a terminal, and between redraws.
_FIRST_SECONDS: Final = 0.7
_REDRAW_SECONDS: Final = 0.5
#: The same where lines stay: a log is not to be filled.
_FIRST_PLAIN_SECONDS: Final = 30.0
_PLAIN_SECONDS: Final = 60.0
#: A rate is not extrapolated from less.
_ESTIMATED_AFTER_SECONDS: Final = 2.0
_WIPE: Final = "\r\x1b[2K"


def terminal_columns(stream: TextIO) -> int:
    """How wide the terminal behind this stream is; where it does not say, what COLUMNS says, else 80."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or shutil.get_terminal_size().columns
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns


class ShownStep:
    """One step of what goes on. A ``Step`` of ``planner.service.remarks``."""

    def __init__(self, text: str, clock: Callable[[], float]) -> None:
        self._text = text
        self._clock = clock
        self._since = clock()
        self._count: tuple[int, int] | None = None
        self._deadline: float | None = None

    def say(self, text: str) -> None:
        """Something else goes on now; counts and deadlines were the former's."""
        self._text, self._count, self._deadline = text, None, None

    def count(self, done: int, total: int) -> None:
        """So much of it is done."""
        self._count = (done, total) if total > 1 else None

    def at_most(self, seconds: float) -> None:
        """It ends after so long, whatever comes."""
        self._deadline = self._clock() + seconds

    @property
    def elapsed_seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._since

    @property
    def text(self) -> str:
        """What goes on, and how far it has come."""
        return self._text if self._count is None else f"{self._text}, {self._count[0]} of {self._count[1]}"

    @property
    def left(self) -> str:
        """How long it may still take, as far as that is known; else empty."""
        if self._deadline is not None:
            return f"at most {max(self._deadline - self._clock(), 0):.0f} s left"
        elapsed = self.elapsed_seconds
        if self._count is None or not 0 < self._count[0] < self._count[1] or elapsed < _ESTIMATED_AFTER_SECONDS:
            return ""
        done, total = self._count
        return f"about {elapsed * (total - done) / done:.0f} s left"


class StatusLine:
    """The line and who redraws it. ``stream`` None: stderr as it is when something is shown."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._steps: list[ShownStep] = []
        self._shown = False
        self._plain_at = 0.0
        self._lock = threading.RLock()
        self._idle = threading.Event()

    @contextmanager
    def step(self, text: str) -> Iterator[ShownStep]:
        """Something goes on while the block runs."""
        step = ShownStep(text, self._clock)
        with self._lock:
            self._steps.append(step)
            if len(self._steps) == 1:
                self._plain_at = _FIRST_PLAIN_SECONDS
                self._idle = threading.Event()
                threading.Thread(target=self._redraw, args=(self._idle,), name="status", daemon=True).start()
        try:
            yield step
        finally:
            with self._lock:
                self._steps.remove(step)
                if not self._steps:
                    self._idle.set()
                    self.wipe()

    @contextmanager
    def wiped(self) -> Iterator[None]:
        """Without the line, for whatever else is written; it comes back by itself."""
        with self._lock:
            self.wipe()
            yield

    def wipe(self) -> None:
        """Take the line away."""
        with self._lock:
            if self._shown:
                self._write(_WIPE)
                self._shown = False

    def draw(self) -> None:
        """Show what goes on, if it is time to."""
        with self._lock:
            if not self._steps:
                return
            elapsed = self._steps[0].elapsed_seconds
            if self._redraws:
                if elapsed >= _FIRST_SECONDS:
                    width = terminal_columns(self._stream or sys.stderr) - 1
                    self._write(_WIPE + self._line(elapsed)[:width])
                    self._shown = True
            elif elapsed >= self._plain_at:
                self._plain_at = elapsed + _PLAIN_SECONDS
                self._write(f"progress: {self._line(elapsed)}\n")

    def _line(self, elapsed: float) -> str:
        told = ": ".join(step.text for step in self._steps)
        left = next((step.left for step in reversed(self._steps) if step.left), "")
        times = f"{elapsed:.0f} s" + (f", {left}" if left else "")
        return safe_line(f"{told} ({times})")

    def _redraw(self, idle: threading.Event) -> None:
        pause = _FIRST_SECONDS
        while not idle.wait(pause):
            pause = _REDRAW_SECONDS
            try:
                self.draw()
            except (OSError, ValueError):  # stderr is shut: nobody watches any more
                return

    @property
    def _redraws(self) -> bool:
        stream = self._stream or sys.stderr
        return stream.isatty() and os.environ.get("TERM") != "dumb"

    def _write(self, text: str) -> None:
        stream = self._stream or sys.stderr
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, errors="backslashreplace").decode(encoding))
        stream.flush()


#: A terminal has one line for this, and a process one of each.
STATUS_LINE: Final = StatusLine()
