"""Figures that a reader can check elsewhere: stored and resident weights, and caches, of ten well-known models.

``measured/model_figures.jsonl`` holds one figure a row with its source. Models come from the embedded catalogue;
caches are for 16 sequences of 8,192 tokens in bfloat16, before an engine's paging.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from model_catalog.catalogue import find_row
from model_catalog.model import Model, describe
from model_catalog.units import GIB
from planner.memory.kv_cache import cache_bytes_per_token, cache_need

TABLE = Path(__file__).parent / "measured" / "model_figures.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


@cache
def model(repo_id: str) -> Model:
    row = find_row(repo_id)
    assert row is not None
    return describe(row)


def figure(repo_id: str, quantity: str) -> float:
    """The one value that we compute; for quantities without bounds of their own, both bounds must agree."""
    found = model(repo_id)
    layers, dtype = found.architecture.decoder_layers, found.architecture.dtype
    need = cache_need(layers, context_tokens=8192, batch=16, model_dtype=dtype)
    if quantity == "cache_low_gib":
        return need.low_bytes / GIB
    if quantity == "cache_high_gib":
        return need.high_bytes / GIB
    if quantity == "bytes_per_token":
        bounds = cache_bytes_per_token(layers, model_dtype=dtype)
    elif quantity == "stored_bytes":
        bounds = found.weights.stored
    else:
        assert quantity == "resident_gib"
        bounds = found.weights.resident_bytes()
    assert bounds.low_bytes == bounds.high_bytes
    return bounds.low_bytes / GIB if quantity.endswith("gib") else bounds.low_bytes


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['model']}-{row['quantity']}" for row in ROWS])
def test_figure_is_the_published_one(row: dict[str, Any]) -> None:
    assert row["source"]
    computed = figure(row["model"], row["quantity"])
    assert abs(computed - row["expected"]) <= row.get("tolerance", 0)


def test_every_model_has_weights_and_caches() -> None:
    by_model: dict[str, set[str]] = {}
    for row in ROWS:
        by_model.setdefault(row["model"], set()).add(row["quantity"])
    assert len(by_model) == 10
    assert all(found >= {"stored_bytes", "cache_low_gib", "cache_high_gib"} for found in by_model.values())
