"""Loads a model and its tokenizer from a local folder: safetensors only, no remote code, by accelerate."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


class FolderError(Exception):
    """The folder does not hold what a trial needs."""


def load_model(folder: str, device: str, dtype: str) -> Any:
    """The model, ready to run, on ``device``.

    Raises:
        FolderError: no safetensors, or files that transformers cannot read.
    """
    path = Path(folder)
    if not any(path.glob("*.safetensors")):
        found = "only .bin files" if any(path.glob("*.bin")) else "no weights"
        raise FolderError(f"{path.name} holds {found}; a trial loads safetensors alone")
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            device_map=device,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        # Whatever a broken file makes the libraries raise (safetensors has an error type of its own).
        raise FolderError(f"{path.name} cannot be loaded: {type(error).__name__}: {error}") from error
    return model.eval()


def load_tokenizer(folder: str) -> Any:
    """The folder's tokenizer.

    Raises:
        FolderError: none that can be read.
    """
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a missing or broken tokenizer shows as any of a dozen types
        raise FolderError(f"the tokenizer of {Path(folder).name} cannot be read: {error}") from error


def model_bytes(model: Any) -> int:
    """Bytes of all parameters and buffers, shared storage once."""
    sizes = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in (*model.parameters(), *model.buffers())
    }
    return sum(sizes.values())


def cache_bytes(cache: Any) -> int:
    """Bytes of the keys and values that a cache of transformers holds; 0 where there is none."""
    total = 0
    for layer in getattr(cache, "layers", ()):
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None)):
            if isinstance(tensor, torch.Tensor):
                total += tensor.untyped_storage().nbytes()
    return total
