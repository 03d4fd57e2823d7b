"""A `trtllm-serve` command, and the YAML file beside it, as settings.

Source: NVIDIA/TensorRT-LLM ``commands/serve.py`` (what the file says goes before what the command says),
``llmapi/llm_args.py`` at 00043967 (keys, their defaults, what each decoding asks for).
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from model_catalog.drafts import DraftMethod
from planner.commands.reading import moving_tensorrt_llm as known
from planner.commands.reading.numbers import MOST_COUNT, name, refuse, share, text_in, whole
from planner.commands.reading.options import options_of, parse, shown
from planner.commands.reading.records import CommandSettings, Effect, Reading, Unknown, Unplanned
from planner.verdict import Reason

_CACHE: Final = "kv_cache_config"
_SPECULATION: Final = "speculative_config"
_METHODS: Final = {
    "draft_target": DraftMethod.DRAFT_MODEL,
    "drafttarget": DraftMethod.DRAFT_MODEL,
    "eagle": DraftMethod.EAGLE3,
    "eagle3": DraftMethod.EAGLE3,
    "mtp": DraftMethod.MTP,
    "ngram": DraftMethod.NGRAM,
    "dflash": DraftMethod.DFLASH,
    "dspark": DraftMethod.DSPARK,
}
_NEED_A_MODEL: Final = frozenset({DraftMethod.DRAFT_MODEL, DraftMethod.EAGLE3})
_MUST_SAY_K: Final = _NEED_A_MODEL | {DraftMethod.NGRAM}
_CACHE_DTYPES: Final = {"bf16": "bfloat16"}


@dataclass(slots=True, kw_only=True)
class _Found:
    """What is gathered while the keys are walked."""

    settings: CommandSettings = field(default_factory=lambda: CommandSettings(engine="tensorrt-llm"))
    unplanned: dict[str, Effect] = field(default_factory=dict)
    unknown: list[Unknown] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    remarks: list[Reason] = field(default_factory=list)
    experts: int | None = None


def read_tensorrt_llm(words: tuple[str, ...], config: Mapping[str, Any] | None = None) -> Reading:
    """The words after ``trtllm-serve``; ``config``: the content of the file that ``--config`` names.

    Raises:
        UsageError: a value that TensorRT-LLM would refuse, or none where one must be.
    """
    parsed = parse("tensorrt-llm", words, removed={})
    found = _Found()
    said: dict[str, Any] = {}
    for given in parsed.given:
        said[given.option.removeprefix("--")] = given.value if given.values else True
    if config is not None:
        said.pop("config", None)
        _tell_overruled(found, said, config)
        said |= config
    loose = list(parsed.loose)
    model = loose.pop(0) if loose else None
    found.settings = replace(found.settings, model=text_in(said, "model", "the file") or model)
    found.unknown += parsed.unknown
    found.unknown += [
        Unknown(option="a word that belongs to no option", why="is there a value too many?") for _ in loose[:1]
    ]
    options = {option.name.removeprefix("--") for option in options_of("tensorrt-llm").values()}
    for key, value in said.items():
        if not _take(found, key, value):
            _sort(
                found,
                key,
                value,
                moving=known.TENSORRT_MOVING,
                neutral=known.TENSORRT_NEUTRAL,
                other=known.TENSORRT_OTHER | options,
            )
    _spread_experts(found)
    return Reading(
        settings=found.settings,
        unplanned=tuple(Unplanned(option=option, effect=effect) for option, effect in found.unplanned.items()),
        unknown=tuple(found.unknown),
        ignored=tuple(dict.fromkeys(found.ignored)),
        remarks=tuple(found.remarks),
    )


def _tell_overruled(found: _Found, said: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    same = sorted(key for key in said if key in config and str(said[key]) != str(config[key]))
    if same:
        text = f"the file overrules the command line: {', '.join(same)}"
        found.remarks.append(Reason(code="overruled", text=text))


def _take(found: _Found, key: str, value: object) -> bool:
    """Whether this key is planned. None says the default."""
    settings = found.settings
    if key == _CACHE:
        _cache(found, value)
    elif key == _SPECULATION:
        _speculation(found, value)
    elif key == "cuda_graph_config" and value is None:
        found.settings = replace(settings, enforce_eager=True)
    elif key == "backend" and value is not None and str(value).lower() not in {"pytorch", "none"}:
        found.unplanned["backend"] = "either"
    elif key == "model" or value is None:
        return key == "model" or key in _PLANNED
    elif key == "moe_expert_parallel_size":
        found.experts = _whole(value, key, most=1024)
    elif key == "free_gpu_memory_fraction":
        found.settings = replace(settings, gpu_memory_utilization=share(str(value), key))
    elif key == "revision":
        found.settings = replace(settings, revision=str(value))
    elif key == "dtype":
        found.settings = replace(settings, dtype=name(str(value), key))
    elif key in _PLANNED:
        said: dict[str, Any] = {_PLANNED[key]: _whole(value, key)}
        found.settings = replace(settings, **said)
    else:
        return False
    return True


_PLANNED: Final = {
    "max_seq_len": "context_tokens",
    "max_batch_size": "max_num_seqs",
    "max_num_tokens": "max_num_batched_tokens",
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
}


def _spread_experts(found: _Found) -> None:
    experts = found.experts
    if experts is not None and experts > 1:
        if experts == (found.settings.tp or 1):
            found.settings = replace(found.settings, expert_parallel=True)
        else:
            found.unplanned["moe_expert_parallel_size"] = "either"


def _cache(found: _Found, value: object) -> None:
    inner = _mapping(value, _CACHE)
    for key, entry in inner.items():
        path = f"{_CACHE}.{key}"
        if key == "free_gpu_memory_fraction" and entry is not None:
            found.settings = replace(found.settings, gpu_memory_utilization=share(str(entry), path))
        elif key == "dtype" and entry is not None:
            spelled = name(str(entry), path)
            found.settings = replace(found.settings, kv_cache_dtype=_CACHE_DTYPES.get(spelled, spelled))
        elif key == "tokens_per_block" and entry is not None:
            found.settings = replace(found.settings, block_size=_whole(entry, path))
        elif entry is not None:
            _sort(
                found,
                key,
                entry,
                under=_CACHE,
                moving=known.CACHE_MOVING,
                neutral=known.CACHE_NEUTRAL,
                other=known.CACHE_OTHER,
            )


def _speculation(found: _Found, value: object) -> None:
    if value is None:
        return
    inner = dict(_mapping(value, _SPECULATION))
    word = text_in(inner, "decoding_type", _SPECULATION)
    if word is None:
        refuse(_SPECULATION, "does not say how it drafts: add decoding_type")
    method = _METHODS.get(word.lower())
    first, second = inner.pop("speculative_model", None), inner.pop("speculative_model_dir", None)
    draft = text_in({"speculative_model": second if first is None else first}, "speculative_model", _SPECULATION)
    layers = inner.pop("num_nextn_predict_layers", None)
    most = inner.pop("max_draft_len", None)
    tokens = layers if most is None and method is DraftMethod.MTP else most
    for key, entry in inner.items():
        if key != "decoding_type" and entry is not None:
            _sort(
                found,
                key,
                entry,
                under=_SPECULATION,
                moving=known.SPECULATION_MOVING,
                neutral=known.SPECULATION_NEUTRAL,
                other=known.SPECULATION_OTHER,
            )
    if method is None:
        found.unplanned[f"{_SPECULATION}: {name(word, f'{_SPECULATION}.decoding_type')}"] = "more"
        return
    if draft is None and method in _NEED_A_MODEL:
        refuse(_SPECULATION, f"{name(word, _SPECULATION)} needs speculative_model")
    if tokens is None and method in _MUST_SAY_K:
        refuse(_SPECULATION, "does not say how many tokens are drafted: add max_draft_len")
    if method is DraftMethod.MTP and draft is not None and draft != found.settings.model:
        found.unplanned[f"{_SPECULATION}: MTP with a checkpoint of its own"] = "more"
    found.settings = replace(
        found.settings,
        method=method,
        draft=draft if method not in {DraftMethod.NGRAM, DraftMethod.MTP} else None,
        num_speculative_tokens=None if tokens is None else _whole(tokens, f"{_SPECULATION}.max_draft_len"),
    )


def _sort(
    found: _Found,
    key: str,
    value: object,
    *,
    moving: Mapping[str, Effect],
    neutral: Mapping[str, frozenset[str]],
    other: frozenset[str] | set[str],
    under: str = "",
) -> None:
    """A key that is not planned: moves memory, hardly does, or is not there."""
    path = f"{under}.{key}" if under else key
    effect = moving.get(key)
    if effect is not None:
        if value is None or value is False or str(value) in neutral.get(key, frozenset()):
            found.ignored.append(path)
        else:
            found.unplanned[path] = effect
    elif key in other:
        found.ignored.append(path)
    else:
        near = difflib.get_close_matches(key, [*moving, *other, *_planned_under(under)], n=3, cutoff=0.75)
        named = shown(f"--{key}").removeprefix("--")
        found.unknown.append(Unknown(option=f"{under}.{named}" if under else named, near=tuple(near)))


def _planned_under(under: str) -> Iterator[str]:
    if under == _CACHE:
        yield from ("free_gpu_memory_fraction", "dtype", "tokens_per_block")
    elif under == _SPECULATION:
        yield from ("decoding_type", "speculative_model", "max_draft_len", "num_nextn_predict_layers")
    else:
        yield from (*_PLANNED, _CACHE, _SPECULATION, "dtype", "revision", "model")


def _mapping(value: object, key: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(inner, str) for inner in value):
        refuse(key, "takes a mapping of names to values")
    return value


def _whole(value: object, key: str, *, most: int = MOST_COUNT) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        refuse(key, "takes a whole number above zero")
    return whole(str(value), key, most=most)
