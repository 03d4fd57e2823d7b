"""A model with random weights, made from config.json alone: real step times and memory, no download.

It is made by ``from_pretrained`` with an empty state dict: the library then builds the model on the meta device,
gives every tensor its place on the device map and initialises it there as the architecture does (normal, of the
configuration's ``initializer_range``), buffers such as RoPE's frequencies included, and ties what is tied. So
nothing passes through host memory, and several GPUs are served by the path that real weights take.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from planner.trial.worker.faults import code_of
from planner.trial.worker.folder import FolderError, read_config
from planner.trial.worker.placement import require_on_devices


def build_dummy(folder: str, dtype: str, placing: Mapping[str, Any]) -> Any:
    """The architecture of ``folder``'s config.json with random weights in ``dtype``, placed as ``placing`` says.

    Raises:
        FolderError: a configuration that cannot be used, or one of a quantised checkpoint.
        torch.OutOfMemoryError: no room for it.
    """
    name = Path(folder).name
    config = _plain_config(folder)
    kind = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    verbosity = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()  # it would list every tensor as missing: that is the point
    try:
        model = kind.from_pretrained(None, config=config, state_dict={}, dtype=getattr(torch, dtype), **placing)
    except Exception as error:
        if code_of(error) is not None:
            raise
        raise FolderError(f"{name} cannot be built: {type(error).__name__}: {error}") from error
    finally:
        transformers.utils.logging.set_verbosity(verbosity)
    require_on_devices(model, name)
    return model.eval()


def dummy_bytes(folder: str, dtype: str) -> int:
    """Bytes of the parameters it would have; built on the meta device, where nothing is allocated.

    Raises:
        FolderError: as ``build_dummy``.
    """
    config = _plain_config(folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def _plain_config(folder: str) -> Any:
    config = read_config(folder)
    parts = (config, config.get_text_config())
    if any(getattr(part, "quantization_config", None) is not None for part in parts):
        raise FolderError(
            f"{Path(folder).name}: dummy weights of a quantised checkpoint are not built: their layout is the "
            "quantiser's; give the unquantised model's folder"
        )
    return config
