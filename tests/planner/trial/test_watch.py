"""The devices while a trial runs: the child's share, other processes, and a driver that says nothing."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from planner.devices import Device, DeviceProcess, DeviceSource
from planner.errors import DeviceLostError
from planner.nvml import DeviceReading
from planner.nvml_clocks import Clocks
from planner.trial.summary import Watched
from planner.trial.watch import UNSTABLE_BYTES, DeviceWatch

GIB = 2**30
CARD = Device(
    index=0,
    name="a card",
    source=DeviceSource.NVML,
    total_bytes=80 * GIB,
    engine_total_bytes=None,
    free_bytes=70 * GIB,
    uuid="GPU-1",
    used_by_others_bytes=10 * GIB,
)


def watched(
    readings: Sequence[Device | Exception], pid: int | None = None, clocks: tuple[Clocks, ...] = ()
) -> Watched:
    """Watch through these readings, the last one repeated."""
    left: Iterator[Device | Exception] = iter(readings)
    last: list[Device | Exception] = []

    def read() -> DeviceReading:
        found = next(left, None) or last[-1]
        last.append(found)
        if isinstance(found, Exception):
            raise found
        return DeviceReading(
            devices=(found,), driver_version="580", nvml_version=None, cuda_version=None, clocks=clocks
        )

    watch = DeviceWatch(read=read, period_seconds=0.001)
    watch.start(os.getpid() if pid is None else pid)
    until = time.monotonic() + 5
    while len(last) < len(readings) + 1 and time.monotonic() < until:
        time.sleep(0.005)
    return watch.stop()


def used(size: int, *processes: tuple[int, int | None]) -> Device:
    held = tuple(DeviceProcess(pid=pid, name=None, used_bytes=size) for pid, size in processes)
    return replace(CARD, used_by_others_bytes=size, processes=held)


def test_the_childs_own_peak_is_told_apart_from_others() -> None:
    me = os.getpid()
    found = watched([used(10 * GIB), used(13 * GIB, (me, 3 * GIB)), used(12 * GIB, (me, 2 * GIB))])
    assert found.child_peak_bytes == 3 * GIB
    assert found.device_peak_bytes == 13 * GIB
    assert found.others_change_bytes == 0
    assert found.notes == ()


def test_a_grandchild_counts_as_the_child() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(20)'])"
    child = subprocess.Popen([sys.executable, "-c", script])
    try:
        grandchild = 0
        for _ in range(200):
            listing = Path("/proc", str(child.pid), "task", str(child.pid), "children").read_text()
            if listing:
                grandchild = int(listing.split()[0])
                break
            time.sleep(0.02)
        found = watched([used(13 * GIB, (grandchild, 3 * GIB))], pid=child.pid)
        assert found.child_peak_bytes == 3 * GIB
    finally:
        child.kill()
        child.wait()


def test_others_that_take_memory_make_it_unstable() -> None:
    me = os.getpid()
    grown = UNSTABLE_BYTES + 1
    found = watched([used(10 * GIB, (me, GIB)), used(10 * GIB + grown, (me, GIB))])
    assert found.others_change_bytes == grown
    assert "unstable" in found.notes[0]


def test_where_processes_cannot_be_told_apart_the_device_says_what_it_gained() -> None:
    found = watched([used(10 * GIB), used(14 * GIB)])
    assert found.child_peak_bytes == 4 * GIB
    assert found.others_change_bytes is None


def test_a_driver_that_stops_answering_gives_no_figure() -> None:
    found = watched([DeviceLostError("gone", subject="GPU 0", hint="look at dmesg")])
    assert found.device_peak_bytes is None
    assert "not read" in found.notes[0]


def test_a_gpu_that_was_slowed_is_noted_and_another_ones_heat_is_not() -> None:
    mine = Clocks(uuid="GPU-1", sm_mhz=1200, max_sm_mhz=1980, slowed_by=("the power cap",))
    other = Clocks(uuid="GPU-2", sm_mhz=1200, max_sm_mhz=1980, slowed_by=("heat (hardware)",))
    found = watched([used(10 * GIB)], clocks=(mine, other))
    assert found.notes == ("the GPU was slowed by the power cap during the trial",)
