"""Faults of drivers and devices: what the stand-in NVIDIA library is told, and what has to come of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fake_nvml.scenarios import GB10, MIG_H100, RTX_3090_WITH_X, TWO_H100, h100

from injected.record import Fault

LOST = "fail call=nvmlDeviceGetMemoryInfo_v2 code=15 gpu=1\nfail call=nvmlDeviceGetMemoryInfo code=15 gpu=1\n"
UNSUPPORTED = "fail call=nvmlDeviceGetMemoryInfo_v2 code=3\nfail call=nvmlDeviceGetMemoryInfo code=3\n"


@dataclass(frozen=True, kw_only=True)
class DeviceCase(Fault):
    """One plan on the devices of a scenario; None: the library is none."""

    scenario: str | None
    options: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


DEVICE_CASES = [
    DeviceCase(
        id="library-missing",
        what="no NVIDIA library",
        scenario=None,
        exit_code=6,
        code="nvml_missing",
        says="no NVIDIA library",
    ),
    DeviceCase(
        id="driver-mismatch",
        what="the library and the kernel module are of different drivers",
        scenario=h100(0) + "fail call=nvmlInitWithFlags code=18\n",
        exit_code=6,
        code="driver_mismatch",
        says="reboot",
    ),
    DeviceCase(
        id="not-for-this-user",
        what="the driver refuses this user",
        scenario=h100(0) + "fail call=nvmlInitWithFlags code=4\n",
        exit_code=6,
        code="device_permission",
        says="--gpus all",
    ),
    DeviceCase(
        id="no-gpu",
        what="a driver, and no GPU",
        scenario="system driver=580.65.06\n",
        exit_code=6,
        code="no_device",
        says="lists no GPU",
    ),
    DeviceCase(
        id="only-gpu-lost",
        what="the only GPU fell off the bus",
        scenario=h100(0) + "fail call=nvmlDeviceGetHandleByIndex_v2 code=15\n",
        exit_code=6,
        code="device_lost",
        says="fell off the bus",
    ),
    DeviceCase(
        id="one-of-two-lost",
        what="one of two GPUs fell off the bus",
        scenario=h100(0) + h100(1) + LOST,
        exit_code=4,
        code=None,
        says="GPU 1 could not be read",
    ),
    DeviceCase(
        id="the-other-of-two",
        what="the same, planned for the other one",
        scenario=h100(0) + h100(1) + LOST,
        options="--devices 0",
        exit_code=0,
        code=None,
    ),
    DeviceCase(
        id="memory-not-supported",
        what="the driver tells no memory figures",
        scenario=h100(0) + UNSUPPORTED,
        exit_code=4,
        code=None,
    ),
    DeviceCase(
        id="free-above-total",
        what="more memory free than there is",
        scenario=h100(0, f"free={200 * 2**30}"),
        exit_code=4,
        code=None,
    ),
    DeviceCase(
        id="mig-parent",
        what="a GPU cut into MIG instances",
        scenario=MIG_H100,
        exit_code=0,
        code=None,
        says="first of 2 MIG instances",
    ),
    DeviceCase(
        id="mig-instances-together",
        what="two MIG instances asked for together",
        scenario=MIG_H100,
        options="--devices 0,1",
        exit_code=2,
        code="parallelism",
        says="one MIG instance only",
    ),
    DeviceCase(
        id="mig-by-uuid",
        what="one MIG instance, too small for the model",
        scenario=MIG_H100,
        options="--devices MIG-bbbb",
        exit_code=3,
        code=None,
    ),
    DeviceCase(
        id="two-h100",
        what="two GPUs, of which others use one",
        scenario=TWO_H100,
        exit_code=0,
        code=None,
    ),
    DeviceCase(
        id="hidden",
        what="all GPUs hidden by CUDA_VISIBLE_DEVICES",
        scenario=TWO_H100,
        environment={"CUDA_VISIBLE_DEVICES": "-1"},
        exit_code=6,
        code="no_device",
        says="CUDA_VISIBLE_DEVICES=-1",
    ),
    DeviceCase(
        id="no-such-uuid",
        what="a UUID that no GPU has",
        scenario=TWO_H100,
        options="--devices GPU-9",
        exit_code=6,
        code="no_device",
        says="choose among",
    ),
    DeviceCase(
        id="tp-three",
        what="three ranks on two GPUs",
        scenario=TWO_H100,
        options="--tp 3",
        exit_code=2,
        code="parallelism",
        says="needs 3 devices",
    ),
    DeviceCase(
        id="unified",
        what="a GPU that shares the host's memory, and a limit of 1 GiB",
        scenario=GB10,
        options="--memory-limit 1GiB",
        exit_code=3,
        code=None,
        says="MemAvailable",
    ),
    DeviceCase(
        id="with-x11",
        what="a display server on the GPU",
        scenario=RTX_3090_WITH_X,
        exit_code=0,
        code=None,
    ),
]
