"""The speedup of speculative decoding: S = L t_T / (passes t_D + t_V + t_o), as a range.

Pure formulas, and ``predict``, which feeds them with acceptance and step times. Where acceptance and costs come
from is ``acceptance``'s and ``step_times``'. With t_V = t_T and t_o = 0 the formula is Leviathan et al. 2023
(arXiv:2211.17192), theorem 3.8; with measured verification it is MagicDec's (arXiv:2408.11049).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from model_catalog.model import Model
from planner.devices import Device, DeviceSource
from planner.engines.base import Draft
from planner.speculation.acceptance import acceptance_for
from planner.speculation.mean_length import geometric_length, mean_acceptance_length
from planner.speculation.prediction import Acceptance, Demand, Prediction, StepTimes
from planner.speculation.ranges import Range
from planner.speculation.step_times import covered_tokens, draft_passes, model_step_times, prefill_seconds
from planner.workload import Workload

DEFAULT_K_RANGE: Final = (3, 8)
LARGEST_K: Final = 16
_LARGEST_BATCH_TRIED: Final = 256

#: Step times at a given k; None where that k is beyond what is known.
StepTimesAt = Callable[[int], StepTimes | None]


def speedup_at(length: float, cycle_ratio: float) -> float:
    """Tokens per cycle over the cycle's cost in target steps."""
    return length / cycle_ratio


def cycle_cost(cost_ratio: float, passes: int, *, verify_ratio: float = 1.0, overhead_ratio: float = 0.0) -> float:
    """The cost of one cycle in target steps: ``passes`` of the draft, one verification, overhead."""
    return passes * cost_ratio + verify_ratio + overhead_ratio


def ceiling_speedup(rate: float) -> float:
    """1 / (1 - a): reached only with endless free drafts and free verification. A ceiling, not an estimate."""
    return math.inf if rate >= 1 else 1.0 / (1.0 - rate)


def break_even_rate(num_speculative_tokens: int, cycle_ratio: float) -> float | None:
    """The flat acceptance rate at which (1 - a^(k+1)) / (1 - a) pays for the cycle; None: not even 1 would do."""
    if cycle_ratio > num_speculative_tokens + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if geometric_length(middle, num_speculative_tokens) < cycle_ratio:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def best_num_speculative_tokens(rate: float, cost_ratio: float, tried: Iterable[int]) -> tuple[int, float]:
    """The k with the highest speedup of theorem 3.8, and that speedup; the smallest k on a tie."""
    found = [(speedup_at(geometric_length(rate, k), cycle_cost(cost_ratio, k)), -k) for k in tried]
    best, negative = max(found)
    return -negative, best


def end_to_end(speedup: Range, prefill_share: Range) -> Range:
    """1 / (f + (1 - f) / S): only decoding is sped up; f is prefill's share of the time without speculation."""

    def at(gain: float, share: float) -> float:
        return 1.0 / (share + (1.0 - share) / gain)

    values = [
        at(gain, share)
        for gain in (speedup.low, speedup.high)
        for share in (prefill_share.low, prefill_share.high)
    ]
    return Range(low=min(values), high=max(values))


def speedup_range(length: Range, cycle_ratio: Range) -> Range:
    """L over the cycle's cost. The two err independently, so their relative errors add in quadrature.

    The result lies inside the quotient of the outer bounds, and so never above ``length`` where the cycle costs at
    least one target step.
    """
    middle = math.sqrt(length.low * length.high / (cycle_ratio.low * cycle_ratio.high))
    spread = math.exp(
        math.hypot(math.log(length.high / length.low), math.log(cycle_ratio.high / cycle_ratio.low)) / 2
    )
    return Range(low=middle / spread, high=middle * spread)


def cycle_ratio_of(times: StepTimes, passes: int) -> Range:
    """The cost of one cycle in target steps: as stated, or from the seconds with every bound on its own.

    Never below 1: a verification that is cheaper than a plain step is a mismatched baseline.
    """
    if times.cycle_ratio is not None:
        return times.cycle_ratio
    low = passes * times.draft_seconds.low + times.verify_seconds.low + times.overhead_seconds.low
    high = passes * times.draft_seconds.high + times.verify_seconds.high + times.overhead_seconds.high
    return Range(low=max(low / times.target_seconds.high, 1.0), high=max(high / times.target_seconds.low, 1.0))


def cost_ratio_of(times: StepTimes) -> Range:
    """t_draft / t_target: as stated, or from the seconds."""
    if times.cost_ratio is not None:
        return times.cost_ratio
    return Range(
        low=times.draft_seconds.low / times.target_seconds.high,
        high=times.draft_seconds.high / times.target_seconds.low,
    )


def predict(
    target: Model,
    draft: Draft,
    device: Device | None,
    workload: Workload,
    demand: Demand,
    *,
    k_range: tuple[int, int] = DEFAULT_K_RANGE,
    k_step: int = 1,
    acceptance: Acceptance | None = None,
    step_times: StepTimesAt | None = None,
) -> Prediction:
    """Expected speedup of decoding at the best k within ``k_range``, both ends included.

    ``k_step``: above it only its multiples are chosen, unless the range holds none.

    ``demand`` sets batch and lengths; ``workload`` gives parallelism, dtypes and graphs. ``step_times`` None: the
    model for ``device``. k = 0 wins where it is within the range and every other k loses.

    Raises:
        UsageError: for an unknown cache dtype.
        ValueError: for an empty or negative ``k_range``.
    """
    if not 0 <= k_range[0] <= k_range[1]:
        raise ValueError(f"not a range of k: {k_range}")
    rates = acceptance_for(target, draft, demand) if acceptance is None else acceptance
    served = _served(workload, demand)
    on_host = device is not None and device.source is DeviceSource.HOST
    times_at = step_times or (lambda k: None if on_host else model_step_times(target, draft, device, served, k))
    table = dict(_table(draft, rates, times_at, k_range))
    offered = [k for k in table if k_range[0] <= k <= k_range[1]]
    if on_host and step_times is None:
        notes = ["step times are modelled for GPUs: on a CPU only a trial tells the speedup (--trial)"]
    else:
        notes = list(_notes(target, draft, demand, workload, k_range, offered))
    first = _permitted(range(k_range[0], k_range[1] + 1), k_step)[0]
    best = max(_permitted(offered, k_step), key=lambda k: (table[k].middle, -k), default=first)
    times = times_at(best) if offered else times_at(1)
    passes = draft_passes(draft.method, best)
    told = bool(offered) and best > 0
    cycle = cycle_ratio_of(times, passes) if times is not None and told else None
    speedup = table.get(best) if offered else None
    whole = None
    if speedup is not None and times is not None:
        whole = end_to_end(speedup, _prefill_share(target, device, served, demand, times))
    return Prediction(
        num_speculative_tokens=best,
        acceptance=rates,
        mean_acceptance_length=mean_acceptance_length(rates, best),
        cost_ratio=_cost(target, draft, device, served, times),
        cost_source=_cost_source(times, on_host=on_host),
        speedup=speedup,
        end_to_end_speedup=whole,
        ceiling_speedup=ceiling_speedup(rates.rate.high),
        break_even_acceptance=None if cycle is None else break_even_rate(best, cycle.middle),
        stops_paying_at_batch=None
        if step_times is not None or on_host
        else _stops_paying(target, draft, device, served, rates, best),
        by_num_speculative_tokens=tuple(sorted(table.items())),
        notes=tuple(notes),
    )


def _permitted(offered: Sequence[int], step: int) -> Sequence[int]:
    """Those up to ``step`` and its multiples; all of them where that leaves none, for the engine to refuse."""
    return [k for k in offered if k <= step or k % step == 0] or offered


def _served(workload: Workload, demand: Demand) -> Workload:
    """The workload at the demand's batch, with sequences half way through their output."""
    length = min(demand.context_tokens, demand.prompt_tokens + demand.output_tokens // 2)
    return replace(workload, batch=demand.batch, context_tokens=max(length, 1))


def _table(
    draft: Draft, rates: Acceptance, times_at: StepTimesAt, k_range: tuple[int, int]
) -> Iterable[tuple[int, Range]]:
    """Each k with its speedup, for every k that is covered, whether offered or not."""
    yield 0, Range.point(1.0)
    for k in range(1, max(LARGEST_K, k_range[1]) + 1):
        times = times_at(k)
        if times is not None:
            cycle = cycle_ratio_of(times, draft_passes(draft.method, k))
            yield k, speedup_range(mean_acceptance_length(rates, k), cycle)


def _notes(
    target: Model, draft: Draft, demand: Demand, workload: Workload, k_range: tuple[int, int], offered: list[int]
) -> Iterable[str]:
    if not offered:
        most = demand.batch * (k_range[0] + 1)
        yield (
            f"batch {demand.batch} with k = {k_range[0]} verifies {most} tokens at once; "
            f"published measurements reach {covered_tokens()}: measure it, nothing is extrapolated beyond"
        )
    elif max(offered) < k_range[1]:
        yield f"k above {max(offered)} at batch {demand.batch} is beyond what published measurements cover"
    if demand.batch > 1:
        yield "more than one sequence at once: few published measurements, so treat the range as rough"
    if target.architecture.experts:
        yield "mixture of experts: verifying several tokens reads more experts; even the sign may be wrong"
    if workload.tp > 1:
        yield "the cost of all-reduces between these devices is assumed, not measured"
    if draft.model is not None and draft.model.architecture.experts:
        yield "the draft is a mixture of experts itself"


def _cost_source(times: StepTimes | None, *, on_host: bool) -> str:
    if times is not None:
        return times.source
    return "by bytes and depth alone, as on a GPU" if on_host else "beyond what measurements cover"


def _cost(target: Model, draft: Draft, device: Device | None, served: Workload, times: StepTimes | None) -> Range:
    if times is not None:
        return cost_ratio_of(times)
    # Beyond what is covered the draft's cost at batch 1 still tells something; the speedup stays untold.
    alone = model_step_times(target, draft, device, replace(served, batch=1), 1)
    return Range.point(0.0) if alone is None else cost_ratio_of(alone)


def _prefill_share(
    target: Model, device: Device | None, served: Workload, demand: Demand, times: StepTimes
) -> Range:
    """Prefill's share of the time without speculation: all prompts of the batch, then the steps."""
    one = prefill_seconds(target, device, served, demand.prompt_tokens)
    decode = Range(
        low=demand.output_tokens * times.target_seconds.low, high=demand.output_tokens * times.target_seconds.high
    )
    # A faster device does both faster: bounds are paired, not crossed.
    shares = [
        demand.batch * read / (demand.batch * read + spent) if read + spent else 0.0
        for read, spent in ((one.low, decode.low), (one.high, decode.high))
    ]
    return Range(low=min(shares), high=max(shares))


def _stops_paying(
    target: Model, draft: Draft, device: Device | None, served: Workload, rates: Acceptance, k: int
) -> int | None:
    """The smallest power of two of sequences at which the whole range at this k lies below 1."""
    if k == 0:
        return None
    batch = 1
    length = mean_acceptance_length(rates, k)
    while batch <= _LARGEST_BATCH_TRIED:
        times = model_step_times(target, draft, device, replace(served, batch=batch), k)
        if times is None:
            return None
        if speedup_range(length, cycle_ratio_of(times, draft_passes(draft.method, k))).high < 1:
            return batch
        batch *= 2
    return None
