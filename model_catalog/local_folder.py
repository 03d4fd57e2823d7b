"""Models in folders on this machine: plain folders and the Hub cache's snapshot folders.

Owns which files of a folder may be read. A link is followed only to a place that belongs to the folder or to a
root that the caller trusts, and only plain files are opened.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from model_catalog.errors import ConfigError, ModelNotFoundError, WeightsError
from model_catalog.repo_reader import Origin, Progress, read_snapshot
from model_catalog.snapshot import ModelSnapshot, RepoFile, SnapshotSource, TokenizerFingerprint

#: Ours: a model's folder has a few hundred files; a home folder named by mistake has many more.
MAX_FILES: Final = 20_000
MAX_DEPTH: Final = 4
_TOKENIZER_LIMIT_BYTES: Final = 64_000_000


class FolderFiles:
    """``RepoFiles`` of a folder. ``trusted_roots`` are further places that links may lead to."""

    def __init__(self, folder: Path, *, subject: str, trusted_roots: Iterable[Path] = ()) -> None:
        self.subject = subject
        self._folder = folder
        self._roots = (folder.resolve(), *_cache_roots(folder), *(root.resolve() for root in trusted_roots))
        self.files: Sequence[RepoFile] = tuple(self._listed())

    def read(self, path: str, *, limit_bytes: int) -> bytes:
        """The whole file; the protocol's errors are ConfigError here, as only JSON files are read whole."""
        raw = self.read_range(path, start=0, length=limit_bytes + 1)
        if len(raw) > limit_bytes:
            message, hint = f"{path}: is longer than {limit_bytes} bytes", "check that it is the model's own file"
            raise ConfigError(message, subject=self.subject, hint=hint)
        return raw

    def read_range(self, path: str, *, start: int, length: int) -> bytes:
        place = self._checked(path)
        try:
            with place.open("rb") as file:
                file.seek(start)
                return file.read(length)
        except OSError as cause:
            raise self._error(
                path, f"cannot be read ({cause.strerror})", "check the file's permissions"
            ) from cause

    def _checked(self, path: str) -> Path:
        place = self._folder / path
        try:
            target = place.resolve(strict=True)
            plain = stat.S_ISREG(target.stat().st_mode)
        except (OSError, RuntimeError) as cause:
            raise self._error(path, "is a broken link or cannot be read", "download the file again") from cause
        if not any(target.is_relative_to(root) for root in self._roots):
            hint = "replace the link by the file itself, or name the folder that it leads to"
            raise self._error(path, f"is a link out of the folder, to {target}", hint)
        if not plain:
            raise self._error(path, "is not a plain file", "replace it by the file itself")
        return target

    def _error(self, path: str, message: str, hint: str) -> ConfigError | WeightsError:
        kind = WeightsError if path.endswith(".safetensors") else ConfigError
        return kind(f"{path}: {message}", subject=self.subject, hint=hint)

    def _listed(self) -> Iterator[RepoFile]:
        """Files by name; sizes follow links. Folder links are not entered, hidden names are skipped."""
        count = 0
        for base, folders, names in os.walk(self._folder, followlinks=False):
            relative = Path(base).relative_to(self._folder)
            deep = len(relative.parts) >= MAX_DEPTH
            folders[:] = [] if deep else sorted(name for name in folders if not name.startswith("."))
            for name in sorted(name for name in names if not name.startswith(".")):
                count += 1
                if count > MAX_FILES:
                    message = f"holds more than {MAX_FILES} files"
                    raise ConfigError(message, subject=self.subject, hint="name the model's own folder")
                yield RepoFile(path=(relative / name).as_posix(), size_bytes=_size(Path(base, name)))


def load_folder(
    folder: Path, *, repo_id: str, trusted_roots: Iterable[Path] = (), progress: Progress | None = None
) -> ModelSnapshot:
    """The model in a folder with config.json; its weights may be partly or wholly absent.

    Raises:
        ModelNotFoundError: there is no such folder, or it cannot be read.
        ConfigError, WeightsError, NotAModelError: as ``read_snapshot``; also for links that lead elsewhere.
    """
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.X_OK):
        hint = "check the path and its permissions"
        raise ModelNotFoundError("no such folder, or it cannot be read", subject=str(folder), hint=hint)
    files = FolderFiles(folder, subject=str(folder), trusted_roots=trusted_roots)
    origin = Origin(
        repo_id=repo_id,
        revision=None,
        commit=None,
        source=SnapshotSource.LOCAL,
        complete=False,
        tokenizer=_tokenizer(files),
    )
    return replace(read_snapshot(files, origin, progress), folder=str(folder.resolve()))


def _cache_roots(folder: Path) -> tuple[Path, ...]:
    """The Hub cache around ``.../models--org--name/snapshots/<commit>``, whose files link into it."""
    place = folder.resolve()
    is_cache = place.parent.name == "snapshots" and place.parent.parent.name.startswith("models--")
    return (place.parent.parent.parent,) if is_cache else ()


def _size(place: Path) -> int | None:
    try:
        return place.stat().st_size
    except OSError:
        return None


def _tokenizer(files: FolderFiles) -> TokenizerFingerprint | None:
    sizes = {file.path: file.size_bytes for file in files.files}
    if not 0 < (sizes.get("tokenizer.json") or 0) <= _TOKENIZER_LIMIT_BYTES:
        return None
    content = files.read("tokenizer.json", limit_bytes=_TOKENIZER_LIMIT_BYTES)
    return TokenizerFingerprint(file_hash=f"sha256:{hashlib.sha256(content).hexdigest()}")
