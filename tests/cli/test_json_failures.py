"""``--json`` of every command: one document of its schema on failure, and a whole file or none.

Each command runs in a process of its own, on a machine without a network and without a GPU.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fake_nvml.build import break_library
from write_reference import documented_exits

from planner.cli.main import COMMANDS
from planner.report.schemas import REPORT_SCHEMA, SCHEMA_OF_COMMAND

ROOT = Path(__file__).resolve().parents[2]
MODEL, GPU = "Qwen/Qwen3-0.6B", ("--gpu", "l4")
#: name of the case: (arguments, exit code, error code).
FAILING: Mapping[str, tuple[Sequence[str], int, str]] = {
    "fit": (["fit", "org/none", *GPU], 8, "hub_unreachable"),
    "fit: no driver": (["fit", MODEL], 6, "nvml_missing"),
    "fit: no such folder": (["fit", "./none", *GPU], 2, "usage"),
    "fit: no such card": (["fit", MODEL, "--gpu", "h1000"], 2, "unknown_gpu"),
    "fit: two stages": (["fit", MODEL, "--gpu", "l4:3", "--pp", "2"], 2, "parallelism"),
    "fit: bad value": (["fit", MODEL, *GPU, "--context", "x"], 2, "usage"),
    "fit: broken config": (["fit", "./broken", *GPU], 5, "config"),
    "fit: no draft of that name": (["fit", MODEL, *GPU, "--draft", "org/none"], 8, "hub_unreachable"),
    "fit: a trial on a card that is not here": (["fit", MODEL, *GPU, "--trial"], 2, "usage"),
    "fit: no cluster": (["fit", MODEL, "--ray", "127.0.0.1:1"], 6, "cluster"),
    "fit: a cluster of our own": (["fit", MODEL, "--ray", "local"], 2, "usage"),
    "fit: a cluster and a card": (["fit", MODEL, *GPU, "--ray", "auto"], 2, "usage"),
    "drafts": (["drafts", "org/none", *GPU], 8, "hub_unreachable"),
    "drafts: no driver": (["drafts", MODEL], 6, "nvml_missing"),
    "drafts: no target": (["drafts"], 2, "usage"),
    "trial": (["trial", "./broken", MODEL, "--devices", "cpu"], 5, "config"),
    "trial: no driver": (["trial", MODEL, MODEL, "--devices", "0"], 6, "nvml_missing"),
    "trial: no weights": (
        ["trial", MODEL, MODEL, "--devices", "cpu", "--trial-weights", "real"],
        7,
        "trial_weights_missing",
    ),
    "trial: one model": (["trial", MODEL], 2, "usage"),
    "trial: too few tokens": (["trial", MODEL, MODEL, "--new-tokens", "1"], 2, "usage"),
    "explain-log": (["explain-log", "none.log"], 2, "usage"),
    "explain-log: a folder": (["explain-log", "."], 2, "usage"),
    "explain-log: no such model": (["explain-log", "start.log", "--model", "org/none"], 8, "hub_unreachable"),
    "explain-log: unknown model": (["explain-log", "start.log"], 5, "model_not_found"),
    "check": (["check", "none.json"], 2, "usage"),
    "check: no report": (["check", "broken/config.json"], 2, "usage"),
    "check: bad value": (["check", "none.json", "--wait", "x"], 2, "usage"),
    "check-command": (["check-command", *GPU, "--", "vllm", "serve", "org/none"], 8, "hub_unreachable"),
    "check-command: nothing": (["check-command"], 2, "usage"),
    "check-command: no engine": (["check-command", "--", "rm", "--json", "x"], 2, "usage"),
    "check-command: no driver": (["check-command", "--", "vllm", "serve", MODEL], 6, "nvml_missing"),
    "gpus": (["gpus", "org/none"], 8, "hub_unreachable"),
    "gpus: broken config": (["gpus", "./broken"], 5, "config"),
    "gpus: unknown option": (["gpus", "--gpu", "l4"], 2, "usage"),
    "devices": (["devices"], 6, "nvml_missing"),
    "devices: an argument": (["devices", "x"], 2, "usage"),
    "models": (["models", "org/none"], 5, "model_not_found"),
    "models: add": (["models", "--add", "org/none"], 8, "hub_unreachable"),
    "models: both": (["models", "x", "--add", "y"], 2, "usage"),
    "schema": (["schema", "x"], 2, "usage"),
    "completion": (["completion", "tcsh"], 2, "usage"),
    "doctor": (["doctor", "x"], 2, "usage"),
    "doctor: bad value": (["doctor", "--color", "pink"], 2, "usage"),
}
#: Of each command that takes --json, one that answers.
ANSWERING: Mapping[str, Sequence[str]] = {
    "fit": ["fit", MODEL, *GPU, "--draft", "none"],
    "drafts": ["drafts", MODEL, *GPU, "--draft", "ngram"],
    "explain-log": ["explain-log", "empty.log"],
    "gpus": ["gpus"],
    "models": ["models"],
    "doctor": ["doctor"],
}
#: The command, with files that may not be longer.
LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))
from planner.cli.main import run
run()
"""
Ran = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("json-failures")
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": -1}))
    (folder / "empty.log").write_text("nothing\n")
    start = "INFO 01-01 00:00:00 [core.py:58] Initializing a V1 LLM engine (v0.11.0) with config: model='org/none'"
    (folder / "start.log").write_text(start)
    break_library(folder / "no-driver")
    return folder


def run(home: Path, arguments: Sequence[str], *, longest_file: int | None = None) -> Ran:
    kept = {name: os.environ[name] for name in ("PATH", "COVERAGE_PROCESS_START") if name in os.environ}
    surroundings = {
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "HF_HUB_OFFLINE": "1",
        "LD_LIBRARY_PATH": str(home / "no-driver"),
    }

    start = ["-m", "planner.cli.main"] if longest_file is None else ["-c", LIMITED.format(longest_file)]
    return subprocess.run(
        [sys.executable, "-W", "error", *start, *arguments],
        env={**kept, **surroundings},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def failed(home: Path) -> Mapping[str, Ran]:
    with ThreadPoolExecutor(4) as pool:
        lines = [[name, "--json", "-", *rest] for (name, *rest), _, _ in FAILING.values()]
        return dict(zip(FAILING, pool.map(lambda line: run(home, line), lines), strict=True))


def only_document(text: str) -> Mapping[str, Any]:
    """The one JSON value that this text is, nothing before and nothing after it but a line's end."""
    document, end = json.JSONDecoder().raw_decode(text)
    assert text[end:] == "\n"
    assert isinstance(document, dict)
    return document


def test_every_command_is_tried() -> None:
    assert {arguments[0] for arguments, _, _ in FAILING.values()} == set(COMMANDS)


@pytest.mark.parametrize("case", FAILING)
def test_a_failure_is_one_document_of_the_commands_schema(case: str, failed: Mapping[str, Ran]) -> None:
    arguments, exit_code, code = FAILING[case]
    if code == "trial_weights_missing" and find_spec("torch") is None:
        pytest.skip("the trial's libraries are not installed: pip install 'specplan[trial]'")
    ran = failed[case]
    assert ran.returncode == exit_code, ran.stderr
    assert exit_code in documented_exits(arguments[0])
    document = only_document(ran.stdout)
    assert set(document) == {"schema", "exit_code", "error"}
    assert document["schema"] == SCHEMA_OF_COMMAND.get(arguments[0], REPORT_SCHEMA)
    assert document["exit_code"] == exit_code
    error = document["error"]
    assert set(error) == {"code", "message", "subject", "hint"}
    assert error["code"] == code
    assert all(isinstance(text, str) and text.strip() for text in error.values())
    assert "Traceback" not in ran.stderr
    shown = ran.stderr.splitlines()[-2:]
    assert shown == [f"error: {error['subject']}: {error['message']}", f"hint: {error['hint']}"]


def held_back(ran: Ran, exit_code: int) -> None:
    """The document that could not be written is told as such, and nothing else is."""
    assert ran.returncode == exit_code, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "the document cannot be written" in ran.stderr
    assert len([line for line in ran.stderr.splitlines() if line.startswith("hint: ")]) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("command", ANSWERING)
def test_a_full_disk_is_a_usage_error(command: str, home: Path) -> None:
    held_back(run(home, [*ANSWERING[command], "--json", "/dev/full"]), 2)


@pytest.mark.parametrize("command", ANSWERING)
def test_a_disk_that_fills_up_leaves_the_older_file_whole(command: str, home: Path, tmp_path: Path) -> None:
    """Sixty bytes may be written: less than any document has."""
    place = tmp_path / "report.json"
    place.write_text("an older report", encoding="utf-8")
    held_back(run(home, [*ANSWERING[command], "--json", str(place)], longest_file=60), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert place.read_text(encoding="utf-8") == "an older report"


@pytest.mark.parametrize("command", ANSWERING)
def test_a_folder_that_takes_no_files_is_a_usage_error(command: str, home: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    # Root may write everywhere but where the kernel keeps its own.
    place = closed if not os.access(closed, os.W_OK) else Path("/sys")
    if not place.is_dir():
        pytest.skip("no folder here takes no files")
    held_back(run(home, [*ANSWERING[command], "--json", str(place / "report.json")]), 2)
    assert list(closed.iterdir()) == []


@pytest.mark.parametrize("case", ["fit", "devices", "models"])
def test_a_failure_whose_document_cannot_be_written_keeps_its_exit_code(case: str, home: Path) -> None:
    arguments, exit_code, _ = FAILING[case]
    held_back(run(home, [*arguments, "--json", str(home / "none" / "report.json")]), exit_code)
