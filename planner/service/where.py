"""Which devices a plan is for: declared ones, live ones, the host, or a stand-in for missing live ones."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from model_catalog.errors import UsageError
from planner.declared_gpus import parse_gpu_option
from planner.device_selection import HOST_CHOICE, select_devices
from planner.devices import Device
from planner.errors import HardwareError, ParallelismError
from planner.service.remarks import RemarkSink
from planner.service.request import PlanOptions

#: Engines whose profile knows the host's memory.
_ON_HOSTS: Final = frozenset({"transformers", "llama.cpp"})


def choose_devices(options: PlanOptions, output: RemarkSink) -> tuple[Device, ...]:
    """The devices to plan for, in the order of the ranks.

    Raises:
        UsageError: options that exclude each other, or a name, count or size that is none.
        HardwareError: no live device can be read, and no declared one was named.
    """
    if options.gpu is not None and options.devices is not None:
        raise UsageError(
            "both were given",
            subject="--gpu and --devices",
            hint="--gpu plans for a GPU you need not have, --devices chooses among those of this machine",
        )
    if options.gpu is not None:
        return _declared(options.gpu, options)
    if options.devices == HOST_CHOICE:
        check_hosts_engine(options)
        from planner.host_memory import host_device  # noqa: PLC0415 - read only where asked for

        return (host_device(),)
    try:
        return _live(options.devices, output)
    except HardwareError as error:
        if options.devices is None and options.fallback_gpu is not None:
            output.note(
                "no_live_device",
                f"no live device: {error.message}; planning for --fallback-gpu {options.fallback_gpu}",
            )
            return _declared(options.fallback_gpu, options)
        if options.devices is None and "--gpu" not in error.hint:
            error.hint = f"{error.hint}; or name a GPU to plan for: --gpu h100-80gb"
        raise


def check_hosts_engine(options: PlanOptions) -> None:
    """Refuse an engine that is not planned in the memory of a host.

    Raises:
        UsageError: it is none of those that are.
    """
    if options.engine_name not in _ON_HOSTS:
        raise UsageError(
            "that engine is planned on GPUs only, not in host memory",
            subject=f"--devices cpu --engine {options.engine}",
            hint="add --engine transformers or llama.cpp, or plan for a GPU you name: --gpu h100-80gb",
        )


def tensor_parallel(options: PlanOptions, devices: Sequence[Device]) -> int:
    """The tensor-parallel degree: as asked, or all devices over the pipeline stages.

    Raises:
        ParallelismError: the stages do not divide the devices.
    """
    if options.tp is not None:
        return options.tp
    tp, rest = divmod(len(devices), options.pp)
    if rest or not tp:
        raise ParallelismError(
            f"{options.pp} pipeline stages do not divide {len(devices)} devices",
            subject="--pp",
            hint="choose devices in a multiple of --pp, or give --tp as well",
        )
    return tp


def _declared(text: str, options: PlanOptions) -> tuple[Device, ...]:
    """Declared devices; without a count, as many as --tp and --pp need."""
    devices = parse_gpu_option(text)
    wanted = (options.tp or 1) * options.pp
    if ":" in text or wanted <= len(devices):
        return devices
    return tuple(replace(devices[0], index=index) for index in range(wanted))


def _live(choice: str | None, output: RemarkSink) -> tuple[Device, ...]:
    from planner.nvml import read_devices  # noqa: PLC0415 - a plan for declared GPUs needs no driver

    with output.step("asking the NVIDIA driver"):
        reading = read_devices()
    for note in reading.notes:
        output.note("driver", note)
    chosen = select_devices(reading.devices, choice=choice, environ=os.environ)
    if choice is None and chosen[0].mig and len(chosen) > 1:
        output.note(
            "first_mig_instance", f"planning for the first of {len(chosen)} MIG instances: a process sees one only"
        )
        chosen = chosen[:1]
    for note in dict.fromkeys(note for device in chosen if device.free_bytes is not None for note in device.notes):
        output.note("device", note)
    return chosen
