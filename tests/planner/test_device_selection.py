"""CUDA's rules for what is visible, and ``--devices``."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from model_catalog.bounds import ByteRange
from planner.device_selection import select_devices, visible_devices
from planner.devices import Device, DeviceSource
from planner.errors import NoDeviceError


def gpu(index: int, uuid: str, name: str = "NVIDIA H100 80GB HBM3", *, mig: bool = False) -> Device:
    return Device(
        index=index,
        name=name,
        uuid=uuid,
        source=DeviceSource.NVML,
        total_bytes=80 * 2**30,
        engine_total_bytes=ByteRange.point(79 * 2**30),
        free_bytes=79 * 2**30,
        compute_capability=(9, 0),
        mig=mig,
    )


FOUR = tuple(
    gpu(index, uuid) for index, uuid in enumerate(["GPU-8932f937", "GPU-8932aaaa", "GPU-77770000", "GPU-12345678"])
)
#: GPU 0 in MIG mode with two instances, GPU 1 whole.
MIXED_MIG = (
    gpu(0, "MIG-aaaa", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", mig=True),
    gpu(0, "MIG-bbbb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", mig=True),
    gpu(1, "GPU-cccc"),
)
OLD_THEN_NEW = (
    replace(gpu(0, "GPU-old", "NVIDIA GeForce GTX 1080 Ti"), compute_capability=(6, 1)),
    replace(gpu(1, "GPU-new", "NVIDIA GeForce RTX 4090"), compute_capability=(8, 9)),
)


def uuids(devices: tuple[Device, ...]) -> list[str]:
    return [device.uuid or "" for device in devices]


def positions(devices: tuple[Device, ...]) -> list[int]:
    return [FOUR.index(device) for device in devices]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("2,1", [2, 1]),  # CUDA programming guide, CUDA_VISIBLE_DEVICES
        ("0,2,-1,1", [0, 2]),  # the guide's own example of an invalid entry
        ("", []),  # the guide: an empty string hides all
        ("-1", []),
        ("NoDevFiles", []),
        ("3", [3]),
        ("0,7,1", [0]),
        ("1,1", []),  # torch.cuda._parse_visible_devices: a repeated entry results in the empty set
        ("0,1,0", []),
        (" 1 , 2 ", [1, 2]),
        ("1gpu,2ampere", [1, 2]),  # torch.cuda: read as strtoul does
        ("GPU-8932f9", [0]),  # pytorch/pytorch#90543: a unique beginning is enough
        ("GPU-8932f937,GPU-7777", [0, 2]),
        ("GPU-8932", []),  # begins two
        ("GPU-1234,GPU-dead,GPU-7777", [3]),
        ("GPU-7777,0", [2, 0]),
    ],
)
def test_cuda_visible_devices(setting: str | None, expected: list[int]) -> None:
    environ: Mapping[str, str] = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    assert positions(visible_devices(FOUR, environ)) == expected


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("MIG-bbbb", ["MIG-bbbb"]),
        ("MIG-b", ["MIG-bbbb"]),
        ("0", ["MIG-aaaa"]),
        ("1", ["GPU-cccc"]),
        ("2", []),
    ],
)
def test_mig_instances_in_cuda_visible_devices(setting: str, expected: list[str]) -> None:
    assert uuids(visible_devices(MIXED_MIG, {"CUDA_VISIBLE_DEVICES": setting})) == expected


@pytest.mark.parametrize(
    ("choice", "environ", "expected"),
    [
        (None, {}, [0, 1, 2, 3]),
        ("0,1", {}, [0, 1]),
        ("1,0", {}, [1, 0]),
        ("0", {"CUDA_VISIBLE_DEVICES": "3,2"}, [3]),  # counts what is visible, as an engine would
        ("GPU-7777", {}, [2]),
        (" 0 , GPU-1234 ", {}, [0, 3]),
        ("GPU-1234", {"CUDA_VISIBLE_DEVICES": "GPU-1234,GPU-7777"}, [3]),
    ],
)
def test_choice(choice: str | None, environ: Mapping[str, str], expected: list[int]) -> None:
    assert positions(select_devices(FOUR, choice=choice, environ=environ)) == expected


@pytest.mark.parametrize(
    ("choice", "environ", "words"),
    [
        ("4", {}, "no visible device '4'"),
        ("-1", {}, "no visible device"),
        ("", {}, "no visible device"),
        ("0,0", {}, "twice"),
        ("0,GPU-8932f", {}, "twice"),
        ("GPU-8932", {}, "begins several"),
        ("GPU-7777", {"CUDA_VISIBLE_DEVICES": "0"}, "no visible device 'GPU-7777'"),
        ("1", {"CUDA_VISIBLE_DEVICES": "3"}, "no visible device '1'"),
        ("cuda", {}, "no visible device 'cuda'"),
    ],
)
def test_choices_that_name_no_device(choice: str, environ: Mapping[str, str], words: str) -> None:
    with pytest.raises(NoDeviceError) as caught:
        select_devices(FOUR, choice=choice, environ=environ)
    assert words in caught.value.message
    assert "--devices" in caught.value.subject


def test_nothing_visible_names_the_variable() -> None:
    with pytest.raises(NoDeviceError) as caught:
        select_devices(FOUR, choice=None, environ={"CUDA_VISIBLE_DEVICES": "9"})
    assert caught.value.subject == "CUDA_VISIBLE_DEVICES=9"


def test_like_gpus_keep_the_bus_order_without_a_note() -> None:
    assert select_devices(FOUR, choice=None, environ={}) == FOUR


def test_unlike_gpus_are_put_in_a_guessed_order_that_says_so() -> None:
    chosen = select_devices(OLD_THEN_NEW, choice="0", environ={})
    assert uuids(chosen) == ["GPU-new"]
    assert "order is guessed" in chosen[0].notes[-1]


@pytest.mark.parametrize(
    ("choice", "environ"),
    [
        ("0", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ("GPU-old", {}),
        ("0", {"CUDA_VISIBLE_DEVICES": "GPU-old"}),
    ],
)
def test_an_order_that_is_known_needs_no_guess(choice: str, environ: Mapping[str, str]) -> None:
    chosen = select_devices(OLD_THEN_NEW, choice=choice, environ=environ)
    assert uuids(chosen) == ["GPU-old"]
    assert chosen[0].notes == ()


def test_instances_of_one_gpu_are_no_unlike_gpus() -> None:
    assert uuids(visible_devices(MIXED_MIG, {})) == ["MIG-aaaa", "MIG-bbbb", "GPU-cccc"]


def test_several_mig_instances_get_a_note() -> None:
    both = select_devices(MIXED_MIG, choice="0,1", environ={})
    assert all("one instance only" in device.notes[-1] for device in both)
    one = select_devices(MIXED_MIG, choice="MIG-bbbb", environ={})
    assert one[0].notes == ()
