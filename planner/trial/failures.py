"""What can keep a trial from a result: the code of each cause, what it means, and what to do about it.

A child says the first part of a code; ``trial_`` is put before it. A serving engine's own advice, where it
differs, is in ``planner.cli.trial_hints``.
"""

from collections.abc import Mapping
from typing import Final

#: What each code means, in the order in which a trial may meet them.
MEANINGS: Final[Mapping[str, str]] = {
    "missing_import": "a library or program that the trial's backend needs is not installed",
    "embedded": "the embedded pair cannot be made",
    "weights_missing": "the model's own weights are not on this machine, or cannot be had",
    "weights": "the folder holds no weights that can be read, or broken ones",
    "tokenizer": "there is no tokenizer beside the weights, or it cannot be read",
    "remote_code": "the architecture needs code of its own, which is never run",
    "no_cuda": "the libraries that are installed cannot use the GPU",
    "no_room": "the trial itself does not fit in what is free now",
    "engine_options": "the backend cannot run with these options",
    "engine_refused": "the serving engine refuses the pair or the settings",
    "cache": "the target's cache cannot go back over rejected tokens",
    "out_of_memory": "memory ran out while loading, warming up or running",
    "device_lost": "the device failed, or is not there any more",
    "failed": "an error of a library that nobody foresaw",
    "mismatch": "the two ways did not run under the same conditions, so that no speedup is told",
    "protocol": "the child said something that is no part of the protocol",
    "silent": "the child said nothing for too long, and was ended",
    "deadline": "the child was not done in time, and was ended",
    "killed": "the child ended without a result",
    "interrupted": "the user ended the trial; the plan is told all the same",
}
_HINTS: Final[Mapping[str, str]] = {
    "missing_import": "pip install 'specplan[trial]'",
    "weights": "give a folder with config.json and whole *.safetensors; or see --trial-weights dummy",
    "tokenizer": "put the target's tokenizer.json beside its weights",
    "remote_code": "choose a model whose architecture transformers has, or measure it in a serving engine",
    "no_cuda": "install a torch built for this driver's CUDA, or run on the CPU: --devices cpu",
    "device_lost": "look for Xid errors in dmesg; the GPU may need a reset",
    "engine_refused": "the plan's settings do not suit this engine; plan for its version: --engine NAME==VERSION",
    "engine_options": "the trial started the engine with an option that this version does not know",
    "out_of_memory": "free memory on the device, or try a smaller pair",
    "cache": "this target keeps recurrent state; measure it in a serving engine",
}
_HINT: Final = "run it again while the machine is quiet, or shorter: --trial-seconds 10 --new-tokens 64"


def hint_of(code: str) -> str:
    """What to do about a child's failure; ``code`` as the child says it."""
    return _HINTS.get(code, _HINT)
