"""Getting a model's tokenizer.json: from its folder, the Hub's cache on disk, our own cache, or the Hub.

Owns ``$XDG_CACHE_HOME/specplan/tokenizers`` (may be deleted at any time), one file a repo and commit. Never
raises: what cannot be had becomes a note, and the tokenizer stays unknown.
"""

import contextlib
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Final

from model_catalog.disk_repos import hub_cache_folder
from model_catalog.errors import SpecplanError
from model_catalog.local_folder import FolderFiles
from model_catalog.snapshot import ModelSnapshot, RepoRef
from model_catalog.snapshot_store import cache_folder
from model_catalog.tokenizer_files import TOKENIZER_JSON, TOKENIZER_LIMIT_BYTES, TokenizerFile

#: Ours: about 10 MB each.
MAX_KEPT: Final = 20
#: Ours: a check that a plan can do without must not hold it up.
DEADLINE_SECONDS: Final = 30.0
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


def load_tokenizer(
    ref: RepoRef,
    snapshot: ModelSnapshot,
    *,
    offline: bool = False,
    endpoint: str | None = None,
    hub_cache: Path | None = None,
    own_cache: Path | None = None,
) -> TokenizerFile:
    """The tokenizer.json of a model that was read before; one request at most, 64 MB at most.

    ``ref`` says where ``snapshot`` came from. A catalogue entry has no commit, so the Hub is not asked about it.
    ``hub_cache`` and ``own_cache`` are folders, by default this user's; ``endpoint`` is HF_ENDPOINT.
    """
    if ref.folder is not None:
        return _in_folder(ref.folder, snapshot.repo_id, ())
    commit = snapshot.commit
    if commit is None:
        return TokenizerFile(
            content=None, note=f"{snapshot.repo_id}: the built-in catalogue has no tokenizer files"
        )
    if snapshot.files and all(file.path != TOKENIZER_JSON for file in snapshot.files):
        return TokenizerFile(content=None, note=f"{snapshot.repo_id}: has no {TOKENIZER_JSON}")
    cache = hub_cache_folder() if hub_cache is None else hub_cache
    place = cache / "--".join(("models", *snapshot.repo_id.split("/"))) / "snapshots" / commit
    if (place / TOKENIZER_JSON).is_file():
        return _in_folder(place, snapshot.repo_id, (cache,))
    kept = _kept_place(cache_folder().parent / "tokenizers" if own_cache is None else own_cache, snapshot, commit)
    content = _kept(kept)
    if content is not None:
        return TokenizerFile(content=content)
    if offline:
        return TokenizerFile(
            content=None, note=f"{snapshot.repo_id}: {TOKENIZER_JSON} is not on disk, and offline"
        )
    return _from_hub(snapshot, endpoint, kept)


def _in_folder(folder: Path, repo_id: str, roots: tuple[Path, ...]) -> TokenizerFile:
    try:
        files = FolderFiles(folder, subject=str(folder), trusted_roots=roots)
        if all(file.path != TOKENIZER_JSON for file in files.files):
            return TokenizerFile(content=None, note=f"{repo_id}: has no {TOKENIZER_JSON}")
        return TokenizerFile(content=files.read(TOKENIZER_JSON, limit_bytes=TOKENIZER_LIMIT_BYTES))
    except SpecplanError as error:
        return TokenizerFile(content=None, note=f"{repo_id}: {error.message}")


def _from_hub(snapshot: ModelSnapshot, endpoint: str | None, kept: Path) -> TokenizerFile:
    from model_catalog.hub import HubLimits, read_file  # noqa: PLC0415 - slow to import, and seldom needed

    limits = HubLimits(deadline_seconds=DEADLINE_SECONDS, attempts=2)
    try:
        content = read_file(
            snapshot, TOKENIZER_JSON, limit_bytes=TOKENIZER_LIMIT_BYTES, endpoint=endpoint, limits=limits
        )
    except SpecplanError as error:
        return TokenizerFile(content=None, note=f"{snapshot.repo_id}: {TOKENIZER_JSON}: {error.message}")
    _keep(kept, content)
    return TokenizerFile(content=content)


def _kept_place(folder: Path, snapshot: ModelSnapshot, commit: str) -> Path:
    digest = hashlib.sha256(snapshot.repo_id.encode()).hexdigest()[:8]
    return folder / f"{_UNSAFE.sub('--', snapshot.repo_id)[:100].lstrip('.')}.{digest}.{commit}.json"


def _kept(place: Path) -> bytes | None:
    try:
        with place.open("rb") as file:
            content = file.read(TOKENIZER_LIMIT_BYTES + 1)
    except OSError:
        return None
    return content if 0 < len(content) <= TOKENIZER_LIMIT_BYTES else None


def _keep(place: Path, content: bytes) -> None:
    """Keep a file for the next run, where that is possible, and forget the oldest."""
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=place.parent, prefix=".new-", suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            Path(temporary).replace(place)
        finally:
            Path(temporary).unlink(missing_ok=True)
        held = sorted(place.parent.glob("*.json"), key=lambda entry: entry.stat().st_mtime)
        for old in held[: max(0, len(held) - MAX_KEPT)]:
            old.unlink(missing_ok=True)
