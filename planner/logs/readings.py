"""One start-up log as a whole: which start of several, its settings, its figures, and the error it ended with.

The text is not trusted: it is read up to a limit, colour codes are dropped, overlong lines are left out and
counted, and every pattern is bounded. Nothing here fails on any text.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

from planner.logs.settings import LogSettings, machine, vllm_settings
from planner.logs.sglang import sglang_figures, sglang_settings
from planner.trial.serving.log import failure_code, read_engine_log, root_cause

#: What is read of a file; logs of busy servers are longer, but engines speak of their memory when they start.
MOST_BYTES: Final = 16 << 20
#: Banner and first warnings; more than that is another program's.
_BEFORE_START: Final = 256 << 10
_LONGEST_LINE: Final = 128 << 10
_GIB: Final = 1 << 30
#: Half of the last digit that engines print, rounded up.
ROUNDING_BYTES: Final = _GIB // 200 + 1
_COLOR: Final = re.compile(r"\x1b\[[0-9;]{0,20}m")
_STARTS: Final = (
    re.compile(r"non-default args: \{|\bargs: Namespace\(|server_args=ServerArgs\("),
    re.compile(r"Initializing an? (?:V\d )?LLM engine \(v"),
)
_SIZE: Final = r"(\d{1,9}(?:\.\d{1,9})?)"
_FREE: Final = re.compile(
    rf"Free memory on device(?: \w{{1,20}}:\d{{1,3}})? \({_SIZE}/{_SIZE} GiB\) on startup", re.ASCII
)
_SNAPSHOT: Final = re.compile(rf"free_memory={_SIZE}GiB, total_memory={_SIZE}GiB", re.ASCII)
_CAPACITY: Final = re.compile(rf"GPU \d{{1,3}} has a total capacity of {_SIZE} GiB", re.ASCII)
_DESIRED: Final = re.compile(
    r"[Dd]esired GPU memory utilization (?:is )?\((0?\.\d{1,6}|1(?:\.0{1,6})?), ", re.ASCII
)
_REQUESTED: Final = re.compile(r"Requested memory: (0?\.\d{1,6}|1\.0{1,6}) \(util\)", re.ASCII)
_NON_TORCH: Final = re.compile(
    rf"non-torch forward increase memory: {_SIZE}GiB|non_torch_memory takes {_SIZE} ?GiB", re.ASCII
)
_PEAK: Final = re.compile(rf"torch peak memory increase: {_SIZE}GiB", re.ASCII)
_PINNED: Final = re.compile(
    rf"reserved {_SIZE} GiB memory for KV Cache as specified|(?:Explicitly|Auto) set \({_SIZE}/", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Bytes and tokens as printed, of the rank that binds: the largest use, the smallest room. None: not printed.

    ``non_torch_bytes``: what grew outside torch while loading and profiling. ``consumed_bytes``: that, the weights
    and the persistent buffers. ``kv_cache_pinned``: the pool was not sized by the engine. ``draft_weights_bytes``
    is printed by SGLang alone; vLLM counts a draft in ``weights_bytes``.
    """

    weights_bytes: int | None = None
    draft_weights_bytes: int | None = None
    consumed_bytes: int | None = None
    non_torch_bytes: int | None = None
    activation_bytes: int | None = None
    cuda_graph_bytes: int | None = None
    cuda_graph_estimate_bytes: int | None = None
    kv_cache_bytes: int | None = None
    kv_cache_rounding_bytes: int = ROUNDING_BYTES
    kv_cache_pinned: bool = False
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    device_total_bytes: int | None = None
    device_free_bytes: int | None = None

    @property
    def any(self) -> bool:
        """Whether anything was printed that a plan has a line for."""
        figures = (self.weights_bytes, self.consumed_bytes, self.activation_bytes, self.cuda_graph_bytes)
        pool = (self.kv_cache_bytes, self.kv_cache_tokens, self.max_concurrency)
        return any(value is not None for value in (*figures, *pool))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailure:
    """The error that a log ends with: a code of ours (``out_of_memory`` among them), its class and its words."""

    code: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLog:
    """A log, read. ``starts``: how many it holds, of which the last is told; ``ignored_lines``: odd ones."""

    settings: LogSettings
    readings: Readings
    failure: StartFailure | None
    starts: int
    ignored_lines: int


def read_log(text: str) -> StartLog:
    """What a start-up log says; never fails."""
    cleaned, ignored = _clean(text)
    start, starts = _last_start(cleaned)
    settings, odd = vllm_settings(start)
    if settings.engine is None:
        settings, unread = sglang_settings(start)
        odd += unread
    settings = machine(cleaned, settings)
    if settings.engine == "sglang":
        readings = _sglang_readings(start)
    else:
        readings = _vllm_readings(start)
        settings = replace(settings, gpu_memory_utilization=_utilization(start, settings))
        if settings.engine is None and readings.any:
            settings = replace(settings, engine="vllm")
    return StartLog(
        settings=settings,
        readings=readings,
        failure=_failure(start),
        starts=starts,
        ignored_lines=ignored + odd,
    )


def _clean(text: str) -> tuple[str, int]:
    """Without colours and without overlong lines, which are counted."""
    kept, dropped = [], 0
    for line in _COLOR.sub("", text).split("\n"):
        if len(line) > _LONGEST_LINE:
            dropped += 1
        else:
            kept.append(line)
    return "\n".join(kept), dropped


def _last_start(text: str) -> tuple[str, int]:
    """The text from the line on that begins the last start, and how many starts there are.

    Of a single start what stands before it is kept, as far as it can belong to it.
    """
    for pattern in _STARTS:
        found = [match.start() for match in pattern.finditer(text)]
        if len(found) > 1:
            return text[text.rfind("\n", 0, found[-1]) + 1 :], len(found)
        if found:
            return text[text.rfind("\n", 0, max(0, found[0] - _BEFORE_START)) + 1 :], 1
    return text, 1


def _vllm_readings(text: str) -> Readings:
    log = read_engine_log(text)
    free, total = _memory(text)
    return Readings(
        weights_bytes=log.weights_bytes,
        consumed_bytes=log.consumed_bytes,
        non_torch_bytes=_most(text, _NON_TORCH),
        activation_bytes=log.activation_bytes if log.activation_bytes is not None else _most(text, _PEAK),
        cuda_graph_bytes=log.cuda_graph_bytes,
        cuda_graph_estimate_bytes=log.cuda_graph_estimate_bytes,
        kv_cache_bytes=log.kv_cache_bytes,
        kv_cache_pinned=_PINNED.search(text) is not None,
        kv_cache_tokens=log.kv_cache_tokens,
        max_concurrency=log.max_concurrency,
        device_total_bytes=total,
        device_free_bytes=free,
    )


def _sglang_readings(text: str) -> Readings:
    figures = sglang_figures(text)
    return Readings(
        weights_bytes=figures.get("weights_bytes"),
        draft_weights_bytes=figures.get("draft_weights_bytes"),
        cuda_graph_bytes=figures.get("cuda_graph_bytes"),
        kv_cache_bytes=figures.get("kv_cache_bytes"),
        kv_cache_rounding_bytes=figures.get("kv_cache_rounding_bytes", ROUNDING_BYTES),
        kv_cache_tokens=figures.get("kv_cache_tokens"),
    )


def _memory(text: str) -> tuple[int | None, int | None]:
    """(free, total) of the device with the least free at start."""
    pairs = [(float(free), float(total)) for free, total in (*_FREE.findall(text), *_SNAPSHOT.findall(text))]
    if not pairs:
        capacity = _CAPACITY.search(text)
        return None, _bytes(float(capacity[1])) if capacity else None
    free, total = min(pairs)
    return _bytes(free), _bytes(total) or None


def _most(text: str, pattern: re.Pattern[str]) -> int | None:
    """The largest of what a pattern finds; it may have one group or two, of which one matches."""
    found = [max(match) if isinstance(match, tuple) else match for match in pattern.findall(text)]
    return _bytes(max(map(float, found))) if found else None


def _utilization(text: str, settings: LogSettings) -> float | None:
    if settings.gpu_memory_utilization is not None:
        return settings.gpu_memory_utilization
    found = _DESIRED.search(text) or _REQUESTED.search(text)
    value = float(found[1]) if found else 0.0
    return value if 0 < value <= 1 else None


def _failure(text: str) -> StartFailure | None:
    """The last error, where the log has one: nothing is told of errors before a start that went well."""
    cause = root_cause(text)
    if cause is None:
        return None
    kind, words = cause
    return StartFailure(code=failure_code(kind, words), kind=kind, text=words)


def _bytes(gib: float) -> int:
    return round(gib * _GIB)
