"""How a node's devices travel: plain mappings, so that nodes with another release can be told apart."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from model_catalog.bounds import ByteRange
from planner.devices import Device, DeviceProcess, DeviceSource

#: Of the form of these mappings. A node that speaks another one is not guessed at.
WIRE_VERSION: Final = 1


class WireError(Exception):
    """An answer that this version does not understand."""


def device_mapping(device: Device) -> dict[str, Any]:
    """One device, JSON-ready."""
    return {**asdict(device), "source": device.source.value}


def device_of(given: Mapping[str, Any]) -> Device:
    """Read one back.

    Raises:
        WireError: a field is missing, or holds what it cannot.
    """
    try:
        content = {field.name: given[field.name] for field in fields(Device)}
        total, capability = content["engine_total_bytes"], content["compute_capability"]
        for name in ("total_bytes", "free_bytes", "reserved_bytes", "used_by_others_bytes"):
            _count_or_none(content[name], name)
        if total is not None:
            _count_or_none(total["low_bytes"], "engine_total_bytes")
            _count_or_none(total["high_bytes"], "engine_total_bytes")
        return Device(
            **{
                **content,
                "name": str(content["name"]),
                "source": DeviceSource(content["source"]),
                "engine_total_bytes": None if total is None else ByteRange(**total),
                "compute_capability": None if capability is None else (int(capability[0]), int(capability[1])),
                "processes": tuple(DeviceProcess(**process) for process in content["processes"]),
                "notes": tuple(str(note) for note in content["notes"]),
            }
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise WireError(f"a device in a form that is not known here: {error}") from error


def _count_or_none(value: object, name: str) -> None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return
    raise WireError(f"{name} is no number of bytes: {value!r}")
