"""Decoding of a batch, plain and speculative, over the caches of transformers.

Both ways share one forward function, one token counter and one clock, so that a ratio of their times compares
nothing else. Neither ends early: every token counts, whatever it means. Source of the scheme: Leviathan et al.
(arXiv:2211.17192v2), algorithm 1.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from planner.trial.worker.caches import CachedModel, UncroppableCacheError
from planner.trial.worker.sampling import Choice

__all__ = ["CachedModel", "Decoded", "UncroppableCacheError", "decode_plain", "decode_speculative"]


@dataclass(slots=True, kw_only=True)
class Decoded:
    """Tokens of each row after its prompt, the first of which prefill yields; times of decoding alone.

    ``passes``: calls of the target for the whole batch. ``accepted_counts[i]``: rounds, one a row and pass, in
    which exactly i proposals were accepted. ``draft_seconds`` and ``verify_seconds``: parts of ``seconds``; the
    second holds what it takes to bring a recurrent state to where the accepted tokens end.
    """

    rows: list[list[int]]
    prefill_seconds: float
    seconds: float = 0.0
    passes: int = 0
    accepted_counts: list[int] = field(default_factory=list)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens of all rows, but for each row's first."""
        return sum(len(row) - 1 for row in self.rows)


def decode_plain(
    target: CachedModel,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    choice: Choice,
    *,
    until: float = float("inf"),
) -> Decoded:
    """The baseline: one token a step and row, ``new_tokens`` for every row.

    ``until``: when to break off, by ``time.perf_counter``, though not before the first step.
    """
    start = time.perf_counter()
    chosen = [choice.choose(target.read_prompts(prompts))[0]]
    target.settle()
    prefill_seconds = time.perf_counter() - start
    with target.quickly():
        start = time.perf_counter()
        # The tokens stay on the device: nothing here waits for it.
        while len(chosen) < new_tokens:
            chosen.append(choice.choose(target.read(chosen[-1])[:, -1])[0])
            if time.perf_counter() >= until:
                break
        target.settle()
        seconds = time.perf_counter() - start
    return Decoded(
        rows=torch.cat(chosen, dim=1).tolist(),
        prefill_seconds=prefill_seconds,
        seconds=seconds,
        passes=len(chosen) - 1,
    )


def decode_speculative(
    target: CachedModel,
    draft: CachedModel,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    k: int,
    choice: Choice,
    *,
    until: float = float("inf"),
) -> Decoded:
    """In every round the draft proposes ``k`` tokens a row, the target judges them in one pass of k + 1 positions.

    Ends when the first row has ``new_tokens``; rows then have different numbers, all of which count, so that no
    round is shorter or of a smaller batch than another. ``until``: as in ``decode_plain``.

    Raises:
        UncroppableCacheError: rejected tokens cannot be taken back.
    """
    start = time.perf_counter()
    first = choice.choose(target.read_prompts(prompts))[0]
    # A token of the target that the draft does not know reads as its last one, which costs acceptance alone.
    draft.read_prompts([[min(token, draft.vocabulary - 1) for token in prompt] for prompt in prompts])
    target.settle()
    draft.settle()
    prefill_seconds = time.perf_counter() - start
    target.prepare(reads_several=True)
    draft.prepare(reads_several=False)
    speculation = _Speculation(target, draft, prompts, first, k, choice)
    decoded = speculation.decoded
    decoded.prefill_seconds = prefill_seconds
    with target.quickly(), draft.quickly():
        start = time.perf_counter()
        while max(map(len, decoded.rows)) < new_tokens:
            speculation.round()
            if time.perf_counter() >= until:
                break
        target.settle()
        draft.settle()
        decoded.seconds = time.perf_counter() - start
    return decoded


class _Speculation:
    """The rounds of one batch: ``texts`` are whole rows, all but the last token of which the target has read."""

    def __init__(
        self,
        target: CachedModel,
        draft: CachedModel,
        prompts: Sequence[Sequence[int]],
        first: torch.Tensor,
        k: int,
        choice: Choice,
    ) -> None:
        self._target, self._draft = target, draft
        self._k, self._choice = k, choice
        self._last = self._unread = first
        # What the target does not know can be neither read nor judged, and is never proposed.
        self._shared_vocabulary = min(target.vocabulary, draft.vocabulary)
        self._may_be_unknown = target.vocabulary > draft.vocabulary
        rows = first.tolist()
        self._texts = [[*prompt, *row] for prompt, row in zip(prompts, rows, strict=True)]
        self.decoded = Decoded(rows=rows, prefill_seconds=0.0, accepted_counts=[0] * (k + 1))

    def round(self) -> None:
        """One draft and one verification."""
        begin = time.perf_counter()
        tokens, shares = self._propose()
        self._draft.settle()
        middle = time.perf_counter()
        self._target.mark()
        logits = self._target.read(torch.cat([self._last, tokens], dim=1), keep=self._k + 1)
        verdict = self._choice.judge(logits, tokens, shares)
        told = torch.cat([verdict.accepted[:, None], tokens, verdict.following], dim=1).tolist()  # waits
        for row, (accepted, *proposed, following) in enumerate(told):
            new = [*proposed[:accepted], following]
            self._texts[row] += new
            self.decoded.rows[row] += new
            self.decoded.accepted_counts[accepted] += 1
        self._last = verdict.following
        if self._target.by_snapshot:
            self._bring_target_up()
        finish = time.perf_counter()
        self._take_back(any(accepted == self._k for accepted, *_ in told))
        self.decoded.passes += 1
        self.decoded.draft_seconds += middle - begin
        self.decoded.verify_seconds += finish - middle

    def _propose(self) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        """Proposals for each row, [rows, k], and the distributions that they were drawn from, one a step."""
        tokens: list[torch.Tensor] = []
        shares: list[torch.Tensor | None] = []
        unread = self._unread.to(self._draft.device)
        if self._may_be_unknown:
            unread = unread.clamp(max=self._draft.vocabulary - 1)
        if self._draft.by_snapshot and unread.shape[1] > 1:
            # What single steps do is the model's own way; a pass of several tokens may start from an empty state.
            self._draft.read(unread[:, :1])
            unread = unread[:, 1:]
        for _ in range(self._k):
            if tokens:
                self._draft.mark()
            logits = self._draft.read(unread)[:, -1, : self._shared_vocabulary]
            token, share = self._choice.choose(logits.to(self._target.device))
            tokens.append(token)
            shares.append(share)
            unread = token.to(self._draft.device)
        return torch.cat(tokens, dim=1), shares

    def _bring_target_up(self) -> None:
        """Back to the state before the proposals, then on through what was accepted."""
        text = self._texts[0]
        self._target.rewind([len(text) - 1])
        missing = text[self._target.width : -1]
        if missing:
            self._target.read(torch.tensor([missing], device=self._target.device))
            self._target.settle()

    def _take_back(self, one_accepted_all: bool) -> None:
        """Leave the target one token to read, and the draft one too, or two where it never read its last proposal.

        The draft's rows all have as many to read: one that has read more than another reads its last token twice.
        """
        if not self._target.by_snapshot:
            self._target.rewind([len(text) - 1 for text in self._texts])
        if one_accepted_all:
            self._draft.rewind([len(text) - 2 for text in self._texts])
            pairs = [text[-2:] for text in self._texts]
            self._unread = torch.tensor(pairs, device=self._target.device)
        else:
            self._draft.rewind([len(text) - 1 for text in self._texts])
            self._unread = self._last
