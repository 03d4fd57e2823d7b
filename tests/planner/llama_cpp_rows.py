"""Rows of tests/measured/llama_cpp_memory.jsonl as plans: models of the catalogue, cut to the layers that ran."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from model_catalog.snapshot import WeightsKnownFrom
from planner.declared_gpus import parse_gpu_option
from planner.devices import Device, DeviceSource
from planner.engines.base import Draft, Serving
from planner.engines.llama_cpp import LlamaCppProfile
from planner.memory.breakdown import LineItem
from planner.planning import Plan, make_plan
from planner.workload import Workload

MIB = 2**20
GIB = 2**30
_PATH = Path(__file__).parents[1] / "measured" / "llama_cpp_memory.jsonl"
ROWS: tuple[dict[str, Any], ...] = tuple(json.loads(line) for line in _PATH.read_text().splitlines())


def rows(kind: str, replay: str | None = None) -> list[dict[str, Any]]:
    return [row for row in ROWS if row["kind"] == kind and (replay is None or replay in row["replay"])]


def named(row: dict[str, Any]) -> str:
    return str(row["id"])


@cache
def known(repo_id: str, file_type: str | None = None, layers: int | None = None) -> Model:
    """The model as a GGUF file; ``layers``: only so many of the decoder's."""
    snapshot = find_row(repo_id)
    assert snapshot is not None, f"{repo_id} has no row in the catalogue"
    if layers is not None:
        config = json.loads(json.dumps(snapshot.config))
        inner = config.get("text_config", config)
        inner["num_hidden_layers"] = layers
        inner["max_position_embeddings"] = 131_072  # the engine only warns beyond the model's
        if "layer_types" in inner:
            inner["layer_types"] = inner["layer_types"][:layers]
        snapshot = replace(
            snapshot,
            config=config,
            weights_from=WeightsKnownFrom.CONFIG,
            weight_groups=(),
            files=(),
            index_total_bytes=None,
            published_bytes=None,
            published_parameters=None,
        )
    return describe(snapshot, on_the_fly=file_type, gguf=True)


def host(size: int = 512 * GIB) -> Device:
    (device,) = parse_gpu_option("24GiB")
    return replace(device, source=DeviceSource.HOST, name="host memory", total_bytes=size, free_bytes=size)


def plan_of(
    target: Model,
    *,
    devices: tuple[Device, ...] | None = None,
    method: DraftMethod | None = None,
    draft: Model | None = None,
    k: int = 4,
    **work: Any,  # noqa: ANN401 - fields of Workload
) -> Plan:
    chosen = None if method is None else Draft(method=method, num_speculative_tokens=k, model=draft)
    places = devices or parse_gpu_option("b200-180gb")
    workload = Workload(tp=len(places), **work)
    return make_plan(Serving(target=target, draft=chosen, workload=workload), places, LlamaCppProfile())


def lines(plan: Plan, rank: int = 0) -> dict[str, LineItem]:
    return {item.label: item for item in plan.ranks[rank].breakdown.items}


def holds(line: LineItem, mib: float, tolerance_mib: float = 0.02) -> bool:
    return line.low_bytes / MIB - tolerance_mib <= mib <= line.high_bytes / MIB + tolerance_mib
