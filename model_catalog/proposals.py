"""Which drafts to look at for a target: named, curated, built in, on disk and found on the Hub, in that order.

Pure: the caller lists the disk (``disk_repos``) and searches the Hub (``hub_search``). Only what is certain from
names and known facts is discarded here; whether an engine accepts a pair is judged once both have been read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from model_catalog.drafts import HEADS, Candidate, CandidateOrigin, Discarded, DraftMethod
from model_catalog.errors import NotAModelError
from model_catalog.families.heads import draft_head_method
from model_catalog.model import Model
from model_catalog.pairs import Pair, pairs_for, targets_of
from model_catalog.repo_kind import require_model
from model_catalog.repo_names import (
    family_of,
    head_method_in_name,
    major_family,
    names_model,
    size_in_name,
    states_other_use,
    variant_of,
)
from model_catalog.snapshot import ModelSnapshot, RepoKind

#: Each candidate with a repo costs a read of its configuration and headers, so few are looked at unasked.
MAX_CANDIDATES: Final = 12
#: Of them, heads: where a target has many published heads, small models are still compared with them.
MAX_HEADS: Final = 6
#: llama.cpp's tolerance (``SPEC_VOCAB_MAX_SIZE_DIFFERENCE``): the widest that any engine accepts.
VOCABULARY_TOLERANCE: Final = 128

NGRAM_SOURCE: Final = "no weights: tokens are copied from the text so far"
MTP_SOURCE: Final = "multi-token-prediction layers inside the target"

#: A repo id -> what is known of it without asking anybody, or None.
Known = Callable[[str], ModelSnapshot | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Candidates in the order of promise, n-gram last; and what was not even looked at, with reasons."""

    candidates: tuple[Candidate, ...]
    discarded: tuple[Discarded, ...]


def propose(
    target: Model,
    *,
    named: Sequence[Candidate] = (),
    cached_repo_ids: Iterable[str] = (),
    hub_candidates: Sequence[Candidate] = (),
    known: Known,
    pairs: Iterable[Pair] | None = None,
    limit: int = MAX_CANDIDATES,
) -> Proposal:
    """The drafts worth reading for a target.

    A repo found in several places keeps the first of: named, curated, built in, cache, Hub. All named ones are
    kept; of the others at most ``limit``, heads before stand-alone models, and within each the order of curation,
    then the smallest on disk, then the Hub's order. ``known`` gives facts for repo ids without asking anybody
    (``disk_repos.known_on_disk``). Those beyond the limit are returned as discarded, code ``not_examined``.
    """
    pairs = None if pairs is None else tuple(pairs)
    judge = _Judge(target, pairs, known)
    found: dict[str, Candidate] = {}
    for candidate in (
        *named,
        *_curated(target, pairs),
        *_built_in(target, pairs),
        *_cached(target, cached_repo_ids, known),
        *hub_candidates,
    ):
        found.setdefault(candidate.name.lower(), candidate)
    kept: list[Candidate] = []
    discarded: list[Discarded] = []
    for candidate in found.values():
        reason = judge.reason(candidate)
        if reason is None:
            kept.append(candidate)
        else:
            discarded.append(Discarded(candidate=candidate, code=reason[0], text=reason[1]))
    chosen, left_over = _choose(kept, limit)
    text = f"only the {limit} most promising are looked at; name it with --draft to include it"
    discarded += [Discarded(candidate=one, code="not_examined", text=text) for one in left_over]
    return Proposal(candidates=chosen, discarded=tuple(discarded))


def _curated(target: Model, pairs: tuple[Pair, ...] | None) -> Iterator[Candidate]:
    for pair in pairs_for(target.snapshot.repo_id, pairs):
        if pair.draft is not None:
            yield Candidate(
                method=pair.method, origin=CandidateOrigin.CURATED, source=pair.source, repo_id=pair.draft
            )


def _built_in(target: Model, pairs: tuple[Pair, ...] | None) -> Iterator[Candidate]:
    if target.architecture.mtp_layers:
        stated = [pair.source for pair in pairs_for(target.snapshot.repo_id, pairs) if pair.draft is None]
        source = stated[0] if stated else MTP_SOURCE
        yield Candidate(method=DraftMethod.MTP, origin=CandidateOrigin.BUILT_IN, source=source)
    yield Candidate(method=DraftMethod.NGRAM, origin=CandidateOrigin.BUILT_IN, source=NGRAM_SOURCE)


def _cached(target: Model, repo_ids: Iterable[str], known: Known) -> Iterator[Candidate]:
    """Models on disk that are related to the target, the smallest first; the rest of a cache is skipped."""
    ranked: list[tuple[int, str, Candidate]] = []
    for repo_id in dict.fromkeys(repo_ids):
        if variant_of(repo_id) == variant_of(target.snapshot.repo_id):
            continue
        facts = known(repo_id)
        method = _head_method(repo_id, facts)
        if method is not None and names_model(repo_id, target.snapshot.repo_id):
            source = "on disk; a head whose name states this target"
            ranked.append((0, repo_id, _from_cache(repo_id, method, source)))
        elif method is None and head_method_in_name(repo_id) is None:
            relation = _relation(target, repo_id, facts)
            size = _size(repo_id, facts)
            if relation is not None and size is not None and size < _target_size(target):
                ranked.append((size, repo_id, _from_cache(repo_id, DraftMethod.DRAFT_MODEL, relation)))
    yield from (candidate for _, _, candidate in sorted(ranked, key=lambda row: row[:2]))


def _from_cache(repo_id: str, method: DraftMethod, source: str) -> Candidate:
    return Candidate(method=method, origin=CandidateOrigin.CACHE, source=source, repo_id=repo_id)


def _relation(target: Model, repo_id: str, facts: ModelSnapshot | None) -> str | None:
    """Why a stand-alone model may share the target's tokenizer, or None: by facts, else by its name."""
    own = target.snapshot
    vocabulary = None if facts is None else text_value(facts.config, "vocab_size")
    if facts is None or not isinstance(vocabulary, int):
        same = family_of(repo_id) == family_of(own.repo_id) and not states_other_use(repo_id)
        return "on disk; same family by its name" if same else None
    if _tokenizer_hash(own) is not None and _tokenizer_hash(own) == _tokenizer_hash(facts):
        return "on disk; its tokenizer file is the target's"
    difference = abs(vocabulary - target.architecture.vocabulary_size)
    model_type = text_value(facts.config, "model_type")
    related = type_stem(model_type) == type_stem(target.architecture.model_type)
    related = related or major_family(repo_id) == major_family(own.repo_id)
    if not related or difference > VOCABULARY_TOLERANCE:
        return None
    size = f"vocab_size {vocabulary}" if not difference else f"vocab_size {vocabulary}, off by {difference}"
    return f"on disk; same kind of model, {size}"


class _Judge:
    """What is certain about a candidate before it is read."""

    def __init__(self, target: Model, pairs: tuple[Pair, ...] | None, known: Known) -> None:
        self._target = target
        self._pairs = pairs
        self._known = known

    def reason(self, candidate: Candidate) -> tuple[str, str] | None:
        """A code and a sentence where the candidate can be discarded; None where it has to be read."""
        if candidate.repo_id is None:
            return None
        repo_id, own = candidate.repo_id, self._target.snapshot.repo_id
        facts = self._known(repo_id)
        if variant_of(repo_id) == variant_of(own):
            return "target_itself", f"is the target itself, or {own} in another storage type"
        if facts is not None:
            try:
                require_model(facts, draft_heads=True)
            except NotAModelError as error:
                return facts.kind.value, error.message
        if facts is None and "gguf" in repo_id.lower().split("-"):
            return (
                RepoKind.GGUF_ONLY.value,
                "holds GGUF files, by its name; the sizes here are read from safetensors",
            )
        trained_for = targets_of(repo_id, self._pairs)
        if trained_for and not any(variant_of(one) == variant_of(own) for one in trained_for):
            return "head_for_another_target", f"is a draft head for {', '.join(trained_for)}, not for {own}"
        if candidate.method is DraftMethod.DRAFT_MODEL:
            return self._too_large(repo_id, facts)
        return None

    def _too_large(self, repo_id: str, facts: ModelSnapshot | None) -> tuple[str, str] | None:
        size, most = _size(repo_id, facts), _target_size(self._target)
        if size is None or size < most:
            return None
        return "larger_than_target", f"has {size:,} parameters; the target has {most:,}"


def _choose(candidates: Sequence[Candidate], limit: int) -> tuple[tuple[Candidate, ...], list[Candidate]]:
    """Those to read in order, and those beyond the limit."""
    named = [one for one in candidates if one.origin is CandidateOrigin.NAMED]
    rest = [one for one in candidates if one.origin is not CandidateOrigin.NAMED]
    ngram = [one for one in rest if one.method is DraftMethod.NGRAM]
    mtp = [one for one in rest if one.method is DraftMethod.MTP and one.repo_id is None]
    heads = [one for one in rest if _is_head(one)]
    models = [one for one in rest if one.method is DraftMethod.DRAFT_MODEL]
    room = max(0, limit - len(mtp) - len(ngram))
    heads_kept = heads[: max(MAX_HEADS, room - len(models))][:room]
    models_kept = models[: room - len(heads_kept)]
    left_over = heads[len(heads_kept) :] + models[len(models_kept) :]
    return (*named, *mtp, *heads_kept, *models_kept, *ngram), left_over


def _is_head(candidate: Candidate) -> bool:
    return candidate.method in HEADS or (candidate.method is DraftMethod.MTP and candidate.repo_id is not None)


def _head_method(repo_id: str, facts: ModelSnapshot | None) -> DraftMethod | None:
    """The method of a head that can be planned, from its configuration, else from its name."""
    if facts is None:
        name = head_method_in_name(repo_id)
    else:
        name = draft_head_method(facts.config) if facts.kind is RepoKind.DRAFT_HEAD else None
    usable = {method.value: method for method in (*HEADS, DraftMethod.MTP)}
    return usable.get(name or "")


def _size(repo_id: str, facts: ModelSnapshot | None) -> int | None:
    """Parameters as published, else as the name states them."""
    published = None if facts is None else facts.published_parameters
    return size_in_name(repo_id) if published is None else published


def _target_size(target: Model) -> int:
    """The target's parameters; without a count, two a stored byte: the most that 4-bit weights hold."""
    counted = target.weights.parameters or target.snapshot.published_parameters
    return counted or size_in_name(target.snapshot.repo_id) or 2 * target.weights.stored.high_bytes


def _tokenizer_hash(snapshot: ModelSnapshot) -> str | None:
    return None if snapshot.tokenizer is None else snapshot.tokenizer.file_hash


def text_value(config: Mapping[str, Any], key: str) -> object:
    """A value of the text decoder's configuration, which multimodal models keep in ``text_config``; or None."""
    section = config.get("text_config")
    nested = section.get(key) if isinstance(section, Mapping) else None
    return config.get(key) if nested is None else nested


def type_stem(model_type: object) -> str:
    """The model type without the suffixes that tell siblings apart (``qwen3_moe``, ``gemma3_text``)."""
    text = model_type.lower() if isinstance(model_type, str) else ""
    for suffix in ("_text", "_moe", "_vl"):
        text = text.removesuffix(suffix)
    return text
