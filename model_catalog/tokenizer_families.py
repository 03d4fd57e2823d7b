"""The embedded table of tokenizers: which published repos share one, and which ids differ between relatives.

Owns ``data/tokenizers.jsonl``. One line each: the publishers of renamed-nothing copies; a family (the repos that
carry one vocabulary, as patterns; facts; known hashes of tokenizer.json; a source); or the known difference
between two families. Families of one ``root`` grew out of one vocabulary: without a known difference, whether
they agree is not known. Families of two roots are different altogether.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

_DATA: Final = Path(__file__).with_name("data") / "tokenizers.jsonl"

IdRanges = tuple[tuple[int, int], ...]
#: An id with its token in the first and in the second tokenizer (None: it has none).
Example = tuple[int, str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Repos with one vocabulary. ``length`` counts tokens; None where it is not known."""

    name: str
    root: str
    repos: tuple[str, ...]
    but: tuple[str, ...]
    hashes: tuple[str, ...]
    source: str
    length: int | None = None
    max_id_plus_1: int | None = None
    tokenizer_class: str | None = None
    model_type: str | None = None
    bos: str | None = None
    add_bos: bool | None = None

    def has(self, repo_id: str) -> bool:
        """Whether a repo, in lower case, is one of the family's."""
        return any(fnmatchcase(repo_id, pattern) for pattern in self.repos) and not any(
            fnmatchcase(repo_id, pattern) for pattern in self.but
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Ids (inclusive ranges, ascending) that two families read differently; all other ids are equal."""

    ranges: IdRanges
    examples: tuple[Example, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    families: tuple[Family, ...]
    differences: Mapping[tuple[str, str], Difference]
    republishers: frozenset[str]
    not_republished: tuple[str, ...]


def find_family(repo_id: str) -> Family | None:
    """The family of a published repo, or of a quantised copy by a known publisher; None for everything else.

    A fine-tune by somebody else may add tokens, so its name proves nothing.
    """
    table, wanted = _table(), repo_id.lower()
    publisher, _, name = wanted.partition("/")
    for family in table.families:
        if family.has(wanted):
            return family
    if publisher in table.republishers and not any(
        fnmatchcase(name, pattern) for pattern in table.not_republished
    ):
        for family in table.families:
            if any(family.has(f"{original}/{name}") for original in _publishers(family)):
                return family
    return None


def family_of_hash(file_hash: str) -> Family | None:
    """The family whose tokenizer.json is known to have this hash (``sha256:...``)."""
    return next((family for family in _table().families if file_hash in family.hashes), None)


def find_difference(first: str, second: str) -> Difference | None:
    """The known difference between two families, seen from ``first``; None where it is not known."""
    differences = _table().differences
    known = differences.get((first, second))
    if known is not None:
        return known
    turned = differences.get((second, first))
    if turned is None:
        return None
    examples = tuple((number, theirs, ours) for number, ours, theirs in turned.examples)
    return Difference(ranges=turned.ranges, examples=examples, source=turned.source)


def all_families() -> tuple[Family, ...]:
    """Every family of the table, in its order."""
    return _table().families


def _publishers(family: Family) -> frozenset[str]:
    return frozenset(pattern.partition("/")[0] for pattern in family.repos)


@cache
def _table() -> _Table:
    families: list[Family] = []
    differences: dict[tuple[str, str], Difference] = {}
    republishers: frozenset[str] = frozenset()
    not_republished: tuple[str, ...] = ()
    for line in _DATA.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "family" in row:
            families.append(_family(row))
        elif "between" in row:
            first, second = row["between"]
            differences[first, second] = Difference(
                ranges=tuple((start, end) for start, end in row["ranges"]),
                examples=tuple((number, ours, theirs) for number, ours, theirs in row["examples"]),
                source=row["source"],
            )
        else:
            republishers = frozenset(_lower(row["republishers"]))
            not_republished = _lower(row["but"])
    return _Table(
        families=tuple(families),
        differences=differences,
        republishers=republishers,
        not_republished=not_republished,
    )


def _family(row: Mapping[str, Any]) -> Family:
    return Family(
        name=row["family"],
        root=row["root"],
        repos=_lower(row["repos"]),
        but=_lower(row.get("but", ())),
        hashes=tuple(row.get("hashes", ())),
        source=row["source"],
        length=row.get("length"),
        max_id_plus_1=row.get("max_id_plus_1"),
        tokenizer_class=row.get("class"),
        model_type=row.get("type"),
        bos=row.get("bos"),
        add_bos=row.get("add_bos"),
    )


def _lower(texts: list[str]) -> tuple[str, ...]:
    return tuple(text.lower() for text in texts)
