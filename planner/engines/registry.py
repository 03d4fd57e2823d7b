"""Engine profiles by name."""

from collections.abc import Callable
from typing import Final

from model_catalog.errors import UsageError
from planner.engines.base import EngineProfile
from planner.engines.transformers import TransformersProfile
from planner.engines.vllm import VllmProfile


def _vllm(version: str | None) -> EngineProfile:
    return VllmProfile() if version is None else VllmProfile(version=version)


def _transformers(version: str | None) -> EngineProfile:
    return TransformersProfile() if version is None else TransformersProfile(version=version)


_PROFILES: Final[dict[str, Callable[[str | None], EngineProfile]]] = {
    "vllm": _vllm,
    "transformers": _transformers,
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
            f"no profile for the engine {name!r}",
            subject="--engine",
            hint=f"use one of {', '.join(_PROFILES)}, with ==VERSION if you like",
        )
    if separator and not all(part.isdigit() for part in version.split(".")):
        raise UsageError(f"{version!r} is not a version", subject="--engine", hint=f"write {name}==0.33.0")
    return make(version if separator else None)
