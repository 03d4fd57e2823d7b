"""The parent against children that behave and children that do not. None of them imports torch."""

import os
import sys
import time
from pathlib import Path

import pytest
from trial_children import LOADED, RUN, child_command, progress, result

from planner.errors import TrialError
from planner.trial.protocol import Event, TrialRequest
from planner.trial.runner import Deadlines, run_trial

REQUEST = TrialRequest(target_folder="big", draft_folder="small")
PROGRESS, RESULT = progress(RUN), result()


def child(script: str) -> list[str]:
    return [sys.executable, *child_command(script)]


def failure(script: str, deadlines: Deadlines | None = None) -> TrialError:
    with pytest.raises(TrialError) as raised:
        run_trial(REQUEST, command=child(script), deadlines=deadlines)
    return raised.value


def test_a_child_that_behaves_is_heard_to_the_end() -> None:
    seen: list[Event] = []
    outcome = run_trial(REQUEST, command=child(LOADED + PROGRESS + RESULT), watch=seen.append)
    assert outcome.runs == (RUN,)
    assert (outcome.device, outcome.versions, outcome.memory) == ("a device", {"torch": "9"}, {"tensor_bytes": 7})
    assert [event.name for event in seen] == ["loaded", "progress", "result"]


def test_the_child_gets_the_request_and_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    script = 'send(event="error", code="failed", text=str(("HF_TOKEN" in os.environ, request["target_folder"])))\n'
    assert failure(script).message.startswith("(False, 'big')")


@pytest.mark.parametrize("code", ["missing_import", "weights", "out_of_memory", "cache", "failed"])
def test_an_error_of_the_child_keeps_its_code_and_has_a_hint(code: str) -> None:
    error = failure(f'send(event="error", code="{code}", text="no luck.")\n')
    assert error.code == f"trial_{code}"
    assert error.message.startswith("no luck")
    assert error.hint


def test_a_missing_library_says_what_to_install() -> None:
    assert "specplan[trial]" in failure('send(event="error", code="missing_import", text="torch")\n').hint


def test_a_silent_child_is_ended() -> None:
    start = time.monotonic()
    error = failure("time.sleep(60)\n", Deadlines(whole=60, silence=0.5))
    assert error.code == "trial_silent"
    assert time.monotonic() - start < 20


def test_a_child_that_talks_for_ever_meets_the_deadline() -> None:
    error = failure(LOADED + "while True:\n    " + PROGRESS + "    time.sleep(0.05)\n", Deadlines(whole=1.0))
    assert error.code == "trial_deadline"


def test_a_killed_child_is_told_as_such_with_the_end_of_its_log() -> None:
    error = failure('print("it was going so well", flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n')
    assert error.code == "trial_killed"
    assert "SIGKILL" in error.message
    assert "it was going so well" in error.message


def test_a_child_that_just_leaves_is_no_result() -> None:
    error = failure("sys.exit(3)\n")
    assert error.code == "trial_killed"
    assert "exit code 3" in error.message


@pytest.mark.parametrize(
    "script",
    [
        'pipe.write("what?\\n")\n',
        'pipe.write("x" * 3_000_000)\npipe.flush()\ntime.sleep(5)\n',
        'send(event="progress", run={"prompt": "p"})\n',
        'send(event="progress")\n',
        RESULT,
        LOADED + PROGRESS + 'send(event="result")\n',
    ],
    ids=["no JSON", "a line without end", "half a run", "no run", "a result of nothing", "half a result"],
)
def test_a_child_that_talks_nonsense_is_ended(script: str) -> None:
    assert failure(script).code == "trial_protocol"


def test_a_child_that_floods_its_output_does_no_harm() -> None:
    script = 'for _ in range(2000):\n    print("x" * 5000)\n' + LOADED + PROGRESS + RESULT
    assert len(run_trial(REQUEST, command=child(script)).log) < 5000


def test_nothing_of_the_child_is_left_behind(tmp_path: Path) -> None:
    """A grandchild that ignores the polite signal goes too."""
    note = tmp_path / "pid"
    script = (
        "import subprocess\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import signal, time;"
        " signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(p.pid))\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)\n"
    )
    assert failure(script, Deadlines(whole=60, silence=1.0)).code == "trial_silent"
    pid = int(note.read_text())
    for _ in range(50):
        if not _runs(pid):
            return
        time.sleep(0.1)
    pytest.fail("the grandchild lives on")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
