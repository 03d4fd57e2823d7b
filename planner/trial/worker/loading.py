"""Loads a pair and its tokenizer from local folders: safetensors only, no remote code, by accelerate."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from planner.trial.protocol import TrialRequest
from planner.trial.worker.dummy import build_dummy, dummy_bytes
from planner.trial.worker.faults import code_of
from planner.trial.worker.folder import FolderError, check_tokenizer_files, read_config, weight_files
from planner.trial.worker.placement import (
    cap_allocator,
    first_with_room,
    forget_peaks,
    require_on_devices,
    room_of,
    spread,
)


def load_pair(request: TrialRequest, devices: Sequence[torch.device]) -> tuple[Any, Any]:
    """Target and draft, ready to run, within ``request.device_limits_bytes``.

    The target lies on all devices, the draft on the first that has room for it.

    Raises:
        FolderError: what a folder lacks, with its code.
        torch.OutOfMemoryError: no room.
    """
    dummy = request.weights == "dummy"
    load = build_dummy if dummy else load_model
    limits = request.device_limits_bytes
    if not dummy:  # before the target is loaded, which takes minutes
        for folder in (request.target_folder, request.draft_folder):
            read_config(folder)
            weight_files(folder)
        check_tokenizer_files(request.target_folder)
    cap_allocator(devices, limits)
    target = load(request.target_folder, request.dtype, spread(devices, limits))
    place = devices[0]
    if len(devices) > 1:
        needed = (
            dummy_bytes(request.draft_folder, request.dtype)
            if dummy
            else sum(file.stat().st_size for file in weight_files(request.draft_folder))
        )
        place = first_with_room(needed, {device: room_of(device, limits) for device in devices})
    draft = load(request.draft_folder, request.dtype, {"device_map": {"": place}})
    forget_peaks(devices)
    return target, draft


def load_model(folder: str, dtype: str, placing: Mapping[str, Any]) -> Any:
    """The model with its real weights in ``dtype``, placed as ``placing`` (of ``from_pretrained``) says.

    Raises:
        FolderError: no safetensors, files that are not whole, weights that the configuration does not describe,
            or a quantisation whose package is not installed.
        torch.OutOfMemoryError: no room for it.
    """
    path = Path(folder)
    read_config(folder)
    weight_files(folder)
    try:
        model, found = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            **placing,
        )
    except ImportError as error:
        raise FolderError(f"{path.name}: its weights need a package that is not installed: {error}") from error
    except Exception as error:
        # Whatever a broken file makes the libraries raise (safetensors has an error type of its own).
        if code_of(error) is not None:
            raise
        raise FolderError(f"{path.name} cannot be loaded: {type(error).__name__}: {error}") from error
    # The library fills what it does not find with random numbers, and says so in a log alone.
    absent = sorted((*found["missing_keys"], *(str(key) for key in found["mismatched_keys"])))
    if absent:
        raise FolderError(
            f"{path.name}: {len(absent)} of the weights that config.json describes are missing or of another "
            f"shape, {absent[0]} for one"
        )
    require_on_devices(model, path.name)
    return model.eval()


def load_tokenizer(folder: str, vocabularies: Sequence[int]) -> Any:
    """The folder's tokenizer; ``vocabularies``: the number of ids that each model knows.

    Raises:
        FolderError: ``tokenizer``: none, none that can be read, or one with ids that a model does not know.
    """
    name = Path(folder).name
    check_tokenizer_files(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        # Special tokens may lie beyond the text model's own: no text yields them (Gemma 3's image token).
        special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        largest = max((number for number in tokenizer.get_vocab().values() if number not in special), default=-1)
    except Exception as error:  # a missing or broken tokenizer shows as any of a dozen types
        raise FolderError(f"the tokenizer of {name} cannot be read: {error}", "tokenizer") from error
    if largest < 0:
        raise FolderError(f"the tokenizer of {name} knows no token", "tokenizer")
    if largest >= min(vocabularies):
        raise FolderError(
            f"the tokenizer of {name} has ids up to {largest:,}, and a model of the pair knows "
            f"{min(vocabularies):,}",
            "tokenizer",
        )
    return tokenizer


def vocabulary_of(model: Any) -> int:
    """The number of ids that a model's input embedding knows."""
    return int(model.get_input_embeddings().weight.shape[0])


def model_bytes(model: Any) -> int:
    """Bytes of all parameters and buffers, shared storage once."""
    sizes = {
        (tensor.device, tensor.untyped_storage().data_ptr()): tensor.untyped_storage().nbytes()
        for tensor in (*model.parameters(), *model.buffers())
    }
    return sum(sizes.values())
