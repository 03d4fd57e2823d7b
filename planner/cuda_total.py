"""What CUDA calls a device's total memory: the base of an engine's budget, always at or below NVML's total.

Owns the measured pairs and the two rules that follow from them. Reads no device.

NVML's total is the board's memory; CUDA's total lacks what the driver keeps for itself, which memory info v2
reports as ``reserved``. One machine shows it directly: an H100 with driver 580 lists 81,559 MiB total, 551 MiB
reserved and 81,007 MiB free when idle, and engines on H100 print 79.1 GiB (81,000 MiB). The reserve differs
from driver to driver (Tesla T4: 258 to 451 MiB), so a declared device gets a band and never a point.
"""

from dataclasses import dataclass
from typing import Final

from model_catalog.bounds import ByteRange
from model_catalog.units import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTotal:
    """The lowest and the highest CUDA total seen on one GPU under native Linux, beside NVML's total, in MiB.

    Figures printed as GiB with two decimals are rounded down here for the low and up for the high.
    """

    nvml_name: str
    nvml_total_mib: int
    cuda_low_mib: int
    cuda_high_mib: int
    source: str


def _pair(name: str, nvml: int, low: int, high: int, source: str) -> MeasuredTotal:
    return MeasuredTotal(nvml_name=name, nvml_total_mib=nvml, cuda_low_mib=low, cuda_high_mib=high, source=source)


#: Sources are public threads ("owner/repo#number"); "properties" is what torch.cuda.get_device_properties
#: printed in public notebooks and logs (whole MiB), "capacity" the "total capacity of" line of torch's
#: out-of-memory message (GiB with two decimals).
MEASURED_TOTALS: Final[tuple[MeasuredTotal, ...]] = (
    _pair("NVIDIA GeForce RTX 3060 Laptop GPU", 6144, 5934, 5945, "JiehongLin/SAM-6D#13, capacity 5.80 GiB"),
    _pair("NVIDIA GeForce RTX 3070", 8192, 7941, 7952, "sshan-zhao/GASDA#19, capacity 7.76 GiB"),
    _pair("Quadro RTX 4000", 8192, 7982, 7993, "CompVis/stable-diffusion#485, capacity 7.80 GiB"),
    _pair("NVIDIA GeForce RTX 3060", 12288, 11931, 12044, "properties, four readings of 11,931 to 12,044 MiB"),
    _pair("Tesla T4", 15360, 14904, 15102, "Zheng-Chong/CatVTON#133 (14.56 GiB); properties 14,930 to 15,102 MiB"),
    _pair("NVIDIA GeForce RTX 5060 Ti", 16311, 15841, 15841, "properties, 15,841 MiB"),
    _pair("NVIDIA RTX A4000", 16376, 15979, 15990, "DengKaiCQ/VGGT-Long#6, capacity 15.61 GiB"),
    _pair("NVIDIA GeForce RTX 4070 Ti SUPER", 16376, 15923, 16026, "FlashML-org/FreeToken#354, 15.6 GiB"),
    _pair("Tesla V100-SXM2-16GB", 16384, 16130, 16160, "properties, 16,130 and 16,160 MiB"),
    _pair("NVIDIA A10G", 23028, 22584, 22595, "properties 22,587 MiB; capacity 22.06 GiB"),
    _pair("NVIDIA L4", 23034, 22553, 22575, "capacity 22.03 and 22.04 GiB in public logs"),
    _pair("NVIDIA GeForce RTX 4090", 24564, 24110, 24223, "vllm-project/vllm#13061 (23.55); capacity 23.65 GiB"),
    _pair("NVIDIA GeForce RTX 3090 Ti", 24564, 24110, 24121, "pegainfer-project/pegainfer#422, 23.55 GiB"),
    _pair("NVIDIA GeForce RTX 3090", 24576, 24140, 24259, "vllm-project/vllm#10517 (23.58), properties 24,259"),
    _pair("NVIDIA A30", 24576, 24089, 24100, "google/RB-Modulation#5, capacity 23.53 GiB"),
    _pair("NVIDIA GeForce RTX 5090", 32607, 32102, 32205, "vllm-project/vllm#52872, 31.4 GiB"),
    _pair("NVIDIA RTX PRO 4500 Blackwell", 32623, 32129, 32129, "vllm-project/vllm#51590, exact bytes"),
    _pair("NVIDIA A100-SXM4-40GB", 40960, 40319, 40331, "vllm-project/vllm#16570, 39.38 GiB"),
    _pair("NVIDIA L40S", 46068, 45480, 45491, "vllm-project/vllm#15815, 44.42 GiB"),
    _pair("NVIDIA L40", 46068, 45460, 45471, "QwenLM/Qwen3-VL#2097, capacity 44.40 GiB"),
    _pair("NVIDIA RTX 6000 Ada Generation", 46068, 45491, 45502, "DINGYANB/MTVCrafter#21, capacity 44.43 GiB"),
    _pair("NVIDIA A40", 46068, 45516, 45619, "guqiong96/Lvllm#35, 44.5 GiB"),
    _pair("NVIDIA RTX A6000", 49140, 48588, 48691, "noonghunna/club-3090#1047, 47.5 GiB"),
    _pair("NVIDIA H100 80GB HBM3", 81559, 80947, 81127, "vllm-project/vllm#27508 (79.1) and #12126 (79.22)"),
    _pair("NVIDIA A100-SXM4-80GB", 81920, 81044, 81152, "NVIDIA/TensorRT-LLM#2789, vllm-project/vllm#2031"),
    _pair("NVIDIA H20", 97871, 97229, 97332, "vllm-project/vllm#51041, 95.0 GiB"),
    _pair("NVIDIA GH200 480GB", 97871, 96717, 96820, "vllm-project/vllm#44376, 94.5 GiB"),
    _pair(
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        97887, 97244, 97255, "voipmonitor/rtx6kpro, 94.97 GiB",
    ),
    _pair("NVIDIA H200", 143771, 143068, 143171, "capacity 139.72 to 139.81 GiB; properties 143,156 MiB"),
    _pair("NVIDIA B200", 183359, 182625, 182646, "properties 182,631 and 182,642 MiB; capacity 178.35 GiB"),
)  # fmt: skip

#: The fitted band of what CUDA's total lacks, as MiB + a share of NVML's total. Every pair above lies inside
#: (smallest: RTX 3060 Laptop 199 MiB of 6 GiB; largest: GH200 1,154 MiB of 96 GiB).
_SMALLEST_GAP: Final = (160, 0.002)
_LARGEST_GAP: Final = (400, 0.008)
#: Half the spread between drivers on one card (Tesla T4: 198 MiB), rounded up: how far a card that was
#: measured may lie outside its own readings.
_DRIVER_SPREAD_MIB: Final = 100
#: How far CUDA's total may lie from NVML's total minus the reserve: MiB + a share of the total. Allows for the
#: H100 above (7 MiB apart, the engine's figure rounded to 0.1 GiB) and for rounding to 2 MiB pages.
_LIVE_MARGIN: Final = (32, 0.001)


def _gap_bytes(rule: tuple[int, float], total_bytes: int) -> int:
    fixed_mib, share = rule
    return fixed_mib * MIB + int(share * total_bytes)


def fitted_engine_total(total_bytes: int) -> ByteRange:
    """CUDA's total for a GPU of which only NVML's total is known; calibrated on ``MEASURED_TOTALS``."""
    low = total_bytes - _gap_bytes(_LARGEST_GAP, total_bytes)
    high = total_bytes - _gap_bytes(_SMALLEST_GAP, total_bytes)
    return ByteRange(low_bytes=max(0, low), high_bytes=max(0, high))


def declared_engine_total(nvml_name: str, total_bytes: int) -> ByteRange:
    """CUDA's total for a declared GPU: its own readings widened by the spread of drivers, inside the fitted band.

    A reading counts for every card of that NVML name, shifted to the card's own total (ECC on or off moves both).
    """
    fitted = fitted_engine_total(total_bytes)
    for pair in MEASURED_TOTALS:
        if pair.nvml_name == nvml_name:
            smallest_gap = (pair.nvml_total_mib - pair.cuda_high_mib - _DRIVER_SPREAD_MIB) * MIB
            largest_gap = (pair.nvml_total_mib - pair.cuda_low_mib + _DRIVER_SPREAD_MIB) * MIB
            return ByteRange(
                low_bytes=max(fitted.low_bytes, total_bytes - largest_gap),
                high_bytes=min(fitted.high_bytes, total_bytes - smallest_gap),
            )
    return fitted


def stated_engine_total(total_bytes: int) -> ByteRange:
    """CUDA's total where a user states a size: at most that, at least what the fitted band leaves of it."""
    return ByteRange(low_bytes=fitted_engine_total(total_bytes).low_bytes, high_bytes=total_bytes)


def live_engine_total(total_bytes: int, reserved_bytes: int | None, *, wsl: bool = False) -> ByteRange:
    """CUDA's total from what NVML reads on this machine.

    With a reserve: total minus reserve, give or take a small margin. Without one (old drivers, memory info v1)
    the total may have lost the reserve already (a T4 then reads 15,109 MiB instead of 15,360 MiB), so only the
    fitted band's low end holds. Under WSL2 CUDA reports the whole of NVML's total (RTX 4090: 24,563 of
    24,564 MiB), so the high end is the total there.
    """
    if reserved_bytes is None:
        return stated_engine_total(total_bytes)
    middle = total_bytes - reserved_bytes
    margin = _gap_bytes(_LIVE_MARGIN, total_bytes)
    high = total_bytes if wsl else min(total_bytes, middle + margin)
    return ByteRange(low_bytes=max(0, middle - margin), high_bytes=high)
