"""The planner's branches of the error tree.

::

    SpecplanError (model_catalog.errors)
    ├── UsageError (exit 2)
    │   ├── UnknownGpuError          no declared GPU of that name
    │   └── ParallelismError         tp/pp that the model or the devices cannot take
    ├── HardwareError (exit 6)       the devices cannot be read
    │   ├── NvmlMissingError         no NVIDIA library on this machine
    │   ├── DriverMismatchError      the library and the kernel module differ, or the driver is not loaded
    │   ├── DevicePermissionError    the driver answers, but not to us
    │   ├── DeviceLostError          a GPU fell off the bus
    │   ├── NoDeviceError            the selection (or the machine) is empty
    │   └── DriverHangError          the driver did not answer in time
    └── TrialError (exit 7)              the trial did not come to a result; ``code`` says why
"""

from typing import Final

from model_catalog.errors import SpecplanError, UsageError


class UnknownGpuError(UsageError):
    code = "unknown_gpu"


class ParallelismError(UsageError):
    code = "parallelism"


class HardwareError(SpecplanError):
    code = "hardware"


class NvmlMissingError(HardwareError):
    code = "nvml_missing"


class DriverMismatchError(HardwareError):
    code = "driver_mismatch"


class DevicePermissionError(HardwareError):
    code = "device_permission"


class DeviceLostError(HardwareError):
    code = "device_lost"


class NoDeviceError(HardwareError):
    code = "no_device"


class DriverHangError(HardwareError):
    code = "driver_hang"


#: The code of a trial that the user ended: the plan is told all the same, with the exit code of an interruption.
TRIAL_INTERRUPTED: Final = "trial_interrupted"


class TrialError(SpecplanError):
    """A trial that failed; ``code`` tells a missing library, broken weights, memory, silence and death apart."""

    code = "trial"

    def __init__(self, message: str, *, subject: str, hint: str, code: str = "trial") -> None:
        super().__init__(message, subject=subject, hint=hint)
        self.code = code  # type: ignore[misc] # of the instance: one branch, many causes
