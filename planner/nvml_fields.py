"""One field at a time: what each NVML question answers, or a note on why it does not.

Works on the pynvml module that ``nvml`` hands in, and imports it nowhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Protocol, TypeVar

from planner.devices import DeviceProcess
from planner.host_memory import read_host_memory
from planner.nvml_errors import FUNCTION_NOT_FOUND, LOST_CODES, NOT_SUPPORTED
from planner.nvml_memory import NO_FIGURES, MemoryFigures, checked_figures, host_figures

_Value = TypeVar("_Value")


class _Process(Protocol):
    """What pynvml answers for a process."""

    pid: int
    usedGpuMemory: int | None  # noqa: N815 - pynvml's name


@dataclass(slots=True, kw_only=True)
class FieldReader:
    """Reads the fields of one subject; keeps a note for each one that failed, and what the failure was."""

    nvml: ModuleType
    subject: str
    notes: list[str] = field(default_factory=list)
    failure: Exception | None = None
    lost: Exception | None = None

    def read(self, name: str, call: Callable[[], _Value], *, unremarkable: tuple[int, ...] = ()) -> _Value | None:
        """The field, or None with a note; failures with a code in ``unremarkable`` get no note."""
        try:
            return call()
        except self.nvml.NVMLError as error:
            self.failure = error
            if error.value in LOST_CODES:
                self.lost = error
            if error.value not in unremarkable:
                self.notes.append(f"{self.subject}: {name} not readable: {error}")
        except UnicodeDecodeError:
            self.notes.append(f"{self.subject}: {name} not readable: not text")
        return None


def _read_figures(nvml: ModuleType, handle: object, reader: FieldReader) -> MemoryFigures | None:
    """Memory info v2; where that fails (WSL2 says "unknown error") but for a lost GPU, v1."""
    newer = FieldReader(nvml=nvml, subject=reader.subject)
    second = newer.read("memory info v2", lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    if newer.lost is not None:
        reader.lost = newer.lost  # whatever else it may still answer
        return None
    if second is not None:
        return MemoryFigures(total=second.total, free=second.free, used=second.used, reserved=second.reserved)
    first = reader.read("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    if first is None:
        return None
    reader.notes.append(f"{reader.subject}: memory info v1 only: it counts what the driver reserves as used")
    return MemoryFigures(total=first.total, free=first.free, used=None, reserved=None)


def read_memory(
    nvml: ModuleType, handle: object, reader: FieldReader, *, may_share: bool
) -> tuple[MemoryFigures, bool]:
    """The figures that can be true, and whether they are the host's.

    On a GPU that has no memory of its own only "not supported" and a real answer lead to the host's figures;
    any other failure stays unknown.
    """
    memory = FieldReader(nvml=nvml, subject=reader.subject)
    figures = _read_figures(nvml, handle, memory)
    unsupported = getattr(memory.failure, "value", None) == NOT_SUPPORTED
    reader.lost = reader.lost or memory.lost
    if may_share and (figures is not None or unsupported):
        host = read_host_memory()
        reader.notes.append(f"{reader.subject}: memory shared with the host; free is the host's MemAvailable")
        reader.notes += [f"{reader.subject}: {note}" for note in host.notes]
        return host_figures(host), True
    checked, doubts = checked_figures(figures or NO_FIGURES, reader.subject)
    reader.notes += [*memory.notes, *doubts]
    return checked, False


def _running(nvml: ModuleType, kind: str, handle: object) -> list[_Process]:
    """The processes of one kind; drivers before R510 have only the older function."""
    try:
        listed = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v3")(handle)
    except nvml.NVMLError as error:
        if error.value != FUNCTION_NOT_FOUND:
            raise
        listed = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v2")(handle)
    return list(listed)


def read_processes(nvml: ModuleType, handle: object, reader: FieldReader) -> tuple[DeviceProcess, ...]:
    """Compute and graphics processes, one entry a pid. A name that may not be read is simply None."""
    used_by_pid: dict[int, int | None] = {}
    for kind in ("Compute", "Graphics"):
        for process in reader.read(f"{kind.lower()} processes", partial(_running, nvml, kind, handle)) or ():
            known, used = used_by_pid.get(process.pid), process.usedGpuMemory
            used_by_pid[process.pid] = used if known is None else max(known, used or 0)
    silent = FieldReader(nvml=nvml, subject=reader.subject)
    return tuple(
        DeviceProcess(
            pid=pid,
            name=silent.read("process name", partial(nvml.nvmlSystemGetProcessName, pid)) or None,
            used_bytes=used,
        )
        for pid, used in sorted(used_by_pid.items())
    )
