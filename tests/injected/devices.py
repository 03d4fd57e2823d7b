"""Faults of drivers and devices: what the stand-in NVIDIA library is told, and what has to come of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fake_nvml.scenarios import GB10, MIG_H100, RTX_3090_WITH_X, TWO_H100, h100

from injected.record import Fault

LOST = "fail call=nvmlDeviceGetMemoryInfo_v2 code=15 gpu=1\nfail call=nvmlDeviceGetMemoryInfo code=15 gpu=1\n"
NOT_SUPPORTED, NO_PERMISSION = 3, 4  # codes of nvml.h
UNSUPPORTED = "fail call=nvmlDeviceGetMemoryInfo_v2 code=3\nfail call=nvmlDeviceGetMemoryInfo code=3\n"


@dataclass(frozen=True, kw_only=True)
class DeviceCase(Fault):
    """One plan on the devices of a scenario; None: the library is none.

    ``unknown``: fields of the first device in the report that have to be null.
    """

    scenario: str | None
    options: str = ""
    without: tuple[str, ...] = ()  #: functions that the library does not have
    patience_seconds: float | None = None  #: for the driver, where not the usual
    environment: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Field:
    """One question to the driver, and what comes of it where it alone fails: the error's code by the driver's."""

    call: str
    what: str
    says: str = ""
    exit_code: int = 0
    codes: Mapping[int, str | None] = field(default_factory=lambda: {NOT_SUPPORTED: None, NO_PERMISSION: None})
    unknown: tuple[str, ...] = ()


_WHOLE = {NOT_SUPPORTED: "hardware", NO_PERMISSION: "device_permission"}
FIELDS = (
    Field(
        call="nvmlDeviceGetCount_v2", what="how many GPUs there are", exit_code=6, codes=_WHOLE, says="(NVML code"
    ),
    Field(call="nvmlDeviceGetHandleByIndex_v2", what="the GPU", exit_code=6, codes=_WHOLE, says="(NVML code"),
    Field(call="nvmlSystemGetDriverVersion", what="the driver's version", says="driver: version not readable"),
    Field(call="nvmlSystemGetNVMLVersion", what="the library's version", says="driver: NVML version not readable"),
    Field(call="nvmlSystemGetCudaDriverVersion_v2", what="CUDA's version", says="CUDA version not readable"),
    Field(call="nvmlDeviceGetName", what="the GPU's name", says="GPU 0: name not readable"),
    Field(call="nvmlDeviceGetUUID", what="the UUID", says="GPU 0: UUID not readable", unknown=("uuid",)),
    Field(call="nvmlDeviceGetMemoryInfo_v2", what="memory, in the newer form", says="memory info v1 only"),
    Field(call="nvmlDeviceGetMemoryInfo", what="memory, in the older form, which is not needed"),
    Field(
        call="nvmlDeviceGetCudaComputeCapability",
        what="the compute capability",
        says="compute capability not readable",
    ),
    Field(
        call="nvmlDeviceGetComputeRunningProcesses_v3", what="who computes", says="compute processes not readable"
    ),
    Field(
        call="nvmlDeviceGetGraphicsRunningProcesses_v3", what="who draws", says="graphics processes not readable"
    ),
    Field(call="nvmlDeviceGetMigMode", what="whether it is cut into MIG instances", codes={NO_PERMISSION: None}),
    Field(call="nvmlDeviceGetClockInfo", what="the clock"),
    Field(call="nvmlDeviceGetMaxClockInfo", what="the highest clock"),
    Field(call="nvmlDeviceGetCurrentClocksEventReasons", what="what slows the clock"),
)
_REFUSALS = {
    NOT_SUPPORTED: "the driver does not support telling",
    NO_PERMISSION: "the driver does not tell this user",
}
_ONE_FIELD = [
    DeviceCase(
        id=f"{asked.call}-{number}",
        what=f"{_REFUSALS[number]}: {asked.what}",
        scenario=h100(0) + f"fail call={asked.call} code={number}\n",
        exit_code=asked.exit_code,
        code=code,
        says=asked.says,
        unknown=asked.unknown,
    )
    for asked in FIELDS
    for number, code in asked.codes.items()
]
_LOST_AT = [
    DeviceCase(
        id=f"lost-{call}",
        what=f"the GPU falls off the bus when it is asked for {what}",
        scenario=h100(0) + f"fail call={call} code=15\n",
        exit_code=6,
        code="device_lost",
        says="fell off the bus",
    )
    for call, what in (
        ("nvmlDeviceGetName", "its name"),
        ("nvmlDeviceGetMemoryInfo_v2", "its memory"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "its processes"),
    )
]
#: By function: what it is for, the exit code, the error's code, words.
_ABSENT: Mapping[str, tuple[str, int, str | None, str]] = {
    "nvmlInitWithFlags": ("the start", 6, "driver_mismatch", "older than the functions needed"),
    "nvmlDeviceGetCount_v2": ("the number of GPUs", 6, "driver_mismatch", "update the NVIDIA driver"),
    "nvmlDeviceGetMemoryInfo_v2": ("the newer form of memory", 0, None, "memory info v1 only"),
    "nvmlDeviceGetMigMode": ("MIG", 0, None, ""),
    "nvmlDeviceGetUUID": ("UUIDs", 0, None, "GPU 0: UUID not readable"),
    "nvmlDeviceGetComputeRunningProcesses_v3": ("the newer list of processes", 0, None, ""),
    "nvmlDeviceGetCurrentClocksEventReasons": ("what slows a clock", 0, None, ""),
}
_OLD_LIBRARY = [
    DeviceCase(
        id=f"without-{name}",
        what=f"a library without the function for {what}",
        scenario=h100(0),
        without=(name,),
        exit_code=exit_code,
        code=code,
        says=says,
    )
    for name, (what, exit_code, code, says) in _ABSENT.items()
]
_TOTAL = "total=24152899584"  # an L4
#: Figures that cannot be: the scenario's, which is null then, exit code, words.
_IMPOSSIBLE: Mapping[str, tuple[str, str, tuple[str, ...], int, str]] = {
    "sentinel-used": (
        "the memory used is 2^64-1",
        f"{_TOTAL} used={2**64 - 1} free=24000000000",
        ("used_by_others_bytes",),
        0,
        "mark for not available",
    ),
    "sentinel-free": (
        "the memory free is 2^64-1",
        f"{_TOTAL} free={2**64 - 1}",
        ("free_bytes",),
        4,
        "mark for not available",
    ),
    "sentinel-total": (
        "the memory is 2^64-1",
        f"total={2**64 - 1} free=5",
        ("total_bytes", "engine_total_bytes"),
        4,
        "mark for not available",
    ),
    "used-above-total": (
        "more memory used than there is",
        f"{_TOTAL} used=24152899585 free=0",
        ("used_by_others_bytes",),
        3,
        "above the total",
    ),
    "no-memory": ("a GPU without any memory", "total=0 free=0", ("total_bytes",), 4, "read as 0"),
}
_FALSE_FIGURES = [
    DeviceCase(
        id=name,
        what=f"the driver says that {what}" if "is" in what.split() else f"the driver tells of {what}",
        scenario=f"gpu uuid=GPU-1 name=NVIDIA~L4 cc=8.9 {sizes}\n",
        exit_code=exit_code,
        code=None,
        says=says,
        unknown=unknown,
    )
    for name, (what, sizes, unknown, exit_code, says) in _IMPOSSIBLE.items()
]
_HANGS = [
    DeviceCase(
        id=f"hangs-{call}",
        what=f"the driver does not answer when {when}",
        scenario=h100(0) + f"hang call={call} seconds=90\n",
        patience_seconds=1.5,
        exit_code=6,
        code="driver_hang",
        says="did not answer within 1.5 seconds",
    )
    for call, when in (("nvmlInitWithFlags", "it is started"), ("nvmlDeviceGetMemoryInfo_v2", "asked for memory"))
]


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
    *_ONE_FIELD,
    *_LOST_AT,
    *_OLD_LIBRARY,
    *_FALSE_FIGURES,
    *_HANGS,
]
