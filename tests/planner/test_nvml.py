"""The live reading, through the real pynvml over a shared library of our own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest
from fake_nvml.build import break_library, build_library, find_compiler, scenario_environment
from fake_nvml.scenarios import (
    GB10,
    H100_RESERVED,
    H100_TOTAL,
    MIB,
    MIG_H100,
    OLD_T4,
    RTX_3090_WITH_X,
    TWO_H100,
    h100,
)

from model_catalog.errors import SpecplanError
from planner.errors import HardwareError
from planner.nvml import translate_nvml_error

ROOT = Path(__file__).resolve().parents[2]
PROBE = """
import dataclasses, json, sys
from model_catalog.errors import SpecplanError
from planner.nvml import read_devices
try:
    answer = dataclasses.asdict(read_devices(timeout_seconds=float(sys.argv[1])))
except SpecplanError as error:
    answer = {"error": error.code, "text": str(error), "hint": error.hint, "cause": type(error.__cause__).__name__}
print(json.dumps(answer))
"""
MAX = 2**64 - 1

Read = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def library_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_compiler() is None:
        pytest.skip("no C compiler: the stand-in libnvidia-ml.so.1 cannot be built")
    folder = tmp_path_factory.mktemp("nvml")
    assert build_library(folder) is not None
    return folder


def probe(environment: dict[str, str], timeout_seconds: float = 20) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE, str(timeout_seconds)],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def read(library_folder: Path) -> Read:
    def run(text: str, **options: float) -> dict[str, Any]:
        return probe(scenario_environment(library_folder, text), **options)

    return run


def notes_of(device: dict[str, Any]) -> str:
    return "\n".join(device["notes"])


def test_two_h100(read: Read) -> None:
    answer = read(TWO_H100)
    first, second = answer["devices"]
    assert (answer["driver_version"], answer["cuda_version"], answer["notes"]) == ("580.65.06", "13.0", [])
    assert [first["index"], second["index"]] == [0, 1]
    assert first["name"] == "NVIDIA H100 80GB HBM3"
    assert first["total_bytes"] == H100_TOTAL
    assert first["reserved_bytes"] == H100_RESERVED
    assert first["used_by_others_bytes"] == 20 * 2**30
    assert first["free_bytes"] == H100_TOTAL - H100_RESERVED - 20 * 2**30
    assert second["used_by_others_bytes"] == 0
    assert first["processes"] == [{"pid": 4242, "name": "python3", "used_bytes": 19 * 2**30}]
    assert first["compute_capability"] == [9, 0]
    assert first["bandwidth_bytes_per_second"] == 3_350_000_000_000  # vendor's data sheet: 3.35 TB/s
    assert (first["unified"], first["mig"], first["notes"]) == (False, False, [])


def test_cuda_total_of_an_h100_holds_what_engines_print(read: Read) -> None:
    bounds = read(TWO_H100)["devices"][1]["engine_total_bytes"]
    printed = 79.1 * 2**30  # vllm-project/vllm#27508, one decimal
    assert bounds["low_bytes"] <= printed <= bounds["high_bytes"]
    assert bounds["high_bytes"] < H100_TOTAL
    assert bounds["high_bytes"] - bounds["low_bytes"] < 0.003 * H100_TOTAL


def test_desktop_card_with_an_x_server(read: Read) -> None:
    (device,) = read(RTX_3090_WITH_X)["devices"]
    assert device["processes"] == [
        {"pid": 1500, "name": "/usr/lib/xorg/Xorg", "used_bytes": None},
        {"pid": 2600, "name": "python3", "used_bytes": 400 * MIB},
    ]
    assert device["notes"] == []


def test_mig_instances_stand_in_for_their_parent(read: Read) -> None:
    devices = read(MIG_H100)["devices"]
    assert [(device["uuid"], device["total_bytes"]) for device in devices] == [
        ("MIG-aaaa", 40_448 * MIB),
        ("MIG-bbbb", 9_984 * MIB),
    ]
    assert all(device["mig"] and device["index"] == 0 for device in devices)
    assert devices[0]["free_bytes"] == 35_448 * MIB
    assert [process["pid"] for process in devices[0]["processes"]] == [77]
    assert devices[1]["processes"] == []


def test_an_instance_named_like_its_parent_does_not_get_its_bandwidth(read: Read) -> None:
    first, _ = read(MIG_H100.replace("~MIG~3g.40gb", ""))["devices"]
    assert first["name"] == "NVIDIA H100 80GB HBM3"
    assert first["mig"]
    assert first["bandwidth_bytes_per_second"] is None


@pytest.mark.parametrize("code", [4, 3, 999], ids=["no permission", "not supported", "unknown"])
def test_an_unreadable_mig_instance_is_unknown_and_never_its_parent(read: Read, code: int) -> None:
    # vllm-project/vllm#39874 and #50463: the parent's 141 GB taken, or "no permission" taken as 0.
    fails = "".join(
        f"fail call={call} code={code} gpu=0 slice=1\n"
        for call in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo")
    )
    good, bad = read(MIG_H100 + fails)["devices"]
    assert good["total_bytes"] == 40_448 * MIB
    assert bad["uuid"] == "MIG-bbbb"
    assert (bad["total_bytes"], bad["free_bytes"], bad["engine_total_bytes"]) == (None, None, None)
    assert "GPU 0 MIG 1: memory not readable" in notes_of(bad)


def test_mig_mode_without_instances(read: Read) -> None:
    (device,) = read(h100(0).replace("mig=off", "mig=on"))["devices"]
    assert device["mig"]
    assert (device["total_bytes"], device["free_bytes"]) == (None, None)
    assert "no instance that can be read" in notes_of(device)


def host_kib(field: str) -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="needs /proc/meminfo")
@pytest.mark.parametrize(
    "text",
    [
        GB10,
        f"gpu uuid=GPU-1 name=NVIDIA~GB10 total={119 * 2**30} used={100 * 2**30} cc=12.1\n",
        GB10.replace("NVIDIA~GB10", "Orin"),
        GB10.replace("NVIDIA~GB10", "NVIDIA~Thor"),
    ],
    ids=["GB10 not supported", "GB10 answers", "Orin", "Thor"],
)
def test_gpus_without_memory_of_their_own_read_the_hosts(read: Read, text: str) -> None:
    (device,) = read(text)["devices"]
    assert device["unified"]
    assert device["total_bytes"] == host_kib("MemTotal") * 1024
    assert 0 < device["free_bytes"] <= device["total_bytes"]
    assert device["engine_total_bytes"]["high_bytes"] == device["total_bytes"]
    assert "memory shared with the host" in notes_of(device)


@pytest.mark.parametrize(
    ("name", "code"),
    [("NVIDIA~GB10", 4), ("NVIDIA~GB10", 999), ("NVIDIA~GH200~480GB", 3), ("NVIDIA~L4", 3)],
    ids=["GB10 no permission", "GB10 unknown", "Grace-Hopper", "L4"],
)
def test_only_not_supported_on_a_known_integrated_gpu_means_unified(read: Read, name: str, code: int) -> None:
    (device,) = read(GB10.replace("NVIDIA~GB10", name).replace("code=3", f"code={code}"))["devices"]
    assert not device["unified"]
    assert (device["total_bytes"], device["free_bytes"]) == (None, None)
    assert "GPU 0: memory not readable" in notes_of(device)


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUUID"])
def test_one_lost_gpu_does_not_hide_the_other(read: Read, call: str) -> None:
    fails = f"fail call={call} code=15 gpu=0\n"
    if call == "nvmlDeviceGetMemoryInfo":
        fails += "fail call=nvmlDeviceGetMemoryInfo_v2 code=15 gpu=0\n"
    answer = read(TWO_H100 + fails)
    lost, good = answer["devices"]
    assert (lost["total_bytes"], lost["free_bytes"], lost["engine_total_bytes"]) == (None, None, None)
    assert "GPU 0: lost" in notes_of(lost)
    assert "GPU 0 could not be read: GPU is lost" in answer["notes"]
    assert good["total_bytes"] == H100_TOTAL


@pytest.mark.parametrize("code", [13, 999, 3], ids=["function not found", "WSL2's unknown error", "not supported"])
def test_memory_info_v1_is_used_whatever_v2_fails_with(read: Read, code: int) -> None:
    # XuehaiPan/nvitop#30: WSL answers "unknown error", not "function not found".
    (device,) = read(h100(0, f"used={MIB}") + f"fail call=nvmlDeviceGetMemoryInfo_v2 code={code}\n")["devices"]
    assert device["total_bytes"] == H100_TOTAL
    assert device["free_bytes"] == H100_TOTAL - H100_RESERVED - MIB
    assert device["reserved_bytes"] is None
    # v1's "used" is the reserve plus what others use: not the latter.
    assert device["used_by_others_bytes"] is None
    assert "v1 only" in notes_of(device)


def test_an_old_driver_whose_total_has_lost_the_reserve(read: Read) -> None:
    answer = read(OLD_T4)
    (device,) = answer["devices"]
    bounds = device["engine_total_bytes"]
    assert answer["cuda_version"] == "11.4"
    # torch prints 15,109 MiB there, the whole of NVML's total.
    assert bounds["low_bytes"] <= 15_109 * MIB <= bounds["high_bytes"]


@pytest.mark.parametrize("code", [3, 4, 999], ids=["not supported", "no permission", "unknown"])
@pytest.mark.parametrize(
    ("call", "field", "missing"),
    [
        ("nvmlDeviceGetName", "name", "GPU 0 (name not readable)"),
        ("nvmlDeviceGetUUID", "uuid", None),
        ("nvmlDeviceGetCudaComputeCapability", "compute_capability", None),
    ],
)
def test_a_field_that_fails_costs_only_itself(
    read: Read, call: str, field: str, missing: str | None, code: int
) -> None:
    answer = read(TWO_H100 + f"fail call={call} code={code} gpu=0 slice=-1\n")
    broken, whole = answer["devices"]
    assert broken[field] == missing
    assert broken["total_bytes"] == H100_TOTAL
    assert broken["free_bytes"] == H100_TOTAL - H100_RESERVED - 20 * 2**30
    assert notes_of(broken).startswith("GPU 0: ")
    assert "not readable" in notes_of(broken)
    assert whole["notes"] == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("nvmlDeviceGetComputeRunningProcesses_v3", "GPU 0: compute processes not readable"),
        ("nvmlDeviceGetGraphicsRunningProcesses_v3", "GPU 0: graphics processes not readable"),
        ("nvmlDeviceGetMigMode", "GPU 0: MIG mode not readable"),
    ],
)
def test_lists_that_fail_leave_a_note(read: Read, call: str, words: str) -> None:
    (device,) = read(h100(0) + f"fail call={call} code=4\n")["devices"]
    assert words in notes_of(device)
    assert device["total_bytes"] == H100_TOTAL


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlSystemGetDriverVersion", "driver_version"),
        ("nvmlSystemGetNVMLVersion", "nvml_version"),
        ("nvmlSystemGetCudaDriverVersion_v2", "cuda_version"),
    ],
)
def test_versions_that_fail_leave_a_note(read: Read, call: str, field: str) -> None:
    answer = read(h100(0) + f"fail call={call} code=3\n")
    assert answer[field] is None
    assert len(answer["notes"]) == 1
    assert answer["devices"][0]["total_bytes"] == H100_TOTAL


def test_process_names_that_may_not_be_read(read: Read) -> None:
    (device, _) = read(TWO_H100 + "fail call=nvmlSystemGetProcessName code=4\n")["devices"]
    assert device["processes"] == [{"pid": 4242, "name": None, "used_bytes": 19 * 2**30}]


@pytest.mark.parametrize(
    ("sizes", "field", "words"),
    [
        (f"total={H100_TOTAL} used={MAX}", "used_by_others_bytes", "memory used is the driver's mark"),
        (f"total={H100_TOTAL} free={MAX}", "free_bytes", "memory free is the driver's mark"),
        (f"total={MAX} free=5", "total_bytes", "memory total is the driver's mark"),
        (f"total={H100_TOTAL} reserved={MAX}", "reserved_bytes", "memory reserved is the driver's mark"),
        (
            "total=1000000 used=1000001 free=0",
            "used_by_others_bytes",
            "memory used (1000001 bytes) above",
        ),
        ("total=1000000 free=1000001", "free_bytes", "memory free (1000001 bytes) above the total"),
        ("total=0 free=0", "total_bytes", "memory total read as 0"),
    ],
    ids=[
        "used sentinel",
        "free sentinel",
        "total sentinel",
        "reserved sentinel",
        "used > total",
        "free > total",
        "0",
    ],
)
def test_figures_that_cannot_be_true_are_unknown(read: Read, sizes: str, field: str, words: str) -> None:
    (device,) = read(f"gpu uuid=GPU-1 name=NVIDIA~L4 cc=8.9 {sizes}\n")["devices"]
    assert device[field] is None
    assert words in notes_of(device)
    assert (device["engine_total_bytes"] is None) == (device["total_bytes"] is None)


@pytest.mark.parametrize(
    ("code", "error", "hint"),
    [
        (9, "driver_mismatch", "modprobe"),
        (18, "driver_mismatch", "reboot"),
        (4, "device_permission", "--gpus all"),
        (15, "device_lost", "Xid"),
        (999, "device_permission", "recreate"),
        (10, "driver_hang", "dmesg"),
        (20, "hardware", "nvidia-smi"),
    ],
)
def test_a_start_that_fails(read: Read, code: int, error: str, hint: str) -> None:
    answer = read(h100(0) + f"fail call=nvmlInitWithFlags code={code}\n")
    assert answer["error"] == error
    assert hint in answer["hint"]
    assert answer["cause"].startswith("NVMLError_")


def test_every_gpu_lost(read: Read) -> None:
    assert read(TWO_H100 + "fail call=nvmlDeviceGetHandleByIndex_v2 code=15\n")["error"] == "device_lost"


def test_every_gpu_forbidden(read: Read) -> None:
    assert read(TWO_H100 + "fail call=nvmlDeviceGetHandleByIndex_v2 code=4\n")["error"] == "device_permission"


def test_no_gpu(read: Read) -> None:
    assert read("system driver=580.65.06\n")["error"] == "no_device"


def test_a_hanging_driver_costs_the_deadline_only(read: Read) -> None:
    started = time.monotonic()
    answer = read(h100(0) + "hang call=nvmlInitWithFlags seconds=40\n", timeout_seconds=0.5)
    assert answer["error"] == "driver_hang"
    assert "0.5 seconds" in answer["text"]
    assert time.monotonic() - started < 20


def test_no_library(tmp_path: Path) -> None:
    break_library(tmp_path)
    answer = probe(scenario_environment(tmp_path, ""))
    assert answer["error"] == "nvml_missing"
    assert "--gpu" in answer["hint"]
    assert answer["cause"] == "NVMLError_LibraryNotFound"


@pytest.mark.usefixtures("library_folder")
def test_a_driver_that_lists_processes_with_the_older_function_only(tmp_path: Path) -> None:
    newer = [f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics")]
    build_library(tmp_path, without=newer)
    (device,) = probe(scenario_environment(tmp_path, RTX_3090_WITH_X))["devices"]
    assert [process["pid"] for process in device["processes"]] == [1500, 2600]
    assert device["notes"] == []


@pytest.mark.usefixtures("library_folder")
@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        ("nvmlInitWithFlags", "driver_mismatch"),
        ("nvmlDeviceGetCount_v2", "driver_mismatch"),
        ("nvmlDeviceGetMemoryInfo_v2", None),
        ("nvmlDeviceGetMigMode", None),
        ("nvmlDeviceGetComputeRunningProcesses_v3", None),
    ],
)
def test_a_library_that_lacks_a_function(tmp_path: Path, symbol: str, expected: str | None) -> None:
    build_library(tmp_path, without=(symbol,))
    answer = probe(scenario_environment(tmp_path, h100(0)))
    assert answer.get("error") == expected
    if expected is None:
        assert answer["devices"][0]["total_bytes"] == H100_TOTAL


#: nvmlReturn_t of nvml.h, by the name of pynvml's class; what is not here has no branch of its own.
BRANCHES = {
    "NVMLError_NoPermission": "device_permission",
    "NVMLError_OperatingSystem": "device_permission",
    "NVMLError_Unknown": "device_permission",
    "NVMLError_DriverNotLoaded": "driver_mismatch",
    "NVMLError_LibRmVersionMismatch": "driver_mismatch",
    "NVMLError_FunctionNotFound": "driver_mismatch",
    "NVMLError_ArgumentVersionMismatch": "driver_mismatch",
    "NVMLError_Deprecated": "driver_mismatch",
    "NVMLError_LibraryNotFound": "nvml_missing",
    "NVMLError_GpuIsLost": "device_lost",
    "NVMLError_ResetRequired": "device_lost",
    "NVMLError_GpuNotFound": "device_lost",
    "NVMLError_IrqIssue": "device_lost",
    "NVMLError_Timeout": "driver_hang",
    "NVMLError_NotReady": "driver_hang",
}


def nvml_error_classes() -> list[type[Exception]]:
    return [value for name, value in sorted(vars(pynvml).items()) if name.startswith("NVMLError_")]


def test_pynvml_has_the_classes_that_the_table_names() -> None:
    assert set(BRANCHES) <= {error.__name__ for error in nvml_error_classes()}


@pytest.mark.parametrize("error_class", nvml_error_classes(), ids=lambda error: error.__name__)
def test_every_nvml_error_becomes_one_of_ours(error_class: type[Exception]) -> None:
    error = error_class()
    ours = translate_nvml_error(error, subject="GPU 3")
    assert isinstance(ours, HardwareError)
    assert isinstance(ours, SpecplanError)
    assert ours.code == BRANCHES.get(error_class.__name__, "hardware")
    assert ours.__cause__ is error
    assert ours.subject == "GPU 3"
    assert ours.hint


def test_clocks_and_what_slows_a_gpu_are_read(read: Read) -> None:
    """Bits of nvml.h: 0x4 is the power cap, 0x40 heat told by the hardware; 0x1 only says idle."""
    answer = read(h100(0, "sm=1200 max_sm=1980 slowed=69"))
    (clocks,) = answer["clocks"]
    assert (clocks["sm_mhz"], clocks["max_sm_mhz"]) == (1200, 1980)
    assert clocks["slowed_by"] == ["the power cap", "heat (hardware)"]


def test_clocks_that_the_driver_does_not_tell_are_missing_and_no_note(read: Read) -> None:
    failing = "".join(
        f"fail call={call} code=3\n"
        for call in (
            "nvmlDeviceGetClockInfo",
            "nvmlDeviceGetMaxClockInfo",
            "nvmlDeviceGetCurrentClocksEventReasons",
        )
    )
    answer = read(h100(0) + failing)
    (clocks,) = answer["clocks"]
    assert (clocks["sm_mhz"], clocks["max_sm_mhz"], clocks["slowed_by"]) == (None, None, [])
    assert answer["notes"] == []
