"""Drafts for a target on the Hub: heads whose cards name it, and smaller models of its author's family.

At most four requests of one page each. What an answer is good for is judged from names, tags and the short
configuration in it; nothing is downloaded. A Hub that cannot be asked leaves a note, never an error.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from model_catalog.catalogue import catalogue_names
from model_catalog.drafts import HEADS, Candidate, CandidateOrigin, Discarded, DraftMethod
from model_catalog.errors import SpecplanError
from model_catalog.families.heads import draft_head_method
from model_catalog.hub import HubLimits, list_models
from model_catalog.hub_listing import ListedModel, ModelQuery
from model_catalog.pairs import curated_pairs
from model_catalog.proposals import text_value, type_stem
from model_catalog.repo_names import (
    family_of,
    head_method_in_name,
    major_family,
    names_model,
    size_in_name,
    states_other_use,
    variant_of,
    without_storage,
)
from model_catalog.snapshot import ModelSnapshot

SEARCH_LIMITS: Final = HubLimits(deadline_seconds=10.0, request_seconds=5.0, attempts=1)
#: Heads and stand-alone models kept, each; every one costs further requests when it is read.
MAX_FOUND: Final = 6
_TUNED_WORDS: Final = frozenset({"instruct", "chat", "it", "thinking"})
_TEXT_PIPELINES: Final = frozenset({None, "text-generation", "image-text-to-text", "any-to-any"})
_USABLE_HEADS: Final = {method.value: method for method in (*HEADS, DraftMethod.MTP)}


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSearch:
    """What a search found: candidates, heads first; repos that cannot serve, with reasons; and notes."""

    candidates: tuple[Candidate, ...] = ()
    discarded: tuple[Discarded, ...] = ()
    notes: tuple[str, ...] = ()


def search_drafts(
    target: ModelSnapshot, *, endpoint: str | None = None, limits: HubLimits = SEARCH_LIMITS
) -> HubSearch:
    """Search the Hub for drafts of a target; ``endpoint`` is HF_ENDPOINT by default.

    ``limits.deadline_seconds`` is for all requests together. The first request that fails ends the search.
    """
    original = original_of(target.repo_id)
    if "/" not in original:
        return HubSearch(notes=(f"{target.repo_id} is no Hub repo: the Hub was not searched for its drafts",))
    deadline = time.monotonic() + limits.deadline_seconds
    rows: dict[str, ListedModel] = {}
    notes: tuple[str, ...] = ()
    for query in queries_for(original):
        left = deadline - time.monotonic()
        try:
            found = list_models(
                query,
                asked_for=target.repo_id,
                endpoint=endpoint,
                limits=replace(limits, deadline_seconds=max(0.0, left)),
            )
        except SpecplanError as error:
            extent = "in part only" if rows else "not at all"
            notes = (f"the Hub was searched for drafts {extent}: {error.message}",)
            break
        for row in found:
            rows.setdefault(row.repo_id.lower(), row)
    sought = _Sought(
        repo_id=target.repo_id,
        original=original,
        parameters=target.published_parameters or size_in_name(target.repo_id),
        model_type=str(text_value(target.config, "model_type") or ""),
    )
    return _sorted_out(sought, rows.values(), notes)


def original_of(repo_id: str) -> str:
    """The repo that a storage variant was made from: a curated target, a catalogue row, else by its own name."""
    wanted = variant_of(repo_id)
    for known in (*(pair.target for pair in curated_pairs()), *catalogue_names()):
        name = known.rpartition("/")[2].lower()
        if variant_of(known) == wanted and wanted in {name, name.removeprefix("meta-")}:
            return known
    return without_storage(repo_id)


def queries_for(original: str) -> tuple[ModelQuery, ...]:
    """The questions asked for a target: heads by name and by tag, then its author's models of the family."""
    card = f"base_model:{original}"
    author = original.partition("/")[0]
    families = dict.fromkeys((family_of(original), major_family(original)))
    return (
        ModelQuery(tags=(card,), search="eagle"),
        ModelQuery(tags=(card, "speculative-decoding")),
        *(ModelQuery(author=author, search=family) for family in families if family),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sought:
    """What is looked for: the target, the repo it was made from, its size and its kind of model."""

    repo_id: str
    original: str
    parameters: int | None
    model_type: str

    def judge(self, row: ListedModel) -> Candidate | tuple[str, str]:
        """A candidate, or the code and the sentence that discard the repo."""
        if row.library == "peft" or row.made_by("adapter"):
            return "adapter", "is an adapter (LoRA or its kin), not a whole model"
        if "gguf" in row.tags and "safetensors" not in row.tags:
            return "gguf_only", "holds GGUF files only; the sizes here are read from safetensors"
        if row.pipeline not in _TEXT_PIPELINES or states_other_use(row.repo_id):
            return "not_for_text", f"does not write text ({row.pipeline or 'by its name'})"
        method = head_method_in_name(row.repo_id) or draft_head_method(row.config)
        return self._head(row, method) if method is not None else self._model(row)

    def _head(self, row: ListedModel, method: str) -> Candidate | tuple[str, str]:
        usable = _USABLE_HEADS.get(method)
        if usable is None:
            return "unsupported_head", f"is a draft head of a kind that is not planned ({method})"
        if self.original.lower() in row.base_models:
            source = f"Hub search: its card names {self.original} as the base model"
        elif names_model(row.repo_id, self.original) and not row.base_models:
            source = "Hub search: its name states this target"
        else:
            others = ", ".join(sorted(row.base_models)) or "another model"
            return "head_for_another_target", f"is a draft head for {others}, not for {self.original}"
        return Candidate(method=usable, origin=CandidateOrigin.HUB, source=source, repo_id=row.repo_id)

    def _model(self, row: ListedModel) -> Candidate | tuple[str, str]:
        if variant_of(row.repo_id) == variant_of(self.repo_id):
            return "target_itself", f"is the target itself, or {self.original} in another storage type"
        if row.made_by("quantized") or variant_of(row.repo_id) != row.repo_id.rpartition("/")[2].lower():
            return "storage_variant", "is another storage type of a model that is listed too"
        stated = row.config.get("model_type")
        if isinstance(stated, str) and self.model_type and type_stem(stated) != type_stem(self.model_type):
            return "other_kind", f"is of another kind ({stated}; the target is {self.model_type})"
        if major_family(row.repo_id) != major_family(self.original):
            return "other_family", "is not of the target's family, by its name"
        size = _size(row)
        if size is None:
            return "size_unknown", "states no size, in neither its files nor its name"
        if self.parameters is not None and size >= self.parameters:
            return "larger_than_target", f"has {size:,} parameters; the target has {self.parameters:,}"
        source = f"Hub search: {self.original.partition('/')[0]}'s model of the same family, {size:,} parameters"
        return Candidate(
            method=DraftMethod.DRAFT_MODEL, origin=CandidateOrigin.HUB, source=source, repo_id=row.repo_id
        )

    def order(self, row: ListedModel) -> tuple[bool, bool, int]:
        """Small ones of the same version and tuning first."""
        other_version = family_of(row.repo_id) != family_of(self.original)
        return _is_tuned(row.repo_id) != _is_tuned(self.original), other_version, _size(row) or 0


def _sorted_out(sought: _Sought, rows: Iterable[ListedModel], notes: tuple[str, ...]) -> HubSearch:
    heads: list[Candidate] = []
    models: list[tuple[tuple[bool, bool, int], Candidate]] = []
    discarded: list[Discarded] = []
    for row in rows:
        judged = sought.judge(row)
        if not isinstance(judged, Candidate):
            refused = Candidate(
                method=DraftMethod.DRAFT_MODEL,
                origin=CandidateOrigin.HUB,
                source="Hub search",
                repo_id=row.repo_id,
            )
            discarded.append(Discarded(candidate=refused, code=judged[0], text=judged[1]))
        elif judged.method is DraftMethod.DRAFT_MODEL:
            models.append((sought.order(row), judged))
        else:
            heads.append(judged)
    ordered = [candidate for _, candidate in sorted(models, key=lambda pair: pair[0])]
    return HubSearch(
        candidates=(*heads[:MAX_FOUND], *ordered[:MAX_FOUND]), discarded=tuple(discarded), notes=notes
    )


def _size(row: ListedModel) -> int | None:
    return row.parameters or size_in_name(row.repo_id)


def _is_tuned(repo_id: str) -> bool:
    """Whether a name states chat tuning: a base model drafts worse for a chat model, and the reverse."""
    return not _TUNED_WORDS.isdisjoint(variant_of(repo_id).split("-"))
