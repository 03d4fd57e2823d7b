"""What a repository holds, and whether that can be planned as a model.

Decides from file names and the configuration alone; opens nothing.
"""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from model_catalog.errors import NotAModelError
from model_catalog.families.heads import draft_head_method
from model_catalog.snapshot import ModelSnapshot, RepoFile, RepoKind

ADAPTER_CONFIG: Final = "adapter_config.json"
PIPELINE_INDEX: Final = "model_index.json"
_PICKLE_SUFFIXES: Final = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl"})
#: Written by trainers beside the weights; no weights themselves.
_TRAINER_STEMS: Final = ("training_args", "optimizer", "scheduler", "rng_state", "trainer_state", "scaler")


def repo_kind(files: Iterable[RepoFile], config: Mapping[str, Any]) -> RepoKind:
    """The kind of repo that has these files and this configuration (an empty mapping where it has none)."""
    paths = [PurePosixPath(file.path) for file in files]
    names = {str(path) for path in paths}
    safetensors = [path for path in paths if path.suffix == ".safetensors"]
    full = [path for path in safetensors if not path.name.startswith("adapter_")]
    pickles = [path for path in paths if _is_pickled_weights(path)]
    if ADAPTER_CONFIG in names and not full:
        return RepoKind.ADAPTER
    if (full or pickles) and config and draft_head_method(config) is not None:
        return RepoKind.DRAFT_HEAD
    if full:
        return RepoKind.MODEL
    if pickles:
        return RepoKind.PICKLE_ONLY
    if any(path.suffix == ".gguf" for path in paths):
        return RepoKind.GGUF_ONLY
    return RepoKind.EMPTY


def require_model(snapshot: ModelSnapshot, *, draft_heads: bool = False) -> None:
    """Check that the snapshot can be planned as a model; ``draft_heads`` lets draft heads pass, for drafts.

    Raises:
        NotAModelError: says what the repo is instead, and what to name in its place.
    """
    if snapshot.kind is RepoKind.MODEL or (draft_heads and snapshot.kind is RepoKind.DRAFT_HEAD):
        return
    message, hint = _REFUSALS[snapshot.kind]
    if snapshot.kind is RepoKind.ADAPTER:
        base = adapter_base(snapshot.config)
        hint = f"plan its base model: {base}" if base else hint
    if snapshot.kind is RepoKind.DRAFT_HEAD:
        message = message.format(method=draft_head_method(snapshot.config) or "speculative")
        hint = hint.format(repo=snapshot.repo_id)
    if any(file.path == PIPELINE_INDEX for file in snapshot.files):
        message, hint = "is a diffusion pipeline of several models", "name a language model's own repo"
    raise NotAModelError(message, subject=snapshot.repo_id, hint=hint)


def adapter_base(config: Mapping[str, Any]) -> str | None:
    """The base model that an adapter's configuration names, or None."""
    base = config.get("base_model_name_or_path")
    usable = isinstance(base, str) and 0 < len(base) <= 200 and base.isprintable()
    return str(base) if usable else None


def _is_pickled_weights(path: PurePosixPath) -> bool:
    """Whether the name is that of weights in Python's pickle format, which is never opened here."""
    return path.suffix in _PICKLE_SUFFIXES and not path.name.startswith(_TRAINER_STEMS)


_REFUSALS: Final[Mapping[RepoKind, tuple[str, str]]] = {
    RepoKind.DRAFT_HEAD: (
        "is a draft head ({method}) for one target, not a model of its own",
        "name its target as the model and this repo as the draft: specplan fit TARGET --draft {repo}",
    ),
    RepoKind.ADAPTER: (
        "is an adapter (LoRA or its kin), not a whole model",
        "plan the base model that the adapter was made for",
    ),
    RepoKind.GGUF_ONLY: (
        "holds GGUF files only; planning reads safetensors",
        "name the repo that the GGUF files were made from (its page says which)",
    ),
    RepoKind.PICKLE_ONLY: (
        "holds its weights only as pickle files, which are never opened here",
        "name a safetensors copy of it; many repos have one as a pull request: org/name@refs/pr/N",
    ),
    RepoKind.EMPTY: (
        "holds no weights",
        "check the name; to plan from a configuration alone, give a local folder with config.json",
    ),
}
