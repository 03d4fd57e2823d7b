"""What vLLM says of its memory when it starts, read from its log. Standard library only; the log is not trusted.

vLLM prints GiB rounded to two decimals (older releases: up to four, and some say "GB" for the same unit), so a
figure in bytes is right to about 5 MiB. Where several ranks print a line, the one that binds is kept: the largest
use, the smallest pool. Sources: vLLM 0.32.0 ``v1/worker/gpu_worker.py``, ``v1/worker/gpu/model_runner.py``,
``v1/worker/cpu_worker.py``, ``v1/core/kv_cache_utils.py``, ``v1/engine/core.py``; logs of 0.8 to 0.27 in issues.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

_GIB: Final = 1 << 30
#: Engines speak of their memory at the start, so the head of a long log is enough.
_LONGEST_CHARACTERS: Final = 4 << 20
_LONGEST_SENTENCE: Final = 600
_LONGEST_TEXT: Final = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLog:
    """Bytes, tokens and the release as the engine printed them; None for what it did not print.

    ``weights_bytes``: all models that were loaded, on one rank. ``kv_cache_bytes``: what the pool may take.
    ``kv_cache_tokens``, ``max_concurrency`` and ``max_model_len`` stand in one sentence of the log.
    ``consumed_bytes``: weights and what lies outside torch, ``activation_bytes`` the peak of the profiling run;
    both are printed from 0.26 on where the pool is not pinned (older ones print the second alone).
    """

    version: str | None = None
    weights_bytes: int | None = None
    kv_cache_bytes: int | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    max_model_len: int | None = None
    cuda_graph_bytes: int | None = None
    cuda_graph_estimate_bytes: int | None = None
    consumed_bytes: int | None = None
    activation_bytes: int | None = None


def _patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    """Sizes are written SIZE, counts COUNT; every repetition is bounded."""
    size, count = r"(\d{1,9}(?:\.\d{1,9})?)", r"(\d[\d,]{0,17})"
    return tuple(re.compile(text.replace("SIZE", size).replace("COUNT", count), re.ASCII) for text in texts)


_VERSION: Final = re.compile(r"Initializing an? (?:V\d )?LLM engine \(v([\w.+-]{1,60})\)", re.ASCII)
_WEIGHTS: Final = _patterns(
    r"Model loading took SIZE Gi?B", r"Loading model weights took SIZE Gi?B", r"model weights take SIZE ?GiB"
)
_POOL: Final = _patterns(
    r"Available KV cache memory: SIZE GiB",
    r"reserved SIZE GiB memory for KV Cache as specified",
    r"(?:Explicitly|Auto) set \(SIZE/[\d.]{1,20}\) GiB for KV cache",
    r"the rest of the memory reserved for KV Cache is SIZE ?GiB",
)
_TOKENS: Final = _patterns(r"KV cache size: COUNT tokens")
_CONCURRENCY: Final = _patterns(r"Maximum concurrency for [\d,]{1,18} tokens per request: SIZE ?x")
_LENGTH: Final = _patterns(r"Maximum concurrency for COUNT tokens per request")
_GRAPHS: Final = _patterns(
    r"Graph capturing finished in \d{1,6} secs, took SIZE GiB", r"CUDA graph pool memory: SIZE GiB \(actual"
)
_GRAPH_ESTIMATE: Final = _patterns(r"Estimated CUDA graph memory: SIZE GiB total")
_CONSUMED: Final = _patterns(r"Actual usage is SIZE GiB for consumed memory")
_ACTIVATION: Final = _patterns(r"SIZE GiB for peak activation", r"PyTorch activation peak memory takes SIZE ?GiB")


def read_engine_log(text: str) -> EngineLog:
    """The figures of the start, as far as they are printed. Never fails; looks at the first 4 Mi characters."""
    text = text[:_LONGEST_CHARACTERS]
    version = _VERSION.search(text)
    return EngineLog(
        version=version[1] if version else None,
        weights_bytes=_bytes(text, _WEIGHTS, max),
        kv_cache_bytes=_bytes(text, _POOL, min),
        kv_cache_tokens=_count(text, _TOKENS),
        max_concurrency=_pick(text, _CONCURRENCY, min),
        max_model_len=_count(text, _LENGTH),
        cuda_graph_bytes=_bytes(text, _GRAPHS, max),
        cuda_graph_estimate_bytes=_bytes(text, _GRAPH_ESTIMATE, max),
        consumed_bytes=_bytes(text, _CONSUMED, max),
        activation_bytes=_bytes(text, _ACTIVATION, max),
    )


def _pick(
    text: str, patterns: Iterable[re.Pattern[str]], choose: Callable[[Iterable[float]], float]
) -> float | None:
    """The binding one of all values that the first pattern with any finds."""
    for pattern in patterns:
        found = [float(value.replace(",", "")) for value in pattern.findall(text)]
        if found:
            return choose(found)
    return None


def _bytes(
    text: str, patterns: Iterable[re.Pattern[str]], choose: Callable[[Iterable[float]], float]
) -> int | None:
    found = _pick(text, patterns, choose)
    return None if found is None else round(found * _GIB)


def _count(text: str, patterns: Iterable[re.Pattern[str]]) -> int | None:
    found = _pick(text, patterns, min)
    return None if found is None else int(found)


#: What vLLM, torch and the kernel say when memory is the reason.
_MEMORY: Final = (
    "no available memory for the cache blocks",
    "larger than the available kv cache memory",
    "out of memory",
    "outofmemory",
    "less than desired gpu memory utilization",
    "less than desired cpu memory utilization",
    "is less than requested memory for kv",
    "not enough gpu memory",
    "can't allocate memory",
    "memoryerror",
)
_WEIGHT_FILES: Final = ("cannot find any model weights", "safetensorerror", "error while deserializing header")
#: The parent's sentences about a child that died: the child's own stands further up.
_SECOND_HAND: Final = (
    "see root cause",
    "see stack trace",
    "initialization failed",
    "please check the stack trace",
)
_ERROR_LINE: Final = re.compile(r"\b([A-Za-z_][\w.]{0,80}(?:Error|Exception)): ([^\n]{1,1000})", re.ASCII)
_PYDANTIC_HEAD: Final = re.compile(r"\d{1,4} validation errors? for \w{1,80}$", re.ASCII)
#: How the names of exceptions end by which vLLM refuses a configuration or a request.
_REFUSALS: Final = ("ValueError", "ValidationError", "NotImplementedError", "TypeError", "AssertionError")


def failure_code(kind: str, text: str) -> str:
    """The trial's error code for an exception's class and words: memory and weights first, then a refusal."""
    words = f"{kind} {text}".lower()
    if any(sign in words for sign in _MEMORY):
        return "out_of_memory"
    if any(sign in words for sign in _WEIGHT_FILES):
        return "weights"
    if kind in {"ImportError", "ModuleNotFoundError"}:
        return "missing_import"
    return "engine_refused" if kind.endswith(_REFUSALS) else "failed"


def root_cause(text: str) -> tuple[str, str] | None:
    """Class and words of the last error in a log that is not a parent's word about its child; None without one."""
    found = None
    for match in _ERROR_LINE.finditer(text[-_LONGEST_CHARACTERS:]):
        kind, words = match[1].rpartition(".")[2], match[2].strip()
        if not any(sign in words.lower() for sign in _SECOND_HAND):
            found = kind, words[:_LONGEST_SENTENCE]
    return found


def one_sentence(text: str) -> str:
    """An engine's message on one line, without pydantic's head and pointer to its manual."""
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith("For further information visit")]
    if len(kept) > 1 and _PYDANTIC_HEAD.match(kept[0]):
        kept = kept[1:]
    return " ".join(kept)[:_LONGEST_TEXT]


def is_second_hand(text: str) -> bool:
    """Whether the sentence only says that another process failed."""
    return any(sign in text.lower() for sign in _SECOND_HAND)
