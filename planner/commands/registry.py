"""Which engine's command to write, by the engine's name."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from model_catalog.errors import UsageError
from model_catalog.near import did_you_mean
from planner.commands.base import StartCommand
from planner.commands.llama_cpp import llama_cpp_command
from planner.commands.sglang import sglang_command
from planner.commands.tensorrt_llm import tensorrt_llm_command
from planner.commands.transformers import transformers_command
from planner.commands.vllm import vllm_command
from planner.devices import DeviceSource
from planner.planning import Plan
from planner.speculation.compatibility import Compatibility, CompatibilityVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    plan: Plan
    version: str
    load_varies: bool
    stops_paying_at_batch: int | None


def _vllm(request: _Request) -> StartCommand:
    return vllm_command(
        request.plan,
        version=request.version,
        load_varies=request.load_varies,
        stops_paying_at_batch=request.stops_paying_at_batch,
    )


def _off_at(request: _Request) -> int | None:
    return request.stops_paying_at_batch if request.load_varies else None


_WRITERS: Final[dict[str, Callable[[_Request], StartCommand]]] = {
    "vllm": _vllm,
    "sglang": lambda r: sglang_command(r.plan, version=r.version, stops_paying_at_batch=_off_at(r)),
    "tensorrt-llm": lambda r: tensorrt_llm_command(r.plan, version=r.version, stops_paying_at_batch=_off_at(r)),
    "llama.cpp": lambda r: llama_cpp_command(r.plan, version=r.version, stops_paying_at_batch=_off_at(r)),
    "transformers": lambda r: transformers_command(r.plan, version=r.version),
}


#: The release that each writer's syntax was read from.
_READ_FROM: Final = {
    "vllm": "0.33.0",
    "sglang": "0.5.23",
    "tensorrt-llm": "1.2.1",
    "llama.cpp": "11434",
    "transformers": "5.24.0",
}


def known_engine(text: str) -> tuple[str, str]:
    """(name, version) of ``sglang`` or ``sglang==0.5.23``; without a version the one whose syntax was read.

    Raises:
        UsageError: for an unknown engine, or a version that is not dotted numbers.
    """
    name, separator, version = text.partition("==")
    known = _known_name(name)
    if known == "llama.cpp":
        version = version.removeprefix("b")  # its builds are tagged b11434
    if separator and not all(part.isdigit() for part in version.split(".")):
        raise UsageError(f"{version!r} is not a version", subject=text, hint=f"write {known}=={_READ_FROM[known]}")
    return known, version or _READ_FROM[known]


def _known_name(text: str) -> str:
    plain = re.sub(r"[^a-z]", "", text.lower())
    name = next((known for known in _WRITERS if re.sub(r"[^a-z]", "", known) == plain), None)
    if name is None:
        raise UsageError(
            f"no engine {text!r} is known",
            subject="--also-for",
            hint=did_you_mean(text, _WRITERS, f"use one of {', '.join(_WRITERS)}"),
        )
    return name


def command_engines() -> tuple[str, ...]:
    """Engines that a command can be written for."""
    return tuple(_WRITERS)


def start_command(
    engine_name: str,
    version: str,
    plan: Plan,
    compatibility: Compatibility | None = None,
    *,
    load_varies: bool = False,
    stops_paying_at_batch: int | None = None,
) -> StartCommand:
    """The command that starts this plan under the named engine; what the pair's checks warn of becomes notes.

    ``load_varies`` and ``stops_paying_at_batch``: as in ``vllm_command``.

    Raises:
        UsageError: an unknown engine, a pair that it refuses, or what its command line cannot say.
    """
    name = _known_name(engine_name)
    if compatibility is not None and compatibility.verdict is CompatibilityVerdict.REFUSED:
        check = next((check for check in compatibility.failed if check.passed is False), None)
        raise UsageError(
            check.text if check else "the pair is refused",
            subject=compatibility.engine,
            hint=(check.remedy if check else None) or "choose another draft",
        )
    request = _Request(
        plan=plan, version=version, load_varies=load_varies, stops_paying_at_batch=stops_paying_at_batch
    )
    command = _WRITERS[name](request)
    warned = () if compatibility is None else tuple(check.text for check in compatibility.failed)
    return replace(command, notes=tuple(dict.fromkeys((*command.notes, *_chosen_devices(plan), *warned))))


def _chosen_devices(plan: Plan) -> Iterator[str]:
    """Engines take visible devices from the first on; a plan for others must say so in the environment."""
    for planned in plan.ranks:
        device = planned.rank.device
        if device.source is DeviceSource.NVML and device.index != planned.rank.index:
            yield (
                f"planned for GPU {device.index}{f' ({device.uuid})' if device.uuid else ''} as rank "
                f"{planned.rank.index}: say so in CUDA_VISIBLE_DEVICES, unless it does already"
            )
            return
