"""The child of llama.cpp against a scripted server: what it asks, what it tells, and how it ends."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from planner.errors import TrialError
from planner.trial.backends import LLAMA_CPP
from planner.trial.protocol import Event, TrialRequest
from planner.trial.runner import Deadlines, Outcome, run_trial
from planner.trial.serving.llama_cpp import SERVER_VARIABLE, find_server
from planner.trial.statistics import measure

FAKE = Path(__file__).with_name("fake_llama_server.py")
MIB = 1 << 20

Run = Callable[..., Outcome]


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """The scripted server as a program."""
    program = tmp_path / "llama-server"
    program.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    program.chmod(0o755)
    return program


@pytest.fixture
def request_of_pair(tmp_path: Path, server: Path) -> TrialRequest:
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}-Q4_K_M.gguf").write_bytes(b"GGUF")
    return TrialRequest(
        target_folder=str(tmp_path / "target"),
        draft_folder=str(tmp_path / "draft"),
        num_speculative_tokens=4,
        new_tokens=11,
        seconds=30.0,
        engine_options={"server": str(server)},
    )


@pytest.fixture
def run(request_of_pair: TrialRequest, tmp_path: Path) -> Run:
    """Run a trial with the server in a mode; what is given replaces the request's fields."""

    def go(
        mode: str = "",
        *,
        watch: Callable[[Event], None] = lambda _: None,
        deadlines: Deadlines | None = None,
        **fields: Any,
    ) -> Outcome:
        request = replace(request_of_pair, **fields)
        return run_trial(
            request,
            deadlines=deadlines or LLAMA_CPP.deadlines(request),
            command=LLAMA_CPP.command(),
            environment={
                "FAKE_LLAMA": mode,
                "FAKE_LLAMA_NOTES": str(tmp_path),
                # None of these may reach the server, nor a proxy the loopback.
                "LLAMA_ARG_MODEL_DRAFT": "another.gguf",
                "http_proxy": "http://127.0.0.1:9",
            },
            watch=watch,
        )

    return go


def failure(run: Run, mode: str = "", **fields: Any) -> TrialError:
    with pytest.raises(TrialError) as raised:
        run(mode, **fields)
    return raised.value


def arguments(tmp_path: Path, start: str) -> list[str]:
    found: list[str] = json.loads((tmp_path / f"{start}.json").read_text())["arguments"]
    return found


def pairs(words: list[str]) -> set[tuple[str, str]]:
    return set(pairwise(words))


def test_both_servers_are_run_and_their_figures_told(run: Run) -> None:
    outcome = run()
    assert len(outcome.runs) == 48
    assert (outcome.num_speculative_tokens, outcome.stopped_by, outcome.failures) == (4, "prompts", ())
    first = outcome.runs[0]
    assert (first.prompt, first.task, first.same_tokens) == ("code-1", "code", True)
    # Eleven tokens, of which prefill yields one; 10 ms each alone, 40 ms together with the draft.
    assert (first.baseline_tokens, first.baseline_passes, first.baseline_seconds) == (10, 10, 0.1)
    assert (first.speculative_tokens, first.speculative_seconds, first.prefill_seconds) == (10, 0.04, 0.02)
    # Three rounds accept 4, 2 and 1.
    assert (first.passes, first.rounds, first.accepted_counts) == (3, 3, (0, 1, 1, 0, 1))
    assert (first.draft_seconds, first.verify_seconds) == (None, None)
    measured = measure(outcome.runs)
    assert measured.speedup.value == pytest.approx(2.5)
    assert measured.mean_acceptance_length.value == pytest.approx(10 / 3)


def test_what_the_server_says_of_itself_is_told(run: Run) -> None:
    outcome = run()
    assert outcome.device == "CPU, 2 threads"
    assert outcome.versions["llama.cpp"] == "b10434-7e4c0a9"
    assert outcome.memory == {"tensor_bytes": None, "allocated_peak_bytes": None, "reserved_peak_bytes": None}
    alone, pair = outcome.engine["baseline"], outcome.engine["speculative"]
    assert (alone["weights_bytes"], alone["kv_cache_bytes"]) == (54.5 * MIB, 6 * MIB)
    assert (pair["weights_bytes"], pair["kv_cache_bytes"], pair["compute_bytes"]) == (
        57 * MIB,
        6.25 * MIB,
        8.25 * MIB,
    )
    assert any("Q4_K - Medium" in note for note in outcome.notes)
    assert not any("fit" in note for note in outcome.notes)


def test_the_options_are_those_of_the_release(run: Run, tmp_path: Path) -> None:
    run()
    alone, pair = arguments(tmp_path, "alone"), arguments(tmp_path, "pair")
    common = {("--parallel", "1"), ("--fit", "off"), ("--device", "none"), ("--host", "127.0.0.1")}
    assert common <= pairs(alone)
    assert common <= pairs(pair)
    assert not [word for word in alone if "draft" in word and not word.endswith(".gguf")]
    assert {
        ("--spec-type", "draft-simple"),
        ("--spec-draft-model", str(tmp_path / "draft" / "draft-Q4_K_M.gguf")),
        ("--spec-draft-n-max", "4"),
        ("--spec-draft-p-min", "0"),
        ("--spec-draft-device", "none"),
    } <= pairs(pair)
    assert "--draft-max" not in pair


def test_an_older_release_is_spoken_to_in_its_words_and_its_totals_are_fitted(run: Run, tmp_path: Path) -> None:
    outcome = run("old")
    pair = arguments(tmp_path, "pair")
    assert {("--draft-max", "4"), ("--draft-min", "0"), ("--draft-p-min", "0")} <= pairs(pair)
    assert "--spec-type" not in pair
    assert "--fit" not in pair
    # Else the draft's cache would be as long as the model can.
    context = pair[pair.index("--ctx-size") + 1]
    assert ("--ctx-size-draft", context) in pairs(pair)
    # Seven accepted in three rounds: twice two, once three.
    assert outcome.runs[0].accepted_counts == (0, 0, 2, 1, 0)
    assert any("is a fit to the mean" in note for note in outcome.notes)


def test_on_a_gpu_everything_is_put_there(run: Run, tmp_path: Path) -> None:
    outcome = run(device="cuda:0", seconds=0.01)
    assert {("--n-gpu-layers", "all"), ("--device", "CUDA0"), ("--spec-draft-ngl", "all")} <= pairs(
        arguments(tmp_path, "pair")
    )
    assert outcome.how == "graphs"


def test_a_gpu_that_is_not_there_is_told(run: Run) -> None:
    error = failure(run, device="cuda:1")
    assert error.code == "trial_no_cuda"
    assert "CUDA0" in error.message


def test_without_a_k_three_is_taken_and_said(run: Run, tmp_path: Path) -> None:
    outcome = run("old", num_speculative_tokens=None, seconds=0.01)
    assert outcome.num_speculative_tokens == 3
    assert any("k is 3" in note for note in outcome.notes)
    assert ("--draft-max", "3") in pairs(arguments(tmp_path, "pair"))


def test_time_that_is_over_ends_it_with_whole_runs(run: Run) -> None:
    outcome = run(seconds=0.001)
    assert outcome.stopped_by == "time"
    assert len(outcome.runs) == 1


def test_other_tokens_are_told_as_such(run: Run) -> None:
    assert {each.same_tokens for each in run("differs", seconds=0.01).runs} == {False}


def test_a_prompt_that_fails_is_counted_and_left_out(run: Run) -> None:
    outcome = run("one fails")
    assert len(outcome.runs) == 47
    assert outcome.failures == ("code-2: Context size has been exceeded.",)


def test_further_arguments_reach_both_starts(run: Run, request_of_pair: TrialRequest, tmp_path: Path) -> None:
    options = {**request_of_pair.engine_options, "arguments": ["--flash-attn", "off"]}
    run(engine_options=options, seconds=0.01)
    for start in ("alone", "pair"):
        assert ("--flash-attn", "off") in pairs(arguments(tmp_path, start))


def test_signs_of_life_come_before_anything_can_be_compared(run: Run) -> None:
    seen: list[str] = []
    run(watch=lambda event: seen.append(event.name), seconds=0.01)
    assert seen[0] == "loaded"
    assert seen.count("warmed") >= 3
    assert seen[-2:] == ["progress", "result"]


@pytest.mark.parametrize(
    ("mode", "code", "words"),
    [
        ("refuses", "engine_refused", "the target and draft vocabs are not compatible"),
        ("drafts nothing", "engine_refused", "drafts nothing"),
        ("out of memory", "out_of_memory", "cudaMalloc failed"),
        ("unreadable", "weights", "unknown model architecture: 'strange'"),
        ("dies", "failed", "llama-server ended with code 134"),
    ],
)
def test_a_server_that_fails_is_told_in_its_own_words(run: Run, mode: str, code: str, words: str) -> None:
    error = failure(run, mode)
    assert error.code == f"trial_{code}"
    assert words in error.message
    assert error.hint


def test_a_server_that_is_never_ready_is_given_up_and_ended(
    run: Run, request_of_pair: TrialRequest, tmp_path: Path
) -> None:
    options = {**request_of_pair.engine_options, "start_seconds": 1.0}
    error = failure(run, "never ready", engine_options=options)
    assert error.code == "trial_deadline"
    assert "not ready after 1 s" in error.message
    assert is_gone(tmp_path)


def test_the_server_goes_with_a_trial_that_is_ended_from_outside(run: Run, tmp_path: Path) -> None:
    error = failure(run, "never ready", deadlines=Deadlines(whole=2.5))
    assert error.code == "trial_deadline"
    assert is_gone(tmp_path)


def is_gone(tmp_path: Path) -> bool:
    """Whether the server's process has ended; the kernel may take a moment."""
    pid = json.loads((tmp_path / "alone.json").read_text())["pid"]
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"weights": "dummy"}, "dummy weights"),
        ({"batch": 2}, "a batch of 1"),
        ({"engine_options": {"gpu_memory_utilization": 0.9}}, "knows no option gpu_memory_utilization"),
        ({"engine_options": {"arguments": ["--port", "80"]}}, "itself sets --port"),
        ({"engine_options": {"arguments": ["--model=x"]}}, "itself sets --model"),
        ({"engine_options": {"arguments": "--flash-attn off"}}, "list of strings"),
    ],
)
def test_what_the_backend_cannot_do_is_refused_before_anything_starts(
    run: Run, fields: dict[str, Any], words: str
) -> None:
    error = failure(run, **fields)
    assert error.code == "trial_engine_options"
    assert words in error.message


def test_a_missing_server_is_told(run: Run, tmp_path: Path) -> None:
    error = failure(run, engine_options={"server": str(tmp_path / "nowhere")})
    assert error.code == "trial_missing_import"
    assert "nowhere is no program" in error.message


def test_safetensors_are_not_enough(run: Run, tmp_path: Path) -> None:
    (tmp_path / "draft" / "draft-Q4_K_M.gguf").rename(tmp_path / "draft" / "model.safetensors")
    error = failure(run)
    assert error.code == "trial_weights"
    assert "GGUF" in error.message


def test_the_backend_is_usable_where_a_server_is_found(
    server: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv(SERVER_VARIABLE, raising=False)
    reason = LLAMA_CPP.usable()
    assert reason is not None
    assert "llama-server was not found" in reason
    monkeypatch.setenv(SERVER_VARIABLE, str(tmp_path / "nowhere"))
    reason = LLAMA_CPP.usable()
    assert reason is not None
    assert "nowhere" in reason
    monkeypatch.setenv(SERVER_VARIABLE, str(server))
    assert LLAMA_CPP.usable() is None
    monkeypatch.delenv(SERVER_VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + str(tmp_path / "empty"))
    assert find_server() == str(server)
