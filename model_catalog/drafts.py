"""How tokens are drafted, and where a candidate draft came from. Proposes nothing itself and judges nothing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

_BLOCK_IN_NAME: Final = re.compile(r"_block(\d{1,2})$|-b(\d{1,2})$")


class DraftMethod(StrEnum):
    """How tokens are proposed; the names are vLLM's own."""

    DRAFT_MODEL = "draft_model"  #: a stand-alone small model with its own embedding, head and cache
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"  #: the layers that ship inside the target
    NGRAM = "ngram"  #: no weights, no cache
    DFLASH = "dflash"  #: block-diffusion head: all k tokens in one pass
    DSPARK = "dspark"  #: semi-parallel head with a low-rank output stage


#: Methods whose head reads the target's hidden states: it serves one target only.
HEADS = frozenset({DraftMethod.EAGLE, DraftMethod.EAGLE3, DraftMethod.DFLASH, DraftMethod.DSPARK})
#: Heads, and the layers inside the target: all that drafts from the target's hidden states.
READS_HIDDEN_STATES: Final = HEADS | {DraftMethod.MTP}
#: Heads that draft all k tokens in one pass over a block of query tokens.
PARALLEL_HEADS: Final = frozenset({DraftMethod.DFLASH, DraftMethod.DSPARK})
#: Kinds of head (``families.heads.draft_head_method``) that engines serve from a repo of their own. Others
#: (Medusa, P-EAGLE, Domino, assistants without layers of their own) are recognised but not planned.
METHOD_OF_HEAD: Final[Mapping[str, DraftMethod]] = MappingProxyType(
    {method.value: method for method in sorted(HEADS)}
)


class CandidateOrigin(StrEnum):
    """Where a candidate was found; shown to the user."""

    NAMED = "named"  #: --draft
    CURATED = "curated"  #: the catalogue's list of pairs
    BUILT_IN = "built_in"  #: nothing to download: MTP layers, n-gram
    CACHE = "cache"  #: on this machine's disk already
    HUB = "hub"  #: found by searching the Hub


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A draft that might serve a target. ``repo_id`` is None for methods without weights of their own.

    ``source`` says who claims that the pair belongs together (a model card, a paper, a search).
    """

    method: DraftMethod
    origin: CandidateOrigin
    source: str
    repo_id: str | None = None
    revision: str | None = None

    @property
    def name(self) -> str:
        """The repo, or the method's name."""
        return self.repo_id or self.method.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """A candidate that cannot even be sized, and why (an adapter, a GGUF-only repo, a head for another target)."""

    candidate: Candidate
    code: str
    text: str


def longest_block(repo_id: str, config: Mapping[str, object]) -> int | None:
    """The most tokens that a block-drafting head proposes in one pass, or None where nothing says.

    Stated by ``block_size`` (in the config or its ``dflash_config``), else by the repo's name: DeepSpec's
    ``_block7`` counts drafted tokens, z-lab's ``-b16`` counts the anchor token too.
    """
    nested = config.get("dflash_config")
    for section in (config, nested if isinstance(nested, Mapping) else {}):
        stated = section.get("block_size")
        if isinstance(stated, int) and not isinstance(stated, bool) and stated > 1:
            return stated - 1
    named = _BLOCK_IN_NAME.search(repo_id)
    if named is None:
        return None
    return int(named[1]) if named[1] is not None else int(named[2]) - 1
