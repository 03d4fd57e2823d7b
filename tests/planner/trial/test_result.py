"""Trials as documents: what is read back, what is refused, what carries over into a plan; and their store."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trial_children import RUN, runs

from planner.errors import TrialError
from planner.report.trial_document import TrialEntry
from planner.trial.protocol import TrialRequest
from planner.trial.result import PairTrial, is_trial_document
from planner.trial.runner import Outcome
from planner.trial.statistics import measure
from planner.trial.store import TrialKey, TrialStore
from planner.trial.summary import Expected, Summary, failed_mapping, summarize, trial_mapping

REQUEST = TrialRequest(target_folder="big", draft_folder="small")
KEY = TrialKey(
    backend="builtin",
    devices=("host memory",),
    driver=None,
    versions=(("torch", "9"),),
    target="org/big@1",
    draft="org/small@1",
    dtype="float32",
    batch=1,
    temperature=0.0,
    weights="real",
)


def outcome(speedup: float = 1.5, **changes: Any) -> Outcome:
    found = Outcome(
        runs=tuple(runs(speedup)),
        num_speculative_tokens=2,
        stopped_by="interval",
        failures=(),
        device="a device",
        versions={"torch": "9"},
        memory={"tensor_bytes": 100, "longest_tokens": 64},
    )
    return replace(found, **changes)


def document(speedup: float = 1.5, request: TrialRequest = REQUEST, **expected: Any) -> dict[str, Any]:
    return trial_mapping(summarize(request, outcome(speedup), expected=Expected(**expected)))


def test_a_document_is_what_the_report_promises_and_comes_back_from_json() -> None:
    made = document(memory_bytes=(90, 110))
    TrialEntry.model_validate(made)
    again = json.loads(json.dumps(made))
    assert is_trial_document(again)
    trial = PairTrial(document=again)
    assert (trial.outcome, trial.answer, trial.num_speculative_tokens) == ("confirms", "helps", 2)
    assert trial.speedup is not None
    assert trial.speedup.low == pytest.approx(1.5)
    times = trial.step_times
    assert times is not None
    # By hand from the run: 1.8 s / 18 steps, 0.2 s / (2 x 10) draft steps, 1.0 s / 10 verifications.
    assert times.target_seconds.low == pytest.approx(0.1)
    assert times.draft_seconds.low == pytest.approx(0.01)
    assert times.verify_seconds.low == pytest.approx(0.1)
    assert times.measured_up_to_tokens == 3
    acceptance = trial.acceptance
    assert acceptance is not None
    # Alike prompts: no spread. 5 of 10 pass the first position, 3 of those 5 the second.
    assert [position.low for position in acceptance.per_position] == pytest.approx([0.5, 0.6])


@pytest.mark.parametrize(("speedup", "answer"), [(1.5, "helps"), (0.7, "hurts")], ids=["above 1", "below 1"])
def test_the_whole_interval_decides(speedup: float, answer: str) -> None:
    assert document(speedup)["answer"] == answer


def test_an_interval_that_holds_one_is_no_answer() -> None:
    mixed = outcome(runs=(*runs(1.5, 6), *runs(0.7, 6)))
    assert summarize(REQUEST, mixed).answer == "unsure"


def test_a_draft_that_was_always_right_is_not_promised_to_be() -> None:
    """A rate of 1 would have no ceiling at all, which no report can hold."""
    always = tuple(replace(run, accepted_counts=(0, 0, 10)) for run in runs(1.5))
    made = trial_mapping(summarize(REQUEST, outcome(runs=always)))
    acceptance = PairTrial(document=made).acceptance
    assert acceptance is not None
    assert acceptance.rate.high < 1


def test_random_weights_give_no_speedup_and_no_acceptance() -> None:
    made = document(request=replace(REQUEST, weights="dummy"), memory_bytes=(90, 110))
    TrialEntry.model_validate(made)
    trial = PairTrial(document=made)
    assert (trial.answer, trial.speedup, trial.acceptance) == ("assumed", None, None)
    assert trial.step_times is not None


def test_more_bytes_than_planned_contradict_and_harm_and_fewer_do_not() -> None:
    assert PairTrial(document=document(memory_bytes=(50, 99))).worse_than_planned
    assert document(memory_bytes=(50, 99))["outcome"] == "contradicts"
    assert document(memory_bytes=(200, 300))["outcome"] == "confirms"


@pytest.mark.parametrize("draft_seconds", [0.2, None])
def test_what_cannot_be_is_a_mismatched_baseline(draft_seconds: float | None) -> None:
    """1.8 tokens a pass cannot speed up 1.9 times, whatever the engine tells of its steps."""
    fast = tuple(replace(run, draft_seconds=draft_seconds) for run in runs(1.9))
    with pytest.raises(TrialError, match=r"1\.90 with 1\.80 tokens a pass") as raised:
        summarize(REQUEST, outcome(runs=fast))
    assert raised.value.code == "trial_mismatch"


def test_a_verification_cheaper_than_a_plain_step_is_refused() -> None:
    cheap = tuple(replace(run, verify_seconds=0.5) for run in runs(1.5))  # 0.05 s beside 0.1 s
    with pytest.raises(TrialError, match="verification"):
        summarize(REQUEST, outcome(runs=cheap))


def test_a_failure_is_a_whole_document_with_its_reason() -> None:
    error = TrialError("no luck", subject="trial", hint="try again", code="trial_killed")
    made = failed_mapping(REQUEST, error, backend="builtin")
    TrialEntry.model_validate(made)
    assert made["error"] == {"code": "trial_killed", "message": "no luck", "hint": "try again"}
    assert PairTrial(document=made, error=error).answer is None


def test_a_figure_per_task_pools_that_task_alone() -> None:
    other = tuple(replace(run, task="chat", speculative_seconds=1.8) for run in runs(1.5))
    made = trial_mapping(summarize(REQUEST, outcome(runs=(*runs(1.5), *other))))
    assert made["by_task"]["code"]["speedup"]["value"] == pytest.approx(1.5)
    assert made["by_task"]["chat"]["speedup"]["value"] == pytest.approx(1.0)


_WHOLE = document(memory_bytes=(90, 110))
_WRONG = st.one_of(st.none(), st.text(), st.lists(st.integers()), st.floats(), st.integers(), st.booleans())


@given(key=st.sampled_from(sorted(_WHOLE)), value=_WRONG)
def test_no_damaged_document_makes_a_plan_fail(key: str, value: object) -> None:
    """Whatever a file on disk holds: it is refused, or everything that a plan asks of it has an answer."""
    damaged = {**_WHOLE, key: value}
    if is_trial_document(damaged):
        trial = PairTrial(document=damaged)
        _ = (trial.outcome, trial.answer, trial.speedup, trial.acceptance, trial.step_times, trial.source)
        _ = trial.worse_than_planned


def test_the_store_gives_back_what_it_was_given_under_the_same_key_alone(tmp_path: Path) -> None:
    store = TrialStore(tmp_path / "measured")
    made = document(memory_bytes=(90, 110))
    assert store.get(KEY) is None
    assert store.put(KEY, made) is None
    assert store.get(KEY) == json.loads(json.dumps(made))
    changes: list[dict[str, Any]] = [
        {"backend": "vllm"},
        {"devices": ("another",)},
        {"driver": "999"},
        {"versions": (("torch", "10"),)},
        {"target": "org/big@2"},
        {"draft": "org/small@2"},
        {"dtype": "bfloat16"},
        {"batch": 2},
        {"temperature": 1.0},
        {"weights": "dummy"},
    ]
    assert [change for change in changes if store.get(replace(KEY, **change)) is not None] == []


@pytest.mark.parametrize("content", ["", "[]", "{", '{"schema": "specplan.measured/1"}', "x" * 2_000_000])
def test_a_damaged_file_is_nothing_measured(tmp_path: Path, content: str) -> None:
    store = TrialStore(tmp_path)
    store.put(KEY, document())
    (file,) = tmp_path.glob("*.json")
    file.write_text(content)
    assert store.get(KEY) is None


def test_a_store_that_cannot_be_written_says_so_and_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    reason = TrialStore(tmp_path / "file" / "measured").put(KEY, document())
    assert reason is not None
    assert "cannot be kept" in reason


def test_the_summary_of_one_run_has_no_interval() -> None:
    summary = Summary(request=REQUEST, outcome=outcome(), measured=measure([RUN]))
    assert summary.answer == "unsure"
