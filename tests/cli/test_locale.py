"""A system that says it speaks ASCII only, and folders that do not: found by their bytes, told as text."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from made_repos import TINY_LLAMA
from test_faults import ROOT, Ran

from planner.report.document import Report, read_report

#: PEP 538 and 540 make Python speak UTF-8 all the same; a user, or an old image, may have turned both off.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
PLAN = ("--gpu", "l4", "--context", "128", "--offline", "--draft", "none")


def run(folder: Path, *arguments: str | bytes) -> Ran:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "planner.cli.main", *arguments],
        env={"PYTHONPATH": str(ROOT), "HOME": str(folder), **ASCII},
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Ran(exit_code=done.returncode, out=done.stdout.decode("ascii"), err=done.stderr.decode("ascii"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "mod\u00e8le"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(TINY_LLAMA), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", ["./mod\u00e8le", "mod\u00e8le"])
def test_a_folder_outside_ascii_is_planned(name: str, folder: Path) -> None:
    told = run(folder, "fit", name, *PLAN, "--json", "\u00f6.json")
    assert told.exit_code == 0, told.err
    assert "mod\\xe8le" in told.out
    assert "no command" not in told.err
    text = (folder / "\u00f6.json").read_text(encoding="ascii")
    assert "\\udc" not in text  # what is left of bytes that nobody decoded
    report = read_report(json.loads(text))
    assert isinstance(report, Report)
    assert report.target.repo_id == "mod\u00e8le"
    assert sorted(path.name for path in folder.iterdir() if path.suffix == ".json") == ["\u00f6.json"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fit", "./n\u00f6ne", *PLAN], "error: ./n\\xf6ne: no such folder"),
        (["fit", "n\u00f6ne/mod\u00e8le", *PLAN], "error: n\\xf6ne/mod\\xe8le: not a Hub repo id"),
        (["explain-log", "n\u00f6.log"], "error: n\\xf6.log: the log cannot be read"),
        (["check", "n\u00f6.json"], "error: n\\xf6.json: cannot be read"),
        (
            ["fit", "Qwen/Qwen3-0.6B", *PLAN, "--json", "n\u00f6/x"],
            "error: n\\xf6/x: the document cannot be written",
        ),
    ],
)
def test_the_reason_is_the_right_one(arguments: Sequence[str], says: str, folder: Path) -> None:
    told = run(folder, *arguments)
    assert told.exit_code == 2
    assert told.err.splitlines()[-2].startswith(says)


def test_a_name_of_bytes_that_are_no_text_is_said_so(folder: Path) -> None:
    told = run(folder, "fit", b"./mod\xe8le", *PLAN, "--json", "-")
    assert told.exit_code == 2
    assert "the model name is no UTF-8 text" in json.loads(told.out)["error"]["message"]
