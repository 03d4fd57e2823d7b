"""The whole path with a pinned pool: what vLLM's own cache planner answered for these models and drafts.

``planner/test_vllm_pool.py`` holds the layouts against the same answers; here they come out of configurations.
``record_engine_cache.py`` asks again, where vLLM is installed (SPECPLAN_VLLM_PYTHON).
"""

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import made_models
import pytest

from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Draft, Serving
from planner.engines.registry import engine_profile
from planner.planning import make_plan
from planner.workload import Workload

ANSWERS = Path(__file__).parent / "measured" / "vllm_cache_answers.jsonl"
RECORDER = Path(__file__).with_name("record_engine_cache.py")
ALL: list[dict[str, Any]] = [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]
#: All but what a plan cannot ask for: the switches of caching by prefix and of the hybrid manager.
ROWS = [
    row
    for row in ALL
    if row.get("prefix_caching", True)
    and row.get("draft") != "sliding draft"
    and (row.get("hybrid_manager", True) or row.get("draft"))
]
PYTHON: Final = os.environ.get("SPECPLAN_VLLM_PYTHON", "")


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
    if name.startswith("mtp"):
        return Draft(method=DraftMethod.MTP, num_speculative_tokens=row.get("num_speculative_tokens", 1))
    if name.startswith("eagle3-"):
        return Draft(
            method=DraftMethod.EAGLE3,
            num_speculative_tokens=row.get("num_speculative_tokens", 5),
            model=head(name, known(row["target"]).architecture.hidden_size),
        )
    return Draft(
        method=DraftMethod.DRAFT_MODEL,
        num_speculative_tokens=row.get("num_speculative_tokens", 5),
        model=known(name),
    )


def identity(row: dict[str, Any]) -> str:
    return f"{row['target']}+{row.get('draft') or '-'}:{ROWS.index(row)}"


@pytest.mark.parametrize("row", ROWS, ids=identity)
def test_blocks_tokens_and_concurrency_are_the_engines_own(row: dict[str, Any]) -> None:
    draft = draft_of(row)
    workload = Workload(
        context_tokens=row["max_model_len"],
        tp=row["tp"],
        pp=row.get("pp", 1),
        kv_cache_dtype=row["kv_dtype"],
        block_size=row["block_size"],
        max_num_batched_tokens=row["max_num_batched_tokens"],
        async_scheduling=row["async_scheduling"],
        kv_cache_memory_bytes=row["pool_bytes"],
    )
    serving = Serving(target=known(row["target"]), draft=draft, workload=workload)
    cached = make_plan(
        serving, parse_gpu_option(f"h200:{row['tp'] * row.get('pp', 1)}"), engine_profile("vllm")
    ).cache
    assert cached is not None
    assert (cached.blocks, cached.tokens) == (row["blocks"], row["tokens"])
    assert round(cached.max_concurrency, 6) == row["max_concurrency"]


def test_the_rows_cover_every_kind_of_cache() -> None:
    assert len(ROWS) >= 400
    assert {row.get("draft") for row in ROWS} >= {None, "mtp", "mtp-mla", "eagle3-1x8x128", "Qwen/Qwen3-0.6B"}
    assert len({known(row["target"]).architecture.model_type for row in ROWS}) >= 45
    kinds = {word for row in ROWS for word in row["target_layers"].replace(",", "").split() if word.isidentifier()}
    assert kinds >= {"full", "sliding", "chunked", "latent", "gated_delta", "mamba2", "short_conv"}
    assert {row["block_size"] for row in ROWS} == {None, 16, 32, 64, 128}
    assert {row["kv_dtype"] for row in ROWS} == {"bfloat16", "fp8", "int8_per_token_head"}
    assert {row["tp"] for row in ROWS} == {1, 2, 4, 8}
    assert {row["source"] for row in ALL} == {"vLLM 0.32.0's own cache planner"}


@pytest.mark.skipif(not PYTHON, reason="SPECPLAN_VLLM_PYTHON does not name the python of an environment with vLLM")
def test_the_engine_still_gives_these_answers() -> None:
    asked = subprocess.run([PYTHON, str(RECORDER), "--check"], capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
