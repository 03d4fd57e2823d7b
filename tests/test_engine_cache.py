"""The whole path with a pinned pool: what vLLM's own cache planner answered for these models and drafts.

``planner/test_vllm_pool.py`` holds the layouts against the same answers; here they come out of configurations.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import made_models
import pytest

from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Draft, Serving
from planner.engines.registry import engine_profile
from planner.plan import make_plan
from planner.workload import Workload

ANSWERS = Path(__file__).parent / "measured" / "vllm_cache_answers.jsonl"
#: Only answers of the whole planner; the others were asked of parts of it, for layouts without a model.
ROWS = [
    row
    for row in map(json.loads, ANSWERS.read_text(encoding="utf-8").splitlines())
    if row["source"] == "vLLM 0.32.0's own cache planner"
]


@cache
def known(name: str) -> Model:
    snapshot = find_row(name)
    assert snapshot is not None, f"{name} has no row in the catalogue"
    return describe(snapshot)


@cache
def head(name: str, target_hidden_size: int) -> Model:
    """``eagle3-AxBxC``: A layers of B KV heads of C elements, on hidden states of the target's width."""
    layers, kv_heads, head_dim = map(int, name.removeprefix("eagle3-").split("x"))
    config = made_models.llama(
        architectures=["LlamaForCausalLMEagle3"],
        num_hidden_layers=layers,
        num_attention_heads=4 * kv_heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        draft_vocab_size=512,
        target_hidden_size=target_hidden_size,
    )
    return made_models.model_of(config, f"made/{name}")


def draft_of(row: dict[str, Any]) -> Draft | None:
    name = row.get("draft")
    if name is None:
        return None
    if name == "mtp-mla":
        return Draft(method=DraftMethod.MTP, num_speculative_tokens=1)
    if name.startswith("eagle3-"):
        return Draft(
            method=DraftMethod.EAGLE3,
            num_speculative_tokens=5,
            model=head(name, known(row["target"]).architecture.hidden_size),
        )
    return Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=5, model=known(name))


def identity(row: dict[str, Any]) -> str:
    return f"{row['target']}+{row.get('draft') or '-'}:{ROWS.index(row)}"


@pytest.mark.parametrize("row", ROWS, ids=identity)
def test_blocks_tokens_and_concurrency_are_the_engines_own(row: dict[str, Any]) -> None:
    draft = draft_of(row)
    workload = Workload(
        context_tokens=row["max_model_len"],
        tp=row["tp"],
        kv_cache_dtype=row["kv_dtype"],
        block_size=row["block_size"],
        max_num_batched_tokens=row["max_num_batched_tokens"],
        async_scheduling=row["async_scheduling"],
        kv_cache_memory_bytes=row["pool_bytes"],
    )
    serving = Serving(target=known(row["target"]), draft=draft, workload=workload)
    cached = make_plan(serving, parse_gpu_option(f"h200:{row['tp']}"), engine_profile("vllm")).cache
    assert cached is not None
    assert (cached.blocks, cached.tokens) == (row["blocks"], row["tokens"])
    assert round(cached.max_concurrency, 6) == row["max_concurrency"]


def test_the_rows_cover_every_kind_of_cache() -> None:
    assert len(ROWS) == 142
    assert {row.get("draft") for row in ROWS} >= {None, "mtp-mla", "eagle3-1x8x128", "Qwen/Qwen3-0.6B"}
