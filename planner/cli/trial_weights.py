"""Where a trial's models lie: a folder, the Hub's cache, an embedded pair, a download, a configuration alone."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from model_catalog.disk_repos import hub_cache_folder
from model_catalog.model import Model
from model_catalog.snapshot_store import cache_folder
from planner.cli.output import Output
from planner.cli.trial_options import TrialOptions
from planner.errors import TrialError
from planner.trial.embedded import EMBEDDED, embedded_folder, make_embedded
from planner.trial.protocol import WeightsKind

_WEIGHT_FILES: Final = ("*.safetensors", "*.bin", "*.gguf")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFolders:
    """Folders of both models, and whether weights lie in them."""

    target: Path
    draft: Path
    weights: WeightsKind


@contextmanager
def pair_folders(target: Model, draft: Model, options: TrialOptions, output: Output) -> Iterator[PairFolders]:
    """Folders that a trial can load; made-up ones are gone afterwards.

    Raises:
        TrialError: real weights are wanted and not at hand; random ones cannot stand in.
        NetworkError, ModelError: a download failed.
    """
    if options.backend == "llama.cpp":
        yield PairFolders(target=_gguf_folder(target), draft=_gguf_folder(draft), weights="real")
        return
    if options.weights != "dummy":
        found = [real_folder(model, options, output) for model in (target, draft)]
        if found[0] is not None and found[1] is not None:
            yield PairFolders(target=found[0], draft=found[1], weights="real")
            return
        if options.weights == "real":
            missing = [model for model, folder in zip((target, draft), found, strict=True) if folder is None]
            raise _not_here(missing[0])
    for model in (target, draft):
        if not can_be_dummy(model):
            raise _quantized(model)
    with TemporaryDirectory(prefix="specplan-trial-") as place:
        folders = [Path(place, name) for name in ("target", "draft")]
        for folder, model in zip(folders, (target, draft), strict=True):
            folder.mkdir()
            config = json.dumps(dict(model.snapshot.config))
            (folder / "config.json").write_text(config, encoding="utf-8")
        yield PairFolders(target=folders[0], draft=folders[1], weights="dummy")


def real_folder(model: Model, options: TrialOptions, output: Output) -> Path | None:
    """The folder with this model's weights, or None where there are none on this machine.

    An embedded model is made, and with ``download`` a Hub model is fetched.

    Raises:
        TrialError: the embedded pair cannot be made. NetworkError, ModelError: a download failed.
    """
    snapshot = model.snapshot
    if snapshot.repo_id in EMBEDDED:
        root = cache_folder().parent
        with output.step("making the embedded pair"):
            make_embedded(root)
        return embedded_folder(root, snapshot.repo_id)
    if snapshot.folder is not None:
        folder = Path(snapshot.folder)
        return folder if _has_weights(folder) else None
    cached = cached_folder(snapshot.repo_id, snapshot.commit)
    if cached is None and options.download:
        from planner.cli.trial_download import download  # noqa: PLC0415 - slow to import, seldom asked for

        return download(model, output)
    return cached


def _gguf_folder(model: Model) -> Path:
    """The folder of a model whose weights are a GGUF file.

    Raises:
        TrialError: it has no folder, or no such file in it.
    """
    snapshot = model.snapshot
    folder = Path(snapshot.folder) if snapshot.folder else cached_folder(snapshot.repo_id, snapshot.commit)
    if folder is None or next(folder.glob("*.gguf"), None) is None:
        raise TrialError(
            "the llama.cpp backend needs a GGUF file, and none is at hand",
            subject=snapshot.repo_id,
            hint="give a local folder that holds config.json and one *.gguf, for target and draft alike",
            code="trial_weights_missing",
        )
    return folder


def cached_folder(repo_id: str, commit: str | None) -> Path | None:
    """The Hub cache's folder of this commit (of main, where none is known) if weights lie in it."""
    repo = hub_cache_folder() / f"models--{repo_id.replace('/', '--')}"
    try:
        wanted = commit or (repo / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    folder = repo / "snapshots" / wanted
    return folder if _has_weights(folder) else None


def can_be_dummy(model: Model) -> bool:
    """Random weights stand in for plain ones only: a quantised layer is not built from a configuration."""
    return model.quantization is None


def identity(model: Model, folder: Path | None) -> str:
    """What tells one set of weights from another: the commit, else a fingerprint of folder or configuration."""
    snapshot = model.snapshot
    if snapshot.commit is not None:
        return f"{snapshot.repo_id}@{snapshot.commit}"
    facts = [json.dumps(dict(snapshot.config), sort_keys=True, default=str)]
    if folder is not None:
        files = sorted(path for pattern in _WEIGHT_FILES for path in folder.glob(pattern))
        facts += [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return f"{snapshot.repo_id}#{digest}"


def _has_weights(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) is not None for pattern in _WEIGHT_FILES)


def _not_here(model: Model) -> TrialError:
    return TrialError(
        "its weights are not on this machine",
        subject=model.snapshot.repo_id,
        hint=f"{_fetch(model)}; or measure memory and step times alone: --trial-weights dummy",
        code="trial_weights_missing",
    )


def _fetch(model: Model) -> str:
    """What to do about weights that are not here: a folder is no repo that could be downloaded."""
    if model.snapshot.folder is not None:
        return "put its weights (*.safetensors) into the folder"
    return f"fetch them: --download, or hf download {model.snapshot.repo_id}"


def _quantized(model: Model) -> TrialError:
    return TrialError(
        "its weights are not on this machine, and random ones cannot stand in for a quantised checkpoint",
        subject=model.snapshot.repo_id,
        hint=_fetch(model),
        code="trial_weights_missing",
    )
