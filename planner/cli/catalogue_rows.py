"""The models that need no network: the user's own snapshots first, then the embedded catalogue."""

import difflib
import importlib
import importlib.util

from model_catalog.snapshot import ModelSnapshot
from model_catalog.snapshot_store import user_snapshots

_CATALOGUE = "model_catalog.catalogue"


def catalogue_row(repo_id: str) -> ModelSnapshot | None:
    """The user's or the catalogue's entry of that name, whatever its case."""
    own = next((row for row in user_snapshots() if row.repo_id.lower() == repo_id.lower()), None)
    if own is not None or not _has_catalogue():
        return own
    row: ModelSnapshot | None = importlib.import_module(_CATALOGUE).find_row(repo_id)
    return row


def catalogue_rows() -> tuple[ModelSnapshot, ...]:
    """All entries by name; the user's own replace the catalogue's."""
    rows: dict[str, ModelSnapshot] = {}
    if _has_catalogue():
        rows = {row.repo_id: row for row in importlib.import_module(_CATALOGUE).rows()}
    rows |= {row.repo_id: row for row in user_snapshots()}
    return tuple(sorted(rows.values(), key=lambda row: row.repo_id.lower()))


def close_names(name: str) -> list[str]:
    """At most three entries whose names resemble this one."""
    names = {row.repo_id.lower(): row.repo_id for row in catalogue_rows()}
    short = {lower.rpartition("/")[2]: name for lower, name in names.items()}
    near = difflib.get_close_matches(name.lower(), [*names, *short], n=6, cutoff=0.6)
    return list(dict.fromkeys({**short, **names}[match] for match in near))[:3]


def _has_catalogue() -> bool:
    return importlib.util.find_spec(_CATALOGUE) is not None
