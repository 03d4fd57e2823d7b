"""Asks a cluster: starts the child that speaks to it, listens, and makes records of what it tells.

The child may hang, die with the node it runs on, or say nothing of some nodes: those are then unread, never left
out. Imports no Ray.
"""

import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from model_catalog.errors import UsageError
from planner import __version__
from planner.child_process import SECRET, EndlessLineError, hand_over, lines_of, started_child, tail_of
from planner.errors import ClusterError
from planner.fleet.records import NodeReading, NodeState
from planner.fleet.wire import WIRE_VERSION, WireError, device_of
from planner.trial.ending import raising_on_signals

#: To start Ray's client and join, beside the time that nodes have to answer.
_JOINING_SECONDS: Final = 60.0
#: A thousand nodes of eight GPUs with their processes, in one line of the list of nodes or of an answer.
_LINE_BYTES: Final = 1 << 24
#: Codes of a machine that has no GPU to read, where the cluster knows of none either.
_WITHOUT_GPU: Final = frozenset({"nvml_missing", "no_device", "driver_mismatch"})
_ADDRESS: Final = re.compile(r"[^\s/]+:\d{1,5}")
_WANTS_TOKEN: Final = "InvalidAuthToken"  # noqa: S105 - what Ray prints
_AUTH_HINT: Final = "the cluster wants its token: RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH as on its nodes"
_SAME_RELEASE: Final = "pip install 'specplan[ray]' in the Python that runs Ray on that node"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialJob:
    """A trial to run on one of these nodes: ``arguments`` of `specplan`, and what the cluster is to set aside."""

    name: str
    arguments: tuple[str, ...]
    nodes: tuple[str, ...]
    num_gpus: int
    num_cpus: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAnswer:
    """What became of one: `specplan`'s document, or why there is none (None: it was not done in time)."""

    name: str
    document: Mapping[str, Any] | None
    why: str | None


def check_address(address: str) -> None:
    """Refuse what is no address, or would make Ray start a cluster of its own, and a Python without Ray.

    Raises:
        UsageError: either.
    """
    if address != "auto" and not _ADDRESS.fullmatch(address):
        raise UsageError(
            "a Ray Client's address will not do"
            if "://" in address
            else "is no address of a cluster that is there",
            subject=f"--ray {address!r}",
            hint="run it on a node of the cluster, with HOST:PORT or auto; no cluster is started here",
        )
    if importlib.util.find_spec("ray") is None:
        raise UsageError("Ray is not installed", subject="--ray", hint="pip install 'specplan[ray]'")


def read_nodes(
    address: str,
    what: str,
    seconds: float,
    *,
    told: Callable[[NodeReading, int, int], None] = lambda *_: None,
    command: Sequence[str] | None = None,
) -> tuple[NodeReading, ...]:
    """Every node of the cluster as it was read, by name. ``what``: "gpus", or the "host" memory.

    ``told`` gets each node as it answers, with how many answered so far and how many there are. A node that does
    not answer within ``seconds`` is unread.

    Raises:
        ClusterError: the cluster cannot be joined, or tells nothing of its nodes.
    """
    found: dict[str, NodeReading] = {}
    answered, whole = 0, False
    request = {"do": "read", "address": address, "what": what, "seconds": seconds}
    with _events(request, seconds + _JOINING_SECONDS, command) as events:
        for event in events:
            if event["event"] == "nodes":
                found = {node["id"]: _unread(node) for node in event["nodes"]}
            elif event["event"] == "node" and event["id"] in found:
                answered += 1
                node = found[event["id"]] = _node_read(found[event["id"]], event)
                told(node, answered, len(found))
            whole = event["event"] == "done"
    if not whole:
        found = {name: _cut_off(node) for name, node in found.items()}
    if not found:
        raise ClusterError("it has no node that is alive", subject=_subject(address), hint="see ray status")
    return tuple(sorted(found.values(), key=lambda node: (node.name, node.node_id)))


def run_trials(
    address: str,
    jobs: Sequence[TrialJob],
    *,
    told: Callable[[TrialAnswer], None] = lambda _: None,
    command: Sequence[str] | None = None,
) -> tuple[TrialAnswer, ...]:
    """Run these trials as tasks of the cluster; an answer for each.

    Raises:
        ClusterError: the cluster cannot be joined.
    """
    answers = {job.name: TrialAnswer(name=job.name, document=None, why=None) for job in jobs}
    request = {"do": "try", "address": address, "jobs": [_job_mapping(job) for job in jobs]}
    seconds = sum(job.seconds for job in jobs) + _JOINING_SECONDS
    with _events(request, seconds, command) as events:
        for event in events:
            if event["event"] == "trial" and event["name"] in answers:
                answer = _answer_of(event)
                answers[answer.name] = answer
                told(answer)
    return tuple(answers.values())


@contextmanager
def _events(
    request: Mapping[str, Any], seconds: float, command: Sequence[str] | None
) -> Iterator[Iterator[Mapping[str, Any]]]:
    """A started child's events. Its silence or death ends them; what it told until then stands."""
    # Ray's own token is the only one that it needs to ask a cluster.
    surroundings = {
        name: value for name, value in os.environ.items() if name.startswith("RAY_") or not SECRET.search(name)
    }
    start = command or [sys.executable, "-m", "planner.fleet.ray_child"]
    with (
        raising_on_signals(),
        tempfile.TemporaryFile() as log,
        started_child(start, log, surroundings) as (child, pipe),
    ):
        hand_over(child, json.dumps(request))
        seen: list[str] = []

        def listen() -> Iterator[Mapping[str, Any]]:
            for event in _heard(pipe, seconds):
                if event["event"] == "error":
                    # Ray's own exception says only that it did not connect.
                    hint = _AUTH_HINT if _WANTS_TOKEN in tail_of(log) else str(event["hint"])
                    raise ClusterError(str(event["message"]), subject=_subject(request["address"]), hint=hint)
                seen.append(str(event["event"]))
                yield event

        yield listen()
        if not seen:
            said = tail_of(log).splitlines()
            raise ClusterError(
                f"no answer within {seconds:.0f} s" + (f"; Ray says: {said[-1][:200]}" if said else ""),
                subject=_subject(request["address"]),
                hint="see that it is well: ray status; a longer wait: --ray-timeout SECONDS",
            )


def _heard(pipe: int, seconds: float) -> Iterator[Mapping[str, Any]]:
    try:
        for line in lines_of(pipe, whole_seconds=seconds, silence_seconds=seconds, line_bytes=_LINE_BYTES):
            event = json.loads(line)
            if not isinstance(event, dict) or "event" not in event:
                return
            yield event
            if event["event"] == "done":
                return
    except (TimeoutError, EndlessLineError, ValueError):
        return


def _subject(address: str) -> str:
    return f"Ray cluster {address}" if address != "auto" else "Ray cluster of this machine"


def _unread(node: Mapping[str, Any]) -> NodeReading:
    return NodeReading(
        node_id=str(node["id"]),
        name=str(node["name"]),
        address=str(node["address"]),
        state=NodeState.UNREAD,
        offered_gpus=int(node["gpus"]),
        offered_cpus=int(node["cpus"]),
        code="unread",
        why="it did not answer in time",
        hint="see what keeps it: ray status; a longer wait: --ray-timeout SECONDS",
    )


def _cut_off(node: NodeReading) -> NodeReading:
    """A node whose answer was awaited when the cluster itself fell silent."""
    if node.state is not NodeState.UNREAD:
        return node
    return replace(node, why="the connection to the cluster broke off before it answered")


def _node_read(node: NodeReading, event: Mapping[str, Any]) -> NodeReading:
    """What a node answered, or what became of its task."""
    if "answer" not in event:
        if event.get("lost"):
            why = "it left the cluster while it was read"
            return replace(node, state=NodeState.LOST, code="lost", why=why, hint="see ray status")
        hint = "see Ray's logs on that node"
        return replace(node, state=NodeState.FAILED, code="task_failed", why=str(event.get("why")), hint=hint)
    answer = event["answer"]
    version = answer.get("specplan_version") if isinstance(answer, dict) else None
    node = replace(
        node, specplan_version=None if version is None else str(version), why=None, code=None, hint=None
    )
    try:
        return _of_answer(node, answer)
    except (WireError, KeyError, TypeError, AttributeError) as error:
        return replace(
            node,
            state=NodeState.FAILED,
            code="wire",
            why=f"its specplan {version or ''} answers in another form than {__version__}: {error}",
            hint=f"install {__version__} there: {_SAME_RELEASE}",
        )


def _of_answer(node: NodeReading, answer: Mapping[str, Any]) -> NodeReading:
    error = answer.get("error")
    if error is not None:
        code, message, hint = str(error["code"]), str(error["message"]), str(error["hint"])
        if code == "specplan_missing":
            message, hint = f"specplan cannot be imported there: {message}", _SAME_RELEASE
        elif code in _WITHOUT_GPU and not node.offered_gpus:
            return replace(node, state=NodeState.READ, notes=(message,))
        return replace(node, state=NodeState.FAILED, code=code, why=message, hint=hint)
    if answer.get("wire") != WIRE_VERSION:
        raise WireError(f"form {answer.get('wire')!r}, not {WIRE_VERSION}")
    devices = tuple(device_of(device) for device in answer["devices"])
    notes = [str(note) for note in answer["notes"]]
    if node.specplan_version != __version__:
        notes.append(f"specplan {node.specplan_version} there, {__version__} here")
    listed = sum(device.source.value == "nvml" for device in devices)
    if listed and node.offered_gpus is not None and node.offered_gpus < listed:
        notes.append(f"the cluster gives out {node.offered_gpus} of its {listed} GPUs")
    return replace(node, state=NodeState.READ, devices=devices, notes=tuple(notes))


def _job_mapping(job: TrialJob) -> dict[str, Any]:
    return {
        "name": job.name,
        "arguments": list(job.arguments),
        "nodes": list(job.nodes),
        "num_gpus": job.num_gpus,
        "num_cpus": job.num_cpus,
        "seconds": job.seconds,
    }


def _answer_of(event: Mapping[str, Any]) -> TrialAnswer:
    name = str(event["name"])
    answer = event.get("answer")
    if not isinstance(answer, dict):
        why = event.get("why")
        return TrialAnswer(name=name, document=None, why=None if why is None else str(why))
    if isinstance(answer.get("error"), dict):
        return TrialAnswer(
            name=name, document=None, why=f"specplan is not there: {answer['error'].get('message')}"
        )
    document = answer.get("document")
    if not isinstance(document, dict):
        said = str(answer.get("said", "")).strip().splitlines()
        why = f"specplan ended with exit code {answer.get('exit_code')}" + (f": {said[-1][:300]}" if said else "")
        return TrialAnswer(name=name, document=None, why=why)
    return TrialAnswer(name=name, document=document, why=None)
