"""A pair as a trial decodes it: prompts to tokens, both ways, and the bytes that were held meanwhile."""

import random
import resource
import sys
from collections.abc import Sequence
from typing import Any, Final

import torch

from planner.trial.prompts import Prompt
from planner.trial.protocol import PromptRun, TrialRequest
from planner.trial.worker.caches import CachedModel
from planner.trial.worker.decoding import Decoded, decode_plain, decode_speculative
from planner.trial.worker.loading import model_bytes
from planner.trial.worker.sampling import choice_of

#: Lengths of prompts that are drawn where no tokenizer makes any.
_DRAWN_TOKENS: Final = (24, 64)
_LOGIT_BYTES: Final = 4

Group = Sequence[Prompt]


class Pair:
    """A target with its draft. ``tokenizer`` None: prompts are drawn at random, and outputs are not compared."""

    def __init__(self, target: CachedModel, draft: CachedModel, tokenizer: Any, request: TrialRequest) -> None:
        self._target, self._draft = target, draft
        self._tokenizer = tokenizer
        self._request = request
        self._held_bytes = 0
        self._longest_tokens = 0
        self._weights_bytes = model_bytes(target.model) + model_bytes(draft.model)

    def plain(self, group: Group, new_tokens: int, *, seed: int = 0, until: float = float("inf")) -> Decoded:
        """The baseline on a group; see ``decode_plain``."""
        choice = choice_of(self._request.temperature, self._request.seed + seed, self._target.device)
        return decode_plain(self._target, self._prompts(group), new_tokens, choice, until=until)

    def speculative(
        self, group: Group, new_tokens: int, k: int, *, seed: int = 0, until: float = float("inf")
    ) -> Decoded:
        """The draft's way on a group; see ``decode_speculative``."""
        choice = choice_of(self._request.temperature, self._request.seed + seed, self._target.device)
        prompts = self._prompts(group)
        decoded = decode_speculative(self._target, self._draft, prompts, new_tokens, k, choice, until=until)
        logits = len(prompts) * (k + 1) * self._target.vocabulary * _LOGIT_BYTES
        held = self._target.state_bytes + self._draft.state_bytes + logits
        self._held_bytes = max(self._held_bytes, held)
        texts = (len(prompt) + len(row) for prompt, row in zip(prompts, decoded.rows, strict=True))
        self._longest_tokens = max(self._longest_tokens, *texts)
        return decoded

    def both_ways(self, group: Group, k: int, *, number: int = 0) -> PromptRun:
        """A group, both ways one after the other; ``number`` seeds it, and who goes first alternates with it."""
        wanted = self._request.new_tokens
        if number % 2 == 0:
            plain = self.plain(group, wanted, seed=number)
            quick = self.speculative(group, wanted, k, seed=number)
        else:
            quick = self.speculative(group, wanted, k, seed=number)
            plain = self.plain(group, wanted, seed=number)
        same, gap = self._compared(group, plain, quick)
        return PromptRun(
            prompt="+".join(prompt.name for prompt in group),
            task=group[0].task,
            baseline_tokens=plain.tokens,
            baseline_seconds=plain.seconds,
            baseline_passes=plain.passes,
            speculative_tokens=quick.tokens,
            speculative_seconds=quick.seconds,
            passes=quick.passes,
            rounds=sum(quick.accepted_counts),
            accepted_counts=tuple(quick.accepted_counts),
            prefill_seconds=plain.prefill_seconds,
            draft_seconds=quick.draft_seconds,
            verify_seconds=quick.verify_seconds,
            same_tokens=same,
            logit_gap=gap,
        )

    def memory(self) -> dict[str, int | None]:
        """Bytes of the tensors that are held; on GPUs also what the allocator took at its peaks."""
        gpus = {*self._target.gpus, *self._draft.gpus}
        return {
            "longest_tokens": self._longest_tokens,
            "tensor_bytes": self._weights_bytes + self._held_bytes,
            "process_peak_bytes": _process_peak_bytes(),
            "allocated_peak_bytes": sum(map(torch.cuda.max_memory_allocated, gpus)) if gpus else None,
            "reserved_peak_bytes": sum(map(torch.cuda.max_memory_reserved, gpus)) if gpus else None,
        }

    def _prompts(self, group: Group) -> list[list[int]]:
        if self._tokenizer is None:
            return [self._drawn(prompt) for prompt in group]
        return [list(self._tokenizer(prompt.text)["input_ids"]) for prompt in group]

    def _drawn(self, prompt: Prompt) -> list[int]:
        """Random tokens that both models can read, the same whenever the prompt is asked for."""
        chance = random.Random(f"{self._request.seed}:{prompt.name}")  # noqa: S311 - a prompt, no secret
        vocabulary = min(self._target.vocabulary, self._draft.vocabulary)
        return [chance.randrange(vocabulary) for _ in range(chance.randint(*_DRAWN_TOKENS))]

    def _compared(self, group: Group, plain: Decoded, quick: Decoded) -> tuple[bool | None, float | None]:
        """Whether all rows agree as far as both ways went; the widest gap where they part."""
        if self._request.temperature > 0 or self._tokenizer is None:
            return None, None
        gaps = [
            self._gap(prompt, ours, theirs)
            for prompt, ours, theirs in zip(self._prompts(group), plain.rows, quick.rows, strict=True)
            if any(a != b for a, b in zip(ours, theirs, strict=False))
        ]
        return not gaps, max(gaps) if gaps else None

    def _gap(self, prompt: Sequence[int], plain: Sequence[int], quick: Sequence[int]) -> float:
        """How far apart the target sees the two tokens where the outputs part first."""
        at = next(i for i, (ours, theirs) in enumerate(zip(plain, quick, strict=False)) if ours != theirs)
        logits = self._target.read_prompts([[*prompt, *plain[:at]]])[0].float()
        return abs(float(logits[plain[at]] - logits[quick[at]]))


def _process_peak_bytes() -> int:
    """What the process held of host memory at its peak, code and libraries included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # getrusage(2): KiB on Linux
