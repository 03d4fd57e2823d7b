"""Which device of today stands for which of the plan, and how the two differ. Judges no memory need."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from model_catalog.units import MIB
from planner.devices import Device, DeviceSource
from planner.recheck.records import Code, Difference, Level, SavedDevice, need_text, of_device, room_text

#: A desktop, a monitoring agent or the driver itself moves less than this from minute to minute.
TOLD_CHANGE_BYTES: Final = 64 * MIB
#: ECC and firmware move the total of one and the same card by less than this share of it.
_SAME_TOTAL_SHARE: Final = 0.02
#: The name of a device that was declared by its size (``declared_gpus``).
_SIZE_ALONE: Final = re.compile(r"[\d.,]+ GiB device")


def match(
    saved: SavedDevice, listed: Sequence[Device], visible: Sequence[Device], taken: Sequence[Device]
) -> tuple[Device | None, list[Difference]]:
    """The device of today that stands for ``saved``, and what is to be said about that."""
    if saved.source is DeviceSource.HOST:
        if listed:
            return listed[0], []
        return None, [of_device(Code.DEVICE_UNREADABLE, Level.DOUBT, saved, "was not read")]
    if saved.uuid is None:
        return _match_by_name(saved, visible, taken)
    named = next((device for device in listed if device.uuid == saved.uuid), None)
    # By UUID: choosing may have added notes to a visible device.
    if named is not None and all(device.uuid != saved.uuid for device in visible):
        text = "is there, but CUDA_VISIBLE_DEVICES hides it"
        return None, [of_device(Code.DEVICE_HIDDEN, Level.BREAKS, saved, text)]
    if named is not None:
        return named, []
    if any(device.uuid is None for device in listed):
        text = "not found, and a device that the driver lists does not tell its UUID: it may be this one"
        return None, [of_device(Code.DEVICE_UNREADABLE, Level.DOUBT, saved, text)]
    return None, [of_device(Code.DEVICE_GONE, Level.BREAKS, saved, "the driver no longer lists it")]


def _match_by_name(
    saved: SavedDevice, visible: Sequence[Device], taken: Sequence[Device]
) -> tuple[Device | None, list[Difference]]:
    """The first visible device of that name and size that stands for no other; an engine takes them in order."""
    alike = (device for device in visible if device not in taken and _is_alike(saved, device))
    device = next(alike, None)
    if device is None:
        text = f"no {'further ' if taken else ''}GPU of this name and size is here: nothing can be judged"
        return None, [of_device(Code.NO_SUCH_GPU, Level.DOUBT, saved, text)]
    text = f"matched by name and size with {device.uuid or device.name}"
    return device, [of_device(Code.MATCHED_BY_NAME, Level.NOTE, saved, text)]


def _is_alike(saved: SavedDevice, device: Device) -> bool:
    if saved.total_bytes is None or device.total_bytes is None:
        return False
    same_size = abs(saved.total_bytes - device.total_bytes) <= _SAME_TOTAL_SHARE * saved.total_bytes
    by_size_alone = saved.source is DeviceSource.DECLARED and _SIZE_ALONE.fullmatch(saved.name) is not None
    return same_size and (by_size_alone or saved.name == device.name)


def device_differences(saved: SavedDevice, device: Device) -> Iterator[Difference]:
    """Driver, total and free memory, each beside what the plan saw; a declared device was assumed, not seen."""
    seen = saved.source is not DeviceSource.DECLARED
    old, new = saved.driver_version, device.driver_version
    if old is not None and new is not None and old != new:
        yield of_device(Code.DRIVER_CHANGED, Level.NOTE, saved, f"driver {old} when planned, {new} now")
    total, now = saved.total_bytes, device.total_bytes
    if seen and total is not None and now is not None and total != now:
        text = f"total memory {room_text(total)} when planned, {room_text(now)} now"
        yield of_device(Code.TOTAL_CHANGED, Level.NOTE, saved, text)
    if saved.free_bytes is None or device.free_bytes is None:
        return
    lost = saved.free_bytes - device.free_bytes
    if lost >= TOLD_CHANGE_BYTES:
        text = f"{need_text(lost)} less free than when planned; {_holders(device)}"
        yield of_device(Code.MEMORY_TAKEN, Level.NOTE, saved, text)
    elif seen and -lost >= TOLD_CHANGE_BYTES:
        yield of_device(Code.MEMORY_FREED, Level.NOTE, saved, f"{room_text(-lost)} more free than when planned")


def _holders(device: Device) -> str:
    """Who holds memory now, the largest first."""
    if device.source is DeviceSource.HOST:
        return "it is the host's own memory: see what runs on this machine"
    if not device.processes:
        return "the driver names no process that holds it"
    named = sorted(device.processes, key=lambda process: -(process.used_bytes or 0))
    told = [
        f"{process.name or 'a process without a readable name'} (pid {process.pid}) holds "
        f"{'an untold amount' if process.used_bytes is None else need_text(process.used_bytes)}"
        for process in named[:5]
    ]
    more = len(named) - len(told)
    return ", ".join(told) + (f", and {more} more" if more else "")


def required_differences(saved: SavedDevice, device: Device, required_bytes: int | None) -> Iterator[Difference]:
    if required_bytes is None:
        return
    if device.free_bytes is None:
        yield of_device(Code.READING_MISSING, Level.DOUBT, saved, "its free memory could not be read")
    elif device.free_bytes < required_bytes:
        text = f"{room_text(device.free_bytes)} free, {need_text(required_bytes)} required"
        yield of_device(Code.FREE_BELOW_REQUIRED, Level.BREAKS, saved, text)
