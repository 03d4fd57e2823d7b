"""Whole plans against what vLLM's start-up logs printed: weights of a rank, and bytes of cache per token.

The rows are in ``measured/vllm_memory.jsonl``, each with its source. The log prints weights with two decimals of
GiB once the model stands, rotary tables included (2.5 GiB for Llama 4 Scout): the plan's are added to its weights.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from model_catalog.bounds import ByteRange
from model_catalog.catalogue import find_row
from model_catalog.model import Model, describe
from model_catalog.units import GIB
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Serving
from planner.engines.registry import engine_profile
from planner.memory.breakdown import Group, sum_items
from planner.plan import Plan, make_plan
from planner.workload import Workload

MEASURED = Path(__file__).parent / "measured"
ROWS = [json.loads(line) for line in (MEASURED / "vllm_memory.jsonl").read_text(encoding="utf-8").splitlines()]

#: Rows of models in the catalogue that a plan misses by more than one per cent. Published, not hidden.
WEIGHT_MISSES = {
    "h100-019-google-gemma-3-12b-it-tp1pp1dp1-8192": "0.6 GiB more is held after loading than the checkpoint has",
    "h100-019-google-gemma-3-4b-it-tp1pp1dp1-8192": "0.6 GiB more is held after loading than the checkpoint has",
    "vllm-13061": "V0 engine, 1.4 % above the checkpoint",
    "vllm-14447": "another, quantised checkpoint of the model",
}


#: Models of the rows under the name of one with the same structure: a base model, a fine-tuned one.
SAME_STRUCTURE = {
    "google/gemma-7b": "google/gemma-7b-it",
    "moonshotai/Kimi-Dev-72B": "Qwen/Qwen2.5-72B-Instruct",
}


@cache
def model(name: str, dtype: str, quantization: str | None) -> Model | None:
    snapshot = find_row(SAME_STRUCTURE.get(name, name))
    return None if snapshot is None else describe(snapshot, dtype=dtype, on_the_fly=quantization)


def plan(row: dict[str, Any]) -> Plan | None:
    """The plan of a log row's settings on large devices; None for models without a catalogue row."""
    on_the_fly = row["quantization"] if row.get("quantization") == "fp8" else None
    dtype = row.get("dtype") or "auto"
    target = model(row.get("model") or "", dtype, on_the_fly)
    if target is None:
        return None
    limit = target.architecture.max_context_tokens
    wanted = row.get("max_model_len") or 8192
    workload = Workload(
        context_tokens=wanted if limit is None else min(wanted, limit),
        tp=row.get("tp") or 1,
        pp=row.get("pp") or 1,
        dtype=dtype,
        kv_cache_dtype=row.get("kv_cache_dtype") or "auto",
        max_num_batched_tokens=row.get("max_num_batched_tokens"),
        max_num_seqs=row.get("max_num_seqs"),
    )
    serving = Serving(target=target, draft=None, workload=workload)
    return make_plan(serving, parse_gpu_option(f"h200:{workload.tp * workload.pp}"), engine_profile("vllm"))


def loaded(made: Plan) -> ByteRange:
    """What the log calls the model: weights and rotary tables of the first rank."""
    lines = made.ranks[0].breakdown.items
    return sum_items(line for line in lines if line.group is Group.TARGET_WEIGHTS or line.label == "rotary_table")


def rows_for(use: str) -> list[Any]:
    return [pytest.param(row, id=row["id"]) for row in ROWS if use in row.get("use", ())]


@pytest.mark.parametrize("row", rows_for("weights"))
def test_weights_of_a_rank_are_within_one_per_cent(row: dict[str, Any]) -> None:
    made = plan(row)
    assert made is not None, f"{row['model']} has no row in the catalogue"
    weights = loaded(made)
    measured = row["weights_gib"] * GIB
    assert weights.low_bytes * 0.99 <= measured <= weights.high_bytes * 1.01
    if row.get("quantization") == "mxfp4":
        assert weights.low_bytes <= measured <= weights.high_bytes


@pytest.mark.parametrize("row", rows_for("bytes_per_token"))
def test_bytes_per_token_are_within_a_fifth_of_a_per_cent(row: dict[str, Any]) -> None:
    made = plan(row)
    assert made is not None, f"{row['model']} has no row in the catalogue"
    assert made.cache is not None
    computed = made.cache.bytes_per_block / made.cache.block_size
    assert computed == pytest.approx(row["available_kv_gib"] * GIB / row["kv_tokens"], rel=0.002)


def test_no_row_is_left_out_because_it_is_inconvenient() -> None:
    """Every row with a weight figure and a known model either holds or stands in the list of misses."""
    missed = set()
    held = 0
    for row in ROWS:
        if row.get("weights_gib") is None or row.get("pp", 1) not in (1, None):
            continue
        made = plan(row)
        if made is None:
            continue
        weights = loaded(made)
        if weights.low_bytes * 0.99 <= row["weights_gib"] * GIB <= weights.high_bytes * 1.01:
            held += 1
        else:
            missed.add(row["id"])
    assert missed == set(WEIGHT_MISSES)
    assert held >= 50
