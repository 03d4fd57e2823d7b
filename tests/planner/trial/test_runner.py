"""The parent against children that behave and some that do not. None of them imports torch.

All that do not are in ``tests/cli/test_child_faults.py``.
"""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
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


def test_the_handlers_of_signals_are_ours_while_the_child_runs_only() -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    inside: list[object] = []
    try:
        run_trial(
            REQUEST,
            command=child(LOADED + PROGRESS + RESULT),
            started=lambda _: inside.extend(map(signal.getsignal, numbers)),
        )
        assert all(map(callable, inside))
        assert [signal.getsignal(number) for number in numbers] == [signal.SIG_DFL] * 2
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_a_handler_of_somebody_else_stays() -> None:
    def theirs(*_: object) -> None:
        """Of a program that runs us as a library."""

    before = signal.signal(signal.SIGTERM, theirs)
    inside: list[object] = []
    try:
        run_trial(
            REQUEST,
            command=child(LOADED + PROGRESS + RESULT),
            started=lambda _: inside.append(signal.getsignal(signal.SIGTERM)),
        )
        assert inside == [theirs]
        assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_trial_in_another_thread_takes_no_signals() -> None:
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run_trial, REQUEST, command=child(LOADED + PROGRESS + RESULT))
        assert done.result(30).runs == (RUN,)
