"""Step times from a roofline with per-layer and fixed terms: draft, target and verification on one device.

t = max(bytes / (efficiency x bandwidth), layers x t_launch) + layers x t_gap + tokens x t_token + all-reduces
+ t_fix: decode time follows bytes on a large model and depth on a small one. Launches by the host hide behind
reading, gaps between kernels do not; CUDA graphs remove the former. Constants and their sources are in
``data/step_times.toml``. Every constant is a range; a ratio of two steps is taken under one assumption at a time,
because both share the device.
"""

import itertools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from model_catalog.bounds import Basis
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model
from planner.devices import Device
from planner.engines.base import Draft
from planner.speculation.prediction import StepTimes
from planner.speculation.ranges import Range
from planner.speculation.traffic import StepTraffic, draft_traffic, model_traffic
from planner.workload import Workload

_DATA: Final = Path(__file__).parent.parent / "data" / "step_times.toml"

#: Methods that draft all k tokens in one pass.
ONE_PASS: Final = frozenset({DraftMethod.DFLASH, DraftMethod.DSPARK})
_ALL_REDUCES_PER_LAYER: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assumption:
    """One value for every constant."""

    bytes_per_second: float
    operations_per_second: float
    launch_seconds: float
    gap_seconds: float
    target_fixed_seconds: float
    draft_fixed_seconds: float
    overhead_seconds: float
    all_reduce_seconds: float
    touched_share: float
    verify_share: float
    unpacking_share: float


def draft_passes(method: DraftMethod, num_speculative_tokens: int) -> int:
    """Passes of the draft in one cycle: k, one for block drafters, none for n-gram."""
    if method is DraftMethod.NGRAM or num_speculative_tokens == 0:
        return 0
    return 1 if method in ONE_PASS else num_speculative_tokens


def covered_tokens() -> int:
    """The largest batch x (k + 1) for which step times are modelled at all."""
    return int(_constants()["coverage"]["tokens"])


def model_step_times(
    target: Model, draft: Draft, device: Device | None, workload: Workload, num_speculative_tokens: int
) -> StepTimes | None:
    """Step times at ``workload.batch`` with sequences of ``workload.context_tokens``; None beyond what is covered.

    A device without a known bandwidth (or None) spans the usual ones. ``workload.enforce_eager`` takes the times
    without CUDA graphs.

    Raises:
        UsageError: for an unknown cache dtype.
    """
    tokens = workload.batch * (num_speculative_tokens + 1)
    if tokens > covered_tokens():
        return None
    whole = model_traffic(target, context_tokens=workload.context_tokens, kv_cache_dtype=workload.kv_cache_dtype)
    small = draft_traffic(
        target, draft, context_tokens=workload.context_tokens, kv_cache_dtype=workload.draft_kv_cache_dtype
    )
    rows = [
        _cycle(whole, small, draft.method, assumption, workload, num_speculative_tokens)
        for assumption in _assumptions(target, draft, device, workload)
    ]
    return StepTimes(
        target_seconds=_span(row.target for row in rows),
        draft_seconds=_span(row.draft for row in rows),
        verify_seconds=_span(row.verify for row in rows),
        overhead_seconds=_span(row.overhead for row in rows),
        source=_source(device, workload),
        basis=Basis.CALIBRATED,
        measured_up_to_tokens=covered_tokens(),
        cost_ratio=_span(row.draft / row.target for row in rows),
        cycle_ratio=_span((row.passes * row.draft + row.verify + row.overhead) / row.target for row in rows),
    )


def prefill_seconds(target: Model, device: Device | None, workload: Workload, prompt_tokens: int) -> Range:
    """Seconds to read one prompt of this length: computation alone, attention's own part left out."""
    whole = model_traffic(target, context_tokens=0, kv_cache_dtype=workload.kv_cache_dtype)
    low_share, high_share = _constants()["compute"]["prefill_efficiency"]
    bandwidths, intensities = _device_bounds(device)
    operations = 2.0 * whole.parameters_per_token * prompt_tokens / workload.tp
    return Range(
        low=operations / (bandwidths[1] * intensities[1] * high_share),
        high=operations / (bandwidths[0] * intensities[0] * low_share),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cycle:
    """Seconds of one cycle under one assumption."""

    target: float
    draft: float
    verify: float
    overhead: float
    passes: int


def _cycle(
    whole: StepTraffic, small: StepTraffic, method: DraftMethod, given: _Assumption, workload: Workload, k: int
) -> _Cycle:
    batch, tp = workload.batch, workload.tp
    before = whole.expert_share(batch)
    further = whole.expert_share(batch * (k + 1)) - before
    touched = given.touched_share * before if batch > 1 else before
    widened = touched + given.verify_share * further
    passes = draft_passes(method, k)
    drafted = batch * (k if method in ONE_PASS else 1)
    draft_time = 0.0
    if passes:
        fixed = given.draft_fixed_seconds
        draft_time = _seconds(small, given, batch, drafted, small.expert_share(drafted), tp) + fixed
    target = _seconds(whole, given, batch, batch, touched, tp) + given.target_fixed_seconds
    verify = _seconds(whole, given, batch, batch * (k + 1), widened, tp) + given.target_fixed_seconds
    return _Cycle(
        target=target,
        draft=draft_time,
        verify=verify + given.unpacking_share * k * target,
        overhead=given.overhead_seconds if k else 0.0,
        passes=passes,
    )


def _seconds(
    traffic: StepTraffic, given: _Assumption, sequences: int, tokens: int, expert_share: float, tp: int
) -> float:
    size = traffic.dense_bytes + expert_share * traffic.expert_bytes + sequences * traffic.cache_bytes
    reading = size / tp / given.bytes_per_second
    launching = traffic.layers * given.launch_seconds
    waiting = traffic.layers * given.gap_seconds
    computing = tokens * 2.0 * traffic.parameters_per_token / tp / given.operations_per_second
    talking = traffic.layers * _ALL_REDUCES_PER_LAYER * given.all_reduce_seconds if tp > 1 else 0.0
    return max(reading, launching) + waiting + computing + talking


def _assumptions(
    target: Model, draft: Draft, device: Device | None, workload: Workload
) -> tuple[_Assumption, ...]:
    bandwidths, intensities = _device_bounds(device)
    mixed = bool(target.architecture.experts or (draft.model is not None and draft.model.architecture.experts))
    return _corners(bandwidths, intensities, workload.enforce_eager, workload.tp > 1, _is_low_bit(target), mixed)


@lru_cache(maxsize=64)
def _corners(
    bandwidths: tuple[float, float],
    intensities: tuple[float, float],
    eager: bool,
    split: bool,
    low_bit: bool,
    mixed: bool,
) -> tuple[_Assumption, ...]:
    """Every corner of the constants' ranges. Host times go together, and so do an engine's kernels.

    Without experts (``mixed`` False) their shares move nothing, so one corner of them is enough.
    """
    table = _constants()
    engine = table["eager" if eager else "graphs"]
    links = table["tensor_parallel"]["all_reduce_seconds"] if split else [0.0]
    unpacking = table["low_bit"]["verify_token_share"][::-1] if low_bit else [0.0, 0.0]
    experts = list(zip(table["experts"]["touched_share"], table["experts"]["verify_share"], strict=True))
    experts = experts if mixed else experts[:1]
    corners = itertools.product((0, 1), (0, 1), (0, 1), (0, 1), links, experts)
    return tuple(
        _Assumption(
            bytes_per_second=bandwidths[reading] * table["bandwidth"]["efficiency"][reading],
            operations_per_second=bandwidths[reading]
            * intensities[computing]
            * table["compute"]["decode_efficiency"][computing],
            launch_seconds=engine["launch_seconds"][depth],
            gap_seconds=engine["gap_seconds"][depth],
            target_fixed_seconds=engine["target_fixed_seconds"][fixed],
            draft_fixed_seconds=engine["draft_fixed_seconds"][fixed],
            overhead_seconds=engine["overhead_seconds"][fixed],
            unpacking_share=unpacking[computing],
            all_reduce_seconds=link,
            touched_share=touched,
            verify_share=verify,
        )
        for reading, depth, fixed, computing, link, (touched, verify) in corners
    )


@lru_cache(maxsize=128)
def _is_low_bit(model: Model) -> bool:
    parameters = model.architecture.parameters()
    limit = _constants()["low_bit"]["below_bytes_per_parameter"] * parameters
    return bool(model.weights.resident_bytes().high_bytes < limit)


def _device_bounds(device: Device | None) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bandwidth, and operations a byte, as low and high."""
    table = _constants()
    low, high = table["bandwidth"]["unknown_bytes_per_second"]
    intensity = table["compute"]["unknown_operations_per_byte"]
    if device is not None and device.bandwidth_bytes_per_second:
        low = high = device.bandwidth_bytes_per_second
        if device.half_precision_flops:
            known = device.half_precision_flops / device.bandwidth_bytes_per_second
            intensity = [known, known]
    return (low, high), (intensity[0], intensity[1])


def _source(device: Device | None, workload: Workload) -> str:
    known = device is not None and device.bandwidth_bytes_per_second is not None
    where = f"bandwidth of {device.name}" if known and device is not None else "no device: bytes and depth alone"
    how = "launches without graphs" if workload.enforce_eager else "CUDA graphs"
    return f"roofline with per-layer times ({where}; {how})"


def _span(values: Iterable[float]) -> Range:
    found = list(values)
    return Range(low=min(found), high=max(found))


@cache
def _constants() -> Mapping[str, Any]:
    text = _DATA.read_text(encoding="utf-8")
    return tomllib.loads(text)
