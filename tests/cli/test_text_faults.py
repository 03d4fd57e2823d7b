"""Text that comes from elsewhere stays text, in every channel: no controls, no token, ASCII where it is wanted."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hub_server import Fault, HubRepo, HubServer
from injected.hub import NO_CONNECTION
from injected.text import TEXT_CASES, TextCase
from made_repos import sharded_repo
from test_faults import ROOT, Ran, held, run
from test_json_failures import ANSWERING, FAILING
from write_reference import documented_exits

from planner.cli.main import COMMANDS, main

PLAN = ["--gpu", "l4", "--context", "128", "--offline"]
#: Not of the shape that is blotted out wherever it stands: if this one is never seen, none is passed on at all.
CANARY = "Canary0Token1Of2No3Known4Shape"


@pytest.mark.parametrize("case", TEXT_CASES, ids=lambda case: case.id)
def test_hostile_text_does_no_harm(
    case: TextCase, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(case.config(), encoding="utf-8")

    def ran(*options: str) -> Ran:
        code = main(["fit", case.target, *PLAN, "--draft", "none", *options])
        out, err = capfd.readouterr()
        return Ran(exit_code=code, out=out, err=err)

    document = ran("--json", "-")
    held(document, case)
    assert document.out.isascii()
    for told in (document, ran(), ran("--verbose", "--explain"), ran("--debug", "--color", "never")):
        assert told.exit_code == case.exit_code
        assert all(character.isprintable() or character == "\n" for character in told.out + told.err)


@pytest.mark.parametrize("command", ["drafts", "gpus"])
@pytest.mark.parametrize("case", TEXT_CASES, ids=lambda case: case.id)
def test_other_commands_show_no_controls_either(
    case: TextCase,
    command: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(case.config(), encoding="utf-8")
    where = ["--gpu", "l4"] if command == "drafts" else []
    code = main([command, case.target, *where, "--context", "128", "--offline"])
    out, err = capfd.readouterr()
    assert code in documented_exits(command) - {1}
    assert code == case.exit_code or case.code is None
    assert all(character.isprintable() or character == "\n" for character in out + err)


@pytest.mark.parametrize("locale", ["C", "POSIX"])
@pytest.mark.parametrize("arguments", [["fit", "Qwen/Qwen3-8B", *PLAN], ["fit", "./no\u2013ne", "--gpu", "l4"]])
def test_ascii_is_kept_to_where_the_locale_wants_it(arguments: Sequence[str], locale: str, tmp_path: Path) -> None:
    for python in ({}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        ran = run(tmp_path, list(arguments), {"LC_ALL": locale, **python})
        assert ran.exit_code == (0 if "Qwen" in arguments[1] else 2), ran.err
        assert (ran.out + ran.err).isascii()


@pytest.mark.parametrize("options", [[], ["--json", "-"]], ids=["words", "json"])
def test_a_stdout_that_is_closed_is_no_bug(options: Sequence[str], tmp_path: Path) -> None:
    ran = _with_closed(">&-", ["gpus", *options], tmp_path)
    assert (ran.returncode, ran.stderr) == (141, "")


def test_a_closed_stdout_keeps_no_file_from_being_written(tmp_path: Path) -> None:
    ran = _with_closed(">&- 2>&-", ["gpus", "--json", "gpus.json"], tmp_path)
    assert ran.returncode == 0
    assert json.loads((tmp_path / "gpus.json").read_text(encoding="utf-8"))["schema"] == "specplan.gpus/1"


def test_a_closed_stderr_does_not_change_the_exit_code(tmp_path: Path) -> None:
    assert _with_closed("2>&-", ["gpus", "--gpu", "l4"], tmp_path).returncode == 2


def _with_closed(streams: str, arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "planner.cli.main", *arguments]
    return subprocess.run(
        ["sh", "-c", f'"$@" {streams}', "sh", *line],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_no_command_shows_the_token(tmp_path: Path) -> None:
    """Of every command one that fails and, where it can here, one that answers; asked to tell all it knows."""
    (tmp_path / "empty.log").write_text("nothing\n")
    lines = [arguments for arguments, *_ in FAILING.values()] + list(ANSWERING.values())
    assert {arguments[0] for arguments in lines} == set(COMMANDS)
    surroundings = {"HF_TOKEN": CANARY, "HF_ENDPOINT": NO_CONNECTION}
    with ThreadPoolExecutor(4) as pool:
        for ran in pool.map(lambda line: run(tmp_path, [line[0], "--debug", *line[1:]], surroundings), lines):
            assert CANARY not in ran.out + ran.err


@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"/": Fault(status=500)},
        {"/": Fault(status=429)},
        {"/": Fault(drop=True)},
        {"config": Fault(cut_after=9)},
    ],
    ids=["refused", "500", "429", "dropped", "cut"],
)
@pytest.mark.parametrize("json_target", ["-", "report.json"])
def test_no_answer_of_the_hub_brings_the_token_out(
    faults: Mapping[str, Fault], json_target: str, tmp_path: Path
) -> None:
    with HubServer() as server:
        server.add(HubRepo(repo_id="org/tiny", files=sharded_repo(shards=1), gated=not faults))
        for pattern, fault in faults.items():
            server.fail(pattern, fault)
        line = ["fit", "org/tiny", "--gpu", "l4", "--debug", "--json", json_target]
        ran = run(tmp_path, line, {"HF_ENDPOINT": server.url, "HF_TOKEN": CANARY})
        assert any(CANARY in (asked.authorization or "") for asked in server.seen)
    assert ran.exit_code in {5, 8}
    assert "Traceback" in ran.err
    written = "".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("*.json"))
    assert CANARY not in ran.out + ran.err + written
