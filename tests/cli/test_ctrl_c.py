"""Ctrl-C at any moment: no traceback, no half of a file, no process left; the older file, or a whole new one.

The moments are drawn from one seed, between the first line of ours and the end of a run that nobody disturbs.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hub_server import Fault, HubRepo, HubServer
from injected.hub import NO_CONNECTION
from made_repos import sharded_repo
from test_trial_interrupted import CONFIG

ROOT = Path(__file__).resolve().parents[2]
MOMENTS = 10
OLDER = "an older report"
#: A shell that runs the tests in the background lets them, and so this process, ignore Ctrl-C.
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
PLAIN = """
print("+", file=sys.stderr, flush=True)
from planner.cli.start import run
run()
"""
#: A trial whose child takes a second and ends without a result.
WITH_A_TRIAL = """
from dataclasses import replace
from planner.cli import pair_trial, trials
from planner.trial import backends
child = "import sys, time; sys.stdin.read(); time.sleep(1)"
backends.BACKENDS["builtin"] = replace(backends.BUILTIN, start=("-c", child), needs=())
pair_trial.installed_versions = trials.installed_versions = lambda: dict.fromkeys(pair_trial.NEEDED, "9")
"""


def run(script: str, arguments: Sequence[str], folder: Path, after: float | None, hub: str) -> tuple[int, str]:
    """Exit code and stderr of a command that is interrupted so many seconds after its first line."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments, "--json", "report.json"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "HOME": str(folder), "PATH": os.environ["PATH"], "HF_ENDPOINT": hub},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "+\n"
        if after is not None:
            time.sleep(after)
            running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    return running.returncode, err


def left_behind(folder: Path) -> list[str]:
    """Processes whose current folder it is."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        try:
            found += [place.parent.name] if place.resolve() == folder else []
        except OSError:
            continue
    return found


def prepare(folder: Path) -> Path:
    folder.mkdir()
    (folder / "report.json").write_text(OLDER)
    for name, layers in (("target", 8), ("draft", 1)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    return folder


SLOW = Fault(delay_seconds=0.3)
COMMANDS: Mapping[str, tuple[str, Sequence[str], Fault | None]] = {
    "plan": (START + PLAIN, ["fit", "Qwen/Qwen3-8B", "--gpu", "h100-80gb", "--offline"], None),
    "hub": (START + PLAIN, ["fit", "org/tiny", "--gpu", "l4", "--draft", "none", "--context", "128"], SLOW),
    "trial": (
        START + WITH_A_TRIAL + PLAIN,
        ["trial", "./target", "./draft", "--devices", "cpu", "--offline", "--trial-weights", "dummy"],
        None,
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_at_any_moment(name: str, tmp_path: Path) -> None:
    script, arguments, fault = COMMANDS[name]
    chance = random.Random(name)  # noqa: S311 - no secret
    with HubServer() as server, ThreadPoolExecutor(2) as pool:
        server.add(HubRepo(repo_id="org/tiny", files=sharded_repo(shards=3)))
        if fault is not None:
            server.fail("/", fault)
        hub = NO_CONNECTION if fault is None else server.url

        def interrupted(folder: Path, after: float | None) -> tuple[int, str]:
            return run(script, arguments, prepare(folder), after, hub)

        started = time.monotonic()
        whole, told = interrupted(tmp_path / "whole", None)
        seconds = time.monotonic() - started
        assert whole == (7 if name == "trial" else 0), told
        folders = [tmp_path / str(number) for number in range(MOMENTS)]
        answers = list(pool.map(interrupted, folders, [chance.uniform(0.0, seconds) for _ in folders]))
    codes = set()
    for folder, (code, err) in zip(folders, answers, strict=True):
        # -2: ended by the signal itself, which a shell calls 130; the whole one's code where it came too late.
        assert code in {130, -signal.SIGINT, whole}, err
        assert "Traceback" not in err
        assert "Exception ignored" not in err
        written = (folder / "report.json").read_text()
        if written != OLDER:
            document = json.loads(written)
            assert document["exit_code"] in {130, whole}
            assert document["exit_code"] == code or code == -signal.SIGINT
        assert [path.name for path in folder.glob(".report*")] == []
        assert left_behind(folder) == []
        codes.add(code)
    assert codes & {130, -signal.SIGINT}  # some of them came in time


#: Ctrl-C in a callback of the interpreter's own, where Python prints an exception and goes on.
IN_A_CALLBACK = """
import signal, time, weakref
from planner.cli import main as module
class Thing: pass
def main():
    thing = Thing()
    kept = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    try:
        time.sleep(20)
    except KeyboardInterrupt:
        return 130
    return 0
module.main = main
"""


def test_ctrl_c_is_not_swallowed_by_a_callback(tmp_path: Path) -> None:
    started = time.monotonic()
    assert run(START + IN_A_CALLBACK + PLAIN, [], prepare(tmp_path / "folder"), None, NO_CONNECTION) == (130, "")
    assert time.monotonic() - started < 10
