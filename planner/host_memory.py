"""The host's own memory: for ``--devices cpu``, and for GPUs that have no memory of their own.

Reads /proc and the cgroup file system (Linux). Owns no decision about what is planned there.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from model_catalog.bounds import ByteRange
from model_catalog.units import KIB, to_gib
from planner.devices import Device, DeviceSource

_PROC: Final = Path("/proc")
_CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """MemTotal and MemAvailable in bytes; None where /proc/meminfo does not say.

    MemAvailable and not MemFree: the page cache is given back when asked for (leptonai/gpud#1170).
    """

    total_bytes: int | None
    available_bytes: int | None
    notes: tuple[str, ...] = ()


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _kib_field(meminfo: str, field: str) -> int | None:
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if name == field and words and words[0].isdecimal():
            return int(words[0]) * KIB
    return None


def read_host_memory(*, proc: Path = _PROC) -> HostMemory:
    """What the kernel says of the whole machine. Missing figures are None with a note; raises nothing."""
    meminfo = _read_text(proc / "meminfo")
    if meminfo is None:
        return HostMemory(total_bytes=None, available_bytes=None, notes=("host memory: no /proc/meminfo here",))
    total = _kib_field(meminfo, "MemTotal")
    available = _kib_field(meminfo, "MemAvailable")
    notes = [
        f"host memory: {field} not given"
        for field, value in (("MemTotal", total), ("MemAvailable", available))
        if value is None
    ]
    if total is not None and available is not None and available > total:
        notes.append("host memory: MemAvailable above MemTotal, left out")
        available = None
    return HostMemory(total_bytes=total, available_bytes=available, notes=tuple(notes))


def is_wsl(*, proc: Path = _PROC) -> bool:
    """Whether this is Windows Subsystem for Linux: its kernels name their maker in the release."""
    release = _read_text(proc / "sys" / "kernel" / "osrelease")
    return release is not None and "microsoft" in release.lower()


def _number(path: Path) -> int | None:
    """A whole number in a file; None for "max", for anything else and for a missing file."""
    text = _read_text(path)
    return int(text) if text is not None and text.strip().isdecimal() else None


def _own_cgroups(proc: Path, cgroup: Path) -> list[Path]:
    """The folder of our own cgroup (v2) and of all its parents, innermost first."""
    lines = (_read_text(proc / "self" / "cgroup") or "").splitlines()
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if own is None:
        return []
    relative = Path(own.strip().lstrip("/"))
    if ".." in relative.parts:  # seen from another namespace: only the root is ours to read
        relative = Path()
    return [cgroup / folder for folder in (relative, *relative.parents)]


def _reclaimable(folder: Path) -> int:
    """Page cache that the kernel drops before it refuses memory (``inactive_file`` of memory.stat)."""
    for line in (_read_text(folder / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file" and value.strip().isdecimal():
            return int(value)
    return 0


def _limits(proc: Path, cgroup: Path) -> tuple[int | None, int | None]:
    """The tightest memory.max of our cgroups, and the least room left under any of them."""
    smallest: int | None = None
    least_room: int | None = None
    for folder in _own_cgroups(proc, cgroup):
        limit = _number(folder / "memory.max")
        if limit is None:
            continue
        smallest = limit if smallest is None else min(smallest, limit)
        current = _number(folder / "memory.current")
        if current is not None:
            room = max(0, limit - max(0, current - _reclaimable(folder)))
            least_room = room if least_room is None else min(least_room, room)
    return smallest, least_room


def host_device(*, proc: Path = _PROC, cgroup: Path = _CGROUP) -> Device:
    """The host's memory as one device; a lower cgroup limit (v2, as containers set it) stands in for the total.

    Raises nothing: what cannot be read is None with a note.
    """
    memory = read_host_memory(proc=proc)
    total, available = memory.total_bytes, memory.available_bytes
    notes = list(memory.notes)
    limit, room = _limits(proc, cgroup)
    if limit is not None and (total is None or limit < total):
        total = limit
        notes.append(f"host memory: limited to {to_gib(limit, 'down')} GiB by the cgroup (memory.max)")
    if room is not None and (available is None or room < available):
        available = room
    elif available is not None and total is not None:
        available = min(available, total)
    used = total - available if total is not None and available is not None and available <= total else None
    return Device(
        index=0,
        name="host memory",
        source=DeviceSource.HOST,
        total_bytes=total,
        engine_total_bytes=None if total is None else ByteRange.point(total),
        free_bytes=available,
        used_by_others_bytes=used,
        notes=tuple(notes),
    )
