"""Which models are on this machine's disk: the Hub client's cache, our own store, the user's catalogue.

Lists folder names only and imports nothing heavy. What is in a repo is read when it is chosen.
"""

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from model_catalog.catalogue import find_row
from model_catalog.snapshot import ModelSnapshot
from model_catalog.snapshot_store import SnapshotStore, cache_folder, user_snapshots

_MODEL_FOLDER: Final = "models--"
_REPO_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}")
_STORE_ENTRY: Final = re.compile(r"(.{1,150})\.([0-9a-f]{8})")
#: Folders looked at in either place; a cache of more models than this is cut, newest first.
MAX_FOLDERS: Final = 2000


def hub_cache_folder() -> Path:
    """The Hub client's cache, by its own rules: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME.

    Source: ``huggingface_hub.constants``.
    """
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    place = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or str(Path(home) / "hub")
    return Path(os.path.expandvars(place)).expanduser()


def cached_repo_ids(
    hub_cache: Path | None = None, store: Path | None = None, user_models: Path | None = None
) -> tuple[str, ...]:
    """The repo ids of models on disk, sorted; the folders default to this user's. Never fails.

    A repo counts where the Hub's cache holds a snapshot of it, or our store or the user's catalogue an entry.
    """
    found = set(_in_hub_cache(hub_cache_folder() if hub_cache is None else hub_cache))
    found.update(_in_store(cache_folder() if store is None else store))
    found.update(snapshot.repo_id for snapshot in user_snapshots(user_models))
    return tuple(sorted(found))


def known_on_disk(repo_id: str, *, endpoint: str, store: SnapshotStore | None = None) -> ModelSnapshot | None:
    """What is known of a repo without asking the Hub: our store's snapshot of main, else the catalogue's row.

    ``endpoint`` is the Hub that the store's answer must be from. Of a repo that only the Hub's cache holds,
    nothing is known until it is read.
    """
    held = SnapshotStore() if store is None else store
    commit = held.known_commit(repo_id, "main", endpoint)
    stored = None if commit is None else held.get(repo_id, commit.commit)
    return find_row(repo_id) if stored is None else stored


def _in_hub_cache(folder: Path) -> Iterable[str]:
    for place in _newest(folder):
        repo_id = place.name.removeprefix(_MODEL_FOLDER).replace("--", "/")
        if place.name.startswith(_MODEL_FOLDER) and _REPO_ID.fullmatch(repo_id) and _has_snapshot(place):
            yield repo_id


def _in_store(folder: Path) -> Iterable[str]:
    """The store names a folder after its repo, with a digest of the id that tells whether the name is whole."""
    for place in _newest(folder):
        match = _STORE_ENTRY.fullmatch(place.name)
        repo_id = "" if match is None else match[1].replace("--", "/", 1)
        if match is not None and hashlib.sha256(repo_id.encode()).hexdigest()[:8] == match[2]:
            yield repo_id


def _newest(folder: Path) -> list[Path]:
    try:
        places = [(entry.stat().st_mtime, Path(entry.path)) for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []
    return [place for _, place in sorted(places, reverse=True)[:MAX_FOLDERS]]


def _has_snapshot(place: Path) -> bool:
    try:
        return any((place / "snapshots").iterdir())
    except OSError:
        return False
