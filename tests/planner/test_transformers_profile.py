"""Plain transformers: what its process takes on a device, and in host memory."""

from dataclasses import replace

import pytest
from made_models import device, llama, model_of

from planner.devices import Device, DeviceSource
from planner.engines.base import Serving
from planner.engines.transformers import TransformersProfile
from planner.memory.breakdown import Group
from planner.plan import make_plan
from planner.workload import Workload

GIB = 2**30
CARD = device(24 * GIB)


@pytest.mark.parametrize(
    ("where", "label", "basis"),
    [
        (CARD, "device_context", "calibrated"),
        (replace(CARD, source=DeviceSource.HOST), "host_process", "assumed"),
    ],
    ids=["gpu", "host"],
)
def test_host_memory_holds_no_cuda_context(where: Device, label: str, basis: str) -> None:
    serving = Serving(target=model_of(llama()), draft=None, workload=Workload())
    plan = make_plan(serving, (where,), TransformersProfile())
    overhead = [item for item in plan.ranks[0].breakdown.items if item.group is Group.RUNTIME_OVERHEAD]
    assert [(item.label, item.basis.value) for item in overhead] == [(label, basis)]
    assert 0 < overhead[0].low_bytes < overhead[0].high_bytes
