"""A `llama-server` command as settings. Its models are files: their names say which, as far as they do.

Source: llama.cpp ``common/arg.cpp`` (names), ``tools/server/server-context.cpp`` (an ordinary draft without
``--spec-type`` is loaded and dropped again; four slots of one pool where ``--parallel`` is not said).
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from model_catalog.drafts import DraftMethod
from planner.commands.reading.moving_other import LLAMA_MOVING, LLAMA_NEUTRAL, LLAMA_REMOVED
from planner.commands.reading.numbers import name, refuse, whole
from planner.commands.reading.options import Given, parse
from planner.commands.reading.records import CommandSettings, Reading, Unknown, Unplanned
from planner.commands.reading.sorting import sort_rest
from planner.verdict import Reason

_METHODS: Final = {
    "draft-simple": DraftMethod.DRAFT_MODEL,
    "draft-eagle3": DraftMethod.EAGLE3,
    "draft-mtp": DraftMethod.MTP,
    "draft-dflash": DraftMethod.DFLASH,
    "draft-dspark": DraftMethod.DSPARK,
}
#: As ``common/arg.cpp`` reads it (is_truthy, is_falsey, is_autoy).
_ATTENTION: Final = frozenset({"on", "enabled", "true", "1", "off", "disabled", "false", "0", "auto", "-1"})
_ALL_LAYERS: Final = 99
_DRAFT_TOKENS: Final = 3
_NGRAM_TOKENS: Final = 48
_SIGNED: Final = re.compile(r"-?\d{1,9}", re.ASCII)
_MODEL: Final = ("--model", "--hf-repo")
_DRAFT: Final = ("--spec-draft-model", "--spec-draft-hf")


def read_llama_cpp(words: tuple[str, ...]) -> Reading:
    """The words after ``llama-server``.

    Raises:
        UsageError: a value that llama.cpp would refuse, or none where one must be.
    """
    parsed = parse("llama.cpp", words, removed=LLAMA_REMOVED)
    said = {given.option: given for given in parsed.given}
    taken: set[str] = set()

    def value(*options: str) -> str | None:
        taken.update(options)
        return next((said[option].value for option in options if option in said), None)

    _check_attention(said)
    unknown = [Unknown(option="a word that belongs to no option", why="is there a value too many?")]
    remarks: list[Reason] = []
    unplanned: list[Unplanned] = []
    settings = CommandSettings(engine="llama.cpp", model=value(*_MODEL))
    context, slots = _whole(value("--ctx-size"), "--ctx-size"), _whole(value("--parallel"), "--parallel")
    unified = said.get("--kv-unified")
    taken.add("--kv-unified")
    settings, notes = _slots(settings, context, slots, unified=None if unified is None else not unified.off)
    remarks += notes
    ubatch, batch = value("--ubatch-size"), value("--batch-size")
    if ubatch is not None:
        tokens = whole(ubatch, "--ubatch-size")
        if batch is not None:
            tokens = min(tokens, whole(batch, "--batch-size"))
        settings = replace(settings, max_num_batched_tokens=tokens)
    settings = replace(settings, kv_cache_dtype=_cache(said, taken, "--cache-type", unplanned))
    settings = _places(settings, said, taken, unplanned)
    settings = _speculation(settings, said, taken, unplanned, remarks)
    rest = [given for given in parsed.given if given.option not in taken]
    found = sort_rest(rest, moving=LLAMA_MOVING, neutral=LLAMA_NEUTRAL)
    return Reading(
        settings=settings,
        unplanned=(*unplanned, *found.unplanned),
        unknown=(*parsed.unknown, *(unknown if parsed.loose else ())),
        ignored=found.ignored,
        remarks=tuple(remarks),
    )


def _check_attention(said: Mapping[str, Given]) -> None:
    """A switch in older builds; since it takes a value, the server takes the next word for it, and refuses that.

    Raises:
        UsageError: its value is none that the server knows.
    """
    given = said.get("--flash-attn")
    if given is not None and given.value.lower() not in _ATTENTION:
        refuse("--flash-attn", "takes on, off or auto: it is no longer a switch")


def _slots(
    found: CommandSettings, context: int | None, slots: int | None, *, unified: bool | None
) -> tuple[CommandSettings, list[Reason]]:
    """Cells are divided between the slots, unless all share one pool."""
    notes: list[Reason] = []
    shared = unified if unified is not None else slots is None or slots < 1
    if shared or slots is None or slots < 1:
        if slots != 1:
            text = "the slots share one pool of --ctx-size tokens: planned as one sequence that has all of it"
            notes.append(Reason(code="shared_pool", text=text))
        return replace(found, context_tokens=context or None, batch=1), notes
    if context:
        if context < slots:
            refuse("--ctx-size", f"divided between {slots} slots leaves nothing for each")
        return replace(found, context_tokens=context // slots, batch=slots), notes
    if slots > 1:
        text = "without --ctx-size the model's longest context is divided between the slots"
        notes.append(Reason(code="divided_context", text=text))
        return replace(found, batch=1), notes
    return replace(found, batch=slots), notes


def _cache(said: Mapping[str, Given], taken: set[str], option: str, unplanned: list[Unplanned]) -> str | None:
    """One type for keys and values; where they differ the larger need is not known here."""
    names = (f"{option}-k", f"{option}-v")
    taken.update(names)
    keys, values = (name(said[part].value, part) if part in said else "f16" for part in names)
    if keys != values:
        unplanned.append(Unplanned(option=f"{names[0]} other than {names[1]}", effect="either"))
    if not any(part in said for part in names):
        return None
    return keys


def _places(
    found: CommandSettings, said: Mapping[str, Given], taken: set[str], unplanned: list[Unplanned]
) -> CommandSettings:
    """All layers on the devices, or none; between the two is not planned."""
    layers, device = said.get("--gpu-layers"), said.get("--device")
    taken.update({"--gpu-layers", "--device"})
    none = device is not None and device.value.strip().lower() == "none"
    if none or (layers is not None and layers.value.strip() == "0"):
        return replace(found, on_host=True)
    if layers is not None and layers.value.strip().lower() not in {"all", "auto", "-1", "-2"}:
        number = _whole(layers.value, "--gpu-layers")
        if number is not None and 0 < number < _ALL_LAYERS:
            unplanned.append(Unplanned(option="--gpu-layers", effect="less"))
    if device is not None:
        unplanned.append(Unplanned(option="--device", effect="slight"))
    return found


def _speculation(
    found: CommandSettings,
    said: Mapping[str, Given],
    taken: set[str],
    unplanned: list[Unplanned],
    remarks: list[Reason],
) -> CommandSettings:
    own = (
        "--spec-type",
        "--spec-draft-n-max",
        "--spec-ngram-simple-size-m",
        "--spec-draft-ngl",
        "--spec-draft-device",
    )
    taken.update((*own, *_DRAFT))
    draft = next((said[option].value for option in _DRAFT if option in said), None)
    cache = _cache(said, taken, "--spec-draft-type", unplanned) if draft is not None else None
    kind = said["--spec-type"].value.strip().lower() if "--spec-type" in said else None
    if kind in {None, "none"}:
        if draft is None:
            return found
        low = draft.lower()
        by_file = next((method for method in ("dflash", "dspark", "mtp") if method in low), None)
        if kind is None and by_file is not None:
            kind = f"draft-{by_file}"
        else:
            text = "without --spec-type draft-simple the draft is loaded and dropped again: nothing is drafted"
            remarks.append(Reason(code="no_spec_type", text=text))
            return found
    method = DraftMethod.NGRAM if kind.startswith("ngram-") else _METHODS.get(kind)
    if method is None:
        unplanned.append(
            Unplanned(option=f"--spec-type {name(kind.replace(',', '+'), '--spec-type')}", effect="more")
        )
        return found
    if method is DraftMethod.NGRAM:
        size = said.get("--spec-ngram-simple-size-m")
        tokens = _NGRAM_TOKENS if size is None else whole(size.value, "--spec-ngram-simple-size-m", most=1024)
        return replace(found, method=method, num_speculative_tokens=tokens)
    if draft is None and method is not DraftMethod.MTP:
        refuse("--spec-type", f"{kind} needs --spec-draft-model")
    most = said.get("--spec-draft-n-max")
    layers = said.get("--spec-draft-ngl")
    if layers is not None and layers.value.strip() == "0" and not found.on_host:
        unplanned.append(Unplanned(option="--spec-draft-ngl", effect="less"))
    return replace(
        found,
        method=method,
        draft=draft,
        draft_kv_cache_dtype=cache,
        num_speculative_tokens=_DRAFT_TOKENS
        if most is None
        else whole(most.value, "--spec-draft-n-max", most=1024),
    )


def _whole(text: str | None, option: str) -> int | None:
    """A whole number that may be 0 or below, which means: by itself."""
    if text is None:
        return None
    if _SIGNED.fullmatch(text.strip()) is None:
        refuse(option, "takes a whole number")
    return int(text)
