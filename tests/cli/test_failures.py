"""Every failure has its exit code, two lines on stderr, and one JSON document where asked."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from model_catalog.errors import ModelError, NetworkError, SpecplanError, UsageError
from planner.cli import main as entry
from planner.cli.failure import Wishes, failure_of, tell
from planner.cli.main import COMMANDS, main
from planner.errors import HardwareError, TrialError  # which also makes their branches known to the tree
from planner.report.document import FailureReport, read_report

#: The table of exit codes in the help text: 2 usage, 5 model, 6 hardware, 7 trial, 8 network.
BRANCHES = {UsageError: 2, ModelError: 5, HardwareError: 6, TrialError: 7, NetworkError: 8}


def leaves(branch: type[SpecplanError]) -> Iterator[type[SpecplanError]]:
    yield branch
    for below in branch.__subclasses__():
        yield from leaves(below)


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [(kind, code) for branch, code in BRANCHES.items() for kind in leaves(branch)],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_every_error_has_the_exit_code_of_its_branch(kind: type[SpecplanError], exit_code: int) -> None:
    failure = failure_of(kind("it broke", subject="org/name", hint="do this"))
    assert (failure.exit_code, failure.code) == (exit_code, kind.code)
    assert (failure.message, failure.subject, failure.hint) == ("it broke", "org/name", "do this")


def test_no_error_is_outside_the_branches() -> None:
    assert set(SpecplanError.__subclasses__()) == set(BRANCHES)


@pytest.mark.parametrize(
    ("error", "exit_code", "code"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (click.UsageError("Missing argument 'TARGET'."), 2, "usage"),
        (ZeroDivisionError("division by zero"), 1, "bug"),
        (MemoryError(), 1, "bug"),
    ],
)
def test_foreign_exceptions(error: BaseException, exit_code: int, code: str) -> None:
    failure = failure_of(error)
    assert (failure.exit_code, failure.code) == (exit_code, code)
    assert failure.hint


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fti"], "no such command 'fti'"),
        (["fit"], "missing argument 'TARGET'"),
        (["fit", "x", "--contxt", "5"], "no such option '--contxt'"),
        (["fit", "x", "--context"], "--context: its value is missing"),
        (["fit", "x", "--color", "pink"], "--color: 'pink' is none of its values"),
        (["fit", "x", "--batch", "0"], "--batch: '0' must be at least 1"),
        (["fit", "x", "--memory-limit", "24G"], "--memory-limit: '24G' is ambiguous"),
        (["fit", "x", "--num-speculative-tokens", "0"], "--num-speculative-tokens: 0 speculative tokens"),
        (["fit", "x", "--engine", "vlm"], "--engine: no engine 'vlm' is known"),
        (["fit", "x", "--gpu", "h1000"], "h1000: no declared GPU of that name"),
        (["fit", "x", "--gpu", "l4", "--devices", "0"], "--gpu and --devices: both were given"),
        (["fit", "x", "--gpu", "l4:3", "--pp", "2"], "--pp: 2 pipeline stages do not divide 3 devices"),
        (["fit", "x", "--gpu", "l4", "--draft", "none", "--draft", "mtp"], "none excludes every other draft"),
        (["fit", "no such", "--gpu", "l4"], "no such: not a Hub repo id"),
        (["fit", "./nowhere", "--gpu", "l4"], "./nowhere: no such folder"),
        (
            ["fit", "Qwen/Qwen3-0.6B", "--offline", "--gpu", "l4", "--block-size", "24"],
            "--block-size: no attention kernel",
        ),
        (["models", "x", "--add", "y"], "NAME and --add were both given"),
        (["gpus", "--json"], "--json: its value is missing"),
    ],
)
def test_usage_errors(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert says in err
    assert err.splitlines()[-1].startswith("hint: ")


@pytest.mark.parametrize("place", [["--json", "-"], ["--json=-"]])
@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (["fit", "./nowhere", "--gpu", "l4"], 2, "usage"),
        (["fit"], 2, "usage"),
        (["fit", "x", "--gpu", "h1000"], 2, "unknown_gpu"),
    ],
)
def test_failures_are_one_valid_document_on_stdout(
    capsys: pytest.CaptureFixture[str], arguments: list[str], exit_code: int, code: str, place: list[str]
) -> None:
    assert main([*arguments, *place]) == exit_code
    report = read_report(json.loads(capsys.readouterr().out))
    assert isinstance(report, FailureReport)
    assert (report.exit_code, report.error.code) == (exit_code, code)


def test_failures_are_written_to_a_path_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "report.json"
    assert main(["fit", "./nowhere", "--gpu", "l4", "--json", str(place)]) == 2
    assert json.loads(place.read_text(encoding="utf-8"))["exit_code"] == 2
    assert capsys.readouterr().out == ""


def test_other_commands_fail_under_their_own_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "no-such-model-anywhere", "--json", "-"]) == 5
    assert json.loads(capsys.readouterr().out)["schema"] == "specplan.models/1"


def test_an_unwritable_path_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "--quiet", "--json", str(tmp_path / "no" / "report.json")]) == 2
    assert "the document cannot be written" in capsys.readouterr().err


def test_a_bug_is_exit_1_with_a_traceback_on_request_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> object:
        raise RuntimeError("a wheel came off")

    monkeypatch.setattr(entry.group, "main", broken)
    assert main(["fit", "x", "--json", "-"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "bug"
    assert "a wheel came off" in err
    assert "Traceback" not in err
    assert main(["fit", "x", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_tokens_never_reach_the_output(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    token = "hf_" + "A1b2C3d4" * 4
    place = tmp_path / "report.json"
    error = UsageError(f"bad {token}", subject=token, hint=f"drop {token}")
    assert tell(error, Wishes(json_target=str(place), debug=True, schema="specplan.report/1")) == 2
    assert token not in capsys.readouterr().err + place.read_text(encoding="utf-8")
    assert "hf_***" in place.read_text(encoding="utf-8")


def test_control_characters_never_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    error = ModelError("has \x1b[2J\x07 and \u202egnp.exe", subject="a\rb", hint="none")
    tell(error, Wishes(json_target=None, debug=False, schema="specplan.report/1"))
    err = capsys.readouterr().err
    assert all(character.isprintable() or character == "\n" for character in err)


def test_a_reader_who_leaves_is_no_bug() -> None:
    # `head` closes the pipe while we still write; the reader's end is closed before we start, which is certain.
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "planner.cli.main", "gpus"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("arguments", [["gpus"], ["gpus", "--json", "-"]], ids=["words", "json"])
def test_no_room_for_the_answer_is_no_bug(arguments: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "planner.cli.main", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: output: the answer cannot be written")
    assert len(done.stderr.splitlines()) == 2


def test_every_command_in_the_help_exists(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
    assert "Traceback" not in capsys.readouterr().err
