"""CUDA's total from NVML's: the bands hold every public reading and stay narrow enough to be of use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog.units import GIB, MIB
from planner.cuda_total import (
    MEASURED_TOTALS,
    MeasuredTotal,
    declared_engine_total,
    fitted_engine_total,
    live_engine_total,
    stated_engine_total,
)


@pytest.mark.parametrize("pair", MEASURED_TOTALS, ids=lambda pair: pair.nvml_name)
def test_bands_hold_every_measured_pair(pair: MeasuredTotal) -> None:
    total = pair.nvml_total_mib * MIB
    for band in (
        fitted_engine_total(total),
        declared_engine_total(pair.nvml_name, total),
        stated_engine_total(total),
    ):
        assert band.low_bytes <= pair.cuda_low_mib * MIB
        assert pair.cuda_high_mib * MIB <= band.high_bytes <= total


#: Readings that the table does not hold: (NVML name, NVML MiB, CUDA GiB as printed, where).
LATER_READINGS = [
    ("NVIDIA H100 80GB HBM3", 81559, 79.18, "llm-d-incubation/llm-d-planner, empirical results"),
    ("NVIDIA H100 80GB HBM3", 81559, 79.21, "torch's out-of-memory line in a public benchmark table"),
    ("NVIDIA GeForce RTX 3090", 24576, 23.68, "3DTopia/OpenLRM#42"),
    ("NVIDIA GeForce RTX 4090", 24564, 23.65, "kerrj/lerf#73 (a 24 GiB card)"),
    ("NVIDIA L40S", 46068, 44.4, "a public table of cloud instances"),
    ("NVIDIA A10", 23028, 22.06, "a public benchmark's failed case"),
    ("NVIDIA GeForce RTX 3060", 12288, 11.75, "Kunhao-Liu/StyleGaussian#12"),
    ("Tesla T4", 15360, 14.58, "mbzuai-oryx/GeoPixel#5"),
]


@pytest.mark.parametrize(("name", "nvml_mib", "cuda_gib", "where"), LATER_READINGS)
def test_bands_hold_readings_they_were_not_fitted_to(
    name: str, nvml_mib: int, cuda_gib: float, where: str
) -> None:
    band = declared_engine_total(name, nvml_mib * MIB)
    assert band.low_bytes <= cuda_gib * GIB <= band.high_bytes


def test_a_measured_card_has_a_narrower_band() -> None:
    total = 183_359 * MIB
    measured, fitted = declared_engine_total("NVIDIA B200", total), fitted_engine_total(total)
    assert measured.high_bytes - measured.low_bytes < (fitted.high_bytes - fitted.low_bytes) / 4


#: (NVML MiB, reserved MiB, CUDA's total in MiB), each from another reading than the next. H100: nvidia-smi -q
#: lists 551 MiB reserved and engines print 79.1 GiB (vllm-project/vllm#27508). H200 idle: 143,072 of 143,771 MiB
#: free, so 699 MiB reserved, and torch prints 139.72 GiB.
@pytest.mark.parametrize(
    ("total_mib", "reserved_mib", "cuda_mib"),
    [(81_559, 551, 81_000), (143_771, 699, 143_073)],
    ids=["H100", "H200"],
)
def test_total_minus_reserve_is_what_cuda_calls_total(total_mib: int, reserved_mib: int, cuda_mib: int) -> None:
    band = live_engine_total(total_mib * MIB, reserved_mib * MIB)
    assert band.low_bytes <= cuda_mib * MIB <= band.high_bytes
    assert band.high_bytes - band.low_bytes < 0.005 * total_mib * MIB


def test_wsl_shows_cuda_the_whole_card() -> None:
    # torch under Windows prints 24,563 MiB for an RTX 4090 (NVML: 24,564 MiB).
    total = 24_564 * MIB
    assert live_engine_total(total, 400 * MIB).high_bytes < 24_563 * MIB
    assert live_engine_total(total, 400 * MIB, wsl=True).high_bytes == total


def test_a_mig_instance_has_its_whole_total() -> None:
    # torch prints 9,728 MiB on "A100 80GB PCIe MIG 1g.10gb", nvidia-smi lists 9,728 MiB.
    total = 9_728 * MIB
    assert live_engine_total(total, 0).high_bytes == total


@given(total=st.integers(0, 2**40), reserved=st.none() | st.integers(0, 2**40), wsl=st.booleans())
def test_bounds_never_exceed_the_total(total: int, reserved: int | None, wsl: bool) -> None:
    usable = None if reserved is None else min(reserved, total)
    for band in (
        live_engine_total(total, usable, wsl=wsl),
        fitted_engine_total(total),
        stated_engine_total(total),
    ):
        assert 0 <= band.low_bytes <= band.high_bytes <= total


@given(smaller=st.integers(0, 2**40), more=st.integers(0, 2**40))
def test_a_larger_card_never_has_less(smaller: int, more: int) -> None:
    before, after = fitted_engine_total(smaller), fitted_engine_total(smaller + more)
    assert before.low_bytes <= after.low_bytes
    assert before.high_bytes <= after.high_bytes
