"""Ctrl-C while a trial runs: the plan is told, the report is whole, and nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from planner.report.document import Report, read_report

ROOT = Path(__file__).resolve().parents[2]
#: The command as a user starts it, but for a child that says that it is there and then never ends.
COMMAND = """
import signal, sys
# A shell that runs the tests in the background lets them, and so this process, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
from dataclasses import replace
from planner.cli import pair_trial, trials
from planner.trial import backends
from planner.cli.main import main
child = "import os, sys, time; open(sys.argv[-2], 'w').write(str(os.getpid())); time.sleep(600)"
backends.BACKENDS["builtin"] = replace(backends.BUILTIN, start=("-c", child, "child.pid"), needs=())
pair_trial.installed_versions = trials.installed_versions = lambda: dict.fromkeys(pair_trial.NEEDED, "9")
sys.exit(main(sys.argv[1:]))
"""
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


def wait_for(file: Path) -> int:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if file.is_file() and (text := file.read_text()):
            return int(text)
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


def test_ctrl_c_in_a_trial_keeps_the_plan_and_leaves_no_child(tmp_path: Path) -> None:
    for name, layers in (("target", 8), ("draft", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    options = "--devices cpu --engine transformers --context 512 --offline --trial --trial-weights dummy"
    command = ["fit", "./target", "--draft", "./draft", *options.split(), "--json", "report.json"]
    places = {name: str(tmp_path / name) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME")}
    running = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *command],
        cwd=tmp_path,
        env={**os.environ, **places, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        pid = wait_for(tmp_path / "child.pid")
        os.kill(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert "FITS" in out
    report = read_report(json.loads((tmp_path / "report.json").read_text()))
    assert isinstance(report, Report)
    assert report.exit_code == 130
    trial = report.candidates[0].trial
    assert trial is not None
    assert (trial.outcome, trial.error.code if trial.error else None) == ("failed", "trial_interrupted")
    assert is_gone(pid)
