"""GPUs that one can plan for without having them: the table, and what a user may type to name a row.

Owns ``data/gpus.toml`` and the reading of ``--gpu``. Reads no device.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from model_catalog.bounds import Basis, ByteRange
from model_catalog.errors import UsageError
from model_catalog.units import GB, GIB, MIB, parse_size, to_gib
from planner.cuda_total import declared_engine_total, stated_engine_total
from planner.devices import Device, DeviceSource
from planner.errors import UnknownGpuError

_KEY: Final = re.compile(r"[a-z0-9-]{1,64}")
_DATA: Final = Path(__file__).parent / "data" / "gpus.toml"

_MOST_DEVICES: Final = 1024
_SMALLEST_SIZE_BYTES: Final = GIB
#: What an idle GB10 had left of its memory beside the operating system: MemAvailable 118,566,368 kB of
#: MemTotal 127,600,748 kB (XuehaiPan/nvitop#208). Assumed for every machine that shares its memory.
_UNIFIED_IDLE_FREE: Final = (118_566_368, 127_600_748)
_MAKERS_WORDS: Final = frozenset(
    (
        *("nvidia", "geforce", "quadro", "tesla", "amd", "instinct", "radeon"),
        *("generation", "gen", "gpu", "graphics", "card", "edition"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredGpu:
    """One row of the table. Rates are dense operations a second; None where the card has no such unit.

    ``memory_total_bytes`` is NVML's total; ``memory_basis`` says whether it was read from a card or derived.
    """

    key: str
    name: str
    nvml_name: str
    memory_total_bytes: int
    memory_basis: Basis
    engine_total: ByteRange
    bandwidth_bytes_per_second: int
    bf16_flops: float | None
    fp16_flops: float | None
    fp8_flops: float | None
    compute_capability: tuple[int, int] | None
    vendor: str
    unified: bool
    aliases: tuple[str, ...]
    note: str | None
    source: str

    def device(self, index: int = 0) -> Device:
        """The card as an empty device: all of what CUDA calls total is free, at its lower bound."""
        free_bytes = self.engine_total.low_bytes
        notes = ["declared: assumed empty"]
        if self.unified:
            idle, total = _UNIFIED_IDLE_FREE
            free_bytes = free_bytes * idle // total
            notes = ["declared: memory shared with the host, assumed idle but for the operating system"]
        if self.memory_basis is not Basis.EXACT:
            notes.append("declared: the total was not confirmed by a reading")
        if self.note is not None:
            notes.append(f"declared: {self.note}")
        return Device(
            index=index,
            name=self.nvml_name,
            source=DeviceSource.DECLARED,
            total_bytes=self.memory_total_bytes,
            engine_total_bytes=self.engine_total,
            free_bytes=free_bytes,
            used_by_others_bytes=0,
            unified=self.unified,
            compute_capability=self.compute_capability,
            bandwidth_bytes_per_second=self.bandwidth_bytes_per_second,
            half_precision_flops=self.bf16_flops or self.fp16_flops,
            notes=tuple(notes),
        )


def _engine_total(row: Mapping[str, Any], total_bytes: int) -> ByteRange:
    if row.get("unified", False):
        # On a machine without memory of its own CUDA's total is the host's MemTotal (GB10: 121.69 GiB both).
        return ByteRange.point(total_bytes)
    if row.get("vendor", "nvidia") != "nvidia":
        return stated_engine_total(total_bytes)
    return declared_engine_total(row["nvml_name"], total_bytes)


def _tera(row: Mapping[str, Any], key: str) -> float | None:
    return row[key] * 1e12 if key in row else None


def _read_row(key: str, row: Mapping[str, Any]) -> DeclaredGpu:
    total_bytes = row["memory_total_mib"] * MIB
    capability = row.get("compute_capability")
    return DeclaredGpu(
        key=key,
        name=row["name"],
        nvml_name=row["nvml_name"],
        memory_total_bytes=total_bytes,
        memory_basis=Basis(row.get("memory_basis", "exact")),
        engine_total=_engine_total(row, total_bytes),
        bandwidth_bytes_per_second=round(row["bandwidth_gb_per_second"] * GB),
        bf16_flops=_tera(row, "bf16_tflops"),
        fp16_flops=_tera(row, "fp16_tflops"),
        fp8_flops=_tera(row, "fp8_tflops"),
        compute_capability=(capability[0], capability[1]) if capability else None,
        vendor=row.get("vendor", "nvidia"),
        unified=row.get("unified", False),
        aliases=tuple(row.get("aliases", ())),
        note=row.get("note"),
        source=row["source"],
    )


@cache
def declared_gpus() -> tuple[DeclaredGpu, ...]:
    """All rows, in the order of the table. Read once, at the first call."""
    text = _DATA.read_text(encoding="utf-8")
    return tuple(_read_row(key, row) for key, row in tomllib.loads(text).items())


def _read_key(key: str) -> DeclaredGpu | None:
    """The row of exactly this key, parsed alone: the whole table takes as long as a plan."""
    if not _KEY.fullmatch(key):
        return None
    _, header, rest = f"\n{_DATA.read_text(encoding='utf-8')}".partition(f"\n[{key}]\n")
    if not header:
        return None
    return _read_row(key, tomllib.loads(rest.partition("\n[")[0]))


def _normalise(text: str) -> str:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return "".join(word for word in words if word not in _MAKERS_WORDS)


@cache
def _names() -> Mapping[str, tuple[DeclaredGpu, ...]]:
    """Normalised spelling -> the rows that bear it. A key or an alias belongs to one row alone."""
    owned: dict[str, tuple[DeclaredGpu, ...]] = {}
    shared: dict[str, tuple[DeclaredGpu, ...]] = {}
    for gpu in declared_gpus():
        for text in (gpu.key, *gpu.aliases):
            owned[_normalise(text)] = (gpu,)
        for text in {_normalise(gpu.name), _normalise(gpu.nvml_name)}:
            shared[text] = (*shared.get(text, ()), gpu)
    return {**shared, **owned}


def _unknown(text: str, near: list[str]) -> UnknownGpuError:
    hint = f"did you mean {', '.join(near)}?" if near else "list them with: specplan gpus."
    return UnknownGpuError(
        "no declared GPU of that name", subject=text or "--gpu", hint=f"{hint} A size does as well: --gpu 24GiB"
    )


def find_gpu(text: str) -> DeclaredGpu:
    """The declared GPU of that key, alias, NVML name or marketing name; case, blanks and makers do not matter.

    Raises:
        UnknownGpuError: when no row has the name, with near names; or when several have it.
    """
    exact = _read_key(text)
    if exact is not None:
        return exact
    wanted = _normalise(text)
    found = _names().get(wanted, ()) if wanted else ()
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownGpuError(
            "several declared GPUs have that name",
            subject=text,
            hint=f"name one of: {', '.join(gpu.key for gpu in found)}",
        )
    begins = list(
        dict.fromkeys(gpu.key for gpu in declared_gpus() if wanted and _normalise(gpu.key).startswith(wanted))
    )
    near = difflib.get_close_matches(wanted, list(_names()), n=6, cutoff=0.6)
    close = [gpu.key for spelling in near for gpu in _names()[spelling]]
    raise _unknown(text, list(dict.fromkeys([*begins, *close]))[:4])


def gpu_of_device(nvml_name: str, total_bytes: int | None) -> DeclaredGpu | None:
    """The row of a live card by its exact NVML name; where several share it, the one nearest in memory."""
    rows = [gpu for gpu in declared_gpus() if gpu.nvml_name == nvml_name]
    if len(rows) <= 1:
        return rows[0] if rows else None
    if total_bytes is None:
        return None
    return min(rows, key=lambda gpu: abs(gpu.memory_total_bytes - total_bytes))


def _split_count(text: str) -> tuple[str, int]:
    name, colon, count_text = text.rpartition(":")
    if not colon:
        return text.strip(), 1
    if not count_text.strip().isdecimal() or not 1 <= int(count_text) <= _MOST_DEVICES:
        raise UsageError(
            f"{count_text.strip()!r} is not a number of devices from 1 to {_MOST_DEVICES}",
            subject=f"--gpu {text}",
            hint="write for example --gpu h100-80gb:2 or --gpu 24GiB:4",
        )
    return name.strip(), int(count_text)


def _generic_device(total_bytes: int, index: int) -> Device:
    engine_total = stated_engine_total(total_bytes)
    return Device(
        index=index,
        name=f"{to_gib(total_bytes, 'down')} GiB device",
        source=DeviceSource.DECLARED,
        total_bytes=total_bytes,
        engine_total_bytes=engine_total,
        free_bytes=engine_total.low_bytes,
        used_by_others_bytes=0,
        notes=(
            "declared: assumed empty",
            "declared by size alone: what CUDA calls total lies at most 400 MiB + 0.8% below",
        ),
    )


def parse_gpu_option(text: str) -> tuple[Device, ...]:
    """The devices that ``--gpu NAME[:COUNT]`` or ``--gpu SIZE[:COUNT]`` means, e.g. ``h100-80gb:2``, ``24GiB:4``.

    A known name wins over a size (``4090`` is the card, not 4,090 bytes).

    Raises:
        UnknownGpuError: for a name that the table does not have.
        UsageError: for a bad count, an ambiguous unit (``24G``) or a size below 1 GiB.
    """
    name, count = _split_count(text)
    looks_like_size = re.fullmatch(r"\d+(?:\.\d+)?\s*[A-Za-z]{0,3}", name) is not None
    if not looks_like_size or _normalise(name) in _names():
        gpu = find_gpu(name)
        return tuple(gpu.device(index) for index in range(count))
    try:
        total_bytes = parse_size(name)
    except ValueError as cause:
        raise UsageError(str(cause), subject=f"--gpu {text}", hint="write for example --gpu 24GiB:2") from cause
    if total_bytes < _SMALLEST_SIZE_BYTES:
        raise UsageError(
            f"{total_bytes} bytes is too small for a GPU",
            subject=f"--gpu {text}",
            hint="write for example --gpu 24GiB",
        )
    return tuple(_generic_device(total_bytes, index) for index in range(count))
