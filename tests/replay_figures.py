"""What the replays of engine logs come to: each figure with its goal, on the rows that were not fitted.

Owns the goals, the tolerances and the list of misses with what is known of each. Plans nothing itself.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from replay import LACKED_MEMORY, STARTED, Line, Replay, with_line

from planner.engines.vllm_shape import release_of

#: Quantities that the plan knows to a point, and how far off the log's figure counts as a miss.
POINTS: Final = {
    "weights": 0.01,
    "bytes a token": 0.01,
    "KV tokens": 0.01,
    "max concurrency": 0.01,
    "KV needed": 0.01,
}
_POOL: Final = ("KV tokens", "bytes a token", "max concurrency")
_GEMMA3: Final = "0.6 GiB more is held after loading than the checkpoint has, unexplained"
#: vLLM 0.32's planner, asked with V4's layers and the settings of vllm#51041's second row, answers 140,064 tokens
#: with 8,192 batched tokens and 463,170 with 2,048; the log's 150,992 do not say which.
_V4: Final = (
    "DeepSeek V4's packed pages and compressor states are not laid out here; nor are the batched tokens stated, "
    "from which the engine's answer follows"
)
_ESTIMATE: Final = "the engine's own estimate was about twice what capture took"
_RETURNED: Final = "capture returned more memory than it took: its reading is below zero"
#: (row, quantity) -> what is known of a miss. Published, not hidden; a test holds the list to be complete.
MISSES: Final = {
    ("h100-019-google-gemma-3-12b-it-tp1pp1dp1-8192", "weights"): _GEMMA3,
    ("h100-019-google-gemma-3-12b-it-tp1pp1dp1-8192", "available KV"): "follows from its weights",
    ("h100-019-google-gemma-3-4b-it-tp1pp1dp1-8192", "weights"): _GEMMA3,
    ("h100-019-google-gemma-3-4b-it-tp1pp1dp1-8192", "available KV"): "follows from its weights",
    ("h100-019-granite-3-1-2b-tp1pp1dp1-8192", "graphs charged"): _ESTIMATE,
    ("h100-019-meta-llama-llama-3-1-8b-tp2pp1dp1-8192", "graphs charged"): _ESTIMATE,
    ("h100-019-w8a8-mistral-small-24b-tp2pp1dp1-8192", "graphs charged"): _ESTIMATE,
    ("llmd-q3-32b", "graphs taken"): _RETURNED,
    ("llmd-q3-32b-tp2", "graphs taken"): _RETURNED,
    ("vllm-13061", "weights"): "1.2 % above the checkpoint under the V0 engine, unexplained",
    **{(row, quantity): _V4 for row in ("vllm-51041-preview", "vllm-51041-0731") for quantity in _POOL},
    ("vllm-44376", "KV needed"): _V4,
    ("vllm-51494", "KV tokens, predicted"): (
        "neither the fraction nor the memory left is stated; 18 % fewer tokens than planned, unexplained"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure over some rows: its value, the goal, and how many comparisons stand behind it."""

    name: str
    goal: str
    value: float | None
    count: int
    reached: bool
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """One comparison that failed."""

    replay: Replay
    line: Line
    reason: str


def figures(found: Sequence[Replay]) -> tuple[Figure, ...]:
    """Every figure that has a goal, over these replays."""
    plain = [each for each in found if each.kind != "hybrid"]
    hybrids = [each for each in found if each.kind == "hybrid"]
    per_token, mean, median = "bytes a token", statistics.fmean, statistics.median
    return (
        _error("weights of a rank, mean error", _errors("weights", found), mean, 0.007),
        _error("cache bytes a token, dense and latent, mean error", _errors(per_token, plain), mean, 0.003),
        _error("cache bytes a token, hybrids, mean error", _errors(per_token, hybrids), mean, 0.04),
        _error("KV tokens from the memory left, median error", _errors("KV tokens", found), median, 0.02),
        _held("activation + non-torch + graphs within the bounds", with_line("non-KV", found), 0.9),
        _error("bounds of all lines, median share of the device", _widths(found), median, 0.12),
        _verdicts("failed for lack of memory, judged `fits`", found, LACKED_MEMORY),
        _verdicts("started, judged `does_not_fit`", found, STARTED),
    )


def missed(found: Iterable[Replay]) -> tuple[Missed, ...]:
    """Every comparison beyond its tolerance or outside its bounds."""
    return tuple(
        Missed(replay=each, line=line, reason=MISSES.get((each.row.id, line.quantity), ""))
        for each in found
        for line in each.lines
        if line.apart is None and not holds(line)
    )


def holds(line: Line) -> bool:
    """Whether a comparison counts as held: within 1 % of the bounds for points, within the bounds else."""
    tolerance = POINTS.get(line.quantity)
    if tolerance is None:
        return line.inside
    return line.low * (1 - tolerance) <= line.measured + line.rounding and (
        line.measured - line.rounding <= line.high * (1 + tolerance)
    )


#: Releases whose overheads differ: the sampler's sort went with 0.17, graphs are charged since 0.21.
RELEASES: Final[tuple[tuple[str, Callable[[str | None], bool]], ...]] = (
    ("0.8 to 0.16", lambda version: version is not None and release_of(version) < (0, 17)),
    ("0.17 to 0.20", lambda version: version is not None and (0, 17) <= release_of(version) < (0, 21)),
    ("0.21 and later", lambda version: version is not None and release_of(version) >= (0, 21)),
    ("not stated", lambda version: version is None),
)


def of_release(name: str, found: Iterable[Replay]) -> list[Replay]:
    """The replays of V1 starts under one of ``RELEASES``."""
    belongs = dict(RELEASES)[name]
    return [each for each in found if each.row.v1_engine and belongs(each.row.facts.get("version"))]


def _errors(quantity: str, found: Iterable[Replay]) -> list[float]:
    return [abs(line.error) for _, line in with_line(quantity, found)]


def _widths(found: Iterable[Replay]) -> list[float]:
    return [each.width_share for each in found if each.width_share is not None]


def _error(name: str, values: Sequence[float], mean: Callable[[Sequence[float]], float], goal: float) -> Figure:
    value = mean(values) if values else None
    return Figure(
        name=name,
        goal=f"at most {100 * goal:g} %",
        value=value,
        count=len(values),
        reached=value is not None and value <= goal,
        shown="no row" if value is None else f"{100 * value:.2f} % of {len(values)} rows",
    )


def _held(name: str, pairs: Sequence[tuple[Replay, Line]], goal: float) -> Figure:
    held = sum(line.inside for _, line in pairs)
    share = held / len(pairs) if pairs else None
    return Figure(
        name=name,
        goal=f"at least {100 * goal:g} %",
        value=share,
        count=len(pairs),
        reached=share is not None and share >= goal,
        shown="no row" if share is None else f"{held} of {len(pairs)} rows ({100 * share:.0f} %)",
    )


def _verdicts(name: str, found: Iterable[Replay], outcomes: frozenset[str]) -> Figure:
    judged = [each for each in found if each.answer is not None and each.row.facts["outcome"] in outcomes]
    wrong = sum(each.wrong_answer for each in judged)
    return Figure(
        name=name,
        goal="none",
        value=float(wrong),
        count=len(judged),
        reached=wrong == 0,
        shown=f"{wrong} of {len(judged)} rows",
    )
