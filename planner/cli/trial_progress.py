"""Tells people who watch how far a trial has come and how long it may still take."""

import time

from planner.cli.output import Output
from planner.trial.protocol import Event


class TrialProgress:
    """Turns the child's events into one line that is written over itself; ``end`` closes it."""

    def __init__(self, output: Output, seconds: float) -> None:
        self._output = output
        self._seconds = seconds
        self._done = 0
        self._measuring_since: float | None = None

    def see(self, event: Event) -> None:
        """Tell one event."""
        if event.name == "loaded":
            self._output.rewrite("trial: warming up and choosing k")
        elif event.name == "warmed":
            self._measuring_since = self._measuring_since or time.monotonic()
            k, phase = event.content.get("num_speculative_tokens"), event.content.get("phase")
            if phase == "baseline":
                # A serving engine holds the devices alone: the target runs first, by itself.
                done, of = event.content.get("done", 0), event.content.get("of")
                self._output.rewrite(f"trial: the target alone, {done} of {of}{self._left()}")
            else:
                self._output.rewrite(f"trial: measuring with {k} tokens a step")
        elif event.name == "progress":
            self._done += 1
            total = event.content.get("of")
            self._output.rewrite(f"trial: {_bar(self._done, total)} {self._done} of {total}{self._left()}")

    def end(self) -> None:
        """Leave the line as it is and begin a new one."""
        self._output.end_line()

    def _left(self) -> str:
        if self._measuring_since is None:
            return ""
        left = self._seconds - (time.monotonic() - self._measuring_since)
        return f", at most {max(left, 0):.0f} s left"


def _bar(done: int, total: object) -> str:
    if not isinstance(total, int) or total <= 0:
        return ""
    width = 20
    full = min(width, done * width // total)
    return f"[{'#' * full}{'.' * (width - full)}]"
