"""One answer of ``llama-server``, and how its figures become rounds. Standard library only.

``predicted_ms`` runs from the first token, which prefill yields, to the last. A round yields the proposals that it
accepts and one token more, so target passes are the tokens after the first less those accepted. Where ``/metrics``
counts acceptance by position (since 2026) it is taken as counted; else only totals are known, and a fit is made.
The last rounds of a prompt draft no more than what is left of it: later positions look worse than they are by
about one round a prompt. Source: llama.cpp b10434 and b11434, ``tools/server/server-context.cpp``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from planner.trial.worker.llama_cpp.log import Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One completion, by the server's own clock and counters. ``rounds`` None: it counts no rounds by itself."""

    tokens: tuple[int, ...]
    predicted: int
    seconds: float
    prefill_seconds: float
    drafted: int
    accepted: int
    rounds: int | None = None
    accepted_to: tuple[int, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, Any], before: Counters, after: Counters) -> "Answer":
        """Read what ``/completion`` answered; the server's counters stood so before it and after.

        Raises:
            KeyError, ValueError, TypeError: it cannot be read, or its figures cannot be.
        """
        timings = given["timings"]
        counted = before.drafts is not None and after.drafts is not None
        old = [*before.positions, *[0] * len(after.positions)]
        answer = cls(
            tokens=tuple(given.get("tokens", ())),
            predicted=int(timings["predicted_n"]),
            seconds=float(timings["predicted_ms"]) / 1000,
            prefill_seconds=float(timings["prompt_ms"]) / 1000,
            drafted=int(timings.get("draft_n", 0)),
            accepted=int(timings.get("draft_n_accepted", 0)),
            rounds=(after.drafts or 0) - (before.drafts or 0) if counted else None,
            accepted_to=tuple(new - past for new, past in zip(after.positions, old, strict=False)),
        )
        if answer.predicted < 2 or answer.passes < 1 or answer.seconds <= 0:
            raise ValueError(
                f"{answer.predicted} tokens in {answer.seconds} s, of them {answer.accepted} accepted"
            )
        return answer

    @property
    def passes(self) -> int:
        """Passes of the target after prefill."""
        return self.predicted - 1 - self.accepted


def fitted_counts(rounds: int, accepted: int, k: int) -> tuple[int, ...]:
    """Rounds by accepted proposals where only totals are known: the two whole numbers around the mean.

    Raises:
        ValueError: the totals cannot be.
    """
    if rounds < 1 or not 0 <= accepted <= k * rounds:
        raise ValueError(f"{accepted} accepted in {rounds} rounds of {k}")
    low, above = divmod(accepted, rounds)
    counts = [0] * (k + 1)
    counts[low] = rounds - above
    if above:
        counts[low + 1] = above
    return tuple(counts)


def told_counts(answer: Answer, k: int) -> tuple[int, ...] | None:
    """Rounds by accepted proposals as the server counted them; None where it did not, or its figures disagree."""
    if answer.rounds is None or (answer.accepted and not answer.accepted_to):
        return None
    reached = [answer.rounds, *answer.accepted_to[:k]]
    reached += [0] * (k + 2 - len(reached))
    counts = [high - low for high, low in pairwise(reached)]
    right = min(counts) >= 0 and sum(i * count for i, count in enumerate(counts)) == answer.accepted
    return tuple(counts) if right and answer.rounds else None
