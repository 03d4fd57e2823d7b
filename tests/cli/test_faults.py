"""Every fault that a user may meet, through the real command: exit code, two lines, one document, no traceback.

All commands of a table start together in a few threads, as most of their time is spent in waiting.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_nvml.build import break_library, build_library, find_compiler, scenario_environment
from fake_nvml.scenarios import GB10, MIG_H100, RTX_3090_WITH_X, TWO_H100, h100
from hub_server import TOKEN, Fault, HubRepo, HubServer, Sparse
from made_repos import TINY_LLAMA, llama_tensors, safetensors, sharded_repo, weight_map_of, with_index

from model_catalog.catalogue import rows
from planner.cli.main import main
from planner.report.document import FailureReport, Report, read_report

ROOT = Path(__file__).resolve().parents[2]
NO_CONNECTION = "http://127.0.0.1:9"  # discard: nothing listens there
Files = Mapping[str, bytes | Sparse]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One finished command."""

    exit_code: int
    out: str
    err: str

    def document(self) -> Report | FailureReport:
        return read_report(json.loads(self.out))


def run(home: Path, arguments: list[str], environment: Mapping[str, str]) -> Ran:
    """The real command in a process of its own, at home, with nothing of this machine's settings."""
    home.mkdir(parents=True, exist_ok=True)
    path = {
        name: os.environ[name]
        for name in ("PATH", "LD_LIBRARY_PATH", "COVERAGE_PROCESS_START")
        if name in os.environ
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "planner.cli.main", *arguments],
        env={**path, "PYTHONPATH": str(ROOT), "HOME": str(home), "LC_ALL": "C.UTF-8", **environment},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ran(exit_code=done.returncode, out=done.stdout, err=done.stderr)


def held(ran: Ran, exit_code: int, code: str | None, says: str) -> None:
    """What every answer keeps to: its code, one document that agrees, words on stderr alone, a hint."""
    assert ran.exit_code == exit_code, ran.err
    document = ran.document()
    assert document.exit_code == exit_code
    assert "Traceback" not in ran.err
    assert says in ran.err
    if code is None:
        assert isinstance(document, Report)
        return
    assert isinstance(document, FailureReport)
    assert document.error.code == code
    lines = ran.err.splitlines()
    assert lines[-2] == f"error: {document.error.subject}: {document.error.message}"
    assert lines[-1] == f"hint: {document.error.hint}"
    assert document.error.hint


# --- the Hub -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HubCase:
    """One reading of ``org/tiny`` from a Hub of its own."""

    id: str
    exit_code: int
    code: str | None
    says: str = ""
    target: str = "org/tiny"
    files: Files = field(default_factory=lambda: sharded_repo(shards=3))
    gated: bool = False
    faults: Mapping[str, Fault] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    warm: bool = False  #: read once before the faults begin
    options: tuple[str, ...] = ()

    def ran(self, home: Path) -> Ran:
        arguments = ["fit", self.target, "--gpu", "l4", "--context", "128", "--draft", "none", "--json", "-"]
        with HubServer() as server:
            server.add(HubRepo(repo_id="org/tiny", files=self.files, gated=self.gated))
            environment = {"HF_ENDPOINT": server.url, **self.environment}
            if self.warm:
                assert run(home, arguments, environment).exit_code == 0
            for pattern, fault in self.faults.items():
                server.fail(pattern, fault)
            return run(home, [*arguments, *self.options], environment)


def _with_header_beyond_the_cap() -> Files:
    huge = Sparse(head=(200 * 2**20).to_bytes(8, "little") + b"{", size=300 * 2**20)
    return {**sharded_repo(shards=3), "model-00001-of-00003.safetensors": huge}


def _with_a_way_out() -> Files:
    files = sharded_repo(shards=3)
    return with_index(files, {**weight_map_of(files), "lm_head.weight": "../x"}, 1)


_ADAPTER: Files = {"adapter_config.json": b"{}", "adapter_model.safetensors": safetensors(llama_tensors())}
HUB_CASES = [
    HubCase(id="no-such-repo", target="org/none", exit_code=5, code="model_not_found", says="private or gated"),
    HubCase(
        id="no-such-repo-for-this-token",
        target="org/none",
        environment={"HF_TOKEN": TOKEN},
        exit_code=5,
        code="model_not_found",
        says="the token may not see it",
    ),
    HubCase(
        id="no-such-revision", target="org/tiny@gone", exit_code=5, code="model_not_found", says="tag or commit"
    ),
    HubCase(id="gated-401", gated=True, exit_code=5, code="model_gated", says="hf auth login"),
    HubCase(
        id="gated-403",
        gated=True,
        environment={"HF_TOKEN": "hf_" + "z" * 34},
        exit_code=5,
        code="model_gated",
        says="has not been granted",
    ),
    HubCase(id="gated-and-granted", gated=True, environment={"HF_TOKEN": TOKEN}, exit_code=0, code=None),
    HubCase(
        id="no-network",
        environment={"HF_ENDPOINT": NO_CONNECTION},
        exit_code=8,
        code="hub_unreachable",
        says="cannot be reached",
    ),
    HubCase(
        id="no-network-but-built-in",
        target="Qwen/Qwen3-0.6B",
        environment={"HF_ENDPOINT": NO_CONNECTION},
        exit_code=0,
        code=None,
        says="warning: Qwen/Qwen3-0.6B",
    ),
    HubCase(
        id="no-network-near-name",
        target="Qwen/Qwen3-0.7B",
        environment={"HF_ENDPOINT": NO_CONNECTION},
        exit_code=8,
        code="hub_unreachable",
        says="did you mean Qwen/Qwen3-",
    ),
    HubCase(id="near-name", target="Qwen/Qwen33-32B", exit_code=5, code="model_not_found", says="Qwen/Qwen3-32B"),
    HubCase(id="dropped-with-cache", warm=True, faults={"/": Fault(drop=True)}, exit_code=0, code=None),
    HubCase(
        id="offline-with-cache",
        warm=True,
        options=("--offline",),
        exit_code=0,
        code=None,
        says="specplan's own cache",
    ),
    HubCase(
        id="offline-without-cache", options=("--offline",), exit_code=8, code="hub_unreachable", says="offline"
    ),
    HubCase(id="429", faults={"/": Fault(status=429)}, exit_code=8, code="hub_rate_limited", says="hf auth login"),
    HubCase(
        id="429-for-an-hour",
        faults={"/": Fault(status=429, headers={"Retry-After": "3600"})},
        exit_code=8,
        code="hub_rate_limited",
        says="3600 s",
    ),
    HubCase(id="500", faults={"/": Fault(status=500)}, exit_code=8, code="hub_server", says="answered 500"),
    HubCase(id="503", faults={"config": Fault(status=503)}, exit_code=8, code="hub_server", says="answered 503"),
    HubCase(
        id="too-slow",
        faults={"/": Fault(delay_seconds=30)},
        environment={"HF_HUB_DOWNLOAD_TIMEOUT": "1"},
        exit_code=8,
        code="hub_timeout",
        says="too slowly",
    ),
    HubCase(id="dropped", faults={"/": Fault(drop=True)}, exit_code=8, code="hub_server", says="breaks off"),
    HubCase(
        id="truncated-config",
        faults={"config.json": Fault(cut_after=20)},
        exit_code=8,
        code="hub_server",
        says="config.json: its body breaks off",
    ),
    HubCase(
        id="login-page",
        faults={"/api": Fault(status=200, body=b"<html>log in</html>")},
        exit_code=8,
        code="hub_server",
        says="not the Hub's description",
    ),
    HubCase(id="range-ignored", faults={"safetensors$": Fault(ignore_range=True)}, exit_code=0, code=None),
    HubCase(
        id="header-beyond-the-cap",
        files=_with_header_beyond_the_cap(),
        exit_code=5,
        code="weights",
        says="209715200",
    ),
    HubCase(id="index-names-a-way-out", files=_with_a_way_out(), exit_code=5, code="weights", says="'../x'"),
    HubCase(id="config-broken", files={"config.json": b'{"a":'}, exit_code=5, code="config", says="is not JSON"),
    HubCase(
        id="config-a-list", files={"config.json": b"[]"}, exit_code=5, code="config", says="not a JSON object"
    ),
    HubCase(id="gguf-only", files={"a.gguf": b"GGUF"}, exit_code=5, code="not_a_model", says="GGUF"),
    HubCase(id="adapter", files=_ADAPTER, exit_code=5, code="not_a_model", says="adapter"),
]


@pytest.fixture(scope="module")
def of_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[Ran]]]:
    place = tmp_path_factory.mktemp("hub-faults")
    with ThreadPoolExecutor(6) as pool:
        yield {case.id: pool.submit(case.ran, place / case.id) for case in HUB_CASES}


@pytest.mark.parametrize("case", HUB_CASES, ids=lambda case: case.id)
def test_faults_of_the_hub(case: HubCase, of_hub: Mapping[str, Future[Ran]]) -> None:
    held(of_hub[case.id].result(), case.exit_code, case.code, case.says)


# --- devices -------------------------------------------------------------------------------------------------

LOST = "fail call=nvmlDeviceGetMemoryInfo_v2 code=15 gpu=1\nfail call=nvmlDeviceGetMemoryInfo code=15 gpu=1\n"
UNSUPPORTED = "fail call=nvmlDeviceGetMemoryInfo_v2 code=3\nfail call=nvmlDeviceGetMemoryInfo code=3\n"
#: name: (scenario, None for a library that is none; options; environment; exit code, error code, words)
DEVICE_CASES: dict[str, tuple[str | None, str, dict[str, str], int, str | None, str]] = {
    "library-missing": (None, "", {}, 6, "nvml_missing", "no NVIDIA library"),
    "driver-mismatch": (h100(0) + "fail call=nvmlInitWithFlags code=18\n", "", {}, 6, "driver_mismatch", "reboot"),
    "not-for-this-user": (
        h100(0) + "fail call=nvmlInitWithFlags code=4\n",
        "",
        {},
        6,
        "device_permission",
        "--gpus all",
    ),
    "no-gpu": ("system driver=580.65.06\n", "", {}, 6, "no_device", "lists no GPU"),
    "only-gpu-lost": (
        h100(0) + "fail call=nvmlDeviceGetHandleByIndex_v2 code=15\n",
        "",
        {},
        6,
        "device_lost",
        "fell off the bus",
    ),
    "one-of-two-lost": (h100(0) + h100(1) + LOST, "", {}, 4, None, "GPU 1 could not be read"),
    "the-other-of-two": (h100(0) + h100(1) + LOST, "--devices 0", {}, 0, None, ""),
    "memory-not-supported": (h100(0) + UNSUPPORTED, "", {}, 4, None, ""),
    "free-above-total": (h100(0, f"free={200 * 2**30}"), "", {}, 4, None, ""),
    "mig-parent": (MIG_H100, "", {}, 0, None, "first of 2 MIG instances"),
    "mig-instances-together": (MIG_H100, "--devices 0,1", {}, 2, "parallelism", "one MIG instance only"),
    "mig-by-uuid": (MIG_H100, "--devices MIG-bbbb", {}, 3, None, ""),
    "two-h100": (TWO_H100, "", {}, 0, None, ""),
    "hidden": (TWO_H100, "", {"CUDA_VISIBLE_DEVICES": "-1"}, 6, "no_device", "CUDA_VISIBLE_DEVICES=-1"),
    "no-such-uuid": (TWO_H100, "--devices GPU-9", {}, 6, "no_device", "choose among"),
    "tp-three": (TWO_H100, "--tp 3", {}, 2, "parallelism", "needs 3 devices"),
    "unified": (GB10, "--memory-limit 1GiB", {}, 3, None, "MemAvailable"),
    "with-x11": (RTX_3090_WITH_X, "", {}, 0, None, ""),
}


def _device_command(folder: Path, name: str) -> Ran:
    scenario, options, environment, *_ = DEVICE_CASES[name]
    command = ["fit", "meta-llama/Llama-3.1-8B-Instruct", "--offline", "--draft", "none", *options.split()]
    if scenario is None:
        library = {"LD_LIBRARY_PATH": str(break_library(folder / "broken").parent)}
    else:
        library = scenario_environment(folder, scenario)
    return run(folder / f"home-{name}", [*command, "--json", "-"], {**environment, **library})


@pytest.fixture(scope="module")
def of_devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[Ran]]]:
    if find_compiler() is None:
        pytest.skip("no C compiler: the stand-in libnvidia-ml.so.1 cannot be built")
    folder = tmp_path_factory.mktemp("nvml-faults")
    build_library(folder)
    with ThreadPoolExecutor(4) as pool:
        yield {name: pool.submit(_device_command, folder, name) for name in DEVICE_CASES}


@pytest.mark.parametrize("name", DEVICE_CASES)
def test_faults_of_devices(name: str, of_devices: Mapping[str, Future[Ran]]) -> None:
    *_, exit_code, code, says = DEVICE_CASES[name]
    held(of_devices[name].result(), exit_code, code, says)


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
