"""What ``llama-server`` says of itself in its log: buffers, devices, and why it ended. Standard library only.

The log is not trusted: nothing here fails on it. MiB are printed with two decimals, so a size in bytes is right to
about 5 KiB. Sources: llama.cpp b10434 and b11434: ``src/llama-model.cpp``, ``src/llama-kv-cache.cpp``,
``src/llama-context.cpp`` (buffers), ``common/speculative.cpp``, ``tools/server/server-context.cpp`` (a draft that
is not taken), ``ggml/src/ggml-backend.cpp`` (memory); older wordings from issues of 2024 and 2025.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_MIB: Final = 1 << 20
_LONGEST: Final = 300
_BUFFER: Final = re.compile(
    r"(\S{1,40}) +(model|KV|RS|compute|output) buffer size = {0,12}(\d{1,9}(?:\.\d{1,4})?) MiB", re.ASCII
)
_KINDS: Final = {
    "model": "weights_bytes",
    "KV": "kv_cache_bytes",
    "RS": "recurrent_state_bytes",
    "compute": "compute_bytes",
    "output": "output_bytes",
}
_USED: Final = re.compile(r"using device (\w{1,30}) \(([^)\n]{1,100})\)")
_LISTED: Final = re.compile(r"^ {2,}(\w{1,30}): (.{1,100}?) \(\d", re.MULTILINE)
_THREADS: Final = re.compile(r"n_threads = (\d{1,5})\b")
_VERSION: Final = re.compile(r"^version: (.{1,80})$", re.MULTILINE)
_DRAFTS: Final = re.compile(r"^llamacpp:spec_decode_num_drafts_total (\d{1,15})", re.MULTILINE)
_POSITIONS: Final = re.compile(
    r'^llamacpp:spec_decode_num_accepted_tokens_per_pos_total\{position="(\d{1,4})"\} (\d{1,15})', re.MULTILINE
)
#: Seconds and level before a line of newer releases.
_PREFIX: Final = re.compile(r"^(?:\d{1,6}\.\d\d\.\d{3}\.\d{3} [A-Z] )?\s*")
_MEMORY: Final = (
    "out of memory",
    "outofmemory",
    "outofdevicememory",
    "unable to allocate",
    "failed to allocate",
    "cudamalloc failed",
    "cannot allocate memory",
    "bad_alloc",
)
_OPTIONS: Final = ("error: invalid argument", "error while handling argument", "argument has been removed")
#: A pair that is not taken. Newer releases go on without speculation, older ones end.
_REFUSED: Final = (
    "must match target model to use speculation",
    "must closely match target model to use speculation",
    "draft model vocab must",
    "draft model special tokens must",
    "vocabs are not compatible",
    "is not compatible with the target model",
    "failed to initialize speculative decoding context",
    "speculative decoding not supported by this context",
    "speculative decoding is not supported",
)
_TRANSLATED: Final = "translated between"
_WEIGHTS: Final = (
    "error loading model",
    "failed to load model",
    "failed to load draft model",
    "failed to open gguf",
    "gguf_init_from",
    "unknown model architecture",
)


def buffers(text: str) -> dict[str, dict[str, int]]:
    """Bytes by device and kind, models and contexts of a pair together; empty where nothing is told."""
    found: dict[str, dict[str, int]] = {}
    for device, kind, size in _BUFFER.findall(text):
        kinds = found.setdefault(device, {})
        kinds[_KINDS[kind]] = kinds.get(_KINDS[kind], 0) + round(float(size) * _MIB)
    return found


def on_device(found: dict[str, dict[str, int]]) -> dict[str, int]:
    """The bytes by kind on all GPUs; where there is no GPU, of the host."""
    gpus = [kinds for device, kinds in found.items() if not device.startswith("CPU") and "Host" not in device]
    totals: dict[str, int] = {}
    for kinds in gpus or found.values():
        for kind, size in kinds.items():
            totals[kind] = totals.get(kind, 0) + size
    return totals


def used_devices(text: str) -> list[tuple[str, str]]:
    """Name and description of the GPUs that the models were given, such as ("CUDA0", "NVIDIA H200")."""
    return list(dict.fromkeys(_USED.findall(text)))


def listed_devices(text: str) -> list[tuple[str, str]]:
    """The same of what ``--list-devices`` prints."""
    return _LISTED.findall(text)


def threads(text: str) -> int | None:
    """The threads that serve."""
    found = _THREADS.search(text)
    return int(found[1]) if found else None


def version(text: str) -> str | None:
    """The release, of what ``--version`` prints."""
    found = _VERSION.search(text)
    return found[1].strip() if found else None


def refusal(text: str) -> str | None:
    """The sentence in which the draft is refused, or None: a server of 2025 translates instead of refusing."""
    return None if translates(text) else _line(text, _REFUSED)


def translates(text: str) -> bool:
    """Whether the server, of 2025, translates between two vocabularies by way of text."""
    return _TRANSLATED in text


def failure(text: str) -> tuple[str, str]:
    """Code and sentence of a server that ended: the first line that names a reason, else the last line."""
    for code, found in (
        # Memory that is only not pinned is no reason to end.
        ("out_of_memory", _line(text, _MEMORY, but="pinned memory")),
        ("engine_options", _line(text, _OPTIONS)),
        ("engine_refused", refusal(text)),
        ("weights", _line(text, _WEIGHTS)),
    ):
        if found is not None:
            return code, found
    lines = [line for line in map(_bare, text.splitlines()) if line]
    return "failed", lines[-1] if lines else "it printed nothing"


def _line(text: str, words: Iterable[str], *, but: str | None = None) -> str | None:
    for line in text.splitlines():
        low = line.lower()
        if any(word in low for word in words) and (but is None or but not in low):
            return _bare(line)
    return None


def _bare(line: str) -> str:
    return _PREFIX.sub("", line).strip()[:_LONGEST]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Rounds, and how often each position was accepted, since the server started; None or empty where untold."""

    drafts: int | None = None
    positions: tuple[int, ...] = ()


def read_counters(text: str) -> Counters:
    """What ``/metrics`` prints (``tools/server/server-task.cpp`` of b10434); older releases tell neither."""
    drafts = _DRAFTS.search(text)
    positions = sorted((int(place), int(count)) for place, count in _POSITIONS.findall(text))
    return Counters(drafts=int(drafts[1]) if drafts else None, positions=tuple(count for _, count in positions))
