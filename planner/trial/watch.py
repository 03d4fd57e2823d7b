"""Watches the devices while a trial's child runs: what the child takes, and whether others disturb it.

Samples NVML from the parent, a few times a second. Where the driver names processes that we cannot tell apart (a
container with process ids of its own), the child's share is what the device gained since the start.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from model_catalog.errors import SpecplanError
from model_catalog.units import MIB
from planner.nvml import DeviceReading
from planner.trial.summary import Watched

#: Others that took or gave back more than this while we measured make the figures doubtful.
UNSTABLE_BYTES: Final = 256 * MIB
_PERIOD_SECONDS: Final = 0.5

Read = Callable[[], DeviceReading]


@dataclass(slots=True, kw_only=True)
class DeviceWatch:
    """Reads ``read`` until stopped. Its devices are the watched ones alone, in a fixed order."""

    read: Read
    period_seconds: float = _PERIOD_SECONDS
    _pid: int | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _first_used: int | None = None
    _others: list[int] = field(default_factory=list)
    _child: list[int] = field(default_factory=list)
    _used: list[int] = field(default_factory=list)
    _slowed: set[str] = field(default_factory=set)
    _failures: int = 0

    def start(self, pid: int) -> None:
        """Begin, with the child's process id; its children count as the child."""
        self._pid = pid
        self._thread = threading.Thread(target=self._run, name="device-watch", daemon=True)
        self._thread.start()

    def stop(self) -> Watched:
        """End, and say what was seen."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)
        if not self._used:
            return Watched(notes=("the devices' memory was not read during the trial",) if self._failures else ())
        change = max(self._others) - min(self._others) if self._others else None
        notes = []
        if change is not None and change > UNSTABLE_BYTES:
            notes.append(
                f"unstable: the memory of other processes changed by {change / MIB:,.0f} MiB during the trial"
            )
        if self._slowed:
            notes.append(f"the GPU was slowed by {', '.join(sorted(self._slowed))} during the trial")
        return Watched(
            child_peak_bytes=max(self._child) if self._child else None,
            device_peak_bytes=max(self._used),
            others_change_bytes=change,
            notes=tuple(notes),
        )

    def _run(self) -> None:
        while not self._stop.is_set():
            self._sample()
            self._stop.wait(self.period_seconds)

    def _sample(self) -> None:
        try:
            reading = self.read()
        except SpecplanError:
            self._failures += 1
            return
        devices = reading.devices
        watched = {device.uuid for device in devices}
        for clocks in reading.clocks:
            if clocks.uuid in watched:
                self._slowed.update(clocks.slowed_by)
        used = [device.used_by_others_bytes for device in devices]
        if any(value is None for value in used):
            return
        total = sum(value for value in used if value is not None)
        first = total if self._first_used is None else self._first_used
        self._first_used = first
        self._used.append(total)
        ours = _family(self._pid) if self._pid is not None else set()
        named = [
            process.used_bytes
            for device in devices
            for process in device.processes
            if process.pid in ours and process.used_bytes is not None
        ]
        if named:
            self._child.append(sum(named))
            self._others.append(total - sum(named))
        elif total > first:
            self._child.append(total - first)


def _family(pid: int) -> set[int]:
    """A process and its descendants, as /proc tells them."""
    found, waiting = {pid}, [pid]
    while waiting:
        parent = waiting.pop()
        for listing in Path("/proc", str(parent), "task").glob("*/children"):
            try:
                children = {int(word) for word in listing.read_text(encoding="ascii").split()}
            except (OSError, ValueError):
                continue
            waiting += children - found
            found |= children
    return found
