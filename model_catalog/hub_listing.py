"""What the Hub's listing of models is asked, and what it answers. Pure.

Source of the field names: the Hub's API, ``GET /api/models`` (https://huggingface.co/docs/hub/api), as
``huggingface_hub.HfApi.list_models`` asks it and ``huggingface_hub.ModelInfo`` reads it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

#: A row is a few kilobytes: its tags, and the short form of its configuration.
LISTING_LIMIT_BYTES: Final = 8_000_000
_FIELDS: Final = ("tags", "config", "safetensors", "library_name", "pipeline_tag", "gated", "downloads")
_MAX_TAGS: Final = 500
_MAX_PARAMETERS: Final = 2**60


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQuery:
    """One question: models that carry every tag, by one author, whose name holds a text; most downloaded first."""

    tags: tuple[str, ...] = ()
    author: str | None = None
    search: str | None = None
    limit: int = 40

    def address(self, site: str) -> str:
        """The URL that asks it."""
        asked: dict[str, object] = {"filter": self.tags, "author": self.author, "search": self.search}
        given = {key: value for key, value in asked.items() if value}
        fixed = {"sort": "downloads", "limit": self.limit, "expand": _FIELDS}
        return f"{site}/api/models?{urlencode({**given, **fixed}, doseq=True)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """A repo as the listing shows it. ``config`` holds ``architectures`` and ``model_type`` at most.

    ``parameters`` is the Hub's own count, which takes packed words for parameters.
    """

    repo_id: str
    tags: frozenset[str]
    config: Mapping[str, Any]
    parameters: int | None
    library: str | None
    pipeline: str | None
    gated: bool

    @property
    def base_models(self) -> frozenset[str]:
        """The repos that its card names as what it was made from, in lower case."""
        named = (tag.removeprefix("base_model:") for tag in self.tags if tag.startswith("base_model:"))
        return frozenset(name.rpartition(":")[2].lower() for name in named)

    def made_by(self, relation: str) -> bool:
        """Whether its card states this relation to a base model (``quantized``, ``adapter``, ``finetune``)."""
        return any(tag.startswith(f"base_model:{relation}:") for tag in self.tags)


def read_listing(raw: bytes, limit: int) -> tuple[ListedModel, ...]:
    """The rows of an answer, at most ``limit``; rows without a name are skipped.

    Raises:
        ValueError: it is not the Hub's listing.
    """
    try:
        document = json.loads(raw)
    except RecursionError as cause:
        raise ValueError("nested too deeply") from cause
    if not isinstance(document, list):
        raise ValueError("not a JSON list")  # noqa: TRY004 - one class for every way of not being an answer
    rows = (row for row in document[:limit] if isinstance(row, dict))
    return tuple(_listed(row) for row in rows if _text(row.get("id")) is not None)


def _listed(row: Mapping[str, Any]) -> ListedModel:
    tags, config, weights = row.get("tags"), row.get("config"), row.get("safetensors")
    total = weights.get("total") if isinstance(weights, dict) else None
    countable = isinstance(total, int) and not isinstance(total, bool) and 0 < total < _MAX_PARAMETERS
    return ListedModel(
        repo_id=row["id"],
        tags=frozenset(tag for tag in tags[:_MAX_TAGS] if isinstance(tag, str))
        if isinstance(tags, list)
        else frozenset(),
        config=config if isinstance(config, dict) else {},
        parameters=total if countable else None,
        library=_text(row.get("library_name")),
        pipeline=_text(row.get("pipeline_tag")),
        gated=bool(row.get("gated")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() else None
