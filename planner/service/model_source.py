"""Where a model comes from: a local folder, the Hub and its caches, the embedded catalogue; and its reading."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from model_catalog.catalogue import lookup, near_names
from model_catalog.dtypes import FLOAT32
from model_catalog.errors import ModelGatedError, ModelNotFoundError, NetworkError, SpecplanError, UsageError
from model_catalog.families.heads import draft_head_method
from model_catalog.model import Model, describe
from model_catalog.repo_kind import require_model
from model_catalog.snapshot import (
    ModelSnapshot,
    RepoKind,
    RepoRef,
    SnapshotSource,
    WeightsKnownFrom,
    is_commit,
)
from model_catalog.snapshot_store import SnapshotStore, cache_folder
from planner.memory.kv_cache import GGML_CACHE_FORMATS
from planner.service.remarks import RemarkSink, Step
from planner.service.request import PlanOptions
from planner.trial.embedded import EMBEDDED, embedded_config, embedded_folder, is_made

_TRUE = frozenset({"1", "true", "yes", "on"})
_HUB = "https://huggingface.co"


def is_offline(*, offline: bool) -> bool:
    """Whether the network is off: by our option, or by the Hub client's own switch."""
    return offline or os.environ.get("HF_HUB_OFFLINE", "").lower() in _TRUE


def hub_endpoint() -> str:
    """The Hub that HF_ENDPOINT names, as huggingface_hub reads it, without importing it."""
    return os.environ.get("HF_ENDPOINT", _HUB).rstrip("/")


def load_model(
    name: str,
    *,
    offline: bool,
    output: RemarkSink,
    dtype: str = "auto",
    on_the_fly: str | None = None,
    as_draft: bool = False,
    from_gguf: bool = False,
    as_gguf: bool = False,
) -> Model:
    """A model by the name a user typed, read and weighed.

    ``from_gguf``: a repo that holds GGUF files only will do; its weights are then those of its configuration.
    ``as_gguf``: weights are planned as a GGUF file holds them, of the type ``on_the_fly``.

    Raises:
        UsageError: not a name. ModelError: missing, gated, malformed, not a model. NetworkError: not to be had.
    """
    snapshot = find_snapshot(name, offline=offline, output=output)
    if snapshot.kind is RepoKind.MODEL and draft_head_method(snapshot.config) is not None:
        snapshot = replace(snapshot, kind=RepoKind.DRAFT_HEAD)  # a folder with a head's configuration alone
    if from_gguf and snapshot.kind is RepoKind.GGUF_ONLY and snapshot.config:
        snapshot = replace(
            snapshot, kind=RepoKind.MODEL, weights_from=WeightsKnownFrom.CONFIG, weight_groups=(), files=()
        )
    require_model(snapshot, draft_heads=as_draft)
    model = describe(snapshot, dtype=dtype, on_the_fly=on_the_fly, gguf=as_gguf)
    for note in dict.fromkeys((*snapshot.notes, *model.weights.notes)):
        output.note("model", f"{snapshot.repo_id}: {note}")
    return model


def load_target(
    name: str, options: PlanOptions, engine_name: str, output: RemarkSink
) -> tuple[Model, PlanOptions]:
    """The target, and the options as they are to be read for it.

    vLLM casts a float32 checkpoint to 16 bits; ``dtype="auto"`` of transformers keeps it, and so do we there.

    Raises:
        SpecplanError: as ``load_model``.
    """
    _check_cache_names(options)
    target = load_model(
        name,
        offline=options.offline,
        output=output,
        dtype=options.dtype,
        on_the_fly=options.quantization,
        as_gguf=options.gguf,
    )
    if options.gguf and options.quantization is None and target.quantization is None:
        output.note(
            "file_type", "planned as a GGUF file of the checkpoint's own type: --quantization q4_k_m is smaller"
        )
    if engine_name != "transformers" or options.dtype != "auto" or target.architecture.dtype is not FLOAT32:
        return target, options
    output.note("dtype", "transformers keeps the float32 of the checkpoint: --dtype bfloat16 would halve it")
    options = replace(options, dtype=FLOAT32.name)
    return describe(target.snapshot, dtype=options.dtype, on_the_fly=options.quantization), options


def _check_cache_names(options: PlanOptions) -> None:
    """Block types of ggml are llama.cpp's alone."""
    for name in (options.kv_cache_dtype, options.draft_kv_cache_dtype):
        if not options.gguf and name.strip().lower() in GGML_CACHE_FORMATS:
            raise UsageError(
                f"{options.engine_name} has no {name} cache",
                subject="--kv-cache-dtype",
                hint="use auto or fp8, or --engine llama.cpp",
            )


def find_snapshot(name: str, *, offline: bool, output: RemarkSink) -> ModelSnapshot:
    """The snapshot of a model: local folder; Hub and its caches; offline or without network, the catalogue.

    Raises:
        UsageError, ModelError, NetworkError: as ``load_model``.
    """
    ref = RepoRef.parse(name)
    if ref.folder is not None:
        from model_catalog.local_folder import load_folder  # noqa: PLC0415 - the catalogue's models need no reader

        with output.step(f"reading {ref}") as step:
            return load_folder(ref.folder, repo_id=ref.repo_id, progress=_headers(step, ref))
    if ref.repo_id in EMBEDDED:
        return _embedded(ref.repo_id)
    if "/" not in ref.repo_id:
        row = lookup(ref.repo_id)
        ref = ref if row is None else replace(ref, repo_id=row.repo_id)
    if is_offline(offline=offline):
        return _offline(ref, output)
    return _online(ref, output)


def _embedded(name: str) -> ModelSnapshot:
    """An embedded model: its folder once it is made, else its configuration, which says all that is planned."""
    root = cache_folder().parent
    if is_made(root):
        from model_catalog.local_folder import load_folder  # noqa: PLC0415 - as above

        return load_folder(embedded_folder(root, name), repo_id=name)
    return ModelSnapshot(
        repo_id=name,
        revision=None,
        commit=None,
        source=SnapshotSource.CATALOGUE,
        kind=RepoKind.MODEL,
        config=embedded_config(name),
        facts_source="made by specplan from a seed (planner.trial.embedded)",
    )


def _online(ref: RepoRef, output: RemarkSink) -> ModelSnapshot:
    from model_catalog.hub import load_snapshot  # noqa: PLC0415 - slow to import, and not needed offline

    try:
        with output.step(f"asking the Hub about {ref}") as step:
            return load_snapshot(ref, offline=False, progress=_headers(step, ref))
    except NetworkError as error:
        row = _catalogue_row(ref)
        if row is None:
            raise _with_near_names(error, ref) from error.__cause__
        output.warn("catalogue_used", f"{ref}: {error.message}; using the built-in catalogue's entry")
        return row
    except (ModelGatedError, ModelNotFoundError) as error:
        if _catalogue_row(ref) is not None:
            error.hint = f"{error.hint}; or plan from the built-in catalogue: --offline"
            raise
        raise _with_near_names(error, ref) from error.__cause__


def _headers(step: Step, ref: RepoRef) -> Callable[[int, int], None]:
    """Counts the headers of weight files that were read."""
    begun: list[bool] = []

    def told(done: int, total: int) -> None:
        if not begun:
            begun.append(True)
            step.say(f"reading the weight headers of {ref}")
        step.count(done, total)

    return told


def _offline(ref: RepoRef, output: RemarkSink) -> ModelSnapshot:
    stored = _stored(ref)
    if stored is not None:
        return stored
    row = _catalogue_row(ref)
    if row is not None and not _in_hub_cache(ref):
        return row
    from model_catalog.hub import load_snapshot  # noqa: PLC0415 - slow to import, and not needed above

    try:
        return load_snapshot(ref, offline=True)
    except NetworkError as error:
        if row is None:
            raise _with_near_names(error, ref) from error.__cause__
        output.note(
            "catalogue_used",
            f"{ref}: the Hub's cache on disk holds no usable copy; using the built-in catalogue's entry",
        )
        return row


def _with_near_names(error: SpecplanError, ref: RepoRef) -> SpecplanError:
    """The error, its hint led by built-in names: of the same repo, or like what was typed."""
    if lookup(ref.repo_id) is not None:
        error.hint = f"the built-in entry knows no revisions: plan {ref.repo_id}. Else: {error.hint}"
        return error
    near = [name for name in near_names(ref.repo_id) if name.lower() != ref.repo_id.lower()]
    if near:
        error.hint = f"did you mean {' or '.join(near)} (built in)? Else: {error.hint}"
    return error


def _stored(ref: RepoRef) -> ModelSnapshot | None:
    """Our own store's snapshot at any age, found without the Hub's client."""
    store, revision = SnapshotStore(), ref.revision or "main"
    commit: str | None = revision
    notes: tuple[str, ...] = ()
    if not is_commit(revision):
        known = store.known_commit(ref.repo_id, revision, hub_endpoint())
        commit = None if known is None else known.commit
        notes = ("offline: read from specplan's own cache, and the Hub may have a newer commit",)
    found = None if commit is None else store.get(ref.repo_id, commit)
    if found is None:
        return None
    return replace(found, revision=revision, source=SnapshotSource.CACHE, notes=(*found.notes, *notes))


def _catalogue_row(ref: RepoRef) -> ModelSnapshot | None:
    """The catalogue's entry; it knows no revisions, so it does not answer for one that was asked for."""
    return lookup(ref.repo_id) if ref.revision in {None, "main"} else None


def _in_hub_cache(ref: RepoRef) -> bool:
    """Whether the Hub's cache on disk has anything of this repo; huggingface_hub's own rules for its place."""
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or str(Path(home) / "hub")
    folder = Path(os.path.expandvars(cache)).expanduser() / "--".join(("models", *ref.repo_id.split("/")))
    return (folder / "snapshots").is_dir()
