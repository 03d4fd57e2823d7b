"""Every fault that a user may meet, through the real command: exit code, two lines, one document, no traceback.

All commands of a table start together in a few threads, as most of their time is spent in waiting.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fake_nvml.build import break_library, build_library, find_compiler, scenario_environment
from hub_server import HubRepo, HubServer
from huggingface_hub import hf_hub_download
from injected.devices import DEVICE_CASES, DeviceCase
from injected.hub import HUB_CASES, HubCase
from injected.record import Fault
from made_repos import TINY_LLAMA
from write_reference import documented_exits

from model_catalog.catalogue import rows
from planner.cli.main import main
from planner.report.document import FailureReport, Report, read_report

ROOT = Path(__file__).resolve().parents[2]
START = ("-m", "planner.cli.main")
#: The command with less patience for the driver than users are given.
IN_A_HURRY = """
import sys
from dataclasses import replace
from model_catalog import hub
from planner.cli.main import run
given = hub.load_snapshot.__kwdefaults__
given["limits"] = replace(given["limits"], deadline_seconds=float(sys.argv.pop(1)))
run()
"""
IMPATIENT = """
import sys
from planner import nvml
from planner.cli.main import run
nvml.read_devices.__kwdefaults__["timeout_seconds"] = float(sys.argv.pop(1))
run()
"""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One finished command."""

    exit_code: int
    out: str
    err: str

    def document(self) -> Report | FailureReport:
        return read_report(json.loads(self.out))


def run(home: Path, arguments: list[str], environment: Mapping[str, str], *, start: Sequence[str] = START) -> Ran:
    """The real command in a process of its own, at home, with nothing of this machine's settings."""
    home.mkdir(parents=True, exist_ok=True)
    path = {
        name: os.environ[name]
        for name in ("PATH", "LD_LIBRARY_PATH", "COVERAGE_PROCESS_START")
        if name in os.environ
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", *start, *arguments],
        env={**path, "PYTHONPATH": str(ROOT), "HOME": str(home), "LC_ALL": "C.UTF-8", **environment},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ran(exit_code=done.returncode, out=done.stdout, err=done.stderr)


def held(ran: Ran, case: Fault) -> None:
    """What every answer keeps to: its code, one document that agrees, words on stderr alone, a hint."""
    assert ran.exit_code == case.exit_code, ran.err
    assert ran.exit_code in documented_exits("fit")
    document = ran.document()
    assert document.exit_code == case.exit_code
    assert "Traceback" not in ran.err
    reasons = [reason.text for reason in document.verdict.reasons] if isinstance(document, Report) else []
    assert any(case.says in told for told in (ran.err, *reasons)), ran.err
    if case.code is None:
        assert isinstance(document, Report)
        return
    assert isinstance(document, FailureReport)
    assert document.error.code == case.code
    lines = ran.err.splitlines()
    assert lines[-2] == f"error: {document.error.subject}: {document.error.message}"
    assert lines[-1] == f"hint: {document.error.hint}"
    assert document.error.hint


# --- the Hub -------------------------------------------------------------------------------------------------


def hub_command(case: HubCase, home: Path) -> Ran:
    arguments = ["fit", case.target, "--gpu", "l4", "--context", "128", "--draft", "none", "--json", "-"]
    repo = HubRepo(repo_id="org/tiny", files=case.files, gated=case.gated)
    with HubServer() as server, HubServer() as elsewhere:
        server.add(repo)
        elsewhere.add(replace(repo, gated=False))
        environment = {"HF_ENDPOINT": server.url, **case.environment}
        if case.warm:
            assert run(home, arguments, environment).exit_code == 0
        if case.downloaded:
            for name in case.files:
                cache = home / ".cache" / "huggingface" / "hub"
                hf_hub_download("org/tiny", name, endpoint=server.url, cache_dir=cache)
        if case.spoil is not None:
            case.spoil(home)
        for pattern, fault in case.faults.items():
            server.fail(pattern, fault, elsewhere=elsewhere.url)
        start = START if case.patience_seconds is None else ("-c", IN_A_HURRY, str(case.patience_seconds))
        ran = run(home, [*arguments, *case.options], environment, start=start)
    assert bool(elsewhere.seen) == case.elsewhere
    assert {asked.authorization for asked in elsewhere.seen} <= {None}
    token = case.environment.get("HF_TOKEN")
    if token is not None:
        assert any(asked.authorization == f"Bearer {token}" for asked in server.seen)
        written = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
        assert token.encode() not in ran.out.encode() + ran.err.encode() + written
    return ran


@pytest.fixture(scope="module")
def of_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[Ran]]]:
    place = tmp_path_factory.mktemp("hub-faults")
    with ThreadPoolExecutor(6) as pool:
        yield {case.id: pool.submit(hub_command, case, place / case.id) for case in HUB_CASES}


@pytest.mark.parametrize("case", HUB_CASES, ids=lambda case: case.id)
def test_faults_of_the_hub(case: HubCase, of_hub: Mapping[str, Future[Ran]]) -> None:
    held(of_hub[case.id].result(), case)


# --- devices -------------------------------------------------------------------------------------------------


def device_command(case: DeviceCase, folder: Path) -> Ran:
    command = ["fit", "meta-llama/Llama-3.1-8B-Instruct", "--offline", "--draft", "none", *case.options.split()]
    if case.scenario is None:
        library = {"LD_LIBRARY_PATH": str(break_library(folder / "broken").parent)}
    else:
        place = folder / "-".join(("without", *case.without)) if case.without else folder
        if case.without:
            build_library(place, without=case.without)
        library = scenario_environment(place, case.scenario)
    start = START if case.patience_seconds is None else ("-c", IMPATIENT, str(case.patience_seconds))
    environment = {**case.environment, **library}
    return run(folder / f"home-{case.id}", [*command, "--json", "-"], environment, start=start)


@pytest.fixture(scope="module")
def of_devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[Ran]]]:
    if find_compiler() is None:
        pytest.skip("no C compiler: the stand-in libnvidia-ml.so.1 cannot be built")
    folder = tmp_path_factory.mktemp("nvml-faults")
    build_library(folder)
    with ThreadPoolExecutor(4) as pool:
        yield {case.id: pool.submit(device_command, case, folder) for case in DEVICE_CASES}


@pytest.mark.parametrize("case", DEVICE_CASES, ids=lambda case: case.id)
def test_faults_of_devices(case: DeviceCase, of_devices: Mapping[str, Future[Ran]]) -> None:
    ran = of_devices[case.id].result()
    held(ran, case)
    if case.unknown:
        report = ran.document()
        assert isinstance(report, Report)
        told = report.devices[0].model_dump()
        assert [told[name] for name in case.unknown] == [None] * len(case.unknown)


def test_what_others_use_is_counted_and_told(of_devices: Mapping[str, Future[Ran]]) -> None:
    report = of_devices["two-h100"].result().document()
    assert isinstance(report, Report)
    assert [device.used_by_others_bytes for device in report.devices] == [20 * 2**30, 0]
    assert report.engine.utilization_window is not None
    assert report.engine.utilization_window[1] < 0.75  # a quarter of the first card is taken


@pytest.mark.parametrize("name", ["one-of-two-lost", "memory-not-supported", "free-above-total"])
def test_what_was_not_read_is_null_and_never_a_yes(name: str, of_devices: Mapping[str, Future[Ran]]) -> None:
    report = of_devices[name].result().document()
    assert isinstance(report, Report)
    assert (report.verdict.answer, report.verdict.headroom_bytes) == ("unknown", None)
    assert report.devices[-1].free_bytes is None
    assert report.verdict.reasons[0].code == "reading_missing"


# --- configurations ------------------------------------------------------------------------------------------

BAD: list[Any] = [None, "x", [], [1, 2], {}, math.nan, math.inf, True, -1, 0, 10**18, 1e18, 1.5]
CONFIGS_TRIED = 40
CHANGES_EACH = 4


def key_paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from key_paths(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield (*path, 0)
        yield from key_paths(value[0], (*path, 0))


def changed(config: Mapping[str, Any], path: tuple[str | int, ...], value: object) -> Mapping[str, Any]:
    copy: Any = json.loads(json.dumps(config))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    mapping: Mapping[str, Any] = copy
    return mapping


def kinds() -> list[Mapping[str, Any]]:
    """Configurations of as many kinds as are tried, spread evenly over the catalogue's."""
    found: dict[tuple[object, bool], Mapping[str, Any]] = {}
    for row in rows():
        found.setdefault((row.config.get("model_type"), "quantization_config" in row.config), row.config)
    known = list(found.values())
    return [known[number * len(known) // CONFIGS_TRIED] for number in range(CONFIGS_TRIED)]


@pytest.mark.parametrize(("number", "config"), list(enumerate(kinds())))
def test_one_wrong_value_in_a_configuration(
    number: int,
    config: Mapping[str, Any],
    model_folder: Callable[[str, Mapping[str, Any]], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = model_folder("model", config)
    paths = list(key_paths(config))
    for step in range(number * CHANGES_EACH, (number + 1) * CHANGES_EACH):
        path, value = paths[step * 7 % len(paths)], BAD[step % len(BAD)]  # strides that meet every key and value
        (folder / "config.json").write_text(json.dumps(changed(config, path, value)), encoding="utf-8")
        arguments = ["fit", str(folder), "--gpu", "h200:8", "--tp", "1", "--context", "128", "--draft", "none"]
        exit_code = main([*arguments, "--json", "-"])
        out, err = capsys.readouterr()
        where = f"{path} = {value!r}: {err}"
        assert exit_code in {0, 3, 4, 5}, where
        document = read_report(json.loads(out))
        assert document.exit_code == exit_code
        if isinstance(document, FailureReport):
            assert "config.json" in document.error.message, where
            assert err.splitlines()[-1].startswith("hint: "), where


# --- names and files -----------------------------------------------------------------------------------------


def test_a_mistyped_folder_is_told_before_the_driver_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "./nothing"]) == 2
    assert "./nothing: no such folder" in capsys.readouterr().err


def test_host_memory_is_no_place_for_an_engine_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "Qwen/Qwen3-0.6B", "--offline", "--devices", "cpu"]) == 2
    assert "add --engine transformers" in capsys.readouterr().err


def test_a_failure_leaves_one_whole_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "report.json"
    place.write_text("an older report", encoding="utf-8")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({**TINY_LLAMA, "hidden_size": -1}), encoding="utf-8")
    assert main(["fit", str(model), "--gpu", "l4", "--json", str(place)]) == 5
    assert isinstance(read_report(json.loads(place.read_text(encoding="utf-8"))), FailureReport)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "report.json"]
    assert capsys.readouterr().out == ""
