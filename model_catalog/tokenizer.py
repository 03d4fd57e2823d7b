"""What is known of a model's tokenizer, and whether two tokenizers give every id the same token.

Facts come, best first, from a tokenizer.json, from the table of published families, and from config.json (the
number of embedding rows, which is not the number of tokens). What cannot be read stays unknown, with a note: a
malformed file never stops a plan and never counts as agreement. Engines judge pairs by rules of their own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from model_catalog.model import Model
from model_catalog.snapshot import ModelSnapshot
from model_catalog.tokenizer_families import (
    Example,
    Family,
    IdRanges,
    family_of_hash,
    find_difference,
    find_family,
)
from model_catalog.tokenizer_files import (
    MAX_ID,
    TOKENIZER_JSON,
    TokenizerFile,
    Vocabulary,
    file_hashes,
    read_vocabulary,
)

#: Files that hold a whole tokenizer; the first in a repo is the one whose hash a snapshot carries.
_WHOLE_FILES: Final = (TOKENIZER_JSON, "tekken.json")
_PARTIAL_FILES: Final = ("tokenizer.model",)  # SentencePiece: added tokens are elsewhere
#: A file this short holds no vocabulary: equal hashes of such files prove nothing.
_SHORTEST_BYTES: Final = 100
_MOST_EXAMPLES: Final = 4
_MOST_RANGES: Final = 64
_SHOWN_CHARACTERS: Final = 40
#: Ours: special tokens differ between relatives in under 0.3 % of ids; strangers differ in nearly all.
_UNRELATED_SHARE: Final = 0.01


class Sameness(StrEnum):
    """Whether every id means the same token."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenizerFacts:
    """One model's tokenizer. ``config_vocabulary_size`` counts embedding rows with padding, ``length`` tokens.

    ``file_hashes`` are of files that hold a whole tokenizer (``sha256:...`` of the content, ``git:...`` of the
    blob). ``vocabulary`` is there where a tokenizer.json was read. Ids of bos and eos are config.json's.
    """

    repo_id: str
    config_vocabulary_size: int | None
    length: int | None = None
    max_id_plus_1: int | None = None
    tokenizer_class: str | None = None
    model_type: str | None = None
    bos: str | None = None
    bos_id: int | None = None
    eos: str | None = None
    eos_id: int | None = None
    add_bos: bool | None = None
    file_hashes: tuple[str, ...] = ()
    family: Family | None = None
    vocabulary: Vocabulary | None = None
    source: str = "config.json alone"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerComparison:
    """Two tokenizers, id by id; ``basis`` says how it is known.

    ``differing_ids`` counts ids whose tokens differ or that one side lacks; None where the count is not known.
    ``differing_ranges`` lists them ascending, the first 64 ranges at most. ``unrelated``: more than 1 % differ,
    so ids carry no meaning from one to the other. ``examples`` are printable.
    """

    sameness: Sameness
    basis: str
    differing_ids: int | None = None
    differing_ranges: IdRanges = ()
    examples: tuple[str, ...] = ()
    unrelated: bool = False

    @property
    def equal_up_to(self) -> int | None:
        """The smallest id that differs: ids below it are equal. None where none differs or it is not known."""
        return self.differing_ranges[0][0] if self.differing_ranges else None

    def differs_within(self, start: int, end: int) -> bool | None:
        """Whether an id in ``start`` to ``end - 1`` differs; None where that is not known."""
        if self.sameness is Sameness.SAME:
            return False
        if self.sameness is Sameness.UNKNOWN:
            return None
        if not self.differing_ranges:
            return True if self.unrelated else None
        return any(first < end and last >= start for first, last in self.differing_ranges)


def tokenizer_facts(model: Model, file: TokenizerFile | None = None) -> TokenizerFacts:
    """All that is known of a model's tokenizer without asking anyone; ``file`` is its tokenizer.json, if read."""
    snapshot = model.snapshot
    vocabulary, hashes, notes = _read(file)
    hashes = tuple(dict.fromkeys((*hashes, *_listed_hashes(snapshot))))
    family = find_family(snapshot.repo_id) or next(filter(None, map(family_of_hash, hashes)), None)
    fingerprint = snapshot.tokenizer
    bos_id, eos_id = (_token_id(snapshot.config, key) for key in ("bos_token_id", "eos_token_id"))
    stated_class = None if fingerprint is None else fingerprint.tokenizer_class
    read = vocabulary is not None
    return TokenizerFacts(
        repo_id=snapshot.repo_id,
        config_vocabulary_size=model.architecture.vocabulary_size,
        length=len(vocabulary.ids) if vocabulary else family.length if family else None,
        max_id_plus_1=vocabulary.max_id_plus_1 if vocabulary else family.max_id_plus_1 if family else None,
        tokenizer_class=stated_class or (family.tokenizer_class if family else None),
        model_type=vocabulary.model_type if vocabulary else family.model_type if family else None,
        bos=_text_of(vocabulary, bos_id) or (family.bos if family else None),
        bos_id=bos_id,
        eos=_text_of(vocabulary, eos_id),
        eos_id=eos_id,
        add_bos=family.add_bos if family else None,
        file_hashes=hashes,
        family=family,
        vocabulary=vocabulary,
        source=TOKENIZER_JSON
        if read
        else f"table of published tokenizers: {family.name}"
        if family
        else "config.json alone",
        notes=notes,
    )


def compare_tokenizers(target: TokenizerFacts, draft: TokenizerFacts) -> TokenizerComparison:
    """Whether two tokenizers agree on every id: by file hash, by their vocabularies, or by the family table."""
    shared = next((known for known in target.file_hashes if known in draft.file_hashes), None)
    if shared is not None:
        return TokenizerComparison(
            sameness=Sameness.SAME, differing_ids=0, basis=f"identical tokenizer file ({shared[:19]}...)"
        )
    if target.vocabulary is not None and draft.vocabulary is not None:
        return _by_vocabulary(target.vocabulary, draft.vocabulary)
    if target.family is not None and draft.family is not None:
        return _by_family(target.family, draft.family)
    unread = [facts for facts in (target, draft) if facts.vocabulary is None]
    why = "; ".join(note for facts in unread for note in facts.notes)
    names = " and ".join(facts.repo_id for facts in unread)
    basis = f"no tokenizer.json of {names} was read, and the table does not know the pair"
    return TokenizerComparison(sameness=Sameness.UNKNOWN, basis=f"{basis} ({why})" if why else basis)


def reading_would_help(target: TokenizerFacts, draft: TokenizerFacts) -> bool:
    """Whether fetching the tokenizer files could settle a comparison that is unknown now."""
    if compare_tokenizers(target, draft).sameness is not Sameness.UNKNOWN:
        return False
    return not any(facts.notes for facts in (target, draft) if facts.vocabulary is None)


def _read(file: TokenizerFile | None) -> tuple[Vocabulary | None, tuple[str, ...], tuple[str, ...]]:
    if file is None:
        return None, (), ()
    if file.content is None:
        return None, (), (file.note or f"{TOKENIZER_JSON} is not there",)
    try:
        vocabulary = read_vocabulary(file.content)
    except ValueError as error:
        return None, (), (f"{TOKENIZER_JSON} cannot be read: {error}",)
    return vocabulary, file_hashes(file.content), ()


def _listed_hashes(snapshot: ModelSnapshot) -> tuple[str, ...]:
    """The snapshot's hash, where it is of a file that holds a whole tokenizer."""
    if snapshot.tokenizer is None or snapshot.tokenizer.file_hash is None:
        return ()
    sizes = {file.path: file.size_bytes for file in snapshot.files}
    name = next((name for name in (TOKENIZER_JSON, *_PARTIAL_FILES, "tekken.json") if name in sizes), None)
    size = sizes.get(name) if name else None
    whole = name in _WHOLE_FILES and (size is None or size >= _SHORTEST_BYTES)
    return (snapshot.tokenizer.file_hash,) if whole else ()


def _token_id(config: Mapping[str, Any], key: str) -> int | None:
    """The id under a key, at the top or in the text part; the first of several."""
    text = config.get("text_config")
    value = config.get(key)
    if value is None and isinstance(text, Mapping):
        value = text.get(key)
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_ID
    return value if usable and isinstance(value, int) else None


def _text_of(vocabulary: Vocabulary | None, number: int | None) -> str | None:
    return None if vocabulary is None or number is None else vocabulary.token(number)


def _by_vocabulary(target: Vocabulary, draft: Vocabulary) -> TokenizerComparison:
    ours, theirs = set(target.ids.items()), set(draft.ids.items())
    differing = sorted({number for _, number in ours ^ theirs})
    if not differing:
        basis = f"all {len(ours):,} tokens and ids of both tokenizer.json files are equal"
        return TokenizerComparison(sameness=Sameness.SAME, differing_ids=0, basis=basis)
    wanted = set(differing[:_MOST_EXAMPLES])
    target_tokens = {number: token for token, number in target.ids.items() if number in wanted}
    draft_tokens = {number: token for token, number in draft.ids.items() if number in wanted}
    shown = ((number, target_tokens.get(number), draft_tokens.get(number)) for number in sorted(wanted))
    return TokenizerComparison(
        sameness=Sameness.DIFFERENT,
        basis="both tokenizer.json files, token by token",
        differing_ids=len(differing),
        differing_ranges=_ranges(differing),
        examples=tuple(map(_shown, shown)),
        unrelated=len(differing) > _UNRELATED_SHARE * min(len(ours), len(theirs)),
    )


def _by_family(target: Family, draft: Family) -> TokenizerComparison:
    if target.name == draft.name:
        basis = f"both are published with the {target.name} tokenizer ({target.source})"
        return TokenizerComparison(sameness=Sameness.SAME, differing_ids=0, basis=basis)
    known = find_difference(target.name, draft.name)
    names = f"{target.name} and {draft.name}"
    if known is not None:
        return TokenizerComparison(
            sameness=Sameness.DIFFERENT,
            basis=f"the known difference between the {names} tokenizers ({known.source})",
            differing_ids=sum(last - first + 1 for first, last in known.ranges),
            differing_ranges=known.ranges,
            examples=tuple(map(_shown, known.examples[:_MOST_EXAMPLES])),
        )
    if target.root != draft.root:
        basis = f"the {names} tokenizers are of different origin"
        return TokenizerComparison(sameness=Sameness.DIFFERENT, basis=basis, unrelated=True)
    basis = f"the {names} tokenizers are related, but which ids differ is not known"
    return TokenizerComparison(sameness=Sameness.UNKNOWN, basis=basis)


def _ranges(numbers: Iterable[int]) -> IdRanges:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        elif len(ranges) == _MOST_RANGES:
            break
        else:
            ranges.append((number, number))
    return tuple(ranges)


def _shown(example: Example) -> str:
    number, ours, theirs = example
    return f"{number}: {_quoted(ours)} / {_quoted(theirs)}"


def _quoted(token: str | None) -> str:
    if token is None:
        return "none"
    text = ascii(token)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
