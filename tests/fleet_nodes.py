"""Nodes of fleets for tests and benchmarks: declared GPUs in the place of live ones, partly in use."""

from collections.abc import Sequence
from dataclasses import replace

from planner.declared_gpus import parse_gpu_option
from planner.devices import Device, DeviceSource
from planner.fleet.records import NodeReading, NodeState


def gpu(kind: str, *, used_bytes: int = 0, index: int = 0) -> Device:
    """A GPU as a node would report it; ``kind`` as `--gpu` names it."""
    (device,) = parse_gpu_option(kind)
    assert device.free_bytes is not None
    return replace(
        device,
        source=DeviceSource.NVML,
        index=index,
        uuid=f"GPU-{index}",
        free_bytes=device.free_bytes - used_bytes,
        used_by_others_bytes=used_bytes,
    )


def node(
    name: str, devices: Sequence[Device] = (), *, state: NodeState = NodeState.READ, offered: int | None = None
) -> NodeReading:
    """A node; the cluster gives out all of its GPUs unless ``offered`` says how many."""
    return NodeReading(
        node_id=f"id-{name}",
        name=name,
        address="10.0.0.1",
        state=state,
        devices=tuple(replace(device, index=number) for number, device in enumerate(devices)),
        offered_gpus=len(devices) if offered is None else offered,
        offered_cpus=8,
        specplan_version="0.1.0",
    )
