"""What a vLLM process holds on a device beside tensors: context, communicators, driver growth and CUDA graphs.

Source: vLLM 0.33.0 v1/worker/gpu_worker.py: the budget starts after the CUDA context and the communicators exist,
so both lie outside it; what the driver takes later, and the estimate of graph memory, are charged inside.
Bounds are fitted to the rows of tests/measured/vllm_memory.jsonl.
"""

from typing import Final

from model_catalog.bounds import Basis, ByteRange
from model_catalog.drafts import PARALLEL_HEADS, DraftMethod
from model_catalog.units import KIB, MIB
from planner.engines.vllm_defaults import capture_sizes
from planner.engines.vllm_drafting import graph_logits_bytes
from planner.engines.vllm_shape import EngineShape
from planner.memory.breakdown import Group, LineItem, Owner
from planner.memory.overhead import SOURCE as OVERHEAD_SOURCE
from planner.memory.overhead import communicators, cuda_context

_MEASURED: Final = (
    "vLLM 0.33.0 v1/worker/gpu_worker.py; fitted to start-up logs of vLLM 0.11 to 0.29, 59 of them on H100 "
    "(llm-d-incubation/llm-d-planner, accuracy results)"
)
# Inside the budget: 0.02 to 0.35 GiB alone (0.46 for Granite), 0.07 on pipeline stages.
_DRIVER_GROWTH_ALONE: Final = ByteRange(low_bytes=16 * MIB, high_bytes=512 * MIB)
# 0.20 to 0.54 GiB (vLLM 0.7 to 0.11), 2.06 to 2.21 GiB since 0.19 on NVLink (all-reduce workspaces).
_DRIVER_GROWTH_TP: Final = ByteRange(low_bytes=160 * MIB, high_bytes=2432 * MIB)
# Graphs, per layer and captured size. Fitted: 0.37 MiB and 0.3 GiB for dense models, up to 0.7 MiB with experts.
_GRAPH_LOW_BYTES: Final = 24 * KIB
_GRAPH_DENSE_HIGH_BYTES: Final = 512 * KIB
_GRAPH_EXPERTS_HIGH_BYTES: Final = 768 * KIB
_GRAPH_BASE_HIGH_BYTES: Final = 400 * MIB
_DRAFT_GRAPH_SETS: Final = 2  # prefill and decode
# Capture may take more than the estimate that was charged: 0 to 0.31 GiB (0.46 for gpt-oss), 0.10 in the median.
_GRAPH_EXCESS_HIGH_BYTES: Final = 336 * MIB


def device_context(shape: EngineShape) -> tuple[LineItem, ...]:
    """The CUDA context, and the communicators where ranks talk: both outside the budget."""
    lines = [
        _line(
            "cuda_context",
            cuda_context(shape.device.total_bytes),
            source=OVERHEAD_SOURCE,
            formula="one process on the device",
            inside_budget=False,
        )
    ]
    if shape.world_size > 1:
        lines.append(
            _line(
                "communicators",
                communicators(world_size=shape.world_size, expert_parallel=shape.expert_parallel),
                source=OVERHEAD_SOURCE,
                formula=f"NCCL and all-reduce buffers of {shape.world_size} ranks",
                inside_budget=False,
            )
        )
    return tuple(lines)


def driver_growth(shape: EngineShape) -> LineItem:
    """What appears outside torch's allocator while loading and profiling (``non_torch``): inside the budget."""
    if shape.tp > 1:
        size, cause = _DRIVER_GROWTH_TP, f"libraries, kernels and all-reduce workspaces of {shape.tp} ranks"
    else:
        size, cause = _DRIVER_GROWTH_ALONE, "libraries and kernels loaded by one rank"
    return _line("driver_growth", size, source=_MEASURED, formula=cause)


def cuda_graphs(shape: EngineShape) -> tuple[LineItem, ...]:
    """The graph estimate that is charged to the budget since 0.21, and how far capture may exceed it outside.

    Nothing with ``--enforce-eager``. EAGLE and MTP drafts capture two sets of their own, DFlash and DSpark one
    that records sampling too; stand-alone drafts none (vLLM 0.33.0 v1/worker/gpu/spec_decode).
    """
    if shape.enforce_eager:
        return ()
    captured = capture_sizes(
        shape.defaults, shape.num_speculative_tokens, shape.device, model_type=shape.target.model_type
    )
    sizes = len(captured)
    layers = max(1, len(shape.layers))
    sets = 1 if shape.method in PARALLEL_HEADS else _DRAFT_GRAPH_SETS
    drafting = 0 if shape.method is DraftMethod.DRAFT_MODEL else sets * shape.draft_layers
    logits = graph_logits_bytes(shape, max(captured, default=0))
    per_graph = _GRAPH_EXPERTS_HIGH_BYTES if shape.target.experts else _GRAPH_DENSE_HIGH_BYTES
    size = ByteRange(
        low_bytes=layers * sizes * _GRAPH_LOW_BYTES,
        high_bytes=_GRAPH_BASE_HIGH_BYTES + (layers + drafting) * sizes * per_graph + logits,
    )
    count = f"{layers} layers" + (f" + {drafting} of the draft" if drafting else "")
    return (
        _line(
            "cuda_graphs",
            size,
            source=_MEASURED,
            formula=f"{count} x {sizes} captured sizes x 24 to {per_graph // KIB} KiB, plus up to 400 MiB"
            + (f" and {logits:,} B of drafted logits" if logits else ""),
            owner=Owner.BOTH if drafting else Owner.TARGET,
            inside_budget=shape.charges_graphs,
        ),
        _line(
            "cuda_graph_excess",
            ByteRange(low_bytes=0, high_bytes=_GRAPH_EXCESS_HIGH_BYTES),
            source=_MEASURED,
            formula="capture beyond the estimate that was charged",
            inside_budget=False,
        ),
    )


def _line(
    label: str,
    size: ByteRange,
    *,
    source: str,
    formula: str,
    owner: Owner = Owner.TARGET,
    inside_budget: bool = True,
) -> LineItem:
    return LineItem.of_size(
        size,
        group=Group.RUNTIME_OVERHEAD,
        label=label,
        owner=owner,
        basis=Basis.CALIBRATED,
        source=source,
        formula=formula,
        inside_budget=inside_budget,
    )
