"""vLLM's pool: its own planner's answers, and what a load holds."""

import json
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TypedDict, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_catalog.architecture import (
    CacheRule,
    ChunkedAttention,
    Component,
    FullAttention,
    LatentAttention,
    LayerSpec,
    RecurrentState,
    SlidingWindow,
)
from model_catalog.bounds import ByteRange
from model_catalog.dtypes import FLOAT32
from model_catalog.errors import UsageError
from model_catalog.units import GIB
from planner.engines.vllm_layout import CacheSettings
from planner.engines.vllm_pool import EngineCache, PagedNeed, plan_pool, request_need

ANSWERS = Path(__file__).parents[1] / "measured" / "vllm_cache_answers.jsonl"
_RUN = re.compile(r"(\d+) (full|sliding|chunked|latent) (\d+)[x+](\d+)(?: (\d+))?")


class Answer(TypedDict):
    target: str
    target_layers: str
    draft: str
    draft_layers: str
    pool_bytes: int
    max_model_len: int
    max_num_batched_tokens: int
    async_scheduling: bool
    tp: int
    kv_dtype: str
    block_size: int
    blocks: int
    tokens: int
    max_concurrency: float
    groups: str


def read_answers() -> list[Answer]:
    return [cast(Answer, json.loads(line)) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]


def layers_of(rule: CacheRule, count: int = 1) -> tuple[LayerSpec, ...]:
    return (LayerSpec(component=Component.TEXT, tensors=(), caches=(rule,)),) * count


def layers(text: str) -> tuple[LayerSpec, ...]:
    """Layers from ``52 sliding 16x128 1024, 10 full 16x128`` (heads x dim, window) or ``61 latent 512+64``."""
    built: list[LayerSpec] = []
    for run in filter(None, text.split(", ")):
        match = _RUN.fullmatch(run)
        assert match is not None, run
        count, kind = int(match[1]), match[2]
        first, second, span = int(match[3]), int(match[4]), int(match[5] or 0)
        rule: CacheRule
        if kind == "latent":
            rule = LatentAttention(latent_dim=first, rope_dim=second)
        elif kind == "sliding":
            rule = SlidingWindow(kv_heads=first, key_dim=second, value_dim=second, window_tokens=span)
        elif kind == "chunked":
            rule = ChunkedAttention(kv_heads=first, key_dim=second, value_dim=second, chunk_tokens=span)
        else:
            rule = FullAttention(kv_heads=first, key_dim=second, value_dim=second)
        built.extend(layers_of(rule, count))
    return tuple(built)


def spell_groups(cache: EngineCache) -> str:
    """Groups as the table spells them: equal neighbours counted."""
    named = [
        f"{group.layers} {group.kind if group.uniform else 'mixed'} @{group.block_size}" for group in cache.groups
    ]
    return ", ".join(f"{len(list(same))} x {name}" for name, same in groupby(named))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(row, id=f"{row['target']}+{row.get('draft', '-')}:{number}")
        for number, row in enumerate(read_answers())
    ],
)
def test_pool_equals_the_engines_own_planner(answer: Answer) -> None:
    cache = plan_pool(
        layers(answer["target_layers"]),
        layers(answer.get("draft_layers", "")),
        available_bytes=answer["pool_bytes"],
        settings=CacheSettings(
            max_model_len=answer["max_model_len"],
            max_num_batched_tokens=answer["max_num_batched_tokens"],
            async_scheduling=answer["async_scheduling"],
            tp=answer["tp"],
            kv_dtype=answer["kv_dtype"],
            block_size=answer["block_size"],
        ),
    )
    found = (cache.blocks, cache.tokens, round(cache.max_concurrency, 6), spell_groups(cache))
    assert found == (answer["blocks"], answer["tokens"], answer["max_concurrency"], answer["groups"])
