"""Reports of plans that are simple enough to judge by hand: the linear engine on cards that a driver would list.

On a card of 40 GiB with a fraction of 0.9 the budget is 36 GiB. Inside it: 16 GiB of weights and 8 GiB of cache
(8,192 tokens of 1 MiB), split over the ranks; outside it 1 GiB of context. The start asks for the whole budget and
the context: 37 GiB must be free.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from linear_engine import GIB, LinearEngine, made_device, made_model

from planner.devices import Device, DeviceSource
from planner.engines.base import Serving
from planner.report.build import build_report
from planner.report.document import Request, report_mapping
from planner.report.facts import target_facts
from planner.report.findings import find
from planner.report.saved_plan import SavedReport, read_saved_report
from planner.workload import Workload

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 16_384,
    "torch_dtype": "bfloat16",
}


def card(number: int, *, free_gib: int = 40, **changes: Any) -> Device:  # noqa: ANN401 - any field
    """A live card of 40 GiB with a UUID."""
    device = made_device(40, free_gib=free_gib, index=number)
    return replace(
        device,
        **{"source": DeviceSource.NVML, "uuid": f"GPU-{number}", "driver_version": "580.1", **changes},
    )


def report_of(
    devices: Sequence[Device], *, engine: LinearEngine | None = None, workload: Workload | None = None
) -> dict[str, Any]:
    """The JSON document of the plan for these devices."""
    work = workload or Workload(tp=len(devices))
    engine = engine or LinearEngine(target_gib=16)
    serving = Serving(target=made_model("org/target", LLAMA), draft=None, workload=work)
    request = Request(
        target="org/target",
        drafts=[],
        context_tokens=work.context_tokens,
        batch=work.batch,
        num_speculative_tokens=None,
        draft_budget_share=0.15,
        gpu=None,
        devices=None,
        tp=work.tp,
        pp=work.pp,
        enable_expert_parallel=False,
        memory_limit_bytes=work.memory_limit_bytes,
        engine="linear",
        dtype="auto",
        quantization=None,
        kv_cache_dtype="auto",
        draft_kv_cache_dtype="auto",
        gpu_memory_utilization=work.gpu_memory_utilization,
        max_num_batched_tokens=None,
        max_num_seqs=None,
        block_size=None,
        enforce_eager=False,
        async_scheduling=True,
        kv_cache_memory_bytes=work.kv_cache_memory_bytes,
        offline=True,
    )
    findings = find(serving, (), tuple(devices), engine)
    report = build_report(findings, target_facts(serving.target, work), request, exit_code=0)
    mapping: dict[str, Any] = json.loads(json.dumps(report_mapping(report)))
    return mapping


def read(document: Mapping[str, Any]) -> SavedReport:
    """The document, read back from bytes as `check` does."""
    return read_saved_report(json.dumps(document).encode(), "report.json")


__all__ = ["GIB", "LLAMA", "card", "read", "report_of"]
