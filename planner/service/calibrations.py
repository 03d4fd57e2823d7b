"""Overheads that `explain-log --save` kept, put into the plans of `fit` where their key is exactly the plan's."""

from collections.abc import Sequence

from planner.calibration import CalibratedEngine
from planner.calibration_store import CalibrationStore
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineProfile
from planner.errors import HardwareError
from planner.planning import Plan
from planner.service.remarks import RemarkSink


def with_calibrations(
    engine: EngineProfile, devices: Sequence[Device], *, driver: str | None, fresh: bool
) -> EngineProfile:
    """The engine with what was measured for it on such a device; itself where nothing was, or all is to be fresh.

    ``driver``: as the user says; else the live driver's, and none of a GPU that is only declared.
    """
    if fresh:
        return engine
    names = {device.name for device in devices}
    held = {
        key: calibration
        for key, calibration in CalibrationStore().all().items()
        if key.engine == engine.name and key.version == engine.version and key.device in names
    }
    if not held:
        return engine
    return CalibratedEngine(inner=engine, calibrations=held, driver=driver or _live_driver(devices))


def tell_calibrations(plan: Plan, output: RemarkSink) -> None:
    """Say where a plan has measured overheads, and how to leave them out; or that their driver is not known."""
    engine = plan.engine
    if not isinstance(engine, CalibratedEngine):
        return
    device = plan.ranks[0].rank.device
    found = engine.calibration(plan.serving, device)
    if found is not None:
        under = "" if found.key.driver is None else f" under driver {found.key.driver}"
        text = f"overheads {found.source}{under}, for exactly this set-up (--fresh plans without)"
        output.note("calibrated", text)
        return
    drivers = sorted(engine.drivers(plan.serving, device))
    if engine.driver is None and drivers:
        text = f"overheads were measured for this set-up with driver {', '.join(drivers)}: --driver uses them"
        output.note("calibration_driver", text)


def _live_driver(devices: Sequence[Device]) -> str | None:
    if devices[0].source is not DeviceSource.NVML:
        return None
    from planner import nvml  # noqa: PLC0415 - only where a live device has calibrations

    try:
        return nvml.read_devices().driver_version
    except HardwareError:
        return None
