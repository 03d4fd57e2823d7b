"""Which devices a log speaks of: the card the user names, the one in the log, this machine's, or a size alone."""

from dataclasses import dataclass, replace
from typing import Final

from model_catalog.bounds import ByteRange
from model_catalog.errors import UsageError
from planner.cli.output import Output
from planner.declared_gpus import find_gpu, gpu_of_device
from planner.devices import Device, DeviceSource
from planner.errors import HardwareError
from planner.logs.readings import ROUNDING_BYTES, StartLog
from planner.logs.settings import LogSettings
from planner.report.words import room
from planner.service.request import PlanOptions
from planner.service.where import choose_devices

#: vLLM and NVML agree on a card's size this closely (planner.cuda_total).
_TOTAL_TOLERANCE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDevices:
    """The devices, the driver there, and whether it is known which card they are."""

    devices: tuple[Device, ...]
    driver: str | None
    named: bool
    matches: bool


def log_devices(
    log: StartLog, settings: LogSettings, options: PlanOptions, output: Output, *, count: int
) -> LogDevices:
    """As many devices as the engine had ranks, with the total and the free memory that it printed.

    Raises:
        UsageError: a card that is not known, or live devices that are fewer.
    """
    total = log.readings.device_total_bytes
    live, named = False, True
    if settings.on_cpu:
        chosen: tuple[Device, ...] = (_host(),)
        named = False
    elif options.gpu is not None or options.devices is not None:
        chosen = choose_devices(options, output)
        live = options.gpu is None
    elif settings.gpu_name is not None:
        chosen = (_named(settings.gpu_name, total),)
    else:
        here = _here(options, output, total)
        live, named = here is not None, here is not None
        chosen = here or (_sized(total),)
    if len(chosen) < count:
        if live and len(chosen) > 1:
            raise UsageError(
                f"the log has {count} ranks, and {len(chosen)} devices were chosen",
                subject="--devices",
                hint="name as many devices, or the card: --gpu NAME",
            )
        chosen = tuple(replace(chosen[0], index=index) for index in range(count))
    matches = all(_matches(device, total) for device in chosen[:count])
    if not matches:
        output.warn(
            "device_differs",
            f"the log's device has {room(total or 0)} by CUDA, not as much as {chosen[0].name}: is --gpu right?",
        )
    return LogDevices(
        devices=tuple(_as_printed(device, total) for device in chosen[:count]),
        driver=settings.driver or (_live_driver() if live else None),
        named=named,
        matches=matches,
    )


def _named(name: str, total: int | None) -> Device:
    row = gpu_of_device(name, total)
    if row is not None:
        return row.device()
    try:
        return find_gpu(name).device()
    except UsageError:
        return replace(_sized(total), name=name)


def _here(options: PlanOptions, output: Output, total: int | None) -> tuple[Device, ...] | None:
    """This machine's first device, where the log can be its: the same size as printed."""
    if total is None:
        return None
    try:
        devices = choose_devices(options, output)
    except (HardwareError, UsageError):
        return None
    if not devices or not _matches(devices[0], total) or devices[0].engine_total_bytes is None:
        return None
    output.note("live_device", f"the log names no card: taken for this machine's {devices[0].name}, of that size")
    return devices


def _matches(device: Device, total: int | None) -> bool:
    """Whether a card can have printed this total; unknown sizes contradict nothing."""
    band = device.engine_total_bytes
    if total is None or band is None:
        return True
    slack = round(total * _TOTAL_TOLERANCE)
    return band.low_bytes - slack <= total <= band.high_bytes + slack


def _as_printed(device: Device, total: int | None) -> Device:
    """With the total that the engine read, which is surer than a table's, and empty.

    What a live card has free now is not what it had then; and what the engine found free is after its own context,
    which the plan counts beside it.
    """
    if total is not None:
        span = ByteRange(low_bytes=max(0, total - ROUNDING_BYTES), high_bytes=total + ROUNDING_BYTES)
        device = replace(device, engine_total_bytes=span, free_bytes=total)
    elif device.engine_total_bytes is not None:
        device = replace(device, free_bytes=device.engine_total_bytes.low_bytes)
    return device


def _sized(total: int | None) -> Device:
    return Device(
        index=0,
        name="the log's device",
        source=DeviceSource.DECLARED,
        total_bytes=None,
        engine_total_bytes=None,
        free_bytes=None,
        notes=("declared: the log does not name the card",) if total else ("the log does not say its size",),
    )


def _host() -> Device:
    """The engine ran on the host's CPU: its defaults are those of a host."""
    return replace(_sized(None), name="the log's host", source=DeviceSource.HOST)


def _live_driver() -> str | None:
    from planner import nvml  # noqa: PLC0415 - only where live devices were chosen

    try:
        return nvml.read_devices().driver_version
    except HardwareError:
        return None
