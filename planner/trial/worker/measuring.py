"""The order of a trial: warm every shape, choose k, then run prompts both ways until the interval is narrow."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

import torch

from planner.trial.prompts import Prompt, interleaved
from planner.trial.protocol import DEEPEST_SWEPT, Event, PromptRun, TrialRequest
from planner.trial.statistics import measure, tokens_per_pass
from planner.trial.worker.decoding import CachedModel, Decoded, decode_plain, decode_speculative
from planner.trial.worker.loading import cache_bytes, model_bytes

#: k that a sweep looks at.
SWEPT: Final = (1, 2, 3, 4, 5, 6, DEEPEST_SWEPT)
_WARM_TOKENS: Final = 24
_SWEEP_TOKENS: Final = 48
_SWEEP_PROMPTS: Final = 3
#: Two rounds of all six tasks before the interval may end the trial.
_LEAST_PROMPTS: Final = 12
_NARROW_ENOUGH: Final = 0.05


class Trial:
    """One trial of one pair; what it says goes to ``send``."""

    def __init__(
        self,
        target: CachedModel,
        draft: CachedModel,
        tokenizer: Any,
        request: TrialRequest,
        send: Callable[[Event], None],
    ) -> None:
        self._target, self._draft = target, draft
        self._tokenizer = tokenizer
        self._request = request
        self._send = send
        self._held_bytes = 0
        self._longest_tokens = 0
        self._weights_bytes = model_bytes(target.model) + model_bytes(draft.model)

    def run(self) -> None:
        """Measure; ends with the event ``result``.

        Raises:
            RuntimeError: out of memory, or every prompt failed.
        """
        prompts = interleaved()
        k = self._request.num_speculative_tokens
        self._warm(prompts[0], SWEPT if k is None else (k,))
        if k is None:
            k = self._sweep(prompts)
        self._send(Event(name="warmed", content={"num_speculative_tokens": k}))
        runs: list[PromptRun] = []
        failures: list[str] = []
        start = time.monotonic()
        stopped_by = "prompts"
        for number, prompt in enumerate(prompts):
            try:
                run = self._both_ways(prompt, k, baseline_first=number % 2 == 0)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                failures.append(f"{prompt.name}: {error}"[:300])
                continue
            runs.append(run)
            self._send(Event(name="progress", content={"run": asdict(run), "of": len(prompts)}))
            if time.monotonic() - start > self._request.seconds:
                stopped_by = "time"
                break
            if len(runs) >= _LEAST_PROMPTS and self._is_narrow(runs):
                stopped_by = "interval"
                break
        if not runs:
            raise RuntimeError(f"every prompt failed, the first with {failures[0]}")
        self._send(
            Event(
                name="result",
                content={
                    "num_speculative_tokens": k,
                    "stopped_by": stopped_by,
                    "failures": failures,
                    "memory": self._memory(),
                },
            )
        )

    def _tokens(self, prompt: Prompt) -> list[int]:
        tokens: list[int] = self._tokenizer(prompt.text)["input_ids"]
        return tokens

    def _plain(self, prompt: Sequence[int], new_tokens: int) -> Decoded:
        return decode_plain(self._target, prompt, new_tokens)

    def _speculative(self, prompt: Sequence[int], new_tokens: int, k: int) -> Decoded:
        decoded = decode_speculative(self._target, self._draft, prompt, new_tokens, k)
        logits = (k + 1) * self._target.model.config.get_text_config().vocab_size * 4
        held = cache_bytes(self._target.cache) + cache_bytes(self._draft.cache) + logits
        self._held_bytes = max(self._held_bytes, held)
        self._longest_tokens = max(self._longest_tokens, len(prompt) + new_tokens)
        return decoded

    def _warm(self, prompt: Prompt, depths: Sequence[int]) -> None:
        """Every shape once: first calls choose kernels and grow pools."""
        tokens = self._tokens(prompt)
        self._plain(tokens, _WARM_TOKENS)
        for k in depths:
            self._speculative(tokens, _WARM_TOKENS, k)

    def _sweep(self, prompts: Sequence[Prompt]) -> int:
        """The k that per-position rates of the deepest run and each k's own step times favour."""
        runs = [self._both_ways(prompt, SWEPT[-1], tokens=_SWEEP_TOKENS) for prompt in prompts[-_SWEEP_PROMPTS:]]
        deep = measure(runs)
        best, promised = SWEPT[0], 0.0
        for k in SWEPT:
            timed = self._speculative(self._tokens(prompts[-1]), _SWEEP_TOKENS, k)
            if not timed.rounds:
                continue
            round_seconds = (timed.draft_seconds + timed.verify_seconds) / timed.rounds
            length = tokens_per_pass(deep.acceptance_per_position, k)
            promise = length * deep.target_step_seconds / round_seconds
            if promise > promised:
                best, promised = k, promise
        return best

    def _both_ways(
        self, prompt: Prompt, k: int, *, tokens: int | None = None, baseline_first: bool = True
    ) -> PromptRun:
        """One prompt, both ways one after the other; who goes first alternates."""
        ids, wanted = self._tokens(prompt), tokens or self._request.new_tokens
        if baseline_first:
            plain = self._plain(ids, wanted)
            quick = self._speculative(ids, wanted, k)
        else:
            quick = self._speculative(ids, wanted, k)
            plain = self._plain(ids, wanted)
        same = plain.tokens == quick.tokens
        return PromptRun(
            prompt=prompt.name,
            task=prompt.task,
            baseline_tokens=wanted - 1,
            baseline_seconds=plain.seconds,
            baseline_passes=plain.rounds,
            speculative_tokens=wanted - 1,
            speculative_seconds=quick.seconds,
            passes=quick.rounds,
            rounds=quick.rounds,
            accepted_counts=tuple(quick.accepted_counts),
            prefill_seconds=plain.prefill_seconds,
            draft_seconds=quick.draft_seconds,
            verify_seconds=quick.verify_seconds,
            same_tokens=same,
            logit_gap=None if same else self._gap(ids, plain.tokens, quick.tokens),
        )

    def _gap(self, prompt: Sequence[int], plain: Sequence[int], quick: Sequence[int]) -> float:
        """How far apart the target sees the two tokens where the outputs part first."""
        at = next(i for i, (ours, theirs) in enumerate(zip(plain, quick, strict=True)) if ours != theirs)
        self._target.reset()
        logits = self._target.advance([*prompt, *plain[:at]])[-1].float()
        return abs(float(logits[plain[at]] - logits[quick[at]]))

    def _is_narrow(self, runs: Sequence[PromptRun]) -> bool:
        speedup = measure(runs).speedup
        if speedup.low is None or speedup.high is None:
            return False
        return (speedup.high - speedup.low) / 2 < _NARROW_ENOUGH * speedup.value

    def _memory(self) -> dict[str, int | None]:
        """Bytes of the tensors that are held; on a GPU also what the allocator took at its peak."""
        held = self._weights_bytes + self._held_bytes
        on_gpu = self._target.device.startswith("cuda")
        return {
            "longest_tokens": self._longest_tokens,
            "tensor_bytes": held,
            "allocated_peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
            "reserved_peak_bytes": torch.cuda.max_memory_reserved() if on_gpu else None,
        }
