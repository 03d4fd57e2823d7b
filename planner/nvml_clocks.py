"""How fast a GPU runs right now, and what holds it back: a measured time means little without it.

Works on the pynvml module that ``nvml`` hands in. Reasons are the bits of nvml.h (``nvmlClocksEventReason...``);
those that only say that the device is idle or set so by its owner are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Final, TypeVar

_Value = TypeVar("_Value")
_SM_CLOCK: Final = 1  # NVML_CLOCK_SM
_SLOWED_BY: Final = {
    0x4: "the power cap",
    0x8: "a hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "the power brake",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The multiprocessors' clock of one GPU in MHz, now and at most, and what slows it; None where not told."""

    uuid: str
    sm_mhz: int | None
    max_sm_mhz: int | None
    slowed_by: tuple[str, ...]


def read_clocks(nvml: ModuleType, handle: object) -> Clocks | None:
    """The clocks of one GPU; None where not even its UUID can be read. Never fails: a plan needs no clocks."""
    uuid = _asked(nvml, lambda: str(nvml.nvmlDeviceGetUUID(handle)))
    if uuid is None:
        return None
    # The newer name since driver 535; the older one serves before.
    bits = _asked(nvml, lambda: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)))
    if bits is None:
        bits = _asked(nvml, lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)))
    return Clocks(
        uuid=uuid,
        sm_mhz=_asked(nvml, lambda: int(nvml.nvmlDeviceGetClockInfo(handle, _SM_CLOCK))),
        max_sm_mhz=_asked(nvml, lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, _SM_CLOCK))),
        slowed_by=tuple(words for bit, words in _SLOWED_BY.items() if (bits or 0) & bit),
    )


def _asked(nvml: ModuleType, call: Callable[[], _Value]) -> _Value | None:
    try:
        return call()
    except (nvml.NVMLError, UnicodeDecodeError):
        return None
