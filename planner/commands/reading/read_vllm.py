"""A `vllm serve` command as settings.

Source: vLLM 0.32.0 ``engine/arg_utils.py``, ``utils/argparse_utils.py``; ``config/speculative.py`` of 0.33.0 (how
the method is settled, which keys there are and since when).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from model_catalog.drafts import HEADS, DraftMethod
from planner.commands.reading.moving import VLLM_MOVING, VLLM_NEUTRAL, VLLM_REMOVED
from planner.commands.reading.numbers import (
    MOST_BYTES,
    count_in,
    human,
    mapping,
    name,
    refuse,
    share,
    text_in,
    whole,
)
from planner.commands.reading.options import Given, Parsed, parse
from planner.commands.reading.records import CommandSettings, Reading, Unknown, Unplanned
from planner.commands.reading.sorting import Sorted, sort_rest
from planner.commands.vllm_versions import METHOD_BY_PATH
from planner.verdict import Reason

SPECULATION: Final = "--speculative-config"
_CHUNKED: Final = "--enable-chunked-prefill"
_SHORT: Final = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}
#: Keys of the speculative configuration that are planned, that move memory, that do not, and that are gone.
_KEYS_PLANNED: Final = frozenset({"method", "model", "revision", "num_speculative_tokens", "kv_cache_dtype"})
_KEYS_MOVING: Final = frozenset({"quantization", "max_model_len", "enforce_eager", "parallel_drafting"})
_KEYS_SLIGHT: Final = frozenset(
    {"draft_tensor_parallel_size", "code_revision", "moe_backend", "attention_backend", "draft_load_config"}
    | {"disable_padded_drafter_batch", "disable_eagle_block_drop", "disable_lookahead_block_hashes"}
    | {"index_share_for_mtp_iteration", "use_local_argmax_reduction", "use_heterogeneous_vocab"}
    | {"prompt_lookup_max", "prompt_lookup_min", "num_speculative_tokens_per_batch_size"}
    | {"suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests", "rejection_sample_method"}
    | {"suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob", "synthetic_acceptance_rates"}
    | {"synthetic_acceptance_length", "enable_adaptive_verification", "draft_sample_method", "dspark_draft_topk"}
    | {"xpress_topc", "fly_window_size", "fly_entropy_threshold", "fly_entropy_top_k"}
    | {"draft_lm_head_quantization"}
)
_KEYS_GONE: Final = {
    "disable_by_batch_size": "vLLM 0.20 and later have no such key: num_speculative_tokens_per_batch_size instead",
    "speculative_token_tree": "vLLM 0.25 and later draft chains only",
    "tensor_parallel_size": "vLLM refuses it: the key is draft_tensor_parallel_size",
    "disable_logprobs": "no release from 0.11 on has it",
}
#: Nothing in a draft of these says how many tokens it drafts (n_predict), and vLLM has no default.
_MUST_SAY_K: Final = frozenset({DraftMethod.DRAFT_MODEL, DraftMethod.NGRAM, DraftMethod.EAGLE, DraftMethod.EAGLE3})
_NGRAM: Final = frozenset({"ngram", "ngram_gpu", "[ngram]"})
#: Methods that vLLM has and no plan knows; any other word it refuses (``SpeculativeMethod``).
_OTHER_METHODS: Final = frozenset({"medusa", "mlp_speculator", "suffix", "custom_class", "extract_hidden_states"})


def read_vllm(words: tuple[str, ...]) -> Reading:
    """The words after ``vllm serve``.

    Raises:
        UsageError: a value that vLLM would refuse, or none where one must be.
    """
    parsed = parse("vllm", words, removed=VLLM_REMOVED)
    settings = CommandSettings(engine="vllm")
    rest: list[Given] = []
    speculation: dict[str, Any] = {}
    said_short: dict[str, Any] = {}
    for given in parsed.given:
        if given.option == SPECULATION:
            _merge(speculation, given)
        elif given.option in _SHORT:
            said_short[_SHORT[given.option]] = given.value
        else:
            settings, taken = _setting(settings, given)
            if not taken:
                rest.append(given)
    for key, value in said_short.items():
        if key in speculation:
            refuse(SPECULATION, f"names {key}, and a --spec- option names it again: vLLM refuses both together")
        speculation[key] = value
    settings, unknown = _model(settings, parsed)
    found = sort_rest(rest, moving=VLLM_MOVING, neutral=VLLM_NEUTRAL)
    if speculation:
        settings, found, bad = _speculation(settings, speculation, found)
        unknown = (*unknown, *bad)
    return Reading(
        settings=settings,
        unplanned=found.unplanned,
        unknown=(*parsed.unknown, *unknown),
        ignored=found.ignored,
        remarks=found.remarks,
    )


def _setting(found: CommandSettings, given: Given) -> tuple[CommandSettings, bool]:
    option, value = given.option, given.value
    simple: CommandSettings | None = None
    match option:
        case "--model":
            simple = replace(found, model=value)
        case "--revision":
            simple = replace(found, revision=value)
        case "--max-model-len":
            auto = value.strip().lower() in {"auto", "-1"}
            simple = replace(found, longest=auto, context_tokens=None if auto else human(value, option))
        case "--tensor-parallel-size":
            simple = replace(found, tp=whole(value, option, most=1024))
        case "--pipeline-parallel-size":
            simple = replace(found, pp=whole(value, option, most=1024))
        case "--enable-expert-parallel":
            simple = replace(found, expert_parallel=not given.off)
        case "--dtype":
            simple = replace(found, dtype={"half": "float16", "float": "float32"}.get(value, name(value, option)))
        case "--quantization":
            simple = replace(found, quantization=None if value == "None" else name(value, option))
        case "--kv-cache-dtype":
            simple = replace(found, kv_cache_dtype=name(value, option))
        case "--gpu-memory-utilization" | "--device-memory-utilization":
            simple = replace(found, gpu_memory_utilization=share(value, option))
        case "--kv-cache-memory-bytes":
            simple = replace(found, kv_cache_memory_bytes=human(value, option, most=MOST_BYTES))
        case "--max-num-batched-tokens":
            simple = replace(found, max_num_batched_tokens=human(value, option))
        case "--max-num-seqs":
            simple = replace(found, max_num_seqs=whole(value, option))
        case "--block-size":
            simple = replace(found, block_size=whole(value, option))
        case "--enforce-eager":
            simple = replace(found, enforce_eager=not given.off)
        case "--async-scheduling":
            simple = replace(found, async_scheduling=not given.off)
    return (found, False) if simple is None else (simple, True)


def _model(found: CommandSettings, parsed: Parsed) -> tuple[CommandSettings, tuple[Unknown, ...]]:
    """``vllm serve MODEL``; what ``--model`` says goes before it, as the engine moves it to the front."""
    loose = list(parsed.loose)
    if found.model is None and loose:
        found = replace(found, model=loose.pop(0))
    return found, tuple(
        Unknown(option="a word that belongs to no option", why="is there a value too many?") for _ in loose[:1]
    )


def _merge(speculation: dict[str, Any], given: Given) -> None:
    """JSON, or one key in dotted form: the last word on a key holds."""
    if not given.path:
        if given.value.strip() != "None":
            speculation.update(mapping(given.value, SPECULATION))
        return
    key = given.path[0].removesuffix("+").replace("-", "_")
    # A deeper path, or a list that grows, sets none of the keys that are planned.
    speculation[key] = _scalar(given.value) if len(given.path) == 1 else True


def _scalar(text: str) -> object:
    low = text.strip().lower()
    return {"true": True, "false": False, "null": None, "none": None}.get(low, text)


def _speculation(
    found: CommandSettings, said: Mapping[str, Any], rest: Sorted
) -> tuple[CommandSettings, Sorted, tuple[Unknown, ...]]:
    model = text_in(said, "model", SPECULATION)
    word = (text_in(said, "method", SPECULATION) or "").lower()
    method, remarks = _method(word, model)
    target = found.model
    if method is DraftMethod.MTP and model == target:
        model = None
    unknown = tuple(
        Unknown(
            option=f"{SPECULATION}: {key[:40] if key.isidentifier() else 'an odd key'}",
            why=_KEYS_GONE.get(key, ""),
        )
        for key in said
        if key not in _KEYS_PLANNED | _KEYS_MOVING | _KEYS_SLIGHT
    )
    unplanned = [
        Unplanned(option=f"{SPECULATION}: {key}", effect="either")
        for key in said
        if key in _KEYS_MOVING and said[key] not in {None, False}
    ]
    if method is None:
        unplanned.append(Unplanned(option=f"{SPECULATION}: method {name(word, SPECULATION)}", effect="more"))
    k = count_in(said, "num_speculative_tokens", SPECULATION)
    if k is None and (method in _MUST_SAY_K or (method is DraftMethod.MTP and "model" not in said)):
        refuse(SPECULATION, 'does not say how many tokens are drafted: add "num_speculative_tokens"')
    own_tp = count_in(said, "draft_tensor_parallel_size", SPECULATION)
    if own_tp is not None and own_tp not in {1, found.tp or 1}:
        refuse(
            f"{SPECULATION}.draft_tensor_parallel_size",
            "must be 1 or the target's own --tensor-parallel-size in vLLM",
        )
    if own_tp == 1 and (found.tp or 1) > 1:
        text = (
            "a draft with tensor parallel 1 beside a wider target is planned cut like the target, as 0.33 loads it"
        )
        remarks = (*remarks, Reason(code="draft_tp", text=text))
    cache = text_in(said, "kv_cache_dtype", SPECULATION)
    found = replace(
        found,
        method=method,
        draft=None if method in {None, DraftMethod.NGRAM} else model,
        draft_revision=text_in(said, "revision", SPECULATION),
        num_speculative_tokens=k,
        draft_kv_cache_dtype=None if cache is None else name(cache, f"{SPECULATION}.kv_cache_dtype"),
    )
    rest = replace(rest, unplanned=(*rest.unplanned, *unplanned), remarks=(*rest.remarks, *remarks))
    return found, rest, unknown


def _method(word: str, model: str | None) -> tuple[DraftMethod | None, tuple[Reason, ...]]:
    """The method that vLLM settles on: a path's words win over ``draft_model`` and ``mtp``, not over a head's."""
    if word in _NGRAM or (not word and (model or "").lower() in _NGRAM):
        return DraftMethod.NGRAM, ()
    if word.endswith("_mtp"):
        text = f"{word} is an old name: vLLM warns and takes mtp"
        return DraftMethod.MTP, (Reason(code="old_method", text=text),)
    asked = next((method for method in DraftMethod if method.value == word), None)
    if word and asked is None:
        if word not in _OTHER_METHODS:
            refuse(f"{SPECULATION}.method", "is none that vLLM has: draft_model, eagle3, mtp, ngram and others")
        return None, ()
    if model is None and asked in {None, DraftMethod.DRAFT_MODEL, DraftMethod.EAGLE, DraftMethod.EAGLE3}:
        refuse(SPECULATION, 'names no model, and this method needs one: add "model"')
    if asked in HEADS:
        return asked, ()
    by_path = next((kind for part, kind in METHOD_BY_PATH if part in (model or "").lower()), None)
    if by_path is not None:
        text = f"vLLM takes the draft for a {by_path} head because of its name, whatever the method says"
        return DraftMethod(by_path), () if not word else (Reason(code="method_by_name", text=text),)
    return asked or DraftMethod.DRAFT_MODEL, ()
