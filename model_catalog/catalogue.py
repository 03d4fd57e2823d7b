"""The embedded catalogue: models that can be planned without a network, and the lookup of their names.

Owns ``data/models.jsonl``: one model a line, sorted by repo id, ``repo_id`` first. A row holds normalised facts
(the configuration keys that the reader reads, published totals, their source), never a repo's own file, and no
commit. Counts called the Hub's are those of its API as collected in llmfit 1.1.17 (PyPI), or of a published index.
Finding a name parses one line. The user's own snapshots (``snapshot_store``) go before these rows.
"""

import difflib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from model_catalog.snapshot import SNAPSHOT_SCHEMA, ModelSnapshot, RepoKind, SnapshotSource, WeightsKnownFrom
from model_catalog.snapshot_store import user_snapshots

_DATA: Final = Path(__file__).with_name("data") / "models.jsonl"
_LINE_START: Final = '{"repo_id":"'
_NEAR_NAMES: Final = 3
#: What a row leaves out is the same for every row.
_DEFAULTS: Final[Mapping[str, object]] = {
    "schema": SNAPSHOT_SCHEMA,
    "revision": None,
    "commit": None,
    "source": SnapshotSource.CATALOGUE.value,
    "kind": RepoKind.MODEL.value,
    "quantization_file": None,
    "files": (),
    "weights_from": WeightsKnownFrom.CONFIG.value,
    "weight_groups": (),
    "index_total_bytes": None,
    "published_parameters": None,
    "published_bytes": None,
    "tokenizer": None,
    "notes": (),
}


def find_row(name: str) -> ModelSnapshot | None:
    """The row of a repo id in any case, or of the part after the slash where only one row ends so; else None."""
    lines = _lines_by_name()
    wanted = name.strip().lower()
    line = lines.get(wanted)
    if line is None and wanted and "/" not in wanted:
        same = [found for repo_id, found in lines.items() if repo_id.endswith(f"/{wanted}")]
        line = same[0] if len(same) == 1 else None
    return None if line is None else _snapshot(line)


def lookup(name: str, folder: Path | None = None) -> ModelSnapshot | None:
    """As ``find_row``, with the user's own snapshots first; ``folder`` holds those, by default the user's."""
    wanted = name.strip().lower()
    own = user_snapshots(folder)
    for snapshot in own:
        if snapshot.repo_id.lower() == wanted:
            return snapshot
    row = find_row(name)
    if row is not None or "/" in wanted:
        return row
    same = [snapshot for snapshot in own if snapshot.repo_id.lower().endswith(f"/{wanted}")]
    return same[0] if len(same) == 1 else None


def catalogue_names() -> tuple[str, ...]:
    """Every repo id of the embedded catalogue, in order."""
    return tuple(_repo_id(line) for line in _lines())


def near_names(name: str) -> tuple[str, ...]:
    """At most three repo ids that resemble this name, with or without its organisation; the nearest first."""
    known = {repo_id.lower(): repo_id for repo_id in catalogue_names()}
    short: dict[str, list[str]] = {}
    for lower, repo_id in known.items():
        short.setdefault(lower.rpartition("/")[2], []).append(repo_id)
    wanted = name.strip().lower()
    found = list(short.get(wanted.rpartition("/")[2], ()))
    for match in difflib.get_close_matches(wanted, [*known, *short], n=2 * _NEAR_NAMES, cutoff=0.6):
        found += [known[match]] if match in known else short[match]
    return tuple(dict.fromkeys(found))[:_NEAR_NAMES]


def rows() -> Iterator[ModelSnapshot]:
    """Every row of the embedded catalogue, in order."""
    return map(_snapshot, _lines())


@cache
def _lines() -> tuple[str, ...]:
    return tuple(_DATA.read_text(encoding="utf-8").splitlines())


@cache
def _lines_by_name() -> Mapping[str, str]:
    return {_repo_id(line).lower(): line for line in _lines()}


def _repo_id(line: str) -> str:
    """The first value of a line, without parsing the rest. Repo ids hold no quotes."""
    return line[len(_LINE_START) : line.index('"', len(_LINE_START))]


def _snapshot(line: str) -> ModelSnapshot:
    return ModelSnapshot.from_json({**_DEFAULTS, **json.loads(line)})
