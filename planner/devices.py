"""A device as the planner sees it: totals, what is free, how each figure is known. Reads nothing."""

from dataclasses import dataclass
from enum import StrEnum

from model_catalog.bounds import ByteRange


class DeviceSource(StrEnum):
    NVML = "nvml"
    DECLARED = "declared"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """A process that holds device memory; ``used_bytes`` is None where the driver does not say."""

    pid: int
    name: str | None
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU, MIG instance, or the host's own memory.

    ``total_bytes`` is NVML's total, ``reserved_bytes`` what the driver keeps (memory info v2),
    ``engine_total_bytes`` what CUDA calls total: the base of an engine's budget, always below NVML's. A
    reading that failed is None and explained in ``notes``; it is never zero and never the parent device's.
    ``half_precision_flops``: dense 16-bit operations a second, from the data sheet.
    """

    index: int
    name: str
    source: DeviceSource
    total_bytes: int | None
    engine_total_bytes: ByteRange | None
    free_bytes: int | None
    uuid: str | None = None
    reserved_bytes: int | None = None
    used_by_others_bytes: int | None = None
    unified: bool = False
    mig: bool = False
    compute_capability: tuple[int, int] | None = None
    bandwidth_bytes_per_second: int | None = None
    half_precision_flops: float | None = None
    processes: tuple[DeviceProcess, ...] = ()
    driver_version: str | None = None
    notes: tuple[str, ...] = ()
