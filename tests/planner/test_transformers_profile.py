"""Plain transformers: what its process takes on a device, and in host memory."""

from dataclasses import replace

import pytest
from made_models import device, llama, model_of

from planner.devices import Device, DeviceSource
from planner.engines.base import Serving
from planner.engines.transformers import TransformersProfile
from planner.memory.breakdown import Group
from planner.planning import make_plan
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


@pytest.mark.parametrize(("dtype", "element_bytes"), [("auto", 2), ("float16", 2), ("float32", 4)])
def test_cache_and_logits_are_in_the_dtype_asked_for(dtype: str, element_bytes: int) -> None:
    """Four layers, 2 KV heads of 64, keys and values, 1,024 tokens; one row of 1,000 logits."""
    serving = Serving(target=model_of(llama()), draft=None, workload=Workload(context_tokens=1024, dtype=dtype))
    items = make_plan(serving, (CARD,), TransformersProfile()).ranks[0].breakdown.items
    low = {item.label: item.low_bytes for item in items}
    assert low["target_kv_cache"] == 4 * 2 * 64 * 2 * 1024 * element_bytes
    assert low["logits"] == 1000 * element_bytes
