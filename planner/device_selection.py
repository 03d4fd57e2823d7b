"""Which of the devices are meant: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER first, then ``--devices``.

Pure. The rules are CUDA's own, as its programming guide ("CUDA environment variables") and torch.cuda's reading
of them describe: an entry that names nothing hides itself and all after it, a repeated entry hides everything,
a UUID may be shortened as long as it names one device. ``--devices 0`` counts what CUDA_VISIBLE_DEVICES leaves,
as an engine started here would.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from planner.devices import Device
from planner.errors import NoDeviceError

#: The ``--devices`` value that means the host's own memory; ``host_memory.host_device`` reads it.
HOST_CHOICE: Final = "cpu"

_UUID_PREFIXES: Final = ("GPU-", "MIG-")


def _physical_gpus(devices: Sequence[Device]) -> list[list[Device]]:
    """The devices grouped by GPU, in order: a number in CUDA_VISIBLE_DEVICES counts GPUs, not MIG instances."""
    groups: dict[int, list[Device]] = {}
    for device in devices:
        groups.setdefault(device.index, []).append(device)
    return list(groups.values())


def _speed(device: Device) -> tuple[tuple[int, int], int, int]:
    """Our guess at what CUDA's "fastest" means."""
    return device.compute_capability or (0, 0), device.bandwidth_bytes_per_second or 0, device.total_bytes or 0


def _cuda_order(devices: Sequence[Device], environ: Mapping[str, str]) -> list[Device]:
    """The devices in the order in which CUDA numbers them.

    NVML lists them by PCI bus. CUDA's default, FASTEST_FIRST, sorts by a rule of its own that only matters
    between unlike GPUs; there the order is guessed by compute capability, bandwidth and memory, and said so.
    """
    gpus = _physical_gpus(devices)
    models = {instances[0].name.partition(" MIG ")[0] for instances in gpus}
    if len(models) <= 1 or environ.get("CUDA_DEVICE_ORDER", "").strip().upper() == "PCI_BUS_ID":
        return list(devices)
    guessed = sorted(gpus, key=lambda instances: _speed(instances[0]), reverse=True)
    note = "unlike GPUs: CUDA's order is guessed; set CUDA_DEVICE_ORDER=PCI_BUS_ID or name them by UUID"
    return [replace(device, notes=(*device.notes, note)) for instances in guessed for device in instances]


def _only_uuids(entries: str | None) -> bool:
    return entries is not None and all(entry.strip().startswith(_UUID_PREFIXES) for entry in entries.split(","))


def _by_uuid(entry: str, devices: Sequence[Device]) -> list[Device]:
    """The devices whose UUID begins with the entry."""
    return [device for device in devices if device.uuid is not None and device.uuid.startswith(entry)]


def _visible_entry(entry: str, devices: Sequence[Device]) -> Device | None:
    """The device that one entry of CUDA_VISIBLE_DEVICES names.

    A number is read as C's strtoul does ("1gpu" is 1). A number that counts a GPU in MIG mode means its first
    instance, the only one that CUDA shows for it.
    """
    if entry.startswith(_UUID_PREFIXES):
        named = _by_uuid(entry, devices)
        return named[0] if len(named) == 1 else None
    digits = re.match(r"\s*\+?(\d+)", entry)
    groups = _physical_gpus(devices)
    if digits is None or int(digits.group(1)) >= len(groups):
        return None
    return groups[int(digits.group(1))][0]


def visible_devices(
    devices: Sequence[Device], environ: Mapping[str, str], *, order_matters: bool = True
) -> tuple[Device, ...]:
    """What CUDA shows of the devices, in its order; empty where CUDA_VISIBLE_DEVICES hides all of them.

    Without ``order_matters`` (the caller picks by UUID) CUDA's order is not guessed at.
    """
    setting = environ.get("CUDA_VISIBLE_DEVICES")
    guess = order_matters and not _only_uuids(setting)
    ordered = _cuda_order(devices, environ) if guess else list(devices)
    if setting is None:
        return tuple(ordered)
    visible: list[Device] = []
    for entry in setting.split(","):
        device = _visible_entry(entry.strip(), ordered)
        if device is None:
            break
        if device in visible:
            return ()
        visible.append(device)
    return tuple(visible)


def _hint(visible: Sequence[Device]) -> str:
    names = ", ".join(f"{position} ({device.uuid or device.name})" for position, device in enumerate(visible))
    return f"choose among {names}; see specplan devices"


def _chosen_entry(entry: str, visible: Sequence[Device], choice: str) -> Device:
    subject = f"--devices {choice}"
    if entry.isdecimal() and int(entry) < len(visible):
        return visible[int(entry)]
    if entry.startswith(_UUID_PREFIXES):
        found = _by_uuid(entry, visible)
        if len(found) == 1:
            return found[0]
        if found:
            raise NoDeviceError(f"{entry} begins several UUIDs", subject=subject, hint=_hint(found))
    raise NoDeviceError(f"no visible device {entry!r}", subject=subject, hint=_hint(visible))


def _with_mig_note(devices: Sequence[Device]) -> tuple[Device, ...]:
    """CUDA shows one process one MIG instance: several cannot serve one engine together."""
    if sum(device.mig for device in devices) < 2:
        return tuple(devices)
    note = "MIG: a process sees one instance only; several of them cannot serve one model together"
    return tuple(replace(device, notes=(*device.notes, note)) if device.mig else device for device in devices)


def select_devices(
    devices: Sequence[Device], *, choice: str | None, environ: Mapping[str, str]
) -> tuple[Device, ...]:
    """The devices to plan for, in CUDA's order or, with ``choice``, in the order asked for.

    ``choice`` is ``--devices``: positions among the visible devices, or UUIDs, which may be shortened.

    Raises:
        NoDeviceError: nothing is visible, or an entry names no device, several, or one twice.
    """
    visible = visible_devices(devices, environ, order_matters=not _only_uuids(choice))
    setting = environ.get("CUDA_VISIBLE_DEVICES")
    if not visible:
        raise NoDeviceError(
            "no device is left" if devices else "there is no device",
            subject="devices" if setting is None else f"CUDA_VISIBLE_DEVICES={setting}",
            hint="see specplan devices; or plan for a GPU you name: --gpu NAME"
            if setting is None
            else "unset CUDA_VISIBLE_DEVICES, or name devices that exist: specplan devices",
        )
    if choice is None:
        return _with_mig_note(visible)
    chosen: list[Device] = []
    for entry in choice.split(","):
        device = _chosen_entry(entry.strip(), visible, choice)
        if device in chosen:
            raise NoDeviceError(
                f"{entry.strip()} is there twice", subject=f"--devices {choice}", hint="name each device once"
            )
        chosen.append(device)
    return _with_mig_note(chosen)
