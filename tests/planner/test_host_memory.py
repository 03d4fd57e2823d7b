"""The host's memory from /proc and the cgroup files, on made-up trees."""

from pathlib import Path

import pytest

from model_catalog.units import GIB
from planner.devices import DeviceSource
from planner.host_memory import host_device, is_wsl, read_host_memory

#: A DGX Spark (XuehaiPan/nvitop#208); MemFree as low as leptonai/gpud#1170 saw it.
MEMINFO = """\
MemTotal:       127600748 kB
MemFree:          7759462 kB
MemAvailable:   118566368 kB
Buffers:           100000 kB
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", MEMINFO)
    write(tmp_path / "proc/self/cgroup", "0::/pods/one\n")
    return tmp_path / "proc"


@pytest.fixture
def cgroup(tmp_path: Path) -> Path:
    folder = tmp_path / "cgroup"
    folder.mkdir()
    return folder


def test_available_is_not_free(proc: Path) -> None:
    memory = read_host_memory(proc=proc)
    assert memory.total_bytes == 127_600_748 * 1024
    assert memory.available_bytes == 118_566_368 * 1024
    assert memory.notes == ()


@pytest.mark.parametrize(
    ("text", "total", "available", "words"),
    [
        ("MemTotal: 100 kB\n", 102_400, None, "MemAvailable not given"),
        ("MemAvailable: 100 kB\n", None, 102_400, "MemTotal not given"),
        ("MemTotal: lots\nMemAvailable: 1 kB\n", None, 1024, "MemTotal not given"),
        ("MemTotal: 1 kB\nMemAvailable: 2 kB\n", 1024, None, "above MemTotal"),
        ("", None, None, "MemTotal not given"),
    ],
)
def test_missing_figures_are_unknown(
    proc: Path, text: str, total: int | None, available: int | None, words: str
) -> None:
    write(proc / "meminfo", text)
    memory = read_host_memory(proc=proc)
    assert (memory.total_bytes, memory.available_bytes) == (total, available)
    assert words in " ".join(memory.notes)


def test_no_proc_at_all(tmp_path: Path) -> None:
    device = host_device(proc=tmp_path / "none", cgroup=tmp_path / "none")
    assert (device.total_bytes, device.free_bytes, device.engine_total_bytes) == (None, None, None)
    assert device.notes == ("host memory: no /proc/meminfo here",)


def test_a_host_without_limits(proc: Path, cgroup: Path) -> None:
    device = host_device(proc=proc, cgroup=cgroup)
    assert device.source is DeviceSource.HOST
    assert device.total_bytes == 127_600_748 * 1024
    assert device.free_bytes == 118_566_368 * 1024
    assert device.used_by_others_bytes == (127_600_748 - 118_566_368) * 1024
    assert device.notes == ()


def limit(folder: Path, maximum: str, current: int, inactive_file: int = 0) -> None:
    write(folder / "memory.max", maximum + "\n")
    write(folder / "memory.current", f"{current}\n")
    write(folder / "memory.stat", f"anon 1\ninactive_file {inactive_file}\n")


def test_a_cgroup_limit_stands_in_for_the_total(proc: Path, cgroup: Path) -> None:
    limit(cgroup / "pods/one", str(16 * GIB), 6 * GIB, inactive_file=2 * GIB)
    device = host_device(proc=proc, cgroup=cgroup)
    assert device.total_bytes == 16 * GIB
    assert device.free_bytes == 12 * GIB  # 16 - (6 - 2): the page cache is given back
    assert device.engine_total_bytes is not None
    assert device.engine_total_bytes.high_bytes == 16 * GIB
    assert "16.00 GiB by the cgroup" in device.notes[0]


def test_the_tightest_parent_counts(proc: Path, cgroup: Path) -> None:
    limit(cgroup / "pods/one", "max", 1 * GIB)
    limit(cgroup / "pods", str(8 * GIB), 7 * GIB)
    device = host_device(proc=proc, cgroup=cgroup)
    assert device.total_bytes == 8 * GIB
    assert device.free_bytes == 1 * GIB


def test_a_looser_parent_does_not_count(proc: Path, cgroup: Path) -> None:
    limit(cgroup / "pods/one", str(4 * GIB), 1 * GIB)
    limit(cgroup / "pods", str(32 * GIB), 2 * GIB)
    device = host_device(proc=proc, cgroup=cgroup)
    assert (device.total_bytes, device.free_bytes) == (4 * GIB, 3 * GIB)


@pytest.mark.parametrize("maximum", ["max", str(10**15), "nonsense"])
def test_limits_that_do_not_bind(proc: Path, cgroup: Path, maximum: str) -> None:
    limit(cgroup / "pods/one", maximum, 0)
    device = host_device(proc=proc, cgroup=cgroup)
    assert device.total_bytes == 127_600_748 * 1024
    assert device.free_bytes == 118_566_368 * 1024


def test_a_limit_that_is_used_up(proc: Path, cgroup: Path) -> None:
    limit(cgroup / "pods/one", str(4 * GIB), 5 * GIB)
    assert host_device(proc=proc, cgroup=cgroup).free_bytes == 0


@pytest.mark.parametrize("line", ["0::/\n", "0::/../../other\n"])
def test_inside_a_cgroup_namespace_the_root_is_read(proc: Path, cgroup: Path, line: str) -> None:
    write(proc / "self/cgroup", line)
    limit(cgroup, str(4 * GIB), 1 * GIB)
    assert host_device(proc=proc, cgroup=cgroup).total_bytes == 4 * GIB


def test_cgroup_v1_is_left_alone(proc: Path, cgroup: Path) -> None:
    write(proc / "self/cgroup", "9:memory:/docker/abc\n")
    limit(cgroup, str(4 * GIB), 1 * GIB)
    assert host_device(proc=proc, cgroup=cgroup).total_bytes == 127_600_748 * 1024


@pytest.mark.parametrize(
    ("release", "expected"),
    [("5.15.167.4-microsoft-standard-WSL2", True), ("4.4.0-19041-Microsoft", True), ("6.8.0-40-generic", False)],
)
def test_wsl_is_known_by_its_kernel(tmp_path: Path, release: str, expected: bool) -> None:
    write(tmp_path / "sys/kernel/osrelease", release + "\n")
    assert is_wsl(proc=tmp_path) is expected


def test_no_kernel_release_is_no_wsl(tmp_path: Path) -> None:
    assert not is_wsl(proc=tmp_path)
