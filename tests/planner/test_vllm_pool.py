"""vLLM's pool: its own planner's answers, and what a load holds."""

import json
import re
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NotRequired, TypedDict, Unpack, cast

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
    NoCache,
    RecurrentState,
    SlidingWindow,
)
from model_catalog.bounds import ByteRange
from model_catalog.dtypes import find_dtype
from model_catalog.errors import UsageError
from model_catalog.units import GIB
from planner.engines.vllm_layout import CacheSettings
from planner.engines.vllm_pool import PagedNeed, PagedPool, plan_pool, request_need

ANSWERS = Path(__file__).parents[1] / "measured" / "vllm_cache_answers.jsonl"


class Answer(TypedDict):
    target: str
    target_layers: str
    draft: NotRequired[str]
    draft_layers: NotRequired[str]
    pool_bytes: int
    max_model_len: int
    max_num_batched_tokens: int
    async_scheduling: bool
    tp: int
    pp: NotRequired[int]
    kv_dtype: str
    block_size: int | None
    num_speculative_tokens: NotRequired[int]
    prefix_caching: NotRequired[bool]
    hybrid_manager: NotRequired[bool]
    blocks: int
    tokens: int
    max_concurrency: float
    groups: str


def read_answers() -> list[Answer]:
    return [cast(Answer, json.loads(line)) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]


def layers_of(rule: CacheRule, count: int = 1) -> tuple[LayerSpec, ...]:
    return (LayerSpec(component=Component.TEXT, tensors=(), caches=(rule,)),) * count


def read_run(text: str) -> tuple[LayerSpec, ...]:
    """``10 full 16x128`` (heads x dim), ``52 sliding 16x128 1024``, ``61 latent 512+64 132`` (indexer bytes),
    ``36 gated_delta 8192x3 524288 float32`` (convolution, state elements, state dtype)."""
    count, kind, shape, *rest = text.split()
    first, second = (int(number) for number in re.split(r"[x+]", shape))
    rule: CacheRule
    match kind:
        case "full":
            rule = FullAttention(kv_heads=first, key_dim=second, value_dim=second)
        case "sliding":
            rule = SlidingWindow(kv_heads=first, key_dim=second, value_dim=second, window_tokens=int(rest[0]))
        case "chunked":
            rule = ChunkedAttention(kv_heads=first, key_dim=second, value_dim=second, chunk_tokens=int(rest[0]))
        case "latent":
            indexer = int(rest[0]) if rest else 0
            rule = LatentAttention(latent_dim=first, rope_dim=second, indexer_bytes_per_token=indexer)
        case _:
            rule = RecurrentState(
                kind=kind,
                conv_elements_per_step=first,
                conv_steps=second,
                state_elements=int(rest[0]),
                state_dtype=find_dtype(rest[1]) if len(rest) > 1 else None,
                heads=32,
            )
    return layers_of(rule, int(count))


def layers(text: str) -> tuple[LayerSpec, ...]:
    """Layers in order: runs between commas, ``10 times: ...`` for a repeated pattern, parts between semicolons."""
    built: tuple[LayerSpec, ...] = ()
    for part in filter(None, text.split("; ")):
        times, _, runs = part.rpartition(" times: ")
        pattern = tuple(layer for run in runs.split(", ") for layer in read_run(run))
        built += pattern * int(times or 1)
    return built


def spell_groups(cache: PagedPool) -> str:
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
            pp=answer.get("pp", 1),
            kv_dtype=answer["kv_dtype"],
            block_size=answer["block_size"],
            num_speculative_tokens=answer.get("num_speculative_tokens", 0),
            prefix_caching=answer.get("prefix_caching", True),
            hybrid_manager=answer.get("hybrid_manager", True),
        ),
    )
    found = (cache.blocks, cache.tokens, round(cache.max_concurrency, 6), spell_groups(cache))
    assert found == (answer["blocks"], answer["tokens"], answer["max_concurrency"], answer["groups"])


LLAMA_8B = "32 full 8x128"
GEMMA_27B = "52 sliding 16x128 1024, 10 full 16x128"
GPT_OSS_120B = "18 sliding 8x64 128, 18 full 8x64"
QWEN3_NEXT = "12 times: 3 gated_delta 8192x3 524288, 1 full 2x256"
EAGLE_8X128 = "1 full 8x128"


class Changes(TypedDict, total=False):
    max_model_len: int
    block_size: int
    num_speculative_tokens: int
    lookahead_tokens: int | None
    hybrid_manager: bool


def need(
    target: str, draft: str = "", *, context: int = 8192, batch: int = 16, **changes: Unpack[Changes]
) -> PagedNeed:
    plain = CacheSettings(max_model_len=context, max_num_batched_tokens=2048)
    return request_need(
        layers(target), layers(draft), context_tokens=context, batch=batch, settings=replace(plain, **changes)
    )


@pytest.mark.parametrize(
    ("target", "block_bytes", "blocks_low", "blocks_high"),
    [
        # 8192 / 16 = 512 blocks a sequence, one block kept back; 32 layers x 16 tokens x 4096 B
        pytest.param(LLAMA_8B, 2_097_152, 16 * 512 + 1, 16 * 512 + 1, id="full"),
        # 61 layers x 64 tokens x 1152 B; 8192 / 64 = 128 blocks
        pytest.param("61 latent 512+64", 4_497_408, 16 * 128 + 1, 16 * 128 + 1, id="latent"),
        # 18 layers x 16 tokens x 2048 B a group; full 512, window at rest 128 / 16 = 8,
        # charged ceil((127 + 2 x 2048) / 16) + 1 = 265 for one request; the other 15 hold ceil(127 / 16) + 2 = 10
        # each, and between them the 2 x 2048 / 16 = 256 blocks in flight
        pytest.param(GPT_OSS_120B, 589_824, 16 * (512 + 8) + 1, 16 * 512 + (15 * 10 + 265 + 256) + 1, id="window"),
        # six sliding groups of 9 or 8, one full of 10: 10 x 16 x 8192 B; at rest 64, charged 321, settled 66
        pytest.param(
            GEMMA_27B,
            1_310_720,
            16 * (512 + 6 * 64) + 1,
            16 * 512 + 6 * (15 * 66 + 321 + 256) + 1,
            id="many windows",
        ),
        # 544 tokens a block (vLLM's own start-up log for this model): ceil(8192 / 544) = 16 blocks; three groups
        # of 12 states, 1 at rest and 2 charged; 12 x 544 x 2048 B
        pytest.param(QWEN3_NEXT, 13_369_344, 16 * (16 + 3) + 1, 16 * (16 + 6) + 1, id="state"),
    ],
)
def test_need_counts_blocks_by_the_engines_rules(
    target: str, block_bytes: int, blocks_low: int, blocks_high: int
) -> None:
    found = need(target)
    assert (found.bytes_per_block, found.blocks_low, found.blocks_high) == (block_bytes, blocks_low, blocks_high)
    assert found.total == ByteRange(low_bytes=blocks_low * block_bytes, high_bytes=blocks_high * block_bytes)
    assert found.target == found.total
    assert found.draft == ByteRange.point(0)


def test_a_dense_draft_adds_its_own_pages_only() -> None:
    # 70B + 1B, 16 blocks of 512 and the null block: 16 layers x 16 tokens x 2048 B = 524288 B a block more
    found = need("80 full 8x128", "16 full 8x64", context=8192)
    assert found.draft == ByteRange.point((16 * 512 + 1) * 524_288)
    assert found.target == ByteRange.point((16 * 512 + 1) * 5_242_880)


def test_one_eagle_layer_widens_every_group_of_a_windowed_target() -> None:
    # 18 + 19 layers become groups of 19: the block grows by one layer's page in both groups
    found = need(GPT_OSS_120B, "1 full 8x64")
    assert found.bytes_per_block == 19 * 16 * 2048
    assert found.draft.high_bytes == (16 * 512 + 15 * 10 + 265 + 256 + 1) * 16 * 2048


def test_speculation_without_draft_layers_still_costs_states() -> None:
    # k states more in each of three groups; with k = 2 the block is raised to 560 tokens
    found = need(QWEN3_NEXT, num_speculative_tokens=2)
    assert found.blocks_high == 16 * (ceil_blocks(8192, 560) + 3 * (2 + 2)) + 1
    assert found.draft.high_bytes > 0


def ceil_blocks(tokens: int, block: int) -> int:
    return -(-tokens // block)


@pytest.mark.parametrize(
    ("context", "max_model_len", "draft", "lookahead", "blocks"),
    [
        pytest.param(1024, 4096, EAGLE_8X128, None, 65, id="k slots past a full last block"),
        pytest.param(1024, 4096, "", None, 64, id="no draft layers, no slots"),
        pytest.param(1024, 4096, "", 5, 65, id="slots as told"),
        pytest.param(1024, 1024, EAGLE_8X128, None, 64, id="never past the longest sequence"),
    ],
)
def test_lookahead_slots(context: int, max_model_len: int, draft: str, lookahead: int | None, blocks: int) -> None:
    found = need(
        LLAMA_8B,
        draft,
        context=context,
        batch=1,
        max_model_len=max_model_len,
        num_speculative_tokens=5,
        lookahead_tokens=lookahead,
    )
    assert found.blocks_high == blocks + 1


def test_filling_padding_is_never_a_negative_draft() -> None:
    # 12 + 13 layers are padded to 13 + 13; one sliding layer more takes the padded place
    found = need("12 sliding 8x64 128, 13 full 8x64", "1 sliding 8x64 128")
    assert found.draft == ByteRange.point(0)
    assert found.target == found.total


@pytest.mark.parametrize(
    ("target", "draft", "hybrid_manager"),
    [
        # vLLM 0.32: NotImplementedError, a latent page cannot be padded
        pytest.param("60 latent 512+64", "4 chunked 8x96 1024", True, id="latent beside a chunk of other size"),
        # vLLM 0.32: "Failed to promote local KV cache specs to one unified type"
        pytest.param(QWEN3_NEXT, "", False, id="state without the hybrid manager"),
        # vLLM 0.32: "must have the same window size"
        pytest.param("4 sliding 8x64 128, 4 full 8x64", "2 sliding 8x64 512", False, id="two windows, no manager"),
    ],
)
def test_what_the_engine_refuses_is_refused(target: str, draft: str, hybrid_manager: bool) -> None:
    with pytest.raises(UsageError, match="vLLM cannot"):
        need(target, draft, hybrid_manager=hybrid_manager)


def test_layers_without_a_cache_make_no_pool() -> None:
    with pytest.raises(UsageError, match="no pool"):
        plan_pool(
            layers_of(NoCache(), 4),
            (),
            available_bytes=GIB,
            settings=CacheSettings(max_model_len=8, max_num_batched_tokens=8),
        )


@pytest.mark.parametrize(
    ("spare_bytes", "serves"),
    [pytest.param(0, True, id="just enough"), pytest.param(-1, False, id="one byte short")],
)
def test_the_engine_starts_with_one_longest_request_and_a_null_block(spare_bytes: int, serves: bool) -> None:
    # 8192 tokens of Llama-3.1-8B: 512 + 1 blocks of 2 MiB
    cache = plan_pool(
        layers(LLAMA_8B),
        (),
        available_bytes=513 * 2_097_152 + spare_bytes,
        settings=CacheSettings(max_model_len=8192, max_num_batched_tokens=2048),
    )
    assert cache.serves_longest_request is serves


TARGETS = st.sampled_from(
    [LLAMA_8B, GEMMA_27B, GPT_OSS_120B, "61 latent 512+64", "36 chunked 8x128 8192, 12 full 8x128"]
)
DRAFTS = st.sampled_from(["", EAGLE_8X128, "16 full 8x64", "4 sliding 4x96 512, 4 full 4x96"])
TOKENS = st.integers(min_value=1, max_value=200_000)


@given(target=TARGETS, draft=DRAFTS, contexts=st.tuples(TOKENS, TOKENS), batches=st.tuples(TOKENS, TOKENS))
@settings(deadline=None)
def test_more_context_or_batch_never_needs_less(
    target: str, draft: str, contexts: tuple[int, int], batches: tuple[int, int]
) -> None:
    less, more = (
        need(target, draft, context=context, batch=batch, max_model_len=100_000, num_speculative_tokens=3).total
        for context, batch in zip(sorted(contexts), sorted(batches), strict=True)
    )
    assert less.low_bytes <= more.low_bytes
    assert less.high_bytes <= more.high_bytes


@given(target=st.one_of(TARGETS, st.just(QWEN3_NEXT)), context=TOKENS, counts=st.tuples(*[st.integers(0, 64)] * 2))
@settings(deadline=None)
def test_more_speculative_tokens_never_need_less(target: str, context: int, counts: tuple[int, int]) -> None:
    # A block of 4096 tokens holds every state here, so that k does not change the block size.
    less, more = (
        need(
            target,
            EAGLE_8X128,
            context=context,
            max_model_len=200_000,
            num_speculative_tokens=count,
            block_size=4096,
        ).total
        for count in sorted(counts)
    )
    assert less.low_bytes <= more.low_bytes
    assert less.high_bytes <= more.high_bytes


@given(target=TARGETS, draft=DRAFTS, context=TOKENS, k=st.integers(1, 16))
@settings(deadline=None)
def test_target_and_draft_shares_are_the_total(target: str, draft: str, context: int, k: int) -> None:
    found = need(target, draft, context=context, max_model_len=100_000, num_speculative_tokens=k)
    assert found.target + found.draft == found.total


@given(target=TARGETS, gib=st.tuples(*[st.integers(1, 500)] * 2))
@settings(deadline=None)
def test_a_larger_pool_never_holds_fewer_tokens(target: str, gib: tuple[int, int]) -> None:
    less, more = (
        plan_pool(
            layers(target),
            (),
            available_bytes=size * GIB,
            settings=CacheSettings(max_model_len=8192, max_num_batched_tokens=2048),
        )
        for size in sorted(gib)
    )
    assert less.blocks <= more.blocks
    assert less.tokens <= more.tokens
