"""The child that speaks to a Ray cluster, alone with Ray: it joins, asks nodes, runs tasks, and tells by its pipe.

The only importer of ray. It is a process of its own because Ray prints what it likes, and ends the process that
it lives in when the node below it dies. It joins a cluster that is there and never starts one. Scheduling, retries
and what becomes of tasks on nodes that die are Ray's. ``asking`` is the other side.
"""

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

from planner.fleet.wire import WIRE_VERSION

#: What Ray reads when it is imported. It shall report to nobody, and say nothing but what we say.
_SETTINGS: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS": "0",
    "RAY_TQDM_PATCH_PRINT": "0",
}
#: Would make Ray start a cluster of its own, or ship things to the nodes that nobody asked for.
_UNWANTED: Final = ("RAY_RUNTIME_ENV_HOOK", "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_RUNTIME_ENV")
_CONNECT_SECONDS: Final = 5.0
#: A trial that a node's death ended is run again by Ray, on another node that holds the plan.
_RETRIES: Final = 2
_PACKAGE: Final = "planner.fleet.node"


class Refused(Exception):  # noqa: N818 - it is told, not raised at anybody
    """Why the cluster cannot be joined: a code, a sentence, and what to do."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.told = {"event": "error", "code": code, "message": message, "hint": hint}


def _caller() -> Callable[..., Any]:
    """A function that travels by value: what it calls is specplan's, as it is installed on the node."""

    def call(package: str, function: str, arguments: Any) -> Any:  # noqa: ANN401 - plain JSON values
        import importlib  # noqa: PLC0415 - on the node

        try:
            module = importlib.import_module(package)
        except ImportError as error:
            return {"error": {"code": "specplan_missing", "message": str(error), "hint": ""}}
        return getattr(module, function)(arguments)

    return call


def _join(address: str) -> Any:  # noqa: ANN401 - the module ray
    """Ray, joined to the cluster at ``address`` or, for "auto", to the one of this machine.

    Raises:
        Refused: there is none, it cannot be reached, or it does not take us.
    """
    if address == "auto":
        named = os.environ.pop("RAY_ADDRESS", "")
        # "local" is how Ray is told to start a cluster of its own.
        address = named if named not in {"", "local"} else "auto"
    _knock(address)
    import ray  # noqa: PLC0415 - after the settings

    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            configure_logging=False,
            namespace="specplan",
        )
    except ConnectionError as error:
        hint = "start one, or join one, on this machine: ray start --address=HOST:PORT"
        text = "none is running" if address == "auto" else _first_line(error)
        raise Refused("no_cluster", text, hint) from error
    except Exception as error:
        hint = "run it on a node of the cluster, with the cluster's releases of Python and Ray: ray status"
        raise Refused("cluster_refused", _first_line(error), hint) from error
    return ray


def _knock(address: str) -> None:
    """Ray takes minutes to find out that nobody listens."""
    host, colon, port = address.rpartition(":")
    if address == "auto" or not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error) or "no answer"
        hint = "name the address that `ray status` shows, HOST:6379 as a rule; on a node of the cluster: auto"
        raise Refused("no_cluster", f"nobody listens there: {reason}", hint) from error


def _nodes(ray: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - the module
    """The nodes that are alive, each under a name of its own."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    names = [str(node.get("NodeName") or "") for node in alive]
    names = [
        str(node["NodeManagerHostname"]) if name in {"", str(node["NodeManagerAddress"])} else name
        for node, name in zip(alive, names, strict=True)
    ]
    return [
        {
            "id": str(node["NodeID"]),
            "name": name if names.count(name) == 1 else f"{name}/{str(node['NodeID'])[:8]}",
            "address": str(node["NodeManagerAddress"]),
            "gpus": int(node["Resources"].get("GPU", 0)),
            "cpus": int(node["Resources"].get("CPU", 0)),
        }
        for node, name in zip(alive, names, strict=True)
    ]


def _ready(ray: Any, waiting: Mapping[Any, Any], deadline: float) -> Iterator[tuple[Any, Any, Exception | None]]:  # noqa: ANN401
    """Tasks as they end, with their answers or errors, until none is left or the time is up."""
    left = list(waiting)
    while left and (seconds := deadline - time.monotonic()) > 0:
        done, left = ray.wait(left, num_returns=1, timeout=seconds)
        for task in done:
            try:
                yield waiting[task], ray.get(task), None
            except Exception as error:  # the task's, whatever it is
                yield waiting[task], None, error
    for task in left:
        ray.cancel(task, force=False)


def _read(ray: Any, request: Mapping[str, Any], send: Callable[..., None]) -> None:  # noqa: ANN401
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415 - as ray itself

    nodes = _nodes(ray)
    send(event="nodes", nodes=nodes)
    ask = ray.remote(_caller())
    waiting = {
        ask.options(
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["id"], soft=False),
        ).remote(_PACKAGE, "read_node", request["what"]): node["id"]
        for node in nodes
    }
    silent = {node["id"] for node in nodes}
    for node_id, answer, error in _ready(ray, waiting, time.monotonic() + request["seconds"]):
        silent.discard(node_id)
        if error is None:
            send(event="node", id=node_id, answer=answer)
        else:
            send(event="node", id=node_id, lost=not _is_alive(ray, node_id, error), why=_first_line(error))
    alive = {node["id"] for node in _nodes(ray)}
    for node_id in sorted(silent - alive):
        send(event="node", id=node_id, lost=True, why="it left the cluster")


def _is_alive(ray: Any, node_id: str, error: Exception) -> bool:  # noqa: ANN401
    """Whether a node whose task failed is still there: Ray's word, or its table of nodes."""
    if type(error).__name__ in {"NodeDiedError", "TaskUnschedulableError"}:
        return False
    return node_id in {node["id"] for node in _nodes(ray)}


def _try(ray: Any, request: Mapping[str, Any], send: Callable[..., None]) -> None:  # noqa: ANN401
    """Run trials one after the other, each where Ray finds room for it among the nodes that it names."""
    run = ray.remote(_caller())
    for job in request["jobs"]:
        task = run.options(
            num_cpus=job["num_cpus"],
            num_gpus=job["num_gpus"],
            max_retries=_RETRIES,
            label_selector={"ray.io/node-id": f"in({','.join(job['nodes'])})"},
        ).remote(_PACKAGE, "run_trial_here", job["arguments"])
        ended = False
        for _, answer, error in _ready(ray, {task: None}, time.monotonic() + job["seconds"]):
            ended = True
            if error is None:
                send(event="trial", name=job["name"], answer=answer)
            else:
                send(event="trial", name=job["name"], why=f"{type(error).__name__}: {_first_line(error)}")
        if not ended:
            send(event="trial", name=job["name"], why=None)


def _first_line(error: BaseException) -> str:
    """What an exception says, without the traceback that Ray puts into it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def main(arguments: Sequence[str]) -> None:
    """Read the request from stdin, do it, tell by the pipe whose number is the argument."""
    pipe: TextIO = os.fdopen(int(arguments[0]), "w", buffering=1, encoding="utf-8")
    request = json.loads(sys.stdin.read())
    for name in _UNWANTED:
        os.environ.pop(name, None)
    os.environ.update(_SETTINGS)

    def send(**event: object) -> None:
        pipe.write(json.dumps({"wire": WIRE_VERSION, **event}) + "\n")

    try:
        ray = _join(request["address"])
    except Refused as refusal:
        send(**refusal.told)
        return
    {"read": _read, "try": _try}[request["do"]](ray, request, send)
    send(event="done")
    pipe.flush()
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
