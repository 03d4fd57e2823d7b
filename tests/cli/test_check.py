"""`specplan check` as a launcher runs it: real reports, the real pynvml on a stand-in driver, real files."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fake_nvml.build import break_library, build_library, find_compiler, scenario_environment
from fake_nvml.scenarios import H100_NAME, H100_RESERVED, H100_TOTAL, MIG_H100, h100
from hub_server import HubRepo, HubServer
from made_repos import TINY_LLAMA, sharded_repo

from planner.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
GIB = 2**30
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
IDLE = h100(0) + h100(1)
TAKEN = h100(0, f"used={40 * GIB}") + h100(1) + f"process gpu=0 pid=4242 used={39 * GIB} name=python3\n"
HANDLE_LOST = "fail call=nvmlDeviceGetHandleByIndex_v2 code=15 gpu=1\n"
MEMORY_LOST = "".join(
    f"fail call={call} code=15 gpu=1\n" for call in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo")
)
UNSUPPORTED = MEMORY_LOST.replace("code=15 gpu=1", "code=3")


@dataclass(frozen=True, kw_only=True)
class Ran:
    exit_code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def codes(self) -> list[str]:
        """Of what is wrong with devices and models; an engine is installed nowhere here."""
        codes = [difference["code"] for difference in self.document["differences"]]
        return [code for code in codes if code != "engine_not_compared"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A place with a stand-in driver, and the plans that were made on it when it was idle."""

    folder: Path

    def environment(self, scenario: str | None) -> dict[str, str]:
        if scenario is None:
            return {"LD_LIBRARY_PATH": str(break_library(self.folder / "broken").parent)}
        return scenario_environment(self.folder / "driver", scenario)

    def start(self, scenario: str | None, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        path = {name: os.environ[name] for name in ("PATH", "COVERAGE_PROCESS_START") if name in os.environ}
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        settings = {"PYTHONPATH": str(ROOT), "HOME": str(home), "LC_ALL": "C.UTF-8"}
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "planner.cli.main", *arguments],
            env={**path, **settings, **self.environment(scenario), **environment},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, scenario: str | None, *arguments: str, **environment: str) -> Ran:
        process = self.start(scenario, *arguments, **environment)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err
        return Ran(exit_code=process.returncode, out=out, err=err)

    def plan(self, name: str, scenario: str | None, *arguments: str) -> None:
        ran = self.run(scenario, "fit", *arguments, "--draft", "none", "--offline", "--json", name)
        assert (self.folder / name).is_file(), ran.err

    def check(self, scenario: str | None, name: str, *arguments: str, **environment: str) -> Ran:
        return self.run(scenario, "check", name, "--offline", "--json", "-", *arguments, **environment)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    if find_compiler() is None:
        pytest.skip("no C compiler: the stand-in libnvidia-ml.so.1 cannot be built")
    found = Machine(folder=tmp_path_factory.mktemp("check"))
    build_library(found.folder / "driver")
    found.plan("two.json", IDLE, LLAMA_8B)
    found.plan("one.json", h100(0), LLAMA_8B)
    found.plan("declared.json", None, LLAMA_8B, "--gpu", "h100-80gb:2")
    found.plan("sized.json", None, LLAMA_8B, "--gpu", "80GiB")
    found.plan("mig.json", MIG_H100, "Qwen/Qwen3-0.6B", "--devices", "MIG-aaaa")
    found.plan("host.json", None, "Qwen/Qwen3-0.6B", "--devices", "cpu", "--engine", "transformers")
    found.plan("transformers.json", h100(0), LLAMA_8B, "--engine", "transformers")
    return found


#: name: (plan, scenario, further arguments, exit code, codes of what differs)
CASES: dict[str, tuple[str, str | None, str, int, list[str]]] = {
    "same-machine": ("two.json", IDLE, "", 0, []),
    "memory-taken": ("two.json", TAKEN, "", 3, ["memory_taken", "does_not_fit", "other_fraction"]),
    "memory-taken-but-enough": ("two.json", h100(0, f"used={GIB}") + h100(1), "", 0, ["memory_taken"]),
    "device-gone": ("two.json", h100(0), "", 3, ["device_gone"]),
    "other-device": ("one.json", h100(1) + h100(0), "", 0, []),
    "replaced-by-another": ("one.json", h100(5), "", 3, ["device_gone"]),
    "one-of-two-lost": ("two.json", IDLE + HANDLE_LOST, "", 4, ["device_unreadable"]),
    "memory-of-one-lost": ("two.json", IDLE + MEMORY_LOST, "", 4, ["reading_missing"]),
    "the-other-of-two-lost": ("one.json", IDLE + MEMORY_LOST, "", 0, []),
    "memory-not-supported": ("one.json", h100(0) + UNSUPPORTED, "", 4, ["reading_missing"]),
    "driver-changed": ("one.json", "system driver=590.44\n" + h100(0), "", 0, ["driver_changed"]),
    "total-changed": ("one.json", h100(0).replace(str(H100_TOTAL), str(H100_TOTAL - GIB)), "", 0,
                      ["total_changed", "memory_taken"]),
    "required": ("two.json", IDLE, "--require-free 79GiB", 0, []),
    "required-too-much": ("two.json", IDLE, "--require-free 80GiB", 3, ["free_below_required"] * 2),
    "declared-and-there": ("declared.json", IDLE, "", 0, ["matched_by_name"] * 2),
    "declared-and-busy": ("declared.json", TAKEN, "", 3,
                          ["matched_by_name", "memory_taken", "matched_by_name", "does_not_fit",
                           "other_fraction"]),
    "declared-and-one": ("declared.json", h100(0), "", 4, ["matched_by_name", "no_such_gpu"]),
    "declared-elsewhere": ("declared.json", IDLE.replace("H100", "H900"), "", 4, ["no_such_gpu"] * 2),
    "declared-without-gpu": ("declared.json", "", "", 4, ["no_such_gpu"] * 2),
    "declared-without-driver": ("declared.json", None, "", 4, ["no_such_gpu"] * 2),
    "declared-by-size": ("sized.json", h100(0), "", 0, ["matched_by_name"]),
    "mig": ("mig.json", MIG_H100, "", 0, []),
    "mig-taken-away": ("mig.json", MIG_H100.replace("MIG-aaaa", "MIG-cccc"), "", 3, ["device_gone"]),
    "host-memory": ("host.json", None, "", 0, []),
    "transformers": ("transformers.json", h100(0), "", 0, []),
}  # fmt: skip


@pytest.fixture(scope="module")
def of_cases(machine: Machine) -> Iterator[Mapping[str, Future[Ran]]]:
    """All of them, a few at a time: most of their time is spent in starting."""
    with ThreadPoolExecutor(4) as pool:
        yield {
            name: pool.submit(machine.check, scenario, plan, *arguments.split())
            for name, (plan, scenario, arguments, *_) in CASES.items()
        }


@pytest.mark.parametrize("name", CASES)
def test_what_a_launcher_gets(name: str, of_cases: Mapping[str, Future[Ran]]) -> None:
    plan, _, _, exit_code, codes = CASES[name]
    ran = of_cases[name].result()
    moves = {"memory_taken", "memory_freed"} if plan == "host.json" else set()  # what else runs here now
    assert (ran.exit_code, [code for code in ran.codes if code not in moves]) == (exit_code, codes), ran.err
    document = ran.document
    assert (document["schema"], document["exit_code"]) == ("specplan.check/1", exit_code)
    answers = {0: "holds", 3: "does_not_hold", 4: "cannot_tell"}
    assert document["answer"] == answers[exit_code]


def test_the_same_machine_has_the_plans_headroom(machine: Machine) -> None:
    report = json.loads((machine.folder / "two.json").read_text(encoding="utf-8"))
    ranks = machine.check(IDLE, "two.json").document["ranks"]
    assert min(rank["headroom_bytes"] for rank in ranks) == report["verdict"]["headroom_bytes"]
    assert [rank["device"]["free_bytes"] for rank in ranks] == [H100_TOTAL - H100_RESERVED] * 2


def test_who_took_the_memory_is_named(machine: Machine) -> None:
    ran = machine.run(TAKEN, "check", "two.json", "--offline", "--quiet")
    assert ran.exit_code == 3
    told = "40.00 GiB less free than when planned; python3 (pid 4242) holds 39.00 GiB"
    assert ran.out == f"DOES NOT HOLD: GPU-00000000: {told}\n"
    whole = machine.run(TAKEN, "check", "two.json", "--offline").out.replace("\n  ", " ")
    assert f"DOES NOT HOLD: {H100_NAME.replace('~', ' ')} (GPU-00000000-" in whole
    assert told in whole
    process = machine.check(TAKEN, "two.json").document["ranks"][0]["device"]["processes"]
    assert process == [{"pid": 4242, "name": "python3", "used_bytes": 39 * GIB}]


@pytest.mark.parametrize(
    ("visible", "exit_code"), [("1,0", 0), ("1", 3), ("", 3), ("GPU-00000000,GPU-00000001", 0)]
)
def test_what_cuda_hides_is_not_there(visible: str, exit_code: int, machine: Machine) -> None:
    ran = machine.check(IDLE, "two.json", CUDA_VISIBLE_DEVICES=visible)
    assert ran.exit_code == exit_code
    assert set(ran.codes) == (set() if exit_code == 0 else {"device_hidden"})


#: name: (scenario, error code)
UNREADABLE: dict[str, tuple[str | None, str]] = {
    "library-missing": (None, "nvml_missing"),
    "no-gpu": ("system driver=580.1\n", "no_device"),
    "driver-mismatch": (h100(0) + "fail call=nvmlInitWithFlags code=18\n", "driver_mismatch"),
    "not-allowed": (h100(0) + "fail call=nvmlInitWithFlags code=4\n", "device_permission"),
    "only-one-lost": (h100(0) + "fail call=nvmlDeviceGetHandleByIndex_v2 code=15\n", "device_lost"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_devices_that_cannot_be_read(name: str, machine: Machine) -> None:
    scenario, code = UNREADABLE[name]
    ran = machine.check(scenario, "one.json", "--prometheus", f"{name}.prom", "--junit", f"{name}.xml")
    assert ran.exit_code == 6
    assert (ran.document["schema"], ran.document["error"]["code"]) == ("specplan.check/1", code)
    assert "--gpu " not in ran.err.replace("--gpus all", "")  # naming a GPU instead is no help here
    text = (machine.folder / f"{name}.prom").read_text(encoding="utf-8")
    assert 'specplan_check_ok{report="one.json"} 0\n' in text
    assert 'specplan_check_exit_code{report="one.json"} 6\n' in text
    error = ElementTree.parse(machine.folder / f"{name}.xml").find("testsuite/testcase/error")  # noqa: S314
    assert error is not None
    assert error.get("type") == code


# --- waiting -------------------------------------------------------------------------------------------------


def test_it_waits_for_a_teardown(machine: Machine) -> None:
    """The stand-in driver reads its scenario at every start, so memory comes back while the command looks."""
    scenario = Path(machine.environment(TAKEN + "# waits\n")["SPECPLAN_FAKE_NVML"])
    process = machine.start(TAKEN + "# waits\n", "check", "two.json", "--offline", "--json", "-", "--wait", "60")
    freed = threading.Timer(2.5, lambda: scenario.write_text(IDLE, encoding="utf-8"))
    freed.start()
    started = time.monotonic()
    out, err = process.communicate(timeout=90)
    freed.join()
    assert process.returncode == 0, err
    assert time.monotonic() - started < 30
    document = json.loads(out)
    assert document["answer"] == "holds"
    assert document["waited_seconds"] > 0.5


def test_it_gives_up_when_the_time_is_over(machine: Machine) -> None:
    started = time.monotonic()
    ran = machine.check(TAKEN, "two.json", "--wait", "1.5")
    assert ran.exit_code == 3
    assert ran.document["waited_seconds"] >= 1.5
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("seconds", ["-1", "nan", "soon", "90000"])
def test_a_wait_that_is_none(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "r.json", "--wait", seconds]) == 2
    assert "hint: give a number of seconds" in capsys.readouterr().err


# --- files ---------------------------------------------------------------------------------------------------


def test_files_are_written_whole_and_replaced(machine: Machine) -> None:
    place = machine.folder / "files"
    place.mkdir()
    (place / "c.prom").write_text("old", encoding="utf-8")
    arguments = ["--prometheus", "files/c.prom", "--junit", "files/c.xml"]
    assert machine.check(IDLE, "two.json", *arguments).exit_code == 0
    assert sorted(path.name for path in place.iterdir()) == ["c.prom", "c.xml"]
    text = (place / "c.prom").read_text(encoding="utf-8")
    assert 'specplan_check_ok{report="two.json"} 1\n' in text
    assert (place / "c.prom").stat().st_mode & 0o444 == 0o444  # the collector runs as another user
    suite = ElementTree.parse(place / "c.xml").find("testsuite")  # noqa: S314
    assert suite is not None
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")


@pytest.mark.parametrize("option", ["--prometheus", "--junit"])
def test_a_file_that_cannot_be_written(option: str, machine: Machine) -> None:
    nowhere = machine.check(IDLE, "two.json", option, "nowhere/file")
    assert nowhere.exit_code == 2
    assert nowhere.document["error"]["subject"] == "nowhere/file"  # one document, of the failure
    full = machine.run(IDLE, "check", "two.json", "--offline", option, "/dev/full")
    assert full.exit_code == 2
    assert full.out.startswith("Plan ")  # the answer is told all the same
    assert "/dev/full: the file cannot be written" in full.err
    assert f"give {option} a path" in full.err
    stdout = machine.check(IDLE, "two.json", option, "-")
    assert (stdout.exit_code, stdout.document["error"]["code"]) == (2, "usage")


def test_one_unwritable_file_does_not_keep_the_other(machine: Machine) -> None:
    ran = machine.check(IDLE, "two.json", "--prometheus", "nowhere/file", "--junit", "kept.xml")
    assert ran.exit_code == 2
    assert (machine.folder / "kept.xml").is_file()


def test_a_folder_that_is_read_only(machine: Machine) -> None:
    folder = Path("/sys")  # not even root may make a file there
    if not folder.is_dir():
        folder = machine.folder / "locked"
        folder.mkdir(mode=0o555)
    ran = machine.check(IDLE, "two.json", "--prometheus", str(folder / "c.prom"))
    assert (ran.exit_code, ran.document["error"]["subject"]) == (2, str(folder / "c.prom"))
    assert not (folder / "c.prom").exists()


def test_a_report_on_stdin(machine: Machine) -> None:
    report = (machine.folder / "two.json").read_text(encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-m", "planner.cli.main", "check", "-", "--offline", "--quiet"],
        input=report,
        env={**os.environ, "PYTHONPATH": str(ROOT), **machine.environment(IDLE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stdout.startswith("HOLDS: ")) == (0, True)


# --- what is no report ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is not a report"),
        (b'{"schema": "specplan.devices/1"}', "not specplan.report/1"),
        (b"\x1b]0;title\x07", "is not a report"),
        (b" " * (5 * 2**20), "longer than 4 MiB"),
    ],
)
def test_what_is_no_report(
    content: bytes | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "r.json"
    if content is not None:
        place.write_bytes(content)
    assert main(["check", str(place), "--json", "-", "--prometheus", str(tmp_path / "p")]) == 2
    out, err = capsys.readouterr()
    assert (json.loads(out)["schema"], json.loads(out)["error"]["code"]) == ("specplan.check/1", "usage")
    assert says in err
    assert err.splitlines()[-1].startswith("hint: ")
    assert "\x1b" not in err
    assert " 2\n" in (tmp_path / "p").read_text(encoding="utf-8")


@pytest.mark.parametrize("place", [".", "/dev/null", "a\0b", "/dev/zero"])
def test_places_that_hold_no_report(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", place]) == 2
    assert "error: " in capsys.readouterr().err


def test_a_report_that_was_changed_by_hand(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads((machine.folder / "two.json").read_text(encoding="utf-8"))
    report["memory"]["per_rank"][0]["items"][0] |= {"low_bytes": 1, "high_bytes": 1}
    place = machine.folder / "edited.json"
    place.write_text(json.dumps(report), encoding="utf-8")
    assert main(["check", str(place)]) == 2
    assert "do not add up to its total" in capsys.readouterr().err


def test_names_in_a_report_do_nothing_to_a_terminal(machine: Machine) -> None:
    report = json.loads((machine.folder / "two.json").read_text(encoding="utf-8"))
    report["target"]["repo_id"] = "\x1b[2J\x1b]0;x\x07evil\nHOLDS: all is well"
    report["devices"][0]["name"] = "\x1b[31m\u202ename"
    report["created_at"] = "\r\n" * 10 + "x" * 10_000
    (machine.folder / "evil.json").write_text(json.dumps(report), encoding="utf-8")
    ran = machine.run(IDLE, "check", "evil.json", "--offline", "--color", "always")
    shown = (
        ran.out.replace("\x1b[1m", "").replace("\x1b[1;31m", "").replace("\x1b[1;32m", "").replace("\x1b[0m", "")
    )
    assert shown.replace("\n", "").isprintable()
    assert "\nHOLDS: all is well" not in shown
    assert len(shown) < 5000


# --- models and engine ---------------------------------------------------------------------------------------


@pytest.fixture
def local_plan(machine: Machine) -> Path:
    """A plan for a folder beside it, ``model``."""
    folder = machine.folder / "model"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in sharded_repo(shards=2).items():
        assert isinstance(content, bytes)
        (folder / name).write_bytes(content)
    machine.plan("local.json", h100(0), "./model", "--context", "128")
    return folder


def test_a_local_folder_is_compared_only_where_it_is_named(local_plan: Path, machine: Machine) -> None:
    assert machine.check(h100(0), "local.json").codes == ["model_not_compared"]
    ran = machine.check(h100(0), "local.json", "--target-folder", "model")
    assert (ran.exit_code, ran.codes) == (0, [])
    config = {**TINY_LLAMA, "hidden_size": 128}
    (local_plan / "config.json").write_text(json.dumps(config), encoding="utf-8")
    changed = machine.check(h100(0), "local.json")
    assert (changed.exit_code, changed.codes) == (0, ["model_not_compared"])  # not opened
    missing = machine.check(h100(0), "local.json", "--target-folder", "nowhere")
    assert (missing.exit_code, missing.document["error"]["code"]) == (5, "model_not_found")


def test_files_of_a_local_folder_that_changed(local_plan: Path, machine: Machine) -> None:
    (local_plan / "notes.txt").write_text("no part of the model", encoding="utf-8")
    assert machine.check(h100(0), "local.json", "--target-folder", "model").codes == []
    config = {**TINY_LLAMA, "rope_theta": 12345.0}
    (local_plan / "config.json").write_text(json.dumps(config), encoding="utf-8")
    ran = machine.check(h100(0), "local.json", "--target-folder", "model")
    assert (ran.exit_code, ran.codes) == (4, ["model_changed"])


def test_a_folder_for_a_plan_without_one(machine: Machine) -> None:
    ran = machine.check(h100(0), "one.json", "--draft-folder", ".")
    assert (ran.exit_code, ran.document["error"]["subject"]) == (2, "--draft-folder")
    assert machine.check(h100(0), "one.json", "--target-folder", ".").codes == ["model_not_compared"]


def _planned_from(server: HubServer, machine: Machine, repo: HubRepo) -> dict[str, str]:
    server.add(repo)
    environment = {
        "HF_ENDPOINT": server.url,
        "XDG_CACHE_HOME": str(machine.folder / f"cache-{time.monotonic_ns()}"),
    }
    arguments = ["org/tiny", "--context", "128", "--draft", "none", "--no-trial", "--json", "hub.json"]
    assert machine.run(h100(0), "fit", *arguments, **environment).exit_code == 0
    return environment


def test_a_branch_that_moved(machine: Machine) -> None:
    repo = HubRepo(repo_id="org/tiny", files=sharded_repo(shards=2))
    with HubServer() as server:
        environment = _planned_from(server, machine, repo)
        check = ["check", "hub.json", "--json", "-"]
        same = machine.run(h100(0), *check, **environment)
        assert (same.exit_code, same.codes) == (0, [])
        asked = len(server.seen)
        offline = machine.run(h100(0), *check, "--offline", **environment)
        assert (offline.exit_code, offline.codes, len(server.seen)) == (0, ["model_not_compared"], asked)
        server.add(replace(repo, generation=1))
        readme = machine.run(h100(0), *check, **environment)
        assert (readme.exit_code, readme.codes) == (0, ["model_moved"])
        config = json.dumps({**TINY_LLAMA, "max_position_embeddings": 256}).encode()
        server.add(replace(repo, generation=2, files={**repo.files, "config.json": config}))
        moved = machine.run(h100(0), *check, **environment)
        assert (moved.exit_code, moved.codes) == (4, ["model_moved"])
        server.repos.clear()
        gone = machine.run(h100(0), *check, **environment)
        assert (gone.exit_code, gone.codes) == (4, ["model_gone"])
    unreachable = machine.run(h100(0), *check, **environment)
    assert (unreachable.exit_code, unreachable.codes) == (0, ["model_not_compared"])


def test_names_in_a_report_open_nothing(machine: Machine) -> None:
    """A folder, a way out or an address in a repo's place is asked of nobody."""
    with HubServer() as server:
        environment = _planned_from(server, machine, HubRepo(repo_id="org/tiny", files=sharded_repo(shards=2)))
        report = json.loads((machine.folder / "hub.json").read_text(encoding="utf-8"))
        asked = len(server.seen)
        for name in ("./model", "/etc", "../../x", "org/../x", "http://x/y", "a b", "-x/y", ""):
            report["target"]["repo_id"] = name
            (machine.folder / "named.json").write_text(json.dumps(report), encoding="utf-8")
            ran = machine.run(h100(0), "check", "named.json", "--json", "-", **environment)
            assert (ran.exit_code, ran.codes) == (4, ["model_not_compared"])
        assert len(server.seen) == asked


def _interpreter(folder: Path, prints: str, exit_code: int = 0) -> str:
    """What answers like an interpreter that has an engine."""
    place = folder / f"python-{abs(hash((prints, exit_code)))}"
    place.write_text(f"#!/bin/sh\nprintf '{prints}'\nexit {exit_code}\n", encoding="utf-8")
    place.chmod(0o755)
    return str(place)


@pytest.mark.parametrize(
    ("prints", "exit_code", "codes"),
    [
        ("0.33.0", 0, []),
        ("0.33.0+cu129", 0, []),
        ("0.33.2", 0, ["engine_version"]),
        ("0.29.0", 4, ["engine_version"]),
        ("1.33.0", 4, ["engine_version"]),
        ("\\033[31mx", 4, ["engine_version"]),
        ("", 4, ["engine_missing"]),
    ],
)
def test_the_engines_version(
    prints: str, exit_code: int, codes: list[str], machine: Machine, tmp_path: Path
) -> None:
    report = json.loads((machine.folder / "one.json").read_text(encoding="utf-8"))
    assert report["engine"]["version_assumed"] == "0.33.0"
    ran = machine.check(h100(0), "one.json", "--engine-python", _interpreter(tmp_path, prints))
    assert (ran.exit_code, ran.codes) == (exit_code, codes)


def test_an_interpreter_that_is_none(machine: Machine, tmp_path: Path) -> None:
    for python in (str(tmp_path), "/nowhere/python", _interpreter(tmp_path, "", 1)):
        ran = machine.check(h100(0), "one.json", "--engine-python", python)
        assert (ran.exit_code, ran.document["error"]["code"]) == (2, "usage")
    assert machine.check(h100(0), "one.json", "--engine-python", sys.executable).exit_code in {0, 4}


def test_help_names_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--help"]) == 0
    text = capsys.readouterr().out
    for said in ("0: it holds", "3: it does not hold", "4: it cannot be told", "6: the devices"):
        assert said in " ".join(text.split())
