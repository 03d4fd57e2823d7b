"""Reads one repo's configuration, index and safetensors headers into a ModelSnapshot, wherever its files lie.

Owns what is read, in which order, and how file, index and headers are held against each other. Knows neither the
Hub nor disks: those are ``RepoFiles`` (``hub.py``, ``local_folder.py``). Executes nothing, opens no pickle.
"""

import gc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from model_catalog.checkpoint_files import checkpoint_files
from model_catalog.config_reader import open_reading
from model_catalog.errors import ConfigError, NetworkError, NotAModelError, WeightsError
from model_catalog.repo_kind import ADAPTER_CONFIG, PIPELINE_INDEX, repo_kind
from model_catalog.safetensors_header import LENGTH_BYTES, StoredTensor, header_length, parse_header
from model_catalog.snapshot import (
    ModelSnapshot,
    RepoFile,
    RepoKind,
    SnapshotSource,
    TokenizerFingerprint,
    WeightGroup,
    WeightsKnownFrom,
)
from model_catalog.tensor_names import group_tensors

CONFIG: Final = "config.json"
#: The configuration of Mistral's own format, beside ``consolidated*.safetensors``.
PARAMS: Final = "params.json"
QUANTIZATION: Final = "hf_quant_config.json"
#: The indexes that engines look for, the preferred one first.
INDEXES: Final = ("model.safetensors.index.json", "consolidated.safetensors.index.json")
#: Ours. The largest published config is under 100 KB; the largest index (140,000 tensors) about 15 MB.
CONFIG_LIMIT_BYTES: Final = 4_000_000
INDEX_LIMIT_BYTES: Final = 64_000_000
#: 97 % of published headers are shorter (huggingface_hub's own first read; its PR 1855).
FIRST_READ_BYTES: Final = 100_000
_MAX_LAYERS: Final = 4096
_MAX_TOTAL_BYTES: Final = 2**60

Progress = Callable[[int, int], None]


class RepoFiles(Protocol):
    """Where a repo's files are read from. Every error names ``subject`` and the file."""

    @property
    def subject(self) -> str: ...

    @property
    def files(self) -> Sequence[RepoFile]: ...

    def read(self, path: str, *, limit_bytes: int) -> bytes:
        """The whole file, refused above ``limit_bytes``."""
        ...

    def read_range(self, path: str, *, start: int, length: int) -> bytes:
        """At most ``length`` bytes from ``start``; fewer only where the file ends."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the files come from. ``complete`` says that a file missing from the list is missing from the repo."""

    repo_id: str
    revision: str | None
    commit: str | None
    source: SnapshotSource
    complete: bool = True
    threads: int = 1
    published_parameters: int | None = None
    tokenizer: TokenizerFingerprint | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    path: str
    weight_map: Mapping[str, str]
    total_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read before the headers."""

    config: Mapping[str, Any]
    kind: RepoKind
    index: _Index | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    known_from: WeightsKnownFrom
    groups: tuple[WeightGroup, ...] = ()
    index_total_bytes: int | None = None
    notes: tuple[str, ...] = ()


def read_snapshot(repo: RepoFiles, origin: Origin, progress: Progress | None = None) -> ModelSnapshot:
    """All that planning needs of a repo. An adapter's ``config`` is its adapter_config.json.

    ``progress(done, total)`` counts header files.

    Raises:
        ConfigError: there is no configuration, or it is not a JSON object.
        WeightsError: an index or header is malformed, or they contradict each other or their files.
        NotAModelError: a diffusion pipeline.
        NetworkError: from ``repo``, where not even configuration and index could be read.
    """
    names = {file.path for file in repo.files}
    with ThreadPoolExecutor(max_workers=2) as pool:
        index_read = pool.submit(_read_index, repo, names)
        quantization_read = pool.submit(_read_optional, repo, names, QUANTIZATION)
        config = _read_config(repo, names, complete=origin.complete)
    kind = repo_kind(repo.files, config)
    if kind is RepoKind.EMPTY and not origin.complete:
        kind = RepoKind.MODEL  # its weights are elsewhere; the configuration, and perhaps an index, are here
    with _no_collection():
        weights = _read_weights(repo, origin, _Known(config, kind, index_read.result()), progress)
    params = ("no config.json: the configuration is Mistral's params.json",)
    notes = (*origin.notes, *(params if CONFIG not in names and PARAMS in names else ()), *weights.notes)
    return ModelSnapshot(
        repo_id=origin.repo_id,
        revision=origin.revision,
        commit=origin.commit,
        source=origin.source,
        kind=kind,
        config=config,
        quantization_file=quantization_read.result(),
        files=tuple(repo.files),
        weights_from=weights.known_from,
        weight_groups=weights.groups,
        index_total_bytes=weights.index_total_bytes,
        published_parameters=origin.published_parameters,
        tokenizer=origin.tokenizer,
        notes=notes,
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the cyclic garbage collector away: 100,000 live tensors hold no cycle, and walking them costs more than
    parsing them (0.8 s instead of 0.4 s for DeepSeek-V3's headers).
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_json(repo: RepoFiles, path: str, limit_bytes: int) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ConfigError: it is not JSON, or not an object.
    """
    hint = "check the file in the repo; a corrected copy can be planned from a local folder"
    try:
        values = json.loads(repo.read(path, limit_bytes=limit_bytes))
    except (ValueError, RecursionError) as cause:
        raise ConfigError(
            f"{path}: is not JSON ({_shown(str(cause))})", subject=repo.subject, hint=hint
        ) from cause
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: is not a JSON object", subject=repo.subject, hint=hint)
    return values


def _read_config(repo: RepoFiles, names: set[str], *, complete: bool) -> dict[str, Any]:
    for path in (CONFIG, PARAMS, ADAPTER_CONFIG):
        if path in names:
            return read_json(repo, path, CONFIG_LIMIT_BYTES)
    if PIPELINE_INDEX in names:
        hint = "name a language model's own repo"
        raise NotAModelError("is a diffusion pipeline of several models", subject=repo.subject, hint=hint)
    if complete and repo_kind(repo.files, {}) is not RepoKind.MODEL:
        return {}
    hint = "name a repo or folder that has config.json beside its weights"
    raise ConfigError("has no config.json", subject=repo.subject, hint=hint)


def _read_optional(repo: RepoFiles, names: set[str], path: str) -> dict[str, Any] | None:
    return read_json(repo, path, CONFIG_LIMIT_BYTES) if path in names else None


def _read_weights(repo: RepoFiles, origin: Origin, known: _Known, progress: Progress | None) -> _Weights:
    shards, absent = _shards(repo, origin, known)
    if absent is not None:
        return absent
    try:
        headers = _read_headers(repo, shards, origin.threads, progress)
    except NetworkError as error:
        if known.index is None:
            raise
        note = f"weight headers could not be read ({error.message}): sizes are the index's total"
        return _index_only(known.index, note)
    return _checked(repo, known.index, headers, known.config)


def _shards(repo: RepoFiles, origin: Origin, known: _Known) -> tuple[tuple[RepoFile, ...], _Weights | None]:
    """The files whose headers are to be read; or none, and what is known of the weights without them."""
    if known.kind not in {RepoKind.MODEL, RepoKind.DRAFT_HEAD}:
        empty = known.kind is RepoKind.EMPTY
        return (), _Weights(known_from=WeightsKnownFrom.CONFIG if empty else WeightsKnownFrom.FILES)
    present = {file.path: file for file in repo.files}
    index = known.index
    if index is not None:
        wanted = sorted(set(index.weight_map.values()))
        missing = [path for path in wanted if path not in present]
        if not missing:
            return tuple(present[path] for path in wanted), None
        may_lack = origin.source is SnapshotSource.CACHE or len(missing) == len(wanted)
        if origin.complete or not may_lack:
            raise _weights_error(repo, f"{index.path}: names {_shown(missing[0])}, which does not exist")
        note = f"{len(missing)} of {len(wanted)} weight files are not on disk: sizes are the index's total"
        return (), _index_only(index, note)
    shards = checkpoint_files(repo.files, known.config)
    if shards:
        return shards, None
    if known.kind is RepoKind.DRAFT_HEAD:
        return (), _Weights(known_from=WeightsKnownFrom.FILES)
    some = any(path.endswith(".safetensors") for path in present)
    why = "the safetensors files make up no whole checkpoint" if some else "no weights on disk"
    note = f"{why}: their size follows from the configuration alone"
    return (), _Weights(known_from=WeightsKnownFrom.CONFIG, notes=(note,))


def _index_only(index: _Index, note: str) -> _Weights:
    return _Weights(known_from=WeightsKnownFrom.INDEX, index_total_bytes=index.total_bytes, notes=(note,))


def _read_index(repo: RepoFiles, names: set[str]) -> _Index | None:
    """The index of the checkpoint that engines load, or None where there is none at the repo's top."""
    path = next((name for name in INDEXES if name in names), None)
    if path is None:
        return None
    document = read_json(repo, path, INDEX_LIMIT_BYTES)
    weight_map, metadata = document.get("weight_map"), document.get("metadata")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _weights_error(repo, f"{path}: has no weight_map")
    if not all(isinstance(file, str) for file in weight_map.values()):
        raise _weights_error(repo, f"{path}: has a weight_map whose values are not file names")
    for file in set(weight_map.values()):
        if not is_plain_path(file):
            raise _weights_error(repo, f"{path}: names {_shown(file)}, which is not a file inside the repo")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    usable = isinstance(total, int | float) and not isinstance(total, bool) and 0 < total < _MAX_TOTAL_BYTES
    return _Index(
        path=path, weight_map=weight_map, total_bytes=int(total) if usable and total is not None else None
    )


def is_plain_path(path: str) -> bool:
    """Whether a path from an untrusted file stays inside its repo, by POSIX and by Windows rules."""
    parts = path.split("/")
    plain = path.isprintable() and len(path) <= 400 and not any(sign in path for sign in '\\:*?"<>|%')
    return plain and all(part not in {"", ".", ".."} for part in parts) and path.endswith(".safetensors")


def _read_headers(
    repo: RepoFiles, shards: Sequence[RepoFile], threads: int, progress: Progress | None
) -> dict[str, tuple[StoredTensor, ...]]:
    headers: dict[str, tuple[StoredTensor, ...]] = {}
    pool = ThreadPoolExecutor(max_workers=max(1, min(threads, len(shards))))
    try:
        # Bytes arrive in the threads; they are parsed here, as parsing holds the interpreter's lock anyway.
        for shard, raw in zip(shards, pool.map(lambda shard: _header_bytes(repo, shard), shards), strict=True):
            headers[shard.path] = parse_header(
                raw, subject=repo.subject, file=shard.path, file_size_bytes=shard.size_bytes
            )
            if progress is not None:
                progress(len(headers), len(shards))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return headers


def _header_bytes(repo: RepoFiles, shard: RepoFile) -> bytes:
    """The JSON part of one header: one read for most files, two for long headers."""
    size = FIRST_READ_BYTES if shard.size_bytes is None else min(FIRST_READ_BYTES, shard.size_bytes)
    first = repo.read_range(shard.path, start=0, length=size) if size else b""
    length = header_length(first[:LENGTH_BYTES], subject=repo.subject, file=shard.path)
    if shard.size_bytes is not None and LENGTH_BYTES + length > shard.size_bytes:
        message = f"{shard.path}: declares a header of {length} bytes in a file of {shard.size_bytes} bytes"
        raise _weights_error(repo, message)
    raw = first[LENGTH_BYTES : LENGTH_BYTES + length]
    if len(raw) < length and len(first) == FIRST_READ_BYTES:
        raw += repo.read_range(shard.path, start=len(first), length=length - len(raw))
    if len(raw) < length:
        raise _weights_error(repo, f"{shard.path}: ends {length - len(raw)} bytes before its header does")
    return raw


def _checked(
    repo: RepoFiles,
    index: _Index | None,
    headers: Mapping[str, tuple[StoredTensor, ...]],
    config: Mapping[str, Any],
) -> _Weights:
    notes = []
    if index is not None:
        stored = {file: {tensor.name for tensor in tensors} for file, tensors in headers.items()}
        for name, file in index.weight_map.items():
            if name not in stored[file]:
                raise _weights_error(repo, f"{file}: lacks tensor {_shown(name)}, which {index.path} puts there")
        extra = sum(map(len, stored.values())) - len(index.weight_map)
        if extra:
            notes.append(f"{index.path} leaves out {extra} tensors that its files hold; they are counted")
    groups = group_tensors(
        (tensor for tensors in headers.values() for tensor in tensors), num_layers=layer_count(config)
    )
    total = sum(group.stored_bytes for group in groups)
    if index is not None and index.total_bytes is not None and index.total_bytes != total:
        notes.append(f"{index.path} gives a total of {index.total_bytes} bytes; the headers sum to {total}")
    return _Weights(
        known_from=WeightsKnownFrom.HEADERS,
        groups=groups,
        index_total_bytes=None if index is None else index.total_bytes,
        notes=tuple(notes),
    )


def layer_count(config: Mapping[str, Any]) -> int | None:
    """Decoder layers by the configuration's own word, or None where it has none that is usable."""
    try:
        values = open_reading(config, subject="")[1]
    except ConfigError:
        return None
    for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        count = values.get(key)
        if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= _MAX_LAYERS:
            return count
    return None


def _weights_error(repo: RepoFiles, message: str) -> WeightsError:
    hint = "the repo's files are damaged or changed by hand: try again, or name another commit"
    return WeightsError(message, subject=repo.subject, hint=hint)


def _shown(text: str) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
