"""Every NVML return code as one of our own errors: the one place where NVML's failures are translated.

Works on the code (``NVMLError.value``) and imports nothing foreign, so that it can be read without a driver.
The codes are those of ``nvmlReturn_t`` in nvml.h.
"""

from typing import Final

from planner.errors import (
    DeviceLostError,
    DevicePermissionError,
    DriverHangError,
    DriverMismatchError,
    HardwareError,
    NvmlMissingError,
)

NOT_SUPPORTED: Final = 3
NOT_FOUND: Final = 6
FUNCTION_NOT_FOUND: Final = 13
#: Codes that say that one GPU is gone, or unusable until it is reset: GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND.
LOST_CODES: Final = frozenset({15, 16, 28})

_OTHER: Final = "run nvidia-smi: it shows the driver's own view; or plan without the driver: --gpu NAME"
_DECLARE: Final = "or plan without the driver: --gpu NAME"

_BRANCHES: Final[dict[int, tuple[type[HardwareError], str, str]]] = {
    4: (
        DevicePermissionError,
        "the driver answers, but not to this user",
        f"in a container: start it with --gpus all; else give the user access to /dev/nvidia*; {_DECLARE}",
    ),
    9: (
        DriverMismatchError,
        "the NVIDIA kernel driver is not loaded",
        f"load it (modprobe nvidia) or reboot after an installation; {_DECLARE}",
    ),
    10: (DriverHangError, "the driver did not answer in time", f"look for Xid errors in dmesg; {_DECLARE}"),
    11: (DeviceLostError, "the driver has an interrupt problem with a GPU", f"look at dmesg; {_DECLARE}"),
    12: (
        NvmlMissingError,
        "no NVIDIA library (libnvidia-ml.so.1) on this machine",
        "install the NVIDIA driver, or plan for a GPU you name: --gpu NAME, e.g. --gpu h100-80gb",
    ),
    13: (
        DriverMismatchError,
        "the NVIDIA library is older than the functions needed",
        f"update the NVIDIA driver; {_DECLARE}",
    ),
    15: (DeviceLostError, "a GPU fell off the bus", f"look for Xid 79 in dmesg, then reset or reboot; {_DECLARE}"),
    16: (DeviceLostError, "a GPU wants a reset", f"run nvidia-smi --gpu-reset as root, or reboot; {_DECLARE}"),
    17: (
        DevicePermissionError,
        "the operating system blocked the driver's request",
        f"check the container's or the sandbox's device rules; {_DECLARE}",
    ),
    18: (
        DriverMismatchError,
        "the NVIDIA library and the loaded kernel driver are of different versions",
        f"the driver was updated under a running kernel: reboot, or reload its modules; {_DECLARE}",
    ),
    25: (
        DriverMismatchError,
        "the NVIDIA library refuses our structures' version",
        f"update the driver; {_DECLARE}",
    ),
    26: (DriverMismatchError, "the NVIDIA library dropped a function we need", f"update specplan; {_DECLARE}"),
    27: (DriverHangError, "the driver is not ready", f"try again in a minute; {_DECLARE}"),
    28: (
        DeviceLostError,
        "a GPU is no longer there",
        f"look for Xid 79 in dmesg, then reset or reboot; {_DECLARE}",
    ),
    # A container that loses its device access to a daemon-reload gets this (NVIDIA/nvidia-docker#1730).
    999: (
        DevicePermissionError,
        "the driver reports an unknown error",
        f"in a container: its device access was lost, recreate it; else run nvidia-smi; {_DECLARE}",
    ),
}


def error_of_code(code: int, text: str, *, subject: str = "NVML") -> HardwareError:
    """Our error for an ``nvmlReturn_t``; codes without a branch of their own become a plain HardwareError.

    ``text`` is the library's own wording; the caller keeps the original as the cause.
    """
    branch, message, hint = _BRANCHES.get(code, (HardwareError, "NVML failed", _OTHER))
    return branch(f"{message} (NVML code {code}: {text})", subject=subject, hint=hint)
