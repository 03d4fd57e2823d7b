"""Our own cache of snapshots by commit, and the snapshots a user added to the catalogue, as JSON files.

Owns two folders: ``$XDG_CACHE_HOME/specplan/snapshots`` (may be deleted at any time) and
``$XDG_DATA_HOME/specplan/models`` (the user's). The cache never fails a plan: what it cannot read it forgets,
what it cannot write becomes a note. Snapshots of one commit never change, so they have no age; only the answer
"which commit is this branch at" has one.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from model_catalog.errors import UsageError
from model_catalog.snapshot import ModelSnapshot, SnapshotSource, is_commit

#: Raise this whenever the same commit would now be read differently (tensor names, roles, grouping).
READER_VERSION: Final = 1
ENTRY_LIMIT_BYTES: Final = 32_000_000
MAX_ENTRIES: Final = 1000
_STORE_SCHEMA: Final = "specplan.store/1"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCommit:
    """The commit that a branch or tag was at, ``age_seconds`` ago."""

    commit: str
    age_seconds: float


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/specplan/snapshots``, by default below ``~/.cache`` (XDG Base Directory Specification)."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "specplan" / "snapshots"


def user_folder() -> Path:
    """``$XDG_DATA_HOME/specplan/models``, by default below ``~/.local/share``."""
    return _xdg("XDG_DATA_HOME", ".local/share") / "specplan" / "models"


class SnapshotStore:
    """The cache in one folder; by default the user's."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = cache_folder() if folder is None else folder

    def get(self, repo_id: str, commit: str) -> ModelSnapshot | None:
        """The snapshot of a commit, or None where it is not held, damaged, or read by another version."""
        document = _load(self._entry(repo_id, commit))
        if document is None or document.get("reader") != READER_VERSION:
            return None
        snapshot = _snapshot(document.get("snapshot"))
        matches = snapshot is not None and snapshot.repo_id == repo_id and snapshot.commit == commit
        return snapshot if matches else None

    def put(self, snapshot: ModelSnapshot) -> str | None:
        """Keep a snapshot under its commit. Returns a note where that was not possible."""
        if snapshot.commit is None:
            return None
        document = {"schema": _STORE_SCHEMA, "reader": READER_VERSION, "snapshot": snapshot.to_json()}
        note = self._write(self._entry(snapshot.repo_id, snapshot.commit), document)
        self._forget_oldest()
        return note

    def known_commit(self, repo_id: str, revision: str, endpoint: str) -> KnownCommit | None:
        """The commit a branch was last seen at, or None where it was never asked for at this Hub."""
        document = _load(self._pointer(repo_id, revision, endpoint))
        if document is None:
            return None
        commit, asked_at = document.get("commit"), document.get("asked_at")
        if not isinstance(commit, str) or not is_commit(commit):
            return None
        if isinstance(asked_at, bool) or not isinstance(asked_at, int | float):
            return None
        age = time.time() - asked_at
        # A clock that was set back makes an answer look as if from the future: such an answer is not fresh.
        return KnownCommit(commit=commit, age_seconds=age if age >= 0 else float("inf"))

    def remember_commit(self, repo_id: str, revision: str, endpoint: str, commit: str) -> None:
        """Note that a branch is at this commit now."""
        document = {"schema": _STORE_SCHEMA, "commit": commit, "asked_at": time.time(), "revision": revision}
        self._write(self._pointer(repo_id, revision, endpoint), document)

    def _entry(self, repo_id: str, commit: str) -> Path:
        return self._folder / _folder_name(repo_id) / f"{_UNSAFE.sub('_', commit)}.json"

    def _pointer(self, repo_id: str, revision: str, endpoint: str) -> Path:
        digest = _sha256(f"{endpoint}\n{revision}")[:16]
        return self._folder / _folder_name(repo_id) / f"ref-{digest}.json"

    def _write(self, place: Path, document: Mapping[str, Any]) -> str | None:
        try:
            write_atomically(place, document)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            return f"the snapshot cache at {self._folder} could not be written ({reason})"
        return None

    def _forget_oldest(self) -> None:
        """Keep the newest ``MAX_ENTRIES`` files; another process may be deleting too."""
        with contextlib.suppress(OSError):
            entries = sorted(self._folder.glob("*/*.json"), key=lambda place: place.stat().st_mtime)
            for place in entries[: max(0, len(entries) - MAX_ENTRIES)]:
                place.unlink(missing_ok=True)


def add_user_snapshot(snapshot: ModelSnapshot, folder: Path | None = None) -> Path:
    """Add a snapshot to the user's catalogue, in place of an earlier one of the same repo. Returns its file.

    Raises:
        UsageError: the folder cannot be written.
    """
    place = (user_folder() if folder is None else folder) / f"{_folder_name(snapshot.repo_id)}.json"
    try:
        write_atomically(place, snapshot.to_json())
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or str(cause)
        hint = "make the folder writable, or set XDG_DATA_HOME to one that is"
        raise UsageError(f"cannot be written ({reason})", subject=str(place), hint=hint) from cause
    return place


def user_snapshots(folder: Path | None = None) -> tuple[ModelSnapshot, ...]:
    """The snapshots that the user added, by repo id, as catalogue entries. Damaged files are skipped."""
    base = user_folder() if folder is None else folder
    try:
        places = sorted(base.glob("*.json"))
    except OSError:
        return ()
    found = (_snapshot(_load(place)) for place in places[:MAX_ENTRIES])
    entries = (replace(snapshot, source=SnapshotSource.CATALOGUE) for snapshot in found if snapshot is not None)
    return tuple(sorted(entries, key=lambda snapshot: snapshot.repo_id))


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The specification: "if an implementation encounters a relative path it should ignore it".
    return Path(value) if value and Path(value).is_absolute() else Path.home() / default


def _folder_name(repo_id: str) -> str:
    """A file name for a repo: readable, and distinct also where file systems fold case."""
    digest = _sha256(repo_id)[:8]
    return f"{_UNSAFE.sub('--', repo_id)[:150].lstrip('.')}.{digest}"


def _load(place: Path) -> dict[str, Any] | None:
    try:
        with place.open("rb") as file:
            content = file.read(ENTRY_LIMIT_BYTES + 1)
        document = json.loads(content) if len(content) <= ENTRY_LIMIT_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _snapshot(document: object) -> ModelSnapshot | None:
    if not isinstance(document, dict):
        return None
    try:
        return ModelSnapshot.from_json(document)
    except ValueError:
        return None


def write_atomically(place: Path, document: Mapping[str, Any]) -> None:
    """Write a document as a whole or not at all.

    Raises:
        OSError: it cannot be written. ValueError: it is too long.
    """
    content = json.dumps(document, separators=(",", ":")).encode()
    if len(content) > ENTRY_LIMIT_BYTES:
        raise ValueError(f"longer than {ENTRY_LIMIT_BYTES} bytes")
    place.parent.mkdir(parents=True, exist_ok=True)
    import tempfile  # noqa: PLC0415 - slow to import, and reading needs it not

    descriptor, temporary = tempfile.mkstemp(dir=place.parent, prefix=".new-", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).replace(place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _sha256(text: str) -> str:
    import hashlib  # noqa: PLC0415 - slow to import, and the catalogue's models need it not

    return hashlib.sha256(text.encode()).hexdigest()
