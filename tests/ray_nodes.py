"""A Ray cluster of several raylets on this machine, each with NVIDIA devices of its own from the stand-in library.

Each node is a process group of its own (`ray start --block`), so that one can die as a machine does: all at once.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

#: Quiet, without the user's cluster and token, and quick to see that a node is gone.
SURROUNDINGS: Final = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
_START_SECONDS: Final = 60.0


def environment(**more: str) -> dict[str, str]:
    """This process's, without what belongs to another cluster."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "CUDA_", "HF_"))}
    return {**kept, **SURROUNDINGS, "HF_HUB_OFFLINE": "1", **more}


@dataclass(slots=True)
class RayCluster:
    """A head without GPUs, and nodes that are added to it."""

    folder: Path
    port: int
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, name: str, variables: Mapping[str, str] | None = None, *, cpus: int = 1) -> None:
        """Start a node and wait until it has joined: Ray starts several of one machine only one by one.

        Raises:
            RuntimeError: with its log, where it does not join.
        """
        place = [f"--address={self.address}"]
        if not self.nodes:
            place = ["--head", f"--port={self.port}", f"--temp-dir={self.folder}", "--include-dashboard=false"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *place]
        command += [f"--node-name={name}", f"--num-cpus={cpus}", "--object-store-memory=80000000"]
        command += ["--disable-usage-stats"] * (not self.nodes)
        with (self.folder / f"{name}.log").open("wb") as log:
            self.nodes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(**(variables or {})),
                start_new_session=True,
            )
        self._wait(name)

    def kill(self, name: str) -> None:
        """End a node at once, with all that it started: as a machine that loses power."""
        with suppress(ProcessLookupError):
            os.killpg(self.nodes[name].pid, signal.SIGKILL)
        self.nodes[name].wait()

    def _wait(self, name: str) -> None:
        log, end = self.folder / f"{name}.log", time.monotonic() + _START_SECONDS
        while b"Ray runtime started" not in log.read_bytes():
            if time.monotonic() > end or self.nodes[name].poll() is not None:
                raise RuntimeError(f"{name} did not join:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)


@contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    """A cluster with its head alone; everything is gone afterwards."""
    # Paths of sockets may not be long: not below pytest's folder.
    folder = Path(mkdtemp(prefix="spr", dir="/tmp"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = RayCluster(folder, port)
    try:
        cluster.add("head", cpus=2)
        yield cluster
    finally:
        for name in cluster.nodes:
            cluster.kill(name)
        subprocess.run(["rm", "-rf", str(folder)], check=False)
