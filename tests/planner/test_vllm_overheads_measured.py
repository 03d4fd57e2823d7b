"""The bounds on activations, graphs, driver growth and context against start-up logs.

Each row of ``tests/measured/vllm_memory.jsonl`` names its source and, in ``use``, what it may be compared with.
Shapes are the public configurations' widths. A bound that holds too few rows, or grows too wide, fails here.
"""

import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model_catalog.architecture import (
    ArchitectureSpec,
    CacheRule,
    Component,
    FullAttention,
    LatentAttention,
    LayerSpec,
    Role,
    TensorTemplate,
)
from model_catalog.bounds import ByteRange
from model_catalog.drafts import DraftMethod
from model_catalog.dtypes import BFLOAT16
from model_catalog.units import GIB
from planner.devices import Device, DeviceSource
from planner.engines.vllm_activation import activation_peak
from planner.engines.vllm_defaults import engine_defaults
from planner.engines.vllm_loading import load_peak_bytes
from planner.engines.vllm_runtime import cuda_graphs, device_context, driver_growth
from planner.engines.vllm_shape import EngineShape, activation_bytes
from planner.memory.breakdown import sum_items
from planner.workload import Workload

Row = dict[str, Any]

MEASURED = Path(__file__).parents[1] / "measured"
ROWS: list[Row] = [json.loads(line) for line in (MEASURED / "vllm_memory.jsonl").read_text().splitlines()]
SHAPES: dict[str, Row] = {
    row["model"]: row
    for row in (json.loads(line) for line in (MEASURED / "vllm_shapes.jsonl").read_text().splitlines())
}
#: The models whose rows the constants were read from; all others validate them.
FITTED = ("codellama/", "ibm-granite/granite-3.1", "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B", "google/gemma-2")
#: Known misses, with what is seen there.
MISSES = {
    # the engine's own estimate is about twice its real graphs: 1.69 for 0.76, 1.60 for 0.84, 1.60 for 1.03 GiB
    ("cuda_graphs", "h100-019-meta-llama-llama-3-1-8b-tp2pp1dp1-8192"),
    ("cuda_graphs", "h100-019-granite-3-1-2b-tp1pp1dp1-8192"),
    ("cuda_graphs", "h100-019-w8a8-mistral-small-24b-tp2pp1dp1-8192"),
    # capture returned more memory than it took: -0.88 and -0.33 GiB
    *(
        (name, row_id)
        for name in ("cuda_graphs", "cuda_graphs_taken")
        for row_id in ("llmd-q3-32b", "llmd-q3-32b-tp2")
    ),
}
COVERAGE = 0.9


def rows_for(purpose: str) -> list[Row]:
    return [row for row in ROWS if purpose in row["use"]]


def architecture(model: str) -> ArchitectureSpec:
    shape = SHAPES[model]
    latent = shape.get("latent")
    rule: CacheRule = (
        LatentAttention(latent_dim=latent[0], rope_dim=latent[1])
        if latent
        else FullAttention(kv_heads=8, key_dim=128, value_dim=128)
    )
    tensors = (
        (TensorTemplate(name="self_attn.kv_b_proj.weight", shape=(latent[2], latent[0]), role=Role.QUERY),)
        if latent
        else ()
    )
    layer = LayerSpec(component=Component.TEXT, tensors=tensors, caches=(rule,))
    return ArchitectureSpec(
        name=model,
        model_type=shape.get("model_type", "measured"),
        hidden_size=shape["hidden"],
        vocabulary_size=shape["vocabulary"],
        intermediate_size=shape["intermediate"],
        attention_heads=32,
        kv_heads=8,
        tied_head=shape.get("tied_head", False),
        dtype=BFLOAT16,
        max_context_tokens=131072,
        layers=(layer,) * shape["layers"],
        root_tensors=(),
        experts=shape.get("experts", 0),
        experts_per_token=shape.get("experts_per_token", 0),
        expert_intermediate_size=shape.get("expert_intermediate", 0),
        multimodal=shape.get("multimodal", False),
    )


def device(row: Row) -> Device:
    total = round(row["total_gib"] * GIB)
    return Device(
        index=0,
        name=row["gpu"],
        source=DeviceSource.DECLARED,
        total_bytes=total,
        engine_total_bytes=ByteRange.point(total),
        free_bytes=None,
        compute_capability=(9, 0),
    )


def engine_shape(row: Row, model: str | None = None) -> EngineShape:
    spec = architecture(model or row["model"])
    workload = Workload(
        context_tokens=row.get("max_model_len", 8192),
        tp=row["tp"],
        pp=row["pp"],
        dtype=row.get("dtype", "auto"),
        max_num_batched_tokens=row.get("max_num_batched_tokens"),
        max_num_seqs=row.get("max_num_seqs"),
    )
    target = device(row)
    mtp = row.get("draft_method") == "mtp"
    return EngineShape(
        target=spec,
        layers=spec.layers[: len(spec.layers) // row["pp"]],
        defaults=engine_defaults(target, workload, architecture=spec),
        device=target,
        context_tokens=workload.context_tokens,
        method=DraftMethod.MTP if mtp else None,
        num_speculative_tokens=row.get("num_speculative_tokens", 3 if mtp else 0),
        tp=row["tp"],
        pp=row["pp"],
        expert_parallel=row.get("expert_parallel", False),
        element_bytes=activation_bytes(spec, workload.dtype),
        # the logs' first rank, which samples only where it is the only stage
        last_stage=row["pp"] == 1,
        version=row.get("version", "0.19.0"),
    )


def activation(row: Row) -> tuple[ByteRange, float]:
    return activation_peak(engine_shape(row)).size, row["activation_gib"]


def activation_with_graphs(row: Row) -> tuple[ByteRange, float]:
    """Since 0.21 the printed peak includes the charged graph estimate (gpu_worker.py, peak_activation_memory)."""
    shape = engine_shape(row)
    charged = cuda_graphs(shape)[0].size
    return activation_peak(shape).size + charged, row["activation_gib"]


def graphs_charged(row: Row) -> tuple[ByteRange, float]:
    """The estimate where it is printed, else what capture took; a negative reading is memory that was returned."""
    printed = float(row.get("cuda_graph_estimate_gib") or row["cuda_graph_gib"])
    lines = cuda_graphs(engine_shape(row))
    return lines[0].size, max(0.0, printed)


def graphs_taken(row: Row) -> tuple[ByteRange, float]:
    return sum_items(cuda_graphs(engine_shape(row))), max(0.0, row["cuda_graph_gib"])


def non_torch(row: Row) -> tuple[ByteRange, float]:
    shape = engine_shape(row, "Qwen/Qwen3-8B")
    return driver_growth(shape).size, row["non_torch_gib"]


def context(row: Row) -> tuple[ByteRange, float]:
    return sum_items(device_context(engine_shape(row, "Qwen/Qwen3-8B"))), row["context_gib"]


def load_peak(row: Row) -> tuple[ByteRange, float]:
    """Printed as a total; a figure below the resident weights was taken before the weights were repacked."""
    return load_peak_bytes(engine_shape(row)), max(0.0, row["load_peak_gib"] - row["weights_gib"])


Comparison = Callable[[Row], tuple[ByteRange, float]]
#: What is compared, the rows' purpose, and the widest median bound in GiB that is still of use.
COMPARISONS: list[tuple[str, Comparison, str, float]] = [
    ("activation", activation, "activation", 1.6),
    ("activation_with_graphs", activation_with_graphs, "activation_with_graphs", 5.0),
    ("cuda_graphs", graphs_charged, "cuda_graphs", 1.6),
    ("cuda_graphs_taken", graphs_taken, "cuda_graphs", 2.1),
    ("non_torch", non_torch, "non_torch", 0.6),
    ("context", context, "context", 0.7),
    ("load_peak", load_peak, "load_peak", 0.6),
]
IDS = [name for name, *_ in COMPARISONS]


def outside(row: Row, compare: Comparison) -> bool:
    """Whether the printed figure, which is rounded to 0.01 GiB, lies outside the bound."""
    bound, printed = compare(row)
    return not bound.low_bytes <= (printed + 0.005) * GIB or not (printed - 0.005) * GIB <= bound.high_bytes


@pytest.mark.parametrize(("name", "compare", "purpose", "_width"), COMPARISONS, ids=IDS)
def test_bounds_hold_the_measured_rows(name: str, compare: Comparison, purpose: str, _width: float) -> None:
    rows = rows_for(purpose)
    missed = {row["id"] for row in rows if outside(row, compare)}
    assert len(rows) >= 5
    assert missed == {row_id for purpose_name, row_id in MISSES if purpose_name == name}
    assert len(missed) <= (1 - COVERAGE) * len(rows)


@pytest.mark.parametrize(("name", "compare", "purpose", "_width"), COMPARISONS, ids=IDS)
def test_bounds_hold_models_that_were_not_fitted(
    name: str, compare: Comparison, purpose: str, _width: float
) -> None:
    rows = [row for row in rows_for(purpose) if not row.get("model", "").startswith(FITTED)]
    missed = [row["id"] for row in rows if outside(row, compare)]
    assert len(missed) <= (1 - COVERAGE) * len(rows), (name, missed)


@pytest.mark.parametrize(("name", "compare", "purpose", "width"), COMPARISONS, ids=IDS)
def test_bounds_are_narrow_enough_to_be_of_use(name: str, compare: Comparison, purpose: str, width: float) -> None:
    widths = [
        (bound.high_bytes - bound.low_bytes) / GIB for bound, _ in (compare(row) for row in rows_for(purpose))
    ]
    assert statistics.median(widths) <= width, name


def test_one_rank_of_two_is_not_one_alone() -> None:
    """NCCL shows in the logs: every start with two ranks holds more before loading than any H100 alone."""
    alone = [row for row in rows_for("context") if row["tp"] * row["pp"] == 1 and row["gpu"] == "H100 80GB"]
    together = [row for row in rows_for("context") if row["tp"] * row["pp"] > 1 and row["gpu"] == "H100 80GB"]
    assert max(row["context_gib"] for row in alone) < min(row["context_gib"] for row in together)
    assert context(together[0])[0].low_bytes > context(alone[0])[0].low_bytes


def test_a_larger_token_budget_never_needs_less() -> None:
    shape = engine_shape(rows_for("activation")[0])
    peaks = [
        activation_peak(replace(shape, defaults=replace(shape.defaults, max_num_batched_tokens=tokens))).size
        for tokens in (2048, 8192, 16384)
    ]
    assert [peak.low_bytes for peak in peaks] == sorted(peak.low_bytes for peak in peaks)
    assert [peak.high_bytes for peak in peaks] == sorted(peak.high_bytes for peak in peaks)
