"""Ctrl-C, SIGTERM and SIGHUP while a trial runs: the report is whole, and nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from write_reference import documented_exits

from planner.report.document import FailureReport, Report, read_report

ROOT = Path(__file__).resolve().parents[2]
#: The command as a user starts it, but for a child that says that it is there and then never ends; neither it nor
#: its own child ends when asked.
COMMAND = '''
import signal, sys
# A shell that runs the tests in the background lets them, and so this process, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
from dataclasses import replace
from planner.cli import pair_trial, trials
from planner.trial import backends
from planner.cli.main import main
child = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
grandchild = subprocess.Popen([sys.executable, "-c", deaf])
open("half", "w").write(f"{os.getpid()} {grandchild.pid}")
os.rename("half", sys.argv[-2])
time.sleep(600)
"""
backends.BACKENDS["builtin"] = replace(backends.BUILTIN, start=("-c", child, "child.pid"), needs=())
pair_trial.installed_versions = trials.installed_versions = lambda: dict.fromkeys(pair_trial.NEEDED, "9")
sys.exit(main(sys.argv[1:]))
'''
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 2048,
    "torch_dtype": "float32",
}


OPTIONS = ("--devices", "cpu", "--offline", "--trial-weights", "dummy")
FIT = (
    "fit",
    "./target",
    "--draft",
    "./draft",
    "--engine",
    "transformers",
    "--context",
    "512",
    "--trial",
    *OPTIONS,
)
TRIAL = ("trial", "./target", "./draft", *OPTIONS)


def wait_for(file: Path) -> tuple[int, ...]:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if file.is_file():
            return tuple(map(int, file.read_text().split()))
        time.sleep(0.05)
    raise AssertionError("the child never started")


def is_gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@contextmanager
def in_a_trial(command: Sequence[str], folder: Path) -> Iterator[tuple["subprocess.Popen[str]", Sequence[int]]]:
    """The command with its trial's child running, and the processes that must go."""
    for name, layers in (("target", 8), ("draft", 1)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    places = {name: str(folder / name) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME")}
    running = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *command, "--json", "report.json"],
        cwd=folder,
        env={**os.environ, **places, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield running, wait_for(folder / "child.pid")
    finally:
        running.kill()
        running.communicate()


def test_ctrl_c_in_a_trial_keeps_the_plan_and_leaves_no_child(tmp_path: Path) -> None:
    with in_a_trial(FIT, tmp_path) as (running, family):
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert "FITS" in out
    report = read_report(json.loads((tmp_path / "report.json").read_text()))
    assert isinstance(report, Report)
    assert report.exit_code == 130
    trial = report.candidates[0].trial
    assert trial is not None
    assert (trial.outcome, trial.error.code if trial.error else None) == ("failed", "trial_interrupted")
    assert all(map(is_gone, family))


def test_a_second_ctrl_c_does_not_wait_for_a_child_that_is_deaf(tmp_path: Path) -> None:
    with in_a_trial(TRIAL, tmp_path) as (running, family):
        started = time.monotonic()
        running.send_signal(signal.SIGINT)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
        assert time.monotonic() - started < 2.5  # it would have had three seconds to end by itself
    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert all(map(is_gone, family))


@pytest.mark.parametrize("command", [FIT, TRIAL], ids=["fit", "trial"])
@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_parent_that_is_told_to_end_ends_its_child(
    command: Sequence[str], number: signal.Signals, exit_code: int, tmp_path: Path
) -> None:
    with in_a_trial(command, tmp_path) as (running, family):
        running.send_signal(number)
        time.sleep(0.3)
        running.send_signal(number)  # more of them do not stop the clean-up
        out, err = running.communicate(timeout=60)
    assert running.returncode == exit_code, err
    assert exit_code in documented_exits(command[0])
    assert "Traceback" not in err
    assert out == ""
    assert err.splitlines()[-2].startswith("error: interrupted: told to end (SIG")
    assert err.splitlines()[-1].startswith("hint: ")
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["error"]["code"] == "terminated"
    if command is FIT:
        report = read_report(document)
        assert isinstance(report, FailureReport)
        assert report.exit_code == exit_code
    assert not list(tmp_path.glob(".report.json*"))
    assert all(map(is_gone, family))


def test_under_nohup_a_closed_terminal_ends_nothing(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited, as nohup does it
    try:
        with in_a_trial(TRIAL, tmp_path) as (running, family):
            running.send_signal(signal.SIGHUP)
            time.sleep(0.5)
            assert running.poll() is None
            os.kill(family[0], 0)
            running.send_signal(signal.SIGTERM)
            running.communicate(timeout=60)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert running.returncode == 143
    assert all(map(is_gone, family))
