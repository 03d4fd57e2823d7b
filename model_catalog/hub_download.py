"""Fetches what a trial needs of a Hub repo into the Hub client's own cache: safetensors, configuration, tokenizer.

The client does the work (ranges, resuming, its cache's layout, its progress bars); this module says which files,
and turns what it raises into our own errors.
"""

import fnmatch
import shutil
from pathlib import Path
from typing import Final

from huggingface_hub import constants, snapshot_download

# The client documents these under this name but does not mark them as exported for type checkers.
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    disable_progress_bars,
    enable_progress_bars,
)

from model_catalog.errors import HubUnreachableError, ModelNotFoundError, UsageError
from model_catalog.hub_errors import HubCall, translate
from model_catalog.snapshot import ModelSnapshot

#: Never pickles, never code.
WANTED: Final = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model", "*.tiktoken", "merges.txt", "vocab.txt")
#: Copies of the weights in formats of their own, beside the ones that a trial loads.
_UNWANTED: Final = ("original/*", "onnx/*", "openvino/*", "metal/*", "consolidated*")
_TO_SPARE: Final = 1.05


def download_size_bytes(snapshot: ModelSnapshot) -> int | None:
    """Bytes of the wanted files; None where the repo's list does not tell every size."""
    sizes = [file.size_bytes for file in snapshot.files if is_wanted(file.path)]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def is_wanted(path: str) -> bool:
    """Whether a trial needs this file."""
    return any(fnmatch.fnmatch(path, pattern) for pattern in WANTED) and not any(
        fnmatch.fnmatch(path, pattern) for pattern in _UNWANTED
    )


def download_model(
    snapshot: ModelSnapshot, *, show_progress: bool, endpoint: str | None = None, cache: Path | None = None
) -> Path:
    """The folder in the Hub's cache (``cache`` None: the client's own) with all wanted files of the commit.

    Raises:
        ModelError, NetworkError: the repo or the Hub. UsageError: the disk has no room.
    """
    site = (endpoint or constants.ENDPOINT).rstrip("/")
    revision = snapshot.commit or snapshot.revision or "main"
    if constants.HF_HUB_OFFLINE:
        raise HubUnreachableError(
            "HF_HUB_OFFLINE is set", subject=snapshot.repo_id, hint="unset it, or leave --download out"
        )
    if snapshot.files and not any(file.path.endswith(".safetensors") for file in snapshot.files):
        raise ModelNotFoundError(
            "the repo has no safetensors", subject=snapshot.repo_id, hint="name a repo with safetensors weights"
        )
    place = Path(constants.HF_HUB_CACHE) if cache is None else cache
    _check_room(snapshot, place)
    call = HubCall(repo_id=snapshot.repo_id, revision=revision, site=site)
    (enable_progress_bars if show_progress else disable_progress_bars)()
    try:
        folder = snapshot_download(
            snapshot.repo_id,
            revision=revision,
            allow_patterns=list(WANTED),
            ignore_patterns=list(_UNWANTED),
            endpoint=site,
            cache_dir=place,
        )
    except Exception as error:
        own = translate(error, call)
        if own is error:
            raise
        raise own from error
    return Path(str(folder))


def _check_room(snapshot: ModelSnapshot, place: Path) -> None:
    wanted = download_size_bytes(snapshot)
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    if wanted is not None and wanted * _TO_SPARE > free:
        raise UsageError(
            f"its files are {wanted / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free in {place}",
            subject=snapshot.repo_id,
            hint="make room there, or set HF_HUB_CACHE to a larger disk",
        )
