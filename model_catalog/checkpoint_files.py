"""Which files of a repo an engine loads: one complete set of safetensors, without its copies and variants.

Owns the choice by name. Reads nothing. Where the repo has an index, the index names the files instead.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from model_catalog.snapshot import RepoFile

_SHARD: Final = re.compile(r"(?P<stem>.+?)[-_](?P<number>\d{3,6})-of-(?P<total>\d{3,6})\.safetensors")
#: Best first: the names that transformers writes, then Mistral's own, which repeat the same weights.
_PREFERRED: Final = ("model", "pytorch_model", "consolidated")
#: Weights for something else than loading the model as it is.
_NOT_WEIGHTS: Final = ("adapter", "optimizer", "training", "scheduler", "lora", "rng_state", "ema", "vae")
_VARIANT: Final = re.compile(r"[.](?:fp16|bf16|fp32|fp8|int8|int4|ema|non_ema|onnx)[.-]")


def checkpoint_files(files: Sequence[RepoFile], config: Mapping[str, Any]) -> tuple[RepoFile, ...]:
    """The safetensors files that an engine loads, in the order of their names; empty where there are none.

    Only files at the repo's top count (``original/`` and ``onnx/`` hold copies). A set of shards is taken whole
    or not at all. ``config``: ``transformers_weights`` names the file where the repo says so itself.
    """
    named = config.get("transformers_weights")
    candidates = [file for file in files if _is_candidate(file.path)]
    if isinstance(named, str):
        chosen = [file for file in candidates if file.path == named]
        if chosen:
            return tuple(chosen)
    sets = _complete_sets(candidates)
    if not sets:
        return ()
    best = min(sets, key=lambda stem: (_preference(stem), stem))
    return tuple(sorted(sets[best], key=lambda file: file.path))


def _is_candidate(path: str) -> bool:
    if "/" in path or not path.endswith(".safetensors"):
        return False
    words = re.split(r"[-_.]", path.lower())
    return not any(word in words for word in _NOT_WEIGHTS) and _VARIANT.search(path) is None


def _complete_sets(files: Sequence[RepoFile]) -> dict[str, list[RepoFile]]:
    """Sets by stem: a single file, or all shards of one numbering (a single file beats shards of its stem)."""
    shards: dict[tuple[str, int], dict[int, RepoFile]] = {}
    sets: dict[str, list[RepoFile]] = {}
    for file in files:
        match = _SHARD.fullmatch(file.path)
        if match is None:
            sets[file.path.removesuffix(".safetensors")] = [file]
        else:
            key = (match["stem"], int(match["total"]))
            shards.setdefault(key, {})[int(match["number"])] = file
    for (stem, total), numbered in shards.items():
        if _is_whole(numbered, total) and stem not in sets:
            sets[stem] = list(numbered.values())
    return sets


def _is_whole(numbers: Iterable[int], total: int) -> bool:
    """Numbers start at one; some at nought, the last being the total (gpt-oss: 00000 to 00014 of 00014)."""
    found = set(numbers)
    counts = {(1, total): total, (0, total - 1): total, (0, total): total + 1}
    return len(found) == counts.get((min(found), max(found)))


def _preference(stem: str) -> int:
    return _PREFERRED.index(stem) if stem in _PREFERRED else len(_PREFERRED)
