"""Engine profiles by name."""

import re
from collections.abc import Callable
from typing import Final

from model_catalog.errors import UsageError
from model_catalog.near import did_you_mean
from planner.engines.base import EngineProfile
from planner.engines.llama_cpp import LlamaCppProfile
from planner.engines.sglang import SglangProfile
from planner.engines.tensorrt_llm import TensorRtLlmProfile
from planner.engines.transformers import TransformersProfile
from planner.engines.vllm import VllmProfile
from planner.engines.vllm_shape import release_of

_VERSION: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})*")
#: The release that made the V1 engine the default.
_VLLM_SINCE: Final = (0, 8)


def _vllm(version: str | None) -> EngineProfile:
    if version is not None and release_of(version) < _VLLM_SINCE:
        raise UsageError(
            f"vLLM {version} runs the engine that V1 replaced, whose memory is not known here",
            subject="--engine",
            hint=f"plan for vllm=={'.'.join(map(str, _VLLM_SINCE))}.0 or newer",
        )
    return VllmProfile() if version is None else VllmProfile(version=version)


def _transformers(version: str | None) -> EngineProfile:
    return TransformersProfile() if version is None else TransformersProfile(version=version)


def _sglang(version: str | None) -> EngineProfile:
    return SglangProfile() if version is None else SglangProfile(version=version)


def _tensorrt_llm(version: str | None) -> EngineProfile:
    return TensorRtLlmProfile() if version is None else TensorRtLlmProfile(version=version)


def _llama_cpp(version: str | None) -> EngineProfile:
    return LlamaCppProfile() if version is None else LlamaCppProfile(version=version)


_PROFILES: Final[dict[str, Callable[[str | None], EngineProfile]]] = {
    "vllm": _vllm,
    "transformers": _transformers,
    "llama.cpp": _llama_cpp,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
}


def engine_profile(text: str) -> EngineProfile:
    """The profile behind ``vllm`` or ``vllm==0.33.0``.

    Raises:
        UsageError: for an unknown engine, or a version that is not dotted numbers.
    """
    name, separator, version = text.strip().partition("==")
    make = _PROFILES.get(name.lower())
    if make is None:
        raise UsageError(
            f"no engine {name!r} is known",
            subject="--engine",
            hint=did_you_mean(name, _PROFILES, f"use one of {', '.join(_PROFILES)}, with ==VERSION if you like"),
        )
    if name.lower() == "llama.cpp":
        version = version.removeprefix("b")  # its builds are tagged b11434
    if separator and not _VERSION.fullmatch(version):
        known = make(None)
        hint = f"write dotted numbers, as in {known.name}=={known.version}"
        raise UsageError(f"{version!r} is not a version", subject="--engine", hint=hint)
    return make(version if separator else None)
