"""What a model's folder must hold before anything is loaded: plain errors instead of those of five libraries.

Reads configuration, index and headers; weights themselves never. The headers' rules are
``model_catalog.safetensors_header``'s.
"""

import json
from pathlib import Path
from typing import Any, Final

import transformers
from transformers import AutoConfig

from model_catalog.errors import WeightsError
from model_catalog.safetensors_header import LENGTH_BYTES, header_length, parse_header

_CONFIG: Final = "config.json"
_WHOLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_LFS_POINTER: Final = b"version https://git-lfs"
#: Any of these makes a tokenizer; without one, transformers 5 may make an empty one up.
_TOKENIZER_FILES: Final = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model"),
    *("tekken.json", "vocab.bpe", "qwen.tiktoken", "tiktoken.model"),
)


class FolderError(Exception):
    """The folder does not hold what a trial needs. ``code``: ``weights``, ``tokenizer`` or ``remote_code``."""

    def __init__(self, text: str, code: str = "weights") -> None:
        super().__init__(text)
        self.code = code


def read_config(folder: str) -> Any:
    """The configuration, of an architecture that the installed transformers has a text model for.

    Raises:
        FolderError: ``weights`` where there is none to be read or none that is known; ``remote_code`` where the
            folder would run its own.
    """
    path = Path(folder)
    given = _read_json(path / _CONFIG)
    kind = given.get("model_type")
    if kind not in transformers.CONFIG_MAPPING:
        _refuse_remote_code(path, given)
        what = f"knows no model type {kind!r}" if kind else "needs a model_type, and config.json names none"
        raise FolderError(f"{path.name}: transformers {transformers.__version__} {what}")
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # validators of single configurations raise what they like
        raise FolderError(f"{path.name}: {_CONFIG} cannot be used: {error}") from error
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        _refuse_remote_code(path, given)
        raise FolderError(f"{path.name}: model type {kind!r} is none that generates text from text")
    return config


def weight_files(folder: str) -> tuple[Path, ...]:
    """The safetensors that hold the weights, each whole as far as its header and its size tell.

    Raises:
        FolderError: none, other formats alone, shards that are missing, or a file that is cut short.
    """
    path = Path(folder)
    index = path / _INDEX
    if index.is_file():
        named = _read_json(index).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
            raise FolderError(f"{path.name}: {_INDEX} has no weight_map")
        files = [path / Path(name).name for name in sorted(set(named.values()))]
        missing = [file.name for file in files if not file.exists()]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise FolderError(
                f"{path.name}: of the {len(files)} shards that {_INDEX} names, {missing[0]}{more} "
                f"{'is' if len(missing) == 1 else 'are'} missing"
            )
    elif (path / _WHOLE).exists():
        files = [path / _WHOLE]
    else:
        raise FolderError(f"{path.name} holds {_found_instead(path)}; a trial loads safetensors alone")
    for file in files:
        _check_file(path.name, file)
    return tuple(files)


def check_tokenizer_files(folder: str) -> None:
    """Whether there is anything to make a tokenizer of.

    Raises:
        FolderError: ``tokenizer``: nothing.
    """
    path = Path(folder)
    if not any((path / name).is_file() for name in _TOKENIZER_FILES) and not any(path.glob("*.tiktoken")):
        raise FolderError(f"{path.name} holds no tokenizer (no tokenizer.json or tokenizer.model)", "tokenizer")


def _refuse_remote_code(path: Path, given: dict[str, Any]) -> None:
    if given.get("auto_map"):
        raise FolderError(
            f"{path.name}: transformers {transformers.__version__} has no code for model type "
            f"{given.get('model_type')!r}; the folder's own would have to run, and a trial runs none",
            "remote_code",
        )


def _found_instead(path: Path) -> str:
    if any(path.glob("*.safetensors")):
        return f"safetensors, but neither {_WHOLE} nor {_INDEX}"
    for pattern, what in (
        ("*.bin", "only .bin files"),
        ("*.gguf", "only GGUF files"),
        ("*.pt*", "only .pt files"),
    ):
        if any(path.glob(pattern)):
            return what
    return "no weights"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FolderError(f"{path.parent.name} holds no {path.name}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise FolderError(f"{path.parent.name}: {path.name} cannot be read: {error}") from error
    if not isinstance(given, dict):
        raise FolderError(f"{path.parent.name}: {path.name} is no JSON object")
    return given


def _check_file(name: str, file: Path) -> None:
    """Against what its own header says of its length."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            first = stream.read(LENGTH_BYTES)
            if _LFS_POINTER.startswith(first) and first:
                raise FolderError(f"{name}: {file.name} is a Git LFS pointer, not the weights: run git lfs pull")
            raw = stream.read(header_length(first, subject=name, file=file.name))
        if not raw:
            raise FolderError(f"{name}: {file.name} ends within its header")
        parse_header(raw, subject=name, file=file.name, file_size_bytes=size)
    except OSError as error:
        raise FolderError(f"{name}: {file.name} cannot be read: {error}") from error
    except WeightsError as error:
        raise FolderError(f"{name}: {error.message}") from error
