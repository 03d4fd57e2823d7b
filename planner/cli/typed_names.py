"""What a shell may complete: models, declared GPUs, engines, files. Loads only what it lists."""

from collections.abc import Iterable
from typing import Final

import click
from click.shell_completion import CompletionItem

#: Words that --draft takes beside names of models.
DRAFT_WORDS: Final = ("none", "mtp", "ngram")
ENGINES: Final = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers")
#: A model by its path: the shell completes folders.
_PATHS: Final = ("/", ".", "~")


def complete_model(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Models of the catalogue, by repo id or by the part after the slash; folders where a path was begun."""
    if typed.startswith(_PATHS):
        return [CompletionItem(typed, type="dir")]
    return _items(_model_names(typed))


def complete_draft(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """As ``complete_model``, and the words that stand for no model."""
    return [*_items(_beginning(typed, DRAFT_WORDS)), *complete_model(context, parameter, typed)]


def complete_gpu(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Keys of the declared GPUs, each with its name."""
    from planner.declared_gpus import declared_gpus  # noqa: PLC0415 - only where a GPU is typed

    return [
        CompletionItem(gpu.key, help=gpu.name)
        for gpu in declared_gpus()
        if gpu.key.startswith(typed.strip().lower())
    ]


def complete_engine(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of engines."""
    return _items(_beginning(typed, ENGINES))


def complete_devices(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """The one word among the lists of indexes: no driver is asked while somebody types."""
    return _items(_beginning(typed, ("cpu",)))


def complete_file(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Files: the shell knows them."""
    return [CompletionItem(typed, type="file")]


def complete_folder(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Folders, likewise."""
    return [CompletionItem(typed, type="dir")]


def _model_names(typed: str) -> list[str]:
    from model_catalog.catalogue import catalogue_names  # noqa: PLC0415 - only where a model is typed
    from model_catalog.snapshot_store import user_snapshots  # noqa: PLC0415 - as above
    from planner.trial.embedded import EMBEDDED  # noqa: PLC0415 - as above

    own = [snapshot.repo_id for snapshot in user_snapshots()]
    names = sorted({*catalogue_names(), *own, *EMBEDDED}, key=str.lower)
    found = _beginning(typed, names)
    if not found and "/" not in typed:
        found = [name for name in names if name.partition("/")[2].lower().startswith(typed.lower())]
    return found


def _beginning(typed: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.lower().startswith(typed.lower())]


def _items(names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names]
