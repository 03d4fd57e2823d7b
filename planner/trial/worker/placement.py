"""Which devices a trial may use, how much of each, and where a model goes.

A trial never takes more of a GPU than it planned: torch's allocator is capped before the first tensor. The CUDA
context (some hundred MB) is the driver's and lies outside that cap. With several GPUs, accelerate deals whole
layers to them evenly; nothing goes to host memory or disk, for that would time the bus.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from planner.trial.worker.faults import installed

_OFF_DEVICE: Final = frozenset({"cpu", "disk"})


class NoCudaError(Exception):
    """A GPU was asked for, and torch reaches none."""


def usable_devices(device: str) -> tuple[torch.device, ...]:
    """``cpu``; ``cuda`` for every visible GPU; ``cuda:1`` for one of them.

    Raises:
        NoCudaError: torch has no CUDA, or sees no such GPU.
    """
    if not device.startswith("cuda"):
        return (torch.device(device),)
    if not torch.cuda.is_available():
        raise NoCudaError(f"{installed()} reaches no GPU{_why_not()}")
    count = torch.cuda.device_count()
    asked = torch.device(device)
    if asked.index is None:
        return tuple(torch.device("cuda", number) for number in range(count))
    if asked.index >= count:
        raise NoCudaError(f"{installed()} sees {count} GPU{'s' if count > 1 else ''}, {device} is none of them")
    return (asked,)


def cap_allocator(devices: Sequence[torch.device], limits: Sequence[int]) -> None:
    """Let torch take at most ``limits`` bytes of the GPUs (all visible ones, in their order; none: no cap).

    Raises:
        ValueError: no limit for one of the devices.
    """
    for device in devices:
        if device.type != "cuda" or not limits:
            continue
        total = torch.cuda.mem_get_info(device)[1]
        share = min(1.0, limit_of(device, limits) / total)
        torch.cuda.set_per_process_memory_fraction(share, device)


def limit_of(device: torch.device, limits: Sequence[int]) -> int:
    """The device's limit in bytes.

    Raises:
        ValueError: there is none.
    """
    index = device.index or 0
    if index >= len(limits):
        raise ValueError(f"{len(limits)} limits were given, none for {device}")
    return limits[index]


def room_of(device: torch.device, limits: Sequence[int]) -> int:
    """Bytes that torch may still take of a GPU."""
    free = int(torch.cuda.mem_get_info(device)[0])
    # What torch has reserved and does not use is taken from the driver, yet ours.
    held, used = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    free += held - used
    return int(min(free, limit_of(device, limits) - used)) if limits else free


def spread(devices: Sequence[torch.device], limits: Sequence[int]) -> dict[str, Any]:
    """How ``from_pretrained`` is to place a model over all of the devices."""
    if len(devices) == 1:
        return {"device_map": {"": devices[0]}}
    return {
        "device_map": "balanced",
        "max_memory": {device.index: room_of(device, limits) for device in devices},
    }


def first_with_room(needed_bytes: int, rooms: Mapping[torch.device, int]) -> torch.device:
    """The first device with that much room; where none has it, the one with the most."""
    for device, room in rooms.items():
        if room >= needed_bytes:
            return device
    return max(rooms, key=lambda device: rooms[device])


def require_on_devices(model: Any, name: str) -> None:
    """Nothing of the model may lie in host memory or on disk.

    Raises:
        torch.OutOfMemoryError: something does, because the devices together have no room for it.
    """
    places = {str(place) for place in (getattr(model, "hf_device_map", None) or {}).values()}
    on_cpu_alone = places == {"cpu"}
    if places & _OFF_DEVICE and not on_cpu_alone:
        raise torch.OutOfMemoryError(f"{name} does not fit on the visible GPUs together")


def input_device(model: Any) -> str:
    """Where the tokens go: the device of the input embedding."""
    return str(model.get_input_embeddings().weight.device)


def name_of(devices: Sequence[torch.device]) -> str:
    """The devices in words: ``NVIDIA H100``, ``2 x NVIDIA H100``, ``CPU, 2 threads``."""
    if devices[0].type != "cuda":
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    names = [str(torch.cuda.get_device_name(device)) for device in devices]
    kinds = {name: names.count(name) for name in names}
    return " + ".join(name if count == 1 else f"{count} x {name}" for name, count in kinds.items())


def forget_peaks(devices: Sequence[torch.device]) -> None:
    """Peaks from here on are those of running: loading has its own, which no plan speaks of."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)


def _why_not() -> str:
    """What CUDA itself says, where torch was built for it."""
    if torch.version.cuda is None:
        return ""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f": {' '.join(str(error).split())[:300]}"
    return ": it sees none (is CUDA_VISIBLE_DEVICES empty?)"
