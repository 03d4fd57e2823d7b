"""Tells people who wait what a trial is at, how far it has come and how long it may still take."""

import time
from typing import Final

from planner.service.remarks import Step
from planner.trial.protocol import Event

#: What goes on until the child says that it has the models.
LOADING: Final = "loading both models"


class TrialProgress:
    """Turns the child's events into words; ``seconds`` bound its measuring."""

    def __init__(self, step: Step, seconds: float) -> None:
        self._step = step
        self._seconds = seconds
        self._done = 0
        self._measuring_since: float | None = None

    def see(self, event: Event) -> None:
        """Tell one event."""
        if event.name == "loaded":
            self._step.say("warming up and choosing k")
        elif event.name == "warmed":
            self._measuring_since = self._measuring_since or time.monotonic()
            k, phase = event.content.get("num_speculative_tokens"), event.content.get("phase")
            if phase == "baseline":
                # A serving engine holds the devices alone: the target runs first, by itself.
                done, of = event.content.get("done", 0), event.content.get("of")
                self._say(f"running the target alone, {done} of {of} prompts")
            else:
                self._say(f"measuring with {k} tokens a step")
        elif event.name == "progress":
            self._done += 1
            self._say(f"measuring, {self._done} of {event.content.get('of')} prompts")

    def _say(self, text: str) -> None:
        self._step.say(text)
        if self._measuring_since is not None:
            self._step.at_most(max(self._seconds - (time.monotonic() - self._measuring_since), 0.0))
