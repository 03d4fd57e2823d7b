"""All we know of one repository at one commit, as plain facts with a JSON round trip.

A ModelSnapshot is the cache entry, the test fixture, the bug report and the catalogue row: one type. It holds
what was read (raw config, files, weight groups), never what was concluded from it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from model_catalog.architecture import Component, Role
from model_catalog.errors import UsageError

SNAPSHOT_SCHEMA: Final = "specplan.snapshot/1"
_REPO_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_HUB_PAGE: Final = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)")
_REVISION: Final = re.compile(r"[A-Za-z0-9][\w./-]{0,199}")


class SnapshotSource(StrEnum):
    HUB = "hub"
    CACHE = "cache"
    LOCAL = "local"
    CATALOGUE = "catalogue"


class RepoKind(StrEnum):
    """What a repository holds, as far as planning goes."""

    MODEL = "model"
    DRAFT_HEAD = "draft_head"  #: EAGLE, MTP, DFlash ... : drafts for one target only
    ADAPTER = "adapter"  #: LoRA and its kin
    GGUF_ONLY = "gguf_only"
    PICKLE_ONLY = "pickle_only"  #: .bin or .pt weights, no safetensors
    EMPTY = "empty"  #: no weights at all


class WeightsKnownFrom(StrEnum):
    """How far the weights were read."""

    HEADERS = "headers"  #: every safetensors header: exact
    INDEX = "index"  #: names and a total from the index file
    FILES = "files"  #: file sizes only
    CONFIG = "config"  #: nothing but the configuration


def is_commit(revision: str | None) -> bool:
    """Whether a revision is a full commit hash, which always means the same files."""
    return revision is not None and _COMMIT.fullmatch(revision) is not None


def as_text(given: str) -> str:
    """What a path or an argument says where Python was told that this system speaks ASCII (``LC_ALL=C``).

    It then keeps the bytes of a UTF-8 name one by one, as surrogates; files are opened by the name as given.
    """
    try:
        return given.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return given


def expanded(text: str) -> Path:
    """A path as typed, ``~`` read as a home; that of a user who is not there stays as it is, and leads nowhere."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoRef:
    """A model as a user names it: a Hub repo, a catalogue name, or a local folder."""

    repo_id: str
    revision: str | None = None
    folder: Path | None = None

    @classmethod
    def parse(cls, text: str) -> "RepoRef":
        """Read ``org/name``, ``org/name@revision`` or a path to an existing folder.

        Raises:
            UsageError: when it is none of these.
        """
        hint = "write org/name, org/name@revision, or a path to a folder with config.json"
        shown = as_text(text)
        if not shown or not shown.isprintable():
            no_text = any("\ud800" <= character <= "\udfff" for character in shown)
            what = "is no UTF-8 text" if no_text else "is empty or has control characters"
            raise UsageError(f"the model name {what}", subject=repr(text), hint=hint)
        if text.startswith((".", "/", "~")) or "\\" in text:
            folder = expanded(text)
            if not folder.is_dir():
                raise UsageError("no such folder", subject=shown, hint=hint)
            return cls(repo_id=as_text(folder.resolve().name), folder=folder)
        repo_id, separator, revision = text.partition("@")
        if not _REPO_ID.fullmatch(repo_id) or ".." in repo_id or "--" in repo_id:
            if Path(text).is_dir():
                return cls(repo_id=as_text(Path(text).resolve().name), folder=Path(text))
            page = _HUB_PAGE.match(text)
            raise UsageError("not a Hub repo id", subject=shown, hint=f"write {page[1]}" if page else hint)
        if separator and (not _REVISION.fullmatch(revision) or ".." in revision):
            raise UsageError("not a branch, tag or commit", subject=text, hint=hint)
        if not separator and "/" not in repo_id and Path(text, "config.json").is_file():
            return cls(repo_id=repo_id, folder=Path(text))
        return cls(repo_id=repo_id, revision=revision or None)

    def __str__(self) -> str:
        return f"{self.repo_id}@{self.revision}" if self.revision else self.repo_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoFile:
    """A file of the repo; ``size_bytes`` is None where it was not told."""

    path: str
    size_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGroup:
    """Tensors of one component, layer, role and storage type, summed.

    ``parameters`` counts stored elements (packed words count as words); ``stored_bytes`` comes from offsets.
    ``layer`` is None outside layers.
    """

    component: Component
    layer: int | None
    role: Role
    dtype: str
    parameters: int
    stored_bytes: int
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFingerprint:
    """What tells one tokenizer from another without downloading it; later work widens this."""

    file_hash: str | None = None
    tokenizer_class: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """One repo at one commit. ``commit`` is None for catalogue rows and local folders.

    ``folder`` is where a local folder lies on this machine: for commands; no fact of the model, and not written.
    """

    repo_id: str
    revision: str | None
    commit: str | None
    source: SnapshotSource
    kind: RepoKind
    config: Mapping[str, Any]
    quantization_file: Mapping[str, Any] | None = None
    files: tuple[RepoFile, ...] = ()
    weights_from: WeightsKnownFrom = WeightsKnownFrom.CONFIG
    weight_groups: tuple[WeightGroup, ...] = ()
    index_total_bytes: int | None = None
    published_parameters: int | None = None
    published_bytes: int | None = None
    tokenizer: TokenizerFingerprint | None = None
    facts_source: str = ""
    notes: tuple[str, ...] = ()
    folder: str | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; ``from_json`` reads it back equal."""
        return {
            "schema": SNAPSHOT_SCHEMA,
            "repo_id": self.repo_id,
            "revision": self.revision,
            "commit": self.commit,
            "source": self.source.value,
            "kind": self.kind.value,
            "config": dict(self.config),
            "quantization_file": None if self.quantization_file is None else dict(self.quantization_file),
            "files": [[file.path, file.size_bytes] for file in self.files],
            "weights_from": self.weights_from.value,
            "weight_groups": [
                [g.component.value, g.layer, g.role.value, g.dtype, g.parameters, g.stored_bytes, g.tensors]
                for g in self.weight_groups
            ],
            "index_total_bytes": self.index_total_bytes,
            "published_parameters": self.published_parameters,
            "published_bytes": self.published_bytes,
            "tokenizer": None
            if self.tokenizer is None
            else [self.tokenizer.file_hash, self.tokenizer.tokenizer_class],
            "facts_source": self.facts_source,
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "ModelSnapshot":
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: when the document is not a snapshot of this schema (a stale or foreign cache entry).
        """
        if document.get("schema") != SNAPSHOT_SCHEMA:
            raise ValueError(f"not a {SNAPSHOT_SCHEMA} document")
        try:
            return cls(
                repo_id=document["repo_id"],
                revision=document["revision"],
                commit=document["commit"],
                source=SnapshotSource(document["source"]),
                kind=RepoKind(document["kind"]),
                config=document["config"],
                quantization_file=document["quantization_file"],
                files=tuple(RepoFile(path=path, size_bytes=size) for path, size in document["files"]),
                weights_from=WeightsKnownFrom(document["weights_from"]),
                weight_groups=tuple(_group(row) for row in document["weight_groups"]),
                index_total_bytes=document["index_total_bytes"],
                published_parameters=document["published_parameters"],
                published_bytes=document["published_bytes"],
                tokenizer=_fingerprint(document["tokenizer"]),
                facts_source=document["facts_source"],
                notes=tuple(document["notes"]),
            )
        except (KeyError, TypeError) as cause:
            raise ValueError(f"a {SNAPSHOT_SCHEMA} document with missing or odd fields: {cause}") from cause


def _group(row: Sequence[Any]) -> WeightGroup:
    component, layer, role, dtype, parameters, stored_bytes, tensors = row
    return WeightGroup(
        component=Component(component),
        layer=layer,
        role=Role(role),
        dtype=dtype,
        parameters=parameters,
        stored_bytes=stored_bytes,
        tensors=tensors,
    )


def _fingerprint(row: Sequence[Any] | None) -> TokenizerFingerprint | None:
    return None if row is None else TokenizerFingerprint(file_hash=row[0], tokenizer_class=row[1])
