"""`specplan devices`: what this machine's devices report, and what could not be read."""

import os

import click

from planner.cli.options import apply, output_options, read_output
from planner.device_selection import visible_devices
from planner.devices import Device
from planner.nvml import DeviceReading, read_devices
from planner.report.plain import paint, safe_line
from planner.report.schemas import document_head
from planner.report.tables import table
from planner.report.words import room, room_range, wrapped
from planner.service.exit_codes import EXIT_OK


@click.command("devices")
@apply(output_options())
def command(**given: object) -> int:
    """What this machine's devices report, and what could not be read.

    Exit code 0: the devices were asked. 6: they cannot be.
    """
    output = read_output(given)
    with output.step("asking the NVIDIA driver"):
        reading = read_devices()
    visible = visible_devices(reading.devices, os.environ)
    if output.json_target is not None:
        output.document(_document(reading, visible))
    if output.quiet:
        output.answer(f"{len(visible)} of {len(reading.devices)} devices visible")
    else:
        output.answer(devices_text(reading, visible))
    return EXIT_OK


def devices_text(reading: DeviceReading, visible: tuple[Device, ...]) -> str:
    """The devices as a table, then what is to be known about each."""
    rows = []
    for device in reading.devices:
        number = visible.index(device) if device in visible else None
        rows.append(
            (
                "hidden" if number is None else str(number),
                safe_line(device.name),
                _size(device.total_bytes),
                "unknown" if device.engine_total_bytes is None else room_range(device.engine_total_bytes),
                _size(device.free_bytes),
            )
        )
    driver, cuda = reading.driver_version or "unknown", reading.cuda_version or "unknown"
    lines = [f"Driver {safe_line(driver)}, CUDA {safe_line(cuda)}"]
    lines += ["", table(rows, ["#", "Device", "Total", "CUDA's total", "Free"], "llrrr", fold=1)]
    for device in reading.devices:
        details = [*device.notes, *_processes(device)]
        if details:
            lines += ["", paint(f"{safe_line(device.name)} ({safe_line(device.uuid or 'no UUID')})", "heading")]
            lines += [piece for detail in details for piece in wrapped(f"  {safe_line(detail)}", indent=4)]
    lines += [piece for note in reading.notes for piece in wrapped(f"Note: {safe_line(note)}", indent=2)]
    return "\n".join(lines)


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else room(size_bytes)


def _processes(device: Device) -> list[str]:
    return [
        f"process {process.pid} ({process.name or 'name unknown'}) holds {_size(process.used_bytes)}"
        for process in device.processes
    ]


def _document(reading: DeviceReading, visible: tuple[Device, ...]) -> dict[str, object]:
    from planner.report.build import device_entry  # noqa: PLC0415 - pydantic is slow to import

    return {
        **document_head("devices", EXIT_OK),
        "driver_version": reading.driver_version,
        "nvml_version": reading.nvml_version,
        "cuda_version": reading.cuda_version,
        "notes": list(reading.notes),
        "devices": [
            {
                **device_entry(device).model_dump(mode="json"),
                "visible": device in visible,
                "processes": [
                    {"pid": process.pid, "name": process.name, "used_bytes": process.used_bytes}
                    for process in device.processes
                ],
            }
            for device in reading.devices
        ],
    }
