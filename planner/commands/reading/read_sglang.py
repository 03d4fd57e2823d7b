"""A `sglang serve` command (`python -m sglang.launch_server`) as settings.

Source: SGLang 0.5.23 ``arg_groups/fields/*.py`` (names), ``arg_groups/speculative_hook.py`` (steps, top-k and
draft tokens where they are not said).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from model_catalog.drafts import DraftMethod
from planner.commands.reading.moving_other import SGLANG_MOVING, SGLANG_NEUTRAL, SGLANG_REMOVED
from planner.commands.reading.numbers import human, name, refuse, share, whole
from planner.commands.reading.options import Given, parse
from planner.commands.reading.records import CommandSettings, Reading, Unknown, Unplanned
from planner.commands.reading.sorting import sort_rest
from planner.verdict import Reason

_METHODS: Final = {
    "standalone": DraftMethod.DRAFT_MODEL,
    "eagle": DraftMethod.EAGLE,
    "eagle3": DraftMethod.EAGLE3,
    "nextn": DraftMethod.MTP,
    "ngram": DraftMethod.NGRAM,
    "dflash": DraftMethod.DFLASH,
    "dspark": DraftMethod.DSPARK,
}
_ALGORITHM: Final = "--speculative-algorithm"
_SPECULATIVE: Final = frozenset(
    {_ALGORITHM, "--speculative-draft-model-path", "--speculative-draft-model-revision"}
    | {"--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"}
    | {"--speculative-draft-kv-cache-dtype", "--speculative-dspark-block-size", "--speculative-dflash-block-size"}
)
_STEPS: Final = 3
_NGRAM_TOKENS: Final = 12


def read_sglang(words: tuple[str, ...]) -> Reading:
    """The words after ``sglang serve``.

    Raises:
        UsageError: a value that SGLang would refuse, or none where one must be.
    """
    parsed = parse("sglang", words, removed=SGLANG_REMOVED)
    settings = CommandSettings(engine="sglang")
    rest: list[Given] = []
    said: dict[str, str] = {}
    ep: int | None = None
    for given in parsed.given:
        if given.option in _SPECULATIVE:
            said[given.option] = given.value
            continue
        if given.option == "--ep-size":
            ep = whole(given.value, given.option, most=1024)
            continue
        settings, taken = _setting(settings, given)
        if not taken:
            rest.append(given)
    loose = list(parsed.loose)
    if settings.model is None and loose:
        settings = replace(settings, model=loose.pop(0))
    unknown = (
        [Unknown(option="a word that belongs to no option", why="is there a value too many?")] if loose else []
    )
    found = sort_rest(rest, moving=SGLANG_MOVING, neutral=SGLANG_NEUTRAL)
    unplanned = list(found.unplanned)
    if ep is not None and ep > 1:
        if ep == (settings.tp or 1):
            settings = replace(settings, expert_parallel=True)
        else:
            unplanned.append(Unplanned(option="--ep-size", effect="either"))
    settings, remarks, more = _speculation(settings, said)
    return Reading(
        settings=settings,
        unplanned=(*unplanned, *more),
        unknown=(*parsed.unknown, *unknown),
        ignored=found.ignored,
        remarks=remarks,
    )


def _setting(found: CommandSettings, given: Given) -> tuple[CommandSettings, bool]:
    option, value = given.option, given.value
    simple: CommandSettings | None = None
    match option:
        case "--model-path":
            simple = replace(found, model=value)
        case "--revision":
            simple = replace(found, revision=value)
        case "--context-length":
            simple = replace(found, context_tokens=human(value, option))
        case "--tp-size":
            simple = replace(found, tp=whole(value, option, most=1024))
        case "--pp-size":
            simple = replace(found, pp=whole(value, option, most=1024))
        case "--dtype":
            simple = replace(found, dtype={"half": "float16", "float": "float32"}.get(value, name(value, option)))
        case "--quantization":
            simple = replace(found, quantization=name(value, option))
        case "--kv-cache-dtype":
            simple = replace(found, kv_cache_dtype={"bf16": "bfloat16"}.get(value, name(value, option)))
        case "--mem-fraction-static":
            simple = replace(found, gpu_memory_utilization=share(value, option))
        case "--max-running-requests":
            simple = replace(found, max_num_seqs=whole(value, option))
        case "--chunked-prefill-size" if not value.strip().startswith("-"):
            simple = replace(found, max_num_batched_tokens=human(value, option))
        case "--page-size":
            simple = replace(found, block_size=whole(value, option))
        case "--disable-cuda-graph":
            simple = replace(found, enforce_eager=True)
    return (found, False) if simple is None else (simple, True)


def _speculation(
    found: CommandSettings, said: Mapping[str, str]
) -> tuple[CommandSettings, tuple[Reason, ...], tuple[Unplanned, ...]]:
    word = said.get(_ALGORITHM)
    if word is None:
        alone = sorted(said)
        text = f"{', '.join(alone)}: without {_ALGORITHM} nothing is drafted"
        return found, (Reason(code="no_algorithm", text=text),) if alone else (), ()
    method = _METHODS.get(word.strip().lower())
    if method is None:
        return found, (), (Unplanned(option=f"{_ALGORITHM} {name(word, _ALGORITHM)}", effect="more"),)
    draft = said.get("--speculative-draft-model-path")
    if draft is None and method in {DraftMethod.DRAFT_MODEL, DraftMethod.EAGLE3}:
        refuse(_ALGORITHM, f"{word.upper()} needs --speculative-draft-model-path")
    if draft is None and method is DraftMethod.EAGLE:
        method = DraftMethod.MTP  # the target's own layers, under either name
    own = said.get("--speculative-draft-kv-cache-dtype")
    tokens, unplanned, remarks = _tokens(method, said)
    found = replace(
        found,
        method=method,
        draft=None if method is DraftMethod.NGRAM else draft,
        draft_revision=said.get("--speculative-draft-model-revision"),
        num_speculative_tokens=tokens,
        draft_kv_cache_dtype=None if own is None else name(own, "--speculative-draft-kv-cache-dtype"),
    )
    return found, remarks, unplanned


def _tokens(
    method: DraftMethod, said: Mapping[str, str]
) -> tuple[int | None, tuple[Unplanned, ...], tuple[Reason, ...]]:
    """k; None: the head's own block. A tree of drafts is not planned, only its longest branch."""

    def number(option: str) -> int | None:
        return None if option not in said else whole(said[option], option, most=1024)

    steps, tokens = number("--speculative-num-steps"), number("--speculative-num-draft-tokens")
    topk = number("--speculative-eagle-topk")
    if method is DraftMethod.NGRAM:
        return max(1, (tokens or _NGRAM_TOKENS) - 1), (), ()
    if method is DraftMethod.DSPARK:
        return number("--speculative-dspark-block-size") or (tokens - 1 if tokens and tokens > 1 else None), (), ()
    if method is DraftMethod.DFLASH:
        return number("--speculative-dflash-block-size") or tokens, (), ()
    if steps is None and (topk is not None or tokens is not None):
        refuse(
            "--speculative-num-steps",
            "goes with top-k and draft tokens: SGLang wants it said, or none of the three",
        )
    if steps is None:
        text = f"no steps are said: SGLang takes {_STEPS}, or 5 in a tree for some Llama targets"
        remarks = (Reason(code="steps_by_default", text=text),)
        more = () if method is DraftMethod.DRAFT_MODEL else (Unplanned(option="default steps", effect="slight"),)
        return _STEPS, more, remarks
    if topk is not None and topk > 1:
        return steps, (Unplanned(option="--speculative-eagle-topk", effect="more"),), ()
    return steps, (), ()
