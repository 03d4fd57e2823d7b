"""What a driver's memory figures are worth: sentinels, contradictions, and GPUs without memory of their own.

Pure: works on numbers that ``nvml`` has read.
"""

import re
from dataclasses import dataclass
from typing import Final

from planner.host_memory import HostMemory

#: NVML answers 2**64 - 1 for "not available" (Syllo/nvtop#432); nothing near that size exists.
_LARGEST_BYTES: Final = 2**60
#: GPUs that share the host's memory, by NVML name: GB10 (DGX Spark) and the Jetson line. Strict on purpose: a
#: lost card, a MIG instance or a Grace-Hopper (which has memory of its own) must not be taken for one.
_SHARES_HOST_MEMORY: Final = re.compile(r"\b(GB10|Orin|Thor|Xavier|Tegra)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigures:
    """Bytes, each None where not known. ``used`` excludes what the driver reserves."""

    total: int | None
    free: int | None
    used: int | None
    reserved: int | None


NO_FIGURES: Final = MemoryFigures(total=None, free=None, used=None, reserved=None)


def shares_host_memory(name: str) -> bool:
    """Whether a GPU of this NVML name has no memory of its own."""
    return _SHARES_HOST_MEMORY.search(name) is not None


def host_figures(host: HostMemory) -> MemoryFigures:
    """The figures of a GPU that shares the host's memory: MemTotal and MemAvailable (XuehaiPan/nvitop#208).

    Taken even where the driver answers: its free leaves out the page cache (ollama/ollama#12283).
    """
    total, free = host.total_bytes, host.available_bytes
    used = None if total is None or free is None else total - free
    return MemoryFigures(total=total, free=free, used=used, reserved=None)


def checked_figures(figures: MemoryFigures, label: str) -> tuple[MemoryFigures, list[str]]:
    """The figures without those that cannot be true, and a note for each one left out.

    A sentinel or a zero total is unknown; of a part larger than the total the part is unknown.
    """
    notes: list[str] = []

    def plausible(field: str, value: int | None, largest: int | None) -> int | None:
        if value is None:
            return None
        if value >= _LARGEST_BYTES:
            notes.append(f"{label}: memory {field} is the driver's mark for not available")
            return None
        if largest is not None and value > largest:
            notes.append(f"{label}: memory {field} ({value} bytes) above the total ({largest} bytes), left out")
            return None
        return value

    total = plausible("total", figures.total, None)
    if total == 0:
        notes.append(f"{label}: memory total read as 0, left out")
        total = None
    checked = MemoryFigures(
        total=total,
        free=plausible("free", figures.free, total),
        used=plausible("used", figures.used, total),
        reserved=plausible("reserved", figures.reserved, total),
    )
    return checked, notes
