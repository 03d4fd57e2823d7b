"""The planner's branches of the error tree.

::

    SpecplanError (model_catalog.errors)
    ├── UsageError                   exit 2
    │   ├── UnknownGpuError
    │   └── ParallelismError
    ├── HardwareError                exit 6
    │   ├── NvmlMissingError
    │   ├── DriverMismatchError
    │   ├── DevicePermissionError
    │   ├── DeviceLostError
    │   ├── NoDeviceError
    │   ├── DriverHangError
    │   └── ClusterError
    └── TrialError                   exit 7; ``code`` says why: planner.trial.failures
"""

from typing import Final

from model_catalog.errors import SpecplanError, UsageError


class UnknownGpuError(UsageError):
    """No declared GPU has that name."""

    code = "unknown_gpu"


class ParallelismError(UsageError):
    """The model or the devices cannot be split that way."""

    code = "parallelism"


class HardwareError(SpecplanError):
    """The devices cannot be read."""

    code = "hardware"


class NvmlMissingError(HardwareError):
    """There is no NVIDIA library on this machine."""

    code = "nvml_missing"


class DriverMismatchError(HardwareError):
    """The library and the kernel module differ, or the driver is not loaded."""

    code = "driver_mismatch"


class DevicePermissionError(HardwareError):
    """The driver answers, but not to this user."""

    code = "device_permission"


class DeviceLostError(HardwareError):
    """A GPU fell off the bus."""

    code = "device_lost"


class NoDeviceError(HardwareError):
    """The machine has no GPU, or the selection holds none."""

    code = "no_device"


class DriverHangError(HardwareError):
    """The driver did not answer in time."""

    code = "driver_hang"


class ClusterError(HardwareError):
    """The Ray cluster cannot be joined, or none of its nodes can be read."""

    code = "cluster"


#: The code of a trial that the user ended: the plan is told all the same, with the exit code of an interruption.
TRIAL_INTERRUPTED: Final = "trial_interrupted"


class TrialError(SpecplanError):
    """The trial came to no result; ``code`` tells a missing library, broken weights, memory and silence apart."""

    code = "trial"

    def __init__(self, message: str, *, subject: str, hint: str, code: str = "trial") -> None:
        super().__init__(message, subject=subject, hint=hint)
        self.code = code  # type: ignore[misc] # of the instance: one branch, many causes


class Terminated(BaseException):
    """A signal asked this process to end while it had something to clean up; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
