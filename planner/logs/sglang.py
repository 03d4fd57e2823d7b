"""What SGLang prints when it starts: its settings and its memory. Standard library only; not trusted.

SGLang says GB and means GiB, with two decimals. ``Load weight end ... mem usage=`` is the drop of free memory, so
what libraries take meanwhile is in it; the target is loaded first, a draft after it. Sources: SGLang 0.5
``model_executor/model_runner.py`` and ``mem_cache/memory_pool.py``; logs in sgl-project/sglang#12726, #18263 and
vllm-project/vllm#21348.
"""

import re
from typing import Final

from planner.logs.literals import flag, read_pairs, share, whole, words
from planner.logs.settings import MOST_DEVICES, MOST_DRAFTED, MOST_SEQUENCES, MOST_TOKENS, LogSettings

_GIB: Final = 1 << 30
_ARGUMENTS: Final = re.compile(r"server_args=ServerArgs\(")
_SIZE: Final = r"(\d{1,9}(?:\.\d{1,9})?)"
_LOADED: Final = re.compile(
    rf"Load weight end\.(?: elapsed=[\d.]{{1,12}} s,)? type=(\w{{1,80}}),[^\n]{{0,200}}?mem usage={_SIZE} GB",
    re.ASCII,
)
_POOL: Final = re.compile(
    rf"KV Cache is allocated\.[^\n]{{0,80}}? #tokens: (\d{{1,15}}), (?:K size: {_SIZE} GB, V size: {_SIZE} GB|"
    rf"KV size: {_SIZE} GB)",
    re.ASCII,
)
_LENGTH: Final = re.compile(r"max_total_num_tokens=(\d{1,15})[^\n]{0,200}? context_len=(\d{1,10})", re.ASCII)
_GRAPHS: Final = re.compile(rf"Capture cuda graph end\.[^\n]{{0,80}}? mem usage={_SIZE} GB", re.ASCII)
_VERSION: Final = re.compile(r"(?i)sglang(?:==|\s+version:? |-)v?(\d{1,3}\.\d{1,3}\.[\w.]{1,30})", re.ASCII)
#: SGLang's algorithms by the names that the plan has for them.
_METHODS: Final = {
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "NEXTN": "mtp",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
    "DFLASH": "dflash",
    "DSPARK": "dspark",
}


def sglang_settings(text: str) -> tuple[LogSettings, int]:
    """The settings of one start of SGLang, and how many of its lines could not be read."""
    begin = _ARGUMENTS.search(text)
    length = _LENGTH.search(text)
    if begin is None and length is None and not _LOADED.search(text) and not _POOL.search(text):
        return LogSettings(), 0
    given = {} if begin is None else read_pairs(text, begin.end(), "=")
    version = _VERSION.search(text)
    cache = words(given.get("kv_cache_dtype"))
    dtype = words(given.get("dtype"))
    algorithm = words(given.get("speculative_algorithm"))
    steps = whole(given.get("speculative_num_steps"), most=MOST_DRAFTED)
    return LogSettings(
        engine="sglang",
        version=version[1] if version else None,
        model=words(given.get("model_path")),
        dtype=None if dtype == "auto" else dtype,
        quantization=words(given.get("quantization")),
        context_tokens=int(length[2]) or None if length else whole(given.get("context_length"), most=MOST_TOKENS),
        tp=whole(given.get("tp_size"), most=MOST_DEVICES),
        pp=whole(given.get("pp_size"), most=MOST_DEVICES),
        kv_cache_dtype=cache,
        gpu_memory_utilization=share(given.get("mem_fraction_static")),
        max_num_seqs=whole(given.get("max_running_requests"), most=MOST_SEQUENCES),
        max_num_batched_tokens=whole(given.get("chunked_prefill_size"), most=MOST_TOKENS),
        enforce_eager=flag(given.get("disable_cuda_graph")),
        draft_method=None if algorithm is None else _METHODS.get(algorithm.upper(), algorithm),
        draft_model=words(given.get("speculative_draft_model_path")),
        num_speculative_tokens=steps,
        asked=begin is not None,
        served=True,
    ), int(begin is not None and not given)


def sglang_figures(text: str) -> dict[str, int]:
    """Bytes and tokens by the names of ``readings.Readings``; only what was printed."""
    found: dict[str, int] = {}
    loaded = _LOADED.findall(text)
    if loaded:
        target = loaded[0][0]
        found["weights_bytes"] = _bytes(max(float(size) for kind, size in loaded if kind == target))
        drafts = [float(size) for kind, size in loaded if kind != target]
        if drafts:
            found["draft_weights_bytes"] = _bytes(max(drafts))
    pool = _POOL.search(text)
    if pool is not None:
        found["kv_cache_tokens"] = int(pool[1])
        found["kv_cache_bytes"] = _bytes(float(pool[4]) if pool[4] else float(pool[2]) + float(pool[3]))
        # Two figures are rounded, each to two decimals.
        found["kv_cache_rounding_bytes"] = _GIB // 200 * (1 if pool[4] else 2) + 2
    graphs = _GRAPHS.findall(text)
    if graphs:
        found["cuda_graph_bytes"] = _bytes(max(map(float, graphs)))
    return found


def _bytes(gib: float) -> int:
    return round(gib * _GIB)
