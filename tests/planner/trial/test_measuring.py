"""The order of a trial, on tiny models and on stand-ins for a pair whose figures are known."""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from single_thread import as_the_child_runs  # noqa: F401 - a fixture

from planner.trial.prompts import groups, interleaved
from planner.trial.protocol import Event, PromptRun, TrialRequest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'specplan[trial]'")
pytest.importorskip("transformers", reason="transformers is not installed")

from tiny_decoders import VOCABULARY, cached, decoder, disturbed  # noqa: E402 - only where torch is

from planner.trial.worker.caches import CachedModel  # noqa: E402 - as above
from planner.trial.worker.decoding import Decoded, UncroppableCacheError  # noqa: E402 - as above
from planner.trial.worker.depth import best_depth  # noqa: E402 - as above
from planner.trial.worker.measuring import Trial, repeats_spread  # noqa: E402 - as above
from planner.trial.worker.pair import Pair  # noqa: E402 - as above

pytestmark = pytest.mark.usefixtures("as_the_child_runs")
REQUEST = TrialRequest(target_folder="", draft_folder="", num_speculative_tokens=3, new_tokens=8, seconds=60.0)
TASKS = ["code", "reasoning", "chat", "summary", "extraction", "translation"]
#: A speedup of 1.5: 1.8 s against 1.2 s.
RUN = PromptRun(
    prompt="code-1",
    task="code",
    baseline_tokens=18,
    baseline_seconds=1.8,
    baseline_passes=18,
    speculative_tokens=18,
    speculative_seconds=1.2,
    passes=10,
    rounds=10,
    accepted_counts=(5, 2, 3),
)


def tokenizer(text: str) -> dict[str, list[int]]:
    """A token a word."""
    return {"input_ids": [3 + len(word) for word in text.split()]}


def tried(request: TrialRequest, target: Any = None, draft: Any = None) -> list[Event]:
    target = target or decoder("llama", layers=2)
    events: list[Event] = []
    real = request.weights == "real"
    pair = cached(target), cached(draft or disturbed(target, 0.03))
    Trial(*pair, tokenizer if real else None, request, events.append).run()
    return events


def runs_of(events: Sequence[Event]) -> list[PromptRun]:
    return [PromptRun.of(event.content["run"]) for event in events if event.name == "progress"]


def result_of(events: Sequence[Event]) -> Mapping[str, Any]:
    assert events[-1].name == "result"
    return events[-1].content


def test_prompts_come_one_of_each_task_in_turn() -> None:
    prompts = interleaved()
    assert len({prompt.text for prompt in prompts}) == 48
    assert [prompt.task for prompt in prompts[:12]] == TASKS * 2
    assert [prompt.name for prompt in prompts[5:8]] == ["translation-1", "code-2", "reasoning-2"]


@pytest.mark.parametrize(
    ("batch", "of_code"),
    [
        (4, ["1234", "5678"]),
        (3, ["123", "456", "781"]),
        (5, ["12345", "67812"]),
        (8, ["12345678"]),
        (12, ["123456781234"]),
    ],
)
def test_groups_hold_prompts_of_one_task_in_order(batch: int, of_code: list[str]) -> None:
    found = groups(batch)
    assert [{prompt.task for prompt in group} for group in found[:6]] == [{task} for task in TASKS]
    numbers = ["".join(prompt.name[-1] for prompt in group) for group in found if group[0].task == "code"]
    assert numbers == of_code
    assert len(found) == 6 * len(of_code)


def test_a_trial_tells_what_it_did() -> None:
    events = tried(replace(REQUEST, seconds=1.0))
    assert [event.name for event in events[:2]] == ["warmed", "progress"]
    runs, result = runs_of(events), result_of(events)
    assert all(event.content["of"] == 48 for event in events if event.name == "progress")
    assert [run.prompt for run in runs[:2]] == ["code-1", "reasoning-1"]
    assert all(run.same_tokens for run in runs)
    assert (result["how"], result["num_speculative_tokens"], result["failures"]) == ("eager", 3, [])
    assert result["memory"]["tensor_bytes"] > 0
    assert result["repeats_spread"] >= 0


def test_a_batch_is_a_run_and_its_tokens_are_those_of_all_rows() -> None:
    events = tried(replace(REQUEST, batch=5))
    runs = runs_of(events)
    assert len(runs) == 12 or result_of(events)["stopped_by"] == "interval"
    assert runs[0].prompt == "code-1+code-2+code-3+code-4+code-5"
    assert all(event.content["of"] == 12 for event in events if event.name == "progress")
    for run in runs:
        assert (run.baseline_passes, run.baseline_tokens) == (7, 5 * 7)
        assert run.rounds == 5 * run.passes
        assert run.speculative_tokens == run.rounds + sum(i * n for i, n in enumerate(run.accepted_counts))
        assert run.same_tokens


def test_memory_grows_with_the_batch() -> None:
    alone, four = (
        result_of(tried(replace(REQUEST, batch=batch, seconds=0.1)))["memory"]["tensor_bytes"] for batch in (1, 4)
    )
    logits = 4 * VOCABULARY * (3 + 1)  # float32, k + 1 positions
    assert four > alone + 3 * logits


def test_drawn_outputs_are_not_compared() -> None:
    runs = runs_of(tried(replace(REQUEST, temperature=0.8, seconds=0.5)))
    assert {run.same_tokens for run in runs} == {None}
    assert {run.logit_gap for run in runs} == {None}


@pytest.mark.parametrize("batch", [1, 2])
def test_dummy_weights_read_random_prompts(batch: int) -> None:
    """Lengths and ids as promised, and another seed makes others."""
    seen: list[list[int]] = []

    class Watched(CachedModel):
        def read_prompts(self, prompts: Sequence[Sequence[int]]) -> Any:
            seen.extend(list(prompt) for prompt in prompts)
            return super().read_prompts(prompts)

    model = decoder("llama", layers=1)
    for seed in (0, 1):
        request = replace(REQUEST, weights="dummy", batch=batch, seed=seed, seconds=0.3)
        events: list[Event] = []
        target = Watched(model=model, device="cpu")
        Trial(target, cached(decoder("llama", layers=1, vocab_size=30)), None, request, events.append).run()
        assert {run.same_tokens for run in runs_of(events)} == {None}
    assert {len(prompt) for prompt in seen} <= set(range(24, 65))
    assert max(map(max, seen)) < 30  # what the smaller of the two vocabularies knows
    assert seen[0] != seen[-1]


def test_tokens_that_differ_are_told_with_the_targets_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token of a row's output is falsified; the gap is that of the two tokens' logits, read afresh."""
    model = decoder("llama", layers=2)
    pair = Pair(cached(model), cached(disturbed(model, 0.03)), tokenizer, REQUEST)
    group = groups(2)[0]
    plain = pair.plain(group, 8)
    falsified = (plain.rows[1][4] + 1) % VOCABULARY
    speculative = Pair.speculative

    def wrongly(self: Pair, *given: Any, **named: Any) -> Decoded:
        decoded = speculative(self, *given, **named)
        decoded.rows[1][4] = falsified
        return decoded

    monkeypatch.setattr(Pair, "speculative", wrongly)
    run = pair.both_ways(group, 2)
    assert run.same_tokens is False
    read = torch.tensor([[*tokenizer(group[1].text)["input_ids"], *plain.rows[1][:4]]])
    logits = model(input_ids=read).logits[0, -1]
    gap = abs(float(logits[falsified] - logits[plain.rows[1][4]]))
    assert run.logit_gap == pytest.approx(gap, abs=1e-4)


def slowly(seconds: float) -> Callable[..., Any]:
    """A model whose every pass takes that long besides."""

    def slow(model: Any) -> Any:
        kind = type(model)
        forward = kind.forward

        class Slow(kind):  # type: ignore[misc, valid-type]
            def forward(self, *given: Any, **named: Any) -> Any:
                time.sleep(seconds)
                return forward(self, *given, **named)

        Slow.forward.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
        model.__class__ = Slow
        return model

    return slow


@pytest.mark.parametrize("k", [3, None])
def test_a_slow_pair_ends_in_time(k: int | None) -> None:
    """50 ms a pass: a whole sweep would take a quarter of a minute, and all prompts two minutes."""
    slow = slowly(0.05)
    request = replace(REQUEST, num_speculative_tokens=k, seconds=2.0, new_tokens=8)
    start = time.perf_counter()
    events = tried(request, slow(decoder("llama", layers=1)), slow(decoder("llama", layers=1, seed=1)))
    took = time.perf_counter() - start
    one_prompt = 2 * 8 * 0.05 + 8 * 9 * 0.05  # eight steps, and eight rounds of at most nine passes
    assert took < request.seconds + one_prompt + 1
    assert result_of(events)["stopped_by"] == "time"
    assert len(runs_of(events)) >= 1


def test_the_sweep_leaves_two_thirds_of_the_time() -> None:
    slow = slowly(0.02)
    marks: dict[str, float] = {}
    request = replace(REQUEST, num_speculative_tokens=None, seconds=2.4)
    pair = cached(slow(decoder("llama", layers=1))), cached(slow(decoder("llama", layers=1, seed=1)))
    start = time.perf_counter()

    def note(event: Event) -> None:
        marks.setdefault(event.name, time.perf_counter() - start)

    Trial(*pair, tokenizer, request, note).run()
    assert marks["warmed"] < 0.8 + 0.5  # a round may have begun


class KnownPair:
    """A pair of known acceptance and costs: a target step takes 1 s, a draft step ``cost``."""

    def __init__(self, acceptance: float, cost: float) -> None:
        self._acceptance, self._cost = acceptance, cost
        self.swept: list[int] = []

    def plain(self, _: Any, new_tokens: int, **__: Any) -> Decoded:
        return Decoded(rows=[[0] * new_tokens], prefill_seconds=0.0, seconds=new_tokens - 1, passes=new_tokens - 1)

    def speculative(self, _: Any, __: int, k: int, **___: Any) -> Decoded:
        self.swept.append(k)
        rounds = 100_000
        counts = [round(rounds * self._acceptance**i * (1 - self._acceptance)) for i in range(k)]
        counts.append(rounds - sum(counts))
        return Decoded(
            rows=[[0]],
            prefill_seconds=0.0,
            seconds=rounds * (1 + k * self._cost),
            passes=rounds,
            accepted_counts=counts,
            draft_seconds=rounds * k * self._cost,
            verify_seconds=rounds,
        )


@pytest.mark.parametrize(
    ("acceptance", "cost", "best"),
    [(0.8, 0.1, 6), (0.7, 0.1, 4), (0.6, 0.2, 2), (0.5, 0.05, 3), (0.8, 0.05, 8), (0.6, 0.3, 1)],
)
def test_the_sweep_finds_the_depth_of_the_theory(acceptance: float, cost: float, best: int) -> None:
    """The gamma of the largest gain by Leviathan et al., theorem 3.8, searched over all integers."""
    pair: Any = KnownPair(acceptance, cost)
    assert best_depth(pair, groups(1), until=time.perf_counter() + 1e9) == best


def test_where_there_is_no_time_the_deepest_tells_of_all() -> None:
    """Here a verification costs the same at every depth, so nothing is lost."""
    pair: Any = KnownPair(0.8, 0.1)
    assert best_depth(pair, groups(1), until=time.perf_counter()) == 6
    assert pair.swept == [8]


@pytest.mark.parametrize(("batch", "least"), [(1, 12), (2, 6), (8, 6)])
def test_runs_that_agree_end_a_trial_early(monkeypatch: pytest.MonkeyPatch, batch: int, least: int) -> None:
    monkeypatch.setattr(Pair, "both_ways", lambda *_, **__: RUN)
    events = tried(replace(REQUEST, batch=batch))
    assert len(runs_of(events)) == least
    assert result_of(events)["stopped_by"] == "interval"


def test_a_prompt_that_fails_is_told_and_not_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    def now_and_then(_: Pair, group: Any, *__: Any, **___: Any) -> PromptRun:
        if group[0].task == "chat":
            raise RuntimeError("no luck")
        return RUN

    monkeypatch.setattr(Pair, "both_ways", now_and_then)
    events = tried(REQUEST)
    assert result_of(events)["failures"][0] == "chat-1: no luck"
    assert len(runs_of(events)) >= 12


def test_where_all_fail_there_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> PromptRun:
        raise IndexError("out of range")

    monkeypatch.setattr(Pair, "both_ways", never)
    with pytest.raises(RuntimeError, match="every prompt failed, the first with code-1: out of range"):
        tried(REQUEST)


def test_a_batch_of_recurrent_state_is_refused() -> None:
    with pytest.raises(UncroppableCacheError, match="mamba2"):
        tried(replace(REQUEST, batch=2), decoder("mamba2", layers=2))


def test_the_spread_of_repeats_is_that_of_the_halves() -> None:
    """Speedups of 1.5 and 0.75 in the halves; of all: (4 x 18 / 7.2) / (4 x 18 / 7.2) = 1."""
    slower = replace(RUN, speculative_seconds=2.4)
    assert repeats_spread([RUN, RUN, slower, slower]) == pytest.approx((1.5 - 0.75) / 1.0)
    assert repeats_spread([RUN] * 5) == pytest.approx(0)
    assert repeats_spread([RUN]) is None
