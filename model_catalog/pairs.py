"""The curated pairs of target and draft, and which of them hold for a repo.

Owns ``data/pairs.jsonl``: one pair a line with the source that says the two belong together, sorted by target and,
within a target, by preference. A pair is a proposal: whether an engine accepts it is judged elsewhere.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from model_catalog.drafts import DraftMethod
from model_catalog.repo_names import untuned, variant_of

_DATA: Final = Path(__file__).with_name("data") / "pairs.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A draft for a target, by repo ids, and who says so. ``draft`` is None for layers inside the target."""

    target: str
    draft: str | None
    method: DraftMethod
    source: str


@cache
def curated_pairs() -> tuple[Pair, ...]:
    """Every pair of the embedded catalogue, in the order of its file."""
    lines = _DATA.read_text(encoding="utf-8").splitlines()
    return tuple(_pair(json.loads(line)) for line in lines)


def pairs_for(repo_id: str, pairs: Iterable[Pair] | None = None) -> tuple[Pair, ...]:
    """The pairs that hold for a repo, best first: its own and those of the models it is a storage variant of.

    Storage variants share every pair. Where none of them has a stand-alone draft, those of the same model in
    another tuning (base for chat and the reverse) stand in; heads never do, for a head is trained on the hidden
    states of one of them. ``source`` says for which repo a shared pair was stated.
    """
    known = curated_pairs() if pairs is None else tuple(pairs)
    wanted, family = variant_of(repo_id), untuned(repo_id)
    same = [pair for pair in known if variant_of(pair.target) == wanted]
    if not any(pair.method is DraftMethod.DRAFT_MODEL for pair in same):
        same += [
            pair for pair in known if pair.method is DraftMethod.DRAFT_MODEL and untuned(pair.target) == family
        ]
    found: dict[tuple[str | None, DraftMethod], Pair] = {}
    for pair in same:
        stated = pair if pair.target == repo_id else replace(pair, source=f"{pair.source} (for {pair.target})")
        found.setdefault((pair.draft, pair.method), stated)
    return tuple(found.values())


def targets_of(repo_id: str, pairs: Iterable[Pair] | None = None) -> tuple[str, ...]:
    """The targets that a head was trained for, by its repo id; empty for stand-alone drafts and unknown repos."""
    known = curated_pairs() if pairs is None else pairs
    name = repo_id.lower()
    return tuple(
        pair.target
        for pair in known
        if pair.draft is not None and pair.draft.lower() == name and pair.method is not DraftMethod.DRAFT_MODEL
    )


def _pair(row: Mapping[str, Any]) -> Pair:
    return Pair(target=row["target"], draft=row["draft"], method=DraftMethod(row["method"]), source=row["source"])
