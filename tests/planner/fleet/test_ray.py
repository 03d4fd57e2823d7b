"""`specplan fit TARGET --ray` on a real Ray cluster of several raylets, each with GPUs of the stand-in library."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fake_nvml.build import build_library, find_compiler, scenario_environment
from fake_nvml.scenarios import MIB, TWO_H100, h100
from ray_nodes import SURROUNDINGS, RayCluster, environment, ray_cluster

from planner.fleet.asking import TrialJob, read_nodes, run_trials
from planner.fleet.records import NodeReading

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
#: An H100 beside it would do; a T4 of 15 GiB is too small for 61 GiB of weights.
T4 = f"gpu uuid=GPU-74 name=Tesla~T4 total={15_109 * MIB} used={3 * MIB} cc=7.5\n"
#: Ray itself asks for the number of GPUs when a node starts, and for no memory: our reading is what hangs.
HANGING = "hang call=nvmlDeviceGetMemoryInfo_v2 seconds=90\n"
#: Stands for a node where nobody installed specplan.
WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"planner", "model_catalog"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""
#: As our child joins and calls, but with a token in its own environment: what a task there sees of it.
PROBE = """
import os, sys
from planner.fleet.ray_child import _caller, _join
ray = _join(sys.argv[1])
print(os.environ["HF_TOKEN"], ray.get(ray.remote(_caller()).remote("os", "getenv", "HF_TOKEN")))
"""
CANARY = "hf_canarycanarycanarycanarycanary00"
MODEL = ("Qwen/Qwen3-32B", "--offline", "--draft", "none")


@dataclass(frozen=True, slots=True)
class Done:
    exit_code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["name"]: node for node in self.document["fleet"]["nodes"]}


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_compiler() is None:
        pytest.skip("no C compiler: the stand-in libnvidia-ml.so.1 cannot be built")
    folder = tmp_path_factory.mktemp("nvml")
    assert build_library(folder) is not None
    return folder


@pytest.fixture(scope="module")
def cluster(nvml: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A head without a GPU, two H100 of which one is in use, a T4, and a node without specplan."""
    bare = tmp_path_factory.mktemp("bare")
    (bare / "sitecustomize.py").write_text(WITHOUT, encoding="utf-8")
    with ray_cluster() as found:
        found.add("bare", {"PYTHONPATH": str(bare)})
        found.add("small", scenario_environment(nvml, T4))
        found.add("two-h100", scenario_environment(nvml, TWO_H100))
        yield found


def command(cluster: RayCluster, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "planner.cli.main", "fit", *arguments, "--ray", cluster.address]


def fit(cluster: RayCluster, *arguments: str, **variables: str) -> Done:
    done = subprocess.run(
        command(cluster, *arguments),
        env=environment(**variables),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_each_node_is_read_planned_and_told(cluster: RayCluster) -> None:
    done = fit(cluster, *MODEL, "--json", "-")
    assert (done.exit_code, done.err) == (0, "")
    fleet, nodes = done.document["fleet"], done.nodes
    assert {name: (node["state"], node["answer"], node["copies"]) for name, node in nodes.items()} == {
        "head": ("read", "does_not_fit", 0),
        "small": ("read", "does_not_fit", 0),
        # 20 GiB of the first are taken (TWO_H100), and 61 GiB of weights need the second.
        "two-h100": ("read", "fits", 1),
        "bare": ("failed", "unknown", 0),
    }
    assert (fleet["copies"], fleet["answer"]) == (1, "fits")
    assert [device["free_bytes"] for device in nodes["two-h100"]["devices"]] == [
        (81_559 - 551) * MIB - 20 * 2**30,
        (81_559 - 551) * MIB,
    ]
    assert nodes["two-h100"]["offered_gpus"] == 2
    assert nodes["bare"]["code"] == "specplan_missing"
    assert "pip install" in nodes["bare"]["hint"]
    assert done.document["devices"][0]["uuid"].startswith("GPU-00000001")


def test_the_words_name_each_node_and_nothing_of_rays(cluster: RayCluster) -> None:
    done = fit(cluster, *MODEL)
    assert (done.exit_code, done.err) == (0, "")
    assert "FITS: 1 copy of the plan on 1 of 4 nodes (1 × NVIDIA H100 80GB HBM3 each)" in done.out
    assert "small: engine budget" in done.out
    assert "bare: failed: specplan cannot be imported there" in done.out
    assert "One copy, on its best place:" in done.out


def test_no_token_of_ours_reaches_a_node(cluster: RayCluster) -> None:
    """No file of the cluster's holds it, and a task that asks its own environment finds none."""
    done = fit(cluster, *MODEL, "--json", "-", HF_TOKEN=CANARY)
    assert done.exit_code == 0
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, cluster.address],
        env=environment(HF_TOKEN=CANARY, RAY_BACKEND_LOG_LEVEL="fatal"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert probe.stdout.split() == [CANARY, "None"]
    logs = [path for path in cluster.folder.rglob("*") if path.is_file() and path.stat().st_size < 2**22]
    assert not [path for path in logs if b"canarycanary" in path.read_bytes()]


def test_a_trial_runs_as_a_task_on_a_node_that_holds_the_plan(cluster: RayCluster) -> None:
    pytest.importorskip("torch")
    done = fit(
        cluster,
        *tiny_trial(1),
        *("--num-speculative-tokens", "2-4", "--json", "-"),
    )
    (candidate,) = done.document["candidates"]
    trial = candidate["trial"]
    assert trial["outcome"] in {"confirms", "contradicts"}, done.err
    assert trial["prompts"] >= 1
    assert trial["baseline_tokens_per_second"] > 0
    # The bare node is not among those that hold the plan.
    assert [node["copies"] for node in done.document["fleet"]["nodes"] if node["name"] != "bare"] == [1, 1, 1]
    assert "on one of 3 nodes that hold the plan" in done.err


def test_a_trial_on_gpus_gets_them_from_the_cluster(cluster: RayCluster) -> None:
    """Its torch has no CUDA here, which the node itself says: so it got as far as a node with the GPUs."""
    done = fit(
        cluster,
        *("Qwen/Qwen3-32B", "--draft", "Qwen/Qwen3-0.6B", "--offline", "--trial", "--trial-weights", "dummy"),
        *("--json", "-"),
    )
    assert done.exit_code == 7
    error = done.document["candidates"][0]["trial"]["error"]
    assert error["code"] in {"trial_no_cuda", "trial_missing_import"}


def test_a_node_that_dies_meanwhile_is_named_and_the_rest_stands(cluster: RayCluster, nvml: Path) -> None:
    """Its task runs (and hangs in the driver) when the node dies; a line tells each of the others before that."""
    cluster.add("doomed", scenario_environment(nvml, h100(7) + HANGING))
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*command(cluster, *MODEL, "--json", "-"), "--ray-timeout", "60"],
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as running:
        os.close(theirs)
        seen = read_until(ours, "(4 of 5 nodes)")
        cluster.kill("doomed")
        start = time.monotonic()
        out = running.stdout.read() if running.stdout else b""
        exit_code = running.wait(90)
        took = time.monotonic() - start
    seen += read_until(ours, None)
    os.close(ours)
    done = Done(exit_code, out.decode(), seen)
    assert done.exit_code == 0
    assert took < 50  # before the deadline: Ray said so
    assert {name: node["state"] for name, node in done.nodes.items()} == {
        "head": "read",
        "small": "read",
        "two-h100": "read",
        "bare": "failed",
        "doomed": "lost",
    }
    assert (done.nodes["doomed"]["answer"], done.nodes["doomed"]["copies"]) == ("does_not_fit", 0)
    assert done.document["fleet"]["copies"] == 1
    assert "two-h100: 2 × H100 80GB HBM3, 59.10 GiB free at least" in seen
    assert "doomed: lost: it left the cluster" in seen


def test_a_silent_node_is_unread_and_counts_for_nothing(cluster: RayCluster, nvml: Path) -> None:
    cluster.add("silent", scenario_environment(nvml, h100(8) + HANGING))
    try:
        done = fit(cluster, *MODEL, "--json", "-", "--ray-timeout", "4")
    finally:
        cluster.kill("silent")
    assert done.exit_code == 0
    assert done.nodes["silent"]["state"] == "unread"
    assert (done.nodes["silent"]["answer"], done.nodes["silent"]["copies"]) == ("unknown", 0)
    assert done.document["fleet"]["copies"] == 1


def test_an_address_where_nobody_listens_is_told_at_once(cluster: RayCluster) -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "planner.cli.main", "fit", *MODEL, "--ray", "127.0.0.1:1"],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 6
    assert done.stderr.startswith("error: Ray cluster 127.0.0.1:1: nobody listens there")
    assert time.monotonic() - start < 15


def tiny_trial(seconds: int) -> list[str]:
    return [
        *("specplan/tiny-target", "--draft", "specplan/tiny-draft", "--context", "1024", "--offline"),
        *("--devices", "cpu", "--engine", "transformers", "--trial", "--trial-seconds", str(seconds)),
    ]


def test_ctrl_c_ends_the_trial_on_its_node_and_the_plan_is_told(cluster: RayCluster) -> None:
    pytest.importorskip("torch")
    mark = b"\0--trial-seconds\x003571\0"
    with subprocess.Popen(
        command(cluster, *tiny_trial(3571), "--json", "-"),
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:

        def there() -> list[int]:
            return [pid for pid, words in processes().items() if mark in words and pid != running.pid]

        wait_until(there)
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=60)
    done = Done(running.returncode, out, "")
    assert done.exit_code == 130
    assert done.document["fleet"]["copies"] == 3
    assert done.document["candidates"][0]["trial"]["error"]["code"] == "trial_interrupted"
    wait_until(lambda: not there(), 20)


def test_a_trial_whose_node_dies_is_run_again_on_another(
    cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test: it takes a node from the cluster."""
    pytest.importorskip("torch")
    for name, value in SURROUNDINGS.items():
        monkeypatch.setenv(name, value)
    nodes = {node.name: node.node_id for node in read_nodes_here(cluster)}
    killed: list[str] = []

    def kill_where_it_runs() -> None:
        mark = b"\0--trial-seconds\x003\0"
        groups = {os.getpgid(node.pid): name for name, node in cluster.nodes.items() if node.poll() is None}

        def places() -> list[str]:
            found = [pid for pid, words in processes().items() if mark in words]
            return [groups[group] for pid in found for above in ancestors(pid) if (group := pgid(above)) in groups]

        wait_until(places)
        killed.append(places()[0])
        cluster.kill(killed[0])

    job = TrialJob(
        name="pair",
        arguments=(
            *("trial", "specplan/tiny-target", "specplan/tiny-draft", "--devices", "cpu", "--offline"),
            *("--trial-seconds", "3", "--quiet", "--json", "-"),
        ),
        nodes=(nodes["small"], nodes["two-h100"]),
        num_gpus=0,
        num_cpus=1,
        seconds=100,
    )
    killer = threading.Thread(target=kill_where_it_runs)
    killer.start()
    (answer,) = run_trials(cluster.address, [job])
    killer.join()
    assert killed[0] in {"small", "two-h100"}
    assert answer.document is not None, answer.why
    assert answer.document["trial"]["outcome"] in {"confirms", "contradicts"}


def read_nodes_here(cluster: RayCluster) -> Sequence[NodeReading]:
    return read_nodes(cluster.address, "host", 30)


def processes() -> dict[int, bytes]:
    """The command line of every process of this machine."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            with suppress(OSError):
                found[int(place.name)] = b"\0" + (place / "cmdline").read_bytes()
    return found


def ancestors(pid: int) -> Iterator[int]:
    """The process and those that it descends from."""
    while pid > 1:
        yield pid
        try:
            pid = int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


def pgid(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def wait_until(holds: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


def read_until(terminal: int, text: str | None, seconds: float = 60) -> str:
    """What is written there until the text comes, or everything."""
    seen, end = "", time.monotonic() + seconds
    while (text is None or text not in seen) and time.monotonic() < end:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            break
        seen += piece.decode("utf-8", "replace")
    assert text is None or text in seen, seen
    return seen
