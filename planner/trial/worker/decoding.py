"""Greedy decoding, plain and speculative, over the caches of transformers.

Both ways share one forward function, one token counter and one clock, so that a ratio of their times compares
nothing else. Batch of one. Source of the scheme: Leviathan et al. (arXiv:2211.17192), greedy case: a proposal is
accepted where it is the target's own choice, so the output is the target's.
"""

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


class UncroppableCacheError(Exception):
    """The model's cache cannot forget rejected tokens (recurrent state, say)."""


@dataclass(slots=True, kw_only=True)
class CachedModel:
    """A model with its cache; ``length`` tokens lie in it."""

    model: Any
    device: str
    cache: Any = None
    length: int = 0
    cache_argument: str = field(init=False)

    def __post_init__(self) -> None:
        # Renamed in transformers 5; the old name warns on every call.
        known = inspect.signature(type(self.model).forward).parameters
        self.cache_argument = "cache" if "cache" in known else "past_key_values"

    def reset(self) -> None:
        """Forget everything."""
        self.cache, self.length = None, 0

    def advance(self, tokens: Sequence[int], *, keep: int = 1) -> torch.Tensor:
        """Read ``tokens`` into the cache; logits of the last ``keep`` of them: [keep, vocabulary]."""
        ids = torch.tensor([list(tokens)], device=self.device)
        given = {self.cache_argument: self.cache}
        out = self.model(input_ids=ids, use_cache=True, logits_to_keep=keep, **given)
        self.cache = out.past_key_values
        self.length += len(tokens)
        logits: torch.Tensor = out.logits[0, -keep:]
        return logits

    def crop(self, length: int) -> None:
        """Forget all but the first ``length`` tokens.

        Raises:
            UncroppableCacheError: the cache holds state that cannot go back.
        """
        surplus = self.length - length
        if surplus <= 0:
            return
        if not hasattr(self.cache, "crop"):
            raise UncroppableCacheError(type(self.cache).__name__)
        self.cache.crop(-surplus)
        self.length = length


@dataclass(slots=True, kw_only=True)
class Decoded:
    """Tokens after the prompt, the first of which prefill yields; times of decoding alone."""

    tokens: list[int]
    prefill_seconds: float
    seconds: float = 0.0
    rounds: int = 0
    drafted: int = 0
    accepted_counts: list[int] = field(default_factory=list)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0


def synchronizer(device: str) -> Callable[[], None]:
    """What to call before reading the clock: devices work behind the host's back."""
    if device.startswith("cuda"):
        return lambda: torch.cuda.synchronize(device)
    return lambda: None


def decode_plain(target: CachedModel, prompt: Sequence[int], new_tokens: int) -> Decoded:
    """The baseline: one token a step, never ending early, so that every prompt yields the same number."""
    settle = synchronizer(target.device)
    target.reset()
    start = time.perf_counter()
    token = int(target.advance(prompt)[-1].argmax())
    settle()
    decoded = Decoded(tokens=[token], prefill_seconds=time.perf_counter() - start)
    start = time.perf_counter()
    while len(decoded.tokens) < new_tokens:
        token = int(target.advance([token])[-1].argmax())
        decoded.tokens.append(token)
        decoded.rounds += 1
    settle()
    decoded.seconds = time.perf_counter() - start
    return decoded


def decode_speculative(
    target: CachedModel, draft: CachedModel, prompt: Sequence[int], new_tokens: int, k: int
) -> Decoded:
    """The draft proposes ``k`` tokens, the target judges them in one pass of k + 1 positions.

    The last round proposes fewer where fewer are wanted, so that both ways yield exactly ``new_tokens``.
    """
    settle = synchronizer(target.device)
    target.reset()
    draft.reset()
    start = time.perf_counter()
    sequence = [*prompt, int(target.advance(prompt)[-1].argmax())]
    draft.advance(prompt)
    settle()
    decoded = Decoded(tokens=[], prefill_seconds=time.perf_counter() - start, accepted_counts=[0] * (k + 1))
    end = len(prompt) + new_tokens
    start = time.perf_counter()
    while len(sequence) < end:
        # The bonus token comes for nothing, so one proposal fewer than the tokens that are still wanted.
        proposals = min(k, end - len(sequence) - 1)
        accepted = _round(target, draft, sequence, proposals, decoded, settle)
        if proposals == k:
            decoded.accepted_counts[accepted] += 1
    settle()
    decoded.seconds = time.perf_counter() - start
    decoded.tokens = sequence[len(prompt) :]
    return decoded


def _round(
    target: CachedModel,
    draft: CachedModel,
    sequence: list[int],
    k: int,
    decoded: Decoded,
    settle: Callable[[], None],
) -> int:
    """One draft and one verification; extends ``sequence``; how many proposals were accepted."""
    begin = time.perf_counter()
    proposals: list[int] = []
    unread = sequence[draft.length :]  # two tokens after a round that accepted all: the draft never read its last
    for _ in range(k):
        token = int(draft.advance(unread)[-1].argmax())
        proposals.append(token)
        unread = [token]
    settle()
    middle = time.perf_counter()
    judged = target.advance([*sequence[target.length :], *proposals], keep=k + 1)
    choices: list[int] = judged.argmax(dim=-1).tolist()
    finish = time.perf_counter()
    accepted = next((i for i in range(k) if proposals[i] != choices[i]), k)
    sequence += choices[: accepted + 1]
    target.crop(len(sequence) - 1)
    draft.crop(min(draft.length, len(sequence) - 1))
    if k == len(decoded.accepted_counts) - 1:
        # Only full rounds are counted and timed: the last, shorter one is of another shape.
        decoded.rounds += 1
        decoded.drafted += k
        decoded.draft_seconds += middle - begin
        decoded.verify_seconds += finish - middle
    return accepted
