"""The live GPUs, read through NVML: started late, one field at a time, nothing invented.

The only importer of pynvml. A field that cannot be read is None with a note that names device and field; a GPU
that is lost does not hide the others; a GPU in MIG mode is replaced by its instances, and no instance ever
takes over a figure of its parent. Owns no choice among devices (``device_selection``).
"""

import queue
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Final

from planner.cuda_total import live_engine_total
from planner.declared_gpus import gpu_of_device
from planner.devices import Device, DeviceSource
from planner.errors import DriverHangError, HardwareError, NoDeviceError, NvmlMissingError
from planner.host_memory import is_wsl
from planner.nvml_clocks import Clocks, read_clocks
from planner.nvml_errors import FUNCTION_NOT_FOUND, NOT_FOUND, NOT_SUPPORTED, error_of_code
from planner.nvml_fields import FieldReader, read_memory, read_processes
from planner.nvml_memory import shares_host_memory

#: Without persistence mode the driver takes a second or two to wake each GPU; one that hangs never answers.
DEFAULT_TIMEOUT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """What NVML said. ``notes`` are about the machine; those about a device are with the device."""

    devices: tuple[Device, ...]
    driver_version: str | None
    nvml_version: str | None
    cuda_version: str | None
    notes: tuple[str, ...] = ()
    clocks: tuple[Clocks, ...] = ()


def translate_nvml_error(error: Exception, *, subject: str = "NVML") -> HardwareError:
    """Our error for an ``NVMLError``, with the original as its cause."""
    ours = error_of_code(int(getattr(error, "value", -1)), str(error), subject=subject)
    ours.__cause__ = error
    return ours


def _unread_device(
    reader: FieldReader,
    index: int,
    what: str,
    *,
    name: str | None = None,
    uuid: str | None = None,
    mig: bool = False,
) -> Device:
    """A device that is listed but of which nothing more is known."""
    return Device(
        index=index,
        name=name or f"{reader.subject} ({what})",
        source=DeviceSource.NVML,
        total_bytes=None,
        engine_total_bytes=None,
        free_bytes=None,
        uuid=uuid,
        mig=mig,
        notes=(*reader.notes, f"{reader.subject}: {what}"),
    )


def _read_one(
    nvml: ModuleType, handle: object, index: int, reader: FieldReader, *, mig: bool, wsl: bool
) -> Device:
    """One GPU or one MIG instance."""
    name = reader.read("name", lambda: str(nvml.nvmlDeviceGetName(handle)))
    uuid = reader.read("UUID", lambda: str(nvml.nvmlDeviceGetUUID(handle)))
    may_share = not mig and name is not None and shares_host_memory(name)
    figures, unified = read_memory(nvml, handle, reader, may_share=may_share)
    capability = reader.read("compute capability", lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    processes = read_processes(nvml, handle, reader)
    if reader.lost is not None:
        return _unread_device(
            reader, index, "lost: the driver no longer reaches it", name=name, uuid=uuid, mig=mig
        )
    row = None if mig or name is None else gpu_of_device(name, figures.total)
    engine_total = None
    if figures.total is not None:
        engine_total = live_engine_total(figures.total, 0 if unified else figures.reserved, wsl=wsl)
    return Device(
        index=index,
        name=name or f"{reader.subject} (name not readable)",
        source=DeviceSource.NVML,
        total_bytes=figures.total,
        engine_total_bytes=engine_total,
        free_bytes=figures.free,
        uuid=uuid,
        reserved_bytes=figures.reserved,
        used_by_others_bytes=figures.used,
        unified=unified,
        mig=mig,
        compute_capability=None if capability is None else (int(capability[0]), int(capability[1])),
        bandwidth_bytes_per_second=None if row is None else row.bandwidth_bytes_per_second,
        half_precision_flops=None if row is None else row.bf16_flops or row.fp16_flops,
        processes=processes,
        notes=tuple(reader.notes),
    )


def _read_instances(
    nvml: ModuleType, handle: object, index: int, parent: FieldReader, *, wsl: bool
) -> list[Device]:
    """The MIG instances of a GPU in MIG mode; one device that knows nothing where none can be read."""
    count = parent.read("number of MIG instances", lambda: int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)))
    instances = []
    for slot in range(count or 0):
        instance = parent.read(
            f"MIG instance {slot}",
            partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot),
            unremarkable=(NOT_FOUND,),
        )
        if instance is not None:
            reader = FieldReader(nvml=nvml, subject=f"{parent.subject} MIG {slot}")
            instances.append(_read_one(nvml, instance, index, reader, mig=True, wsl=wsl))
    if not instances:
        return [_unread_device(parent, index, "in MIG mode, with no instance that can be read", mig=True)]
    return [replace(device, notes=(*parent.notes, *device.notes)) for device in instances]


def _read_gpu(nvml: ModuleType, index: int, *, wsl: bool) -> tuple[list[Device], Exception | None]:
    """The device or the MIG instances of one GPU, and what kept all of it from being read, if something did."""
    reader = FieldReader(nvml=nvml, subject=f"GPU {index}")
    handle = reader.read("handle", lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if handle is None:
        what = "lost: the driver no longer reaches it" if reader.lost else "not readable"
        return [_unread_device(reader, index, what)], reader.failure
    mode = reader.read(
        "MIG mode", lambda: nvml.nvmlDeviceGetMigMode(handle), unremarkable=(NOT_SUPPORTED, FUNCTION_NOT_FOUND)
    )
    if mode is not None and mode[0]:
        return _read_instances(nvml, handle, index, reader, wsl=wsl), reader.lost
    return [_read_one(nvml, handle, index, reader, mig=False, wsl=wsl)], reader.lost


def _clocks(nvml: ModuleType, index: int) -> Clocks | None:
    try:
        return read_clocks(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError:
        return None


def _read_started(nvml: ModuleType) -> DeviceReading:
    """Everything, from a library that is started."""
    machine = FieldReader(nvml=nvml, subject="driver")
    driver = machine.read("version", lambda: str(nvml.nvmlSystemGetDriverVersion()))
    version = machine.read("NVML version", lambda: str(nvml.nvmlSystemGetNVMLVersion()))
    cuda = machine.read("CUDA version", lambda: int(nvml.nvmlSystemGetCudaDriverVersion_v2()))
    wsl = is_wsl()
    devices: list[Device] = []
    failures: list[Exception] = []
    gpu_count = int(nvml.nvmlDeviceGetCount())
    for index in range(gpu_count):
        found, failure = _read_gpu(nvml, index, wsl=wsl)
        devices += [replace(device, driver_version=driver) for device in found]
        if failure is not None:
            failures.append(failure)
            machine.notes.append(f"GPU {index} could not be read: {failure}")
    if not devices:
        raise NoDeviceError(
            "the NVIDIA driver lists no GPU",
            subject="NVML",
            hint="in a container: start it with --gpus all; or plan for a GPU you name: --gpu NAME",
        )
    if len(failures) == gpu_count:
        raise translate_nvml_error(failures[0])
    if wsl:
        machine.notes.append("WSL2: NVML's free memory is optimistic here; keep the utilisation at 0.85 or below")
    return DeviceReading(
        devices=tuple(devices),
        driver_version=driver,
        nvml_version=version,
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        notes=tuple(machine.notes),
        clocks=tuple(told for index in range(gpu_count) if (told := _clocks(nvml, index)) is not None),
    )


def _start_and_read() -> DeviceReading:
    try:
        import pynvml  # noqa: PLC0415 - started late: most commands need no driver
    except ImportError as error:
        raise NvmlMissingError(
            "the Python module pynvml is missing", subject="NVML", hint="pip install nvidia-ml-py"
        ) from error
    try:
        pynvml.nvmlInit()
        try:
            return _read_started(pynvml)
        finally:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise translate_nvml_error(error) from error


def read_devices(*, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> DeviceReading:
    """The GPUs of this machine as NVML describes them now.

    Runs in a thread of its own: a driver that hangs (NVIDIA/nvidia-docker#1553) costs the deadline, not the
    command.

    Raises:
        NvmlMissingError: no library. DriverMismatchError: driver not loaded, or of another version.
        DevicePermissionError: not allowed. DeviceLostError: every GPU is lost. NoDeviceError: none is listed.
        DriverHangError: no answer within ``timeout_seconds``.
    """
    answers: queue.SimpleQueue[DeviceReading | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put(_start_and_read())
        except Exception as error:  # handed to the caller, who raises it
            answers.put(error)

    threading.Thread(target=work, name="nvml", daemon=True).start()
    try:
        answer = answers.get(timeout=timeout_seconds)
    except queue.Empty:
        raise DriverHangError(
            f"the NVIDIA driver did not answer within {timeout_seconds:g} seconds",
            subject="NVML",
            hint="look for Xid errors in dmesg; a reboot may be due; or plan without the driver: --gpu NAME",
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return answer
