"""What a child says of a cluster becomes records; one that hangs, dies or talks nonsense costs no node."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fleet_nodes import gpu

from model_catalog.errors import UsageError
from planner import __version__
from planner.errors import ClusterError
from planner.fleet.asking import TrialJob, check_address, read_nodes, run_trials
from planner.fleet.records import NodeState
from planner.fleet.wire import WIRE_VERSION, WireError, device_mapping, device_of

HEAD = """
import json, os, sys, time
pipe = os.fdopen(int(sys.argv[1]), "w", buffering=1)
request = json.loads(sys.stdin.read())
def send(**event):
    pipe.write(json.dumps(event) + "\\n")
def nodes(*names, gpus=1):
    send(event="nodes", nodes=[
        {"id": name, "name": name, "address": "10.0.0.1", "gpus": gpus, "cpus": 4} for name in names
    ])
"""
L4 = gpu("l4")


def child(script: str) -> list[str]:
    return [sys.executable, "-c", HEAD + script]


def answer(name: str, **changes: object) -> str:
    told = {
        "wire": WIRE_VERSION,
        "specplan_version": __version__,
        "devices": [device_mapping(L4)],
        "notes": [],
        **changes,
    }
    return f"send(event='node', id={name!r}, answer=json.loads({json.dumps(told)!r}))\n"


def states(script: str, seconds: float = 20) -> dict[str, tuple[NodeState, str | None]]:
    found = read_nodes("auto", "gpus", seconds, command=child(script))
    return {node.name: (node.state, node.code) for node in found}


def test_every_node_is_named_by_name_and_told_as_it_answers() -> None:
    seen: list[tuple[str, int, int]] = []
    script = "nodes('b', 'a')\n" + answer("b") + answer("a") + "send(event='done')"
    found = read_nodes(
        "auto",
        "gpus",
        20,
        told=lambda node, answered, of: seen.append((node.name, answered, of)),
        command=child(script),
    )
    assert [(node.name, node.state) for node in found] == [("a", NodeState.READ), ("b", NodeState.READ)]
    assert found[0].devices == (L4,)
    assert seen == [("b", 1, 2), ("a", 2, 2)]


@pytest.mark.parametrize(
    ("script", "state", "code"),
    [
        pytest.param("", NodeState.UNREAD, "unread", id="silent"),
        pytest.param("os._exit(9)", NodeState.UNREAD, "unread", id="the child dies"),
        pytest.param("pipe.write('no json\\n'); time.sleep(60)", NodeState.UNREAD, "unread", id="nonsense"),
        pytest.param("send(event='node', id='b', lost=True, why='x')", NodeState.LOST, "lost", id="lost"),
        pytest.param(
            "send(event='node', id='b', lost=False, why='x')", NodeState.FAILED, "task_failed", id="task"
        ),
        pytest.param(answer("b", wire=99), NodeState.FAILED, "wire", id="another form"),
        pytest.param(answer("b", devices=[{"name": "x"}]), NodeState.FAILED, "wire", id="a field is missing"),
        pytest.param("send(event='node', id='b', answer=7)", NodeState.FAILED, "wire", id="no mapping"),
        pytest.param(
            answer("b", error={"code": "specplan_missing", "message": "No module named 'planner'", "hint": ""}),
            NodeState.FAILED,
            "specplan_missing",
            id="no specplan",
        ),
        pytest.param(
            answer("b", error={"code": "nvml_missing", "message": "no library", "hint": "h"}),
            NodeState.FAILED,
            "nvml_missing",
            id="the cluster knows of a GPU there",
        ),
    ],
)
def test_what_becomes_of_one_node_does_not_touch_the_other(script: str, state: NodeState, code: str) -> None:
    found = states(f"nodes('a', 'b')\n{answer('a')}{script}")
    assert found == {"a": (NodeState.READ, None), "b": (state, code)}


def test_a_machine_without_a_gpu_is_no_failure_where_the_cluster_knows_of_none() -> None:
    error = {"code": "nvml_missing", "message": "no library", "hint": "h"}
    script = "nodes('head', gpus=0)\n" + answer("head", error=error)
    (head,) = read_nodes("auto", "gpus", 20, command=child(script))
    assert (head.state, head.devices, head.notes) == (NodeState.READ, (), ("no library",))


def test_another_release_on_a_node_is_told() -> None:
    (node,) = read_nodes("auto", "gpus", 20, command=child("nodes('a')\n" + answer("a", specplan_version="9.9")))
    assert node.state is NodeState.READ
    assert "specplan 9.9 there" in node.notes[0]


def test_fewer_gpus_given_out_than_there_are_is_told() -> None:
    twice = [device_mapping(L4), device_mapping(replace(L4, index=1))]
    (node,) = read_nodes("auto", "gpus", 20, command=child("nodes('a')\n" + answer("a", devices=twice)))
    assert node.notes == ("the cluster gives out 1 of its 2 GPUs",)


def test_a_cluster_that_cannot_be_joined_says_why() -> None:
    script = "send(event='error', code='no_cluster', message='nobody there', hint='ray start')"
    with pytest.raises(ClusterError, match="nobody there") as caught:
        read_nodes("10.0.0.9:6379", "gpus", 20, command=child(script))
    assert (caught.value.subject, caught.value.hint) == ("Ray cluster 10.0.0.9:6379", "ray start")


def test_a_cluster_that_wants_its_token_is_told_as_that() -> None:
    script = """
print("Unauthenticated: InvalidAuthToken: Authentication token is missing", flush=True)
send(event='error', code='no_cluster', message='Failed to connect', hint='x')
"""
    with pytest.raises(ClusterError) as caught:
        read_nodes("auto", "gpus", 20, command=child(script))
    assert "RAY_AUTH_MODE=token" in caught.value.hint


def test_a_child_that_dies_at_once_is_an_error_with_its_last_words() -> None:
    with pytest.raises(ClusterError, match="Check failed: raylet"):
        read_nodes("auto", "gpus", 20, command=child("print('Check failed: raylet'); os._exit(6)"))


def test_no_token_but_rays_own_reaches_the_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "canary")
    place = tmp_path / "names"
    script = f"open({str(place)!r}, 'w').write(' '.join(os.environ))\nnodes('a')"
    read_nodes("auto", "gpus", 20, command=child(script))
    names = place.read_text().split()
    assert "RAY_AUTH_TOKEN" in names
    assert not {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY"} & set(names)


def test_a_child_that_hangs_costs_the_deadline_and_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("planner.fleet.asking._JOINING_SECONDS", 0.5)
    place = tmp_path / "pid"
    start = time.monotonic()
    script = f"open({str(place)!r}, 'w').write(str(os.getpid()))\nnodes('a')\ntime.sleep(60)"
    assert states(script, 1.0) == {"a": (NodeState.UNREAD, "unread")}
    assert time.monotonic() - start < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int(place.read_text()), 0)


def test_trials_get_an_answer_each() -> None:
    jobs = [
        TrialJob(name=name, arguments=("trial",), nodes=("n",), num_gpus=1, num_cpus=1, seconds=5)
        for name in ("good", "broken", "missing", "ended", "never")
    ]
    script = """
assert [job["num_gpus"] for job in request["jobs"]] == [1] * 5
send(event="trial", name="good", answer={"exit_code": 0, "document": {"trial": {}}, "said": ""})
send(event="trial", name="broken", answer={"exit_code": 1, "document": None, "said": "a\\nTraceback"})
send(event="trial", name="missing", answer={"error": {"message": "No module named 'planner'"}})
send(event="trial", name="ended", why="NodeDiedError: the node died")
send(event="trial", name="stranger", answer={})
"""
    found = {told.name: told for told in run_trials("auto", jobs, command=child(script))}
    assert list(found) == ["good", "broken", "missing", "ended", "never"]
    assert found["good"].document == {"trial": {}}
    assert found["broken"].why == "specplan ended with exit code 1: Traceback"
    assert "No module named 'planner'" in (found["missing"].why or "")
    assert found["ended"].why == "NodeDiedError: the node died"
    assert (found["never"].document, found["never"].why) == (None, None)


@pytest.mark.parametrize("address", ["", "local", " local", "auto ", "head", "ray://head:10001"])
def test_an_address_that_would_start_a_cluster_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r"no address of a cluster|Ray Client"):
        check_address(address)


def test_a_missing_ray_is_told_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="Ray is not installed") as caught:
        check_address("auto")
    assert caught.value.hint == "pip install 'specplan[ray]'"


@pytest.mark.parametrize(
    "changes",
    [
        {"total_bytes": -1},
        {"free_bytes": "much"},
        {"free_bytes": True},
        {"engine_total_bytes": {"low_bytes": 1}},
        {"source": "moon"},
        {"compute_capability": [9]},
        {"processes": [{"pid": 1}]},
    ],
)
def test_a_device_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    good = json.loads(json.dumps(device_mapping(L4)))
    assert device_of(good) == L4
    with pytest.raises(WireError):
        device_of({**good, **changes})
