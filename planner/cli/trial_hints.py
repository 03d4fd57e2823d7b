"""What to do when a serving engine's trial fails, where the built-in backend's advice would mislead."""

from typing import Final

from planner.errors import TrialError

_HINTS: Final = {
    ("llama.cpp", "trial_missing_import"): "install llama.cpp, or set SPECPLAN_LLAMA_SERVER to its llama-server",
    ("llama.cpp", "trial_weights"): "give folders that hold config.json and one *.gguf each",
    ("llama.cpp", "trial_no_cuda"): "take a llama.cpp built for CUDA, or run on the CPU: --devices cpu",
    ("llama.cpp", "trial_engine_refused"): "choose a draft with the target's vocabulary: specplan drafts TARGET",
    ("vllm", "trial_missing_import"): "name the interpreter that has vllm: --engine-python PATH",
    ("vllm", "trial_no_cuda"): "take a vLLM built for this driver's CUDA, or run on the CPU: --devices cpu",
    ("vllm", "trial_cache"): "see what the engine says to the pair: specplan fit TARGET --draft DRAFT",
}


def with_engine_hint(error: TrialError, backend: str) -> TrialError:
    """The error with the backend's own hint, where it has one."""
    error.hint = _HINTS.get((backend, error.code), error.hint)
    return error
