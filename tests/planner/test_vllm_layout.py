"""vLLM's pages, alignment and groups, one rule at a time."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog.architecture import (
    CacheRule,
    ChunkedAttention,
    Component,
    CrossAttention,
    FullAttention,
    LatentAttention,
    LayerSpec,
    NoCache,
    RecurrentState,
    SharedCache,
    SlidingWindow,
)
from model_catalog.dtypes import BFLOAT16, FLOAT32, DType
from planner.engines.vllm_grouping import group_layers
from planner.engines.vllm_layout import CacheSettings, LayerRun, PageKind, paged_layers
from planner.engines.vllm_stages import stage_sizes

PLAIN = CacheSettings(max_model_len=32_768, max_num_batched_tokens=8192)


def stack(*runs: tuple[int, CacheRule]) -> tuple[LayerSpec, ...]:
    rules = [rule for count, rule in runs for _ in range(count)]
    return tuple(LayerSpec(component=Component.TEXT, tensors=(), caches=(rule,)) for rule in rules)


def full(kv_heads: int, dim: int) -> FullAttention:
    return FullAttention(kv_heads=kv_heads, key_dim=dim, value_dim=dim)


def sliding(kv_heads: int, dim: int, window: int) -> SlidingWindow:
    return SlidingWindow(kv_heads=kv_heads, key_dim=dim, value_dim=dim, window_tokens=window)


def state(kind: str = "gated_delta", state_dtype: DType | None = None) -> RecurrentState:
    """Qwen3-Next's shape: 8192 channels, kernel 4, 32 heads of 128 x 128."""
    return RecurrentState(
        kind=kind,
        conv_elements_per_step=8192,
        conv_steps=3,
        state_elements=32 * 128 * 128,
        state_dtype=state_dtype,
        heads=32,
    )


UNEQUAL = FullAttention(kv_heads=4, key_dim=192, value_dim=128)
LATENT = LatentAttention(latent_dim=512, rope_dim=64)
CHUNKED = ChunkedAttention(kv_heads=8, key_dim=128, value_dim=128, chunk_tokens=8192)
WHISPER_CROSS = CrossAttention(kv_heads=20, key_dim=64, value_dim=64, encoder_tokens=1500)


def only_run(rule: CacheRule, settings: CacheSettings) -> LayerRun:
    (run,) = paged_layers(stack((1, rule)), (), settings)
    return run


@pytest.mark.parametrize(
    ("rule", "settings", "block_size", "page_bytes"),
    [
        # heads x (key + value) x bytes x block
        pytest.param(full(8, 128), PLAIN, 16, 65_536, id="full, 16 tokens"),
        pytest.param(
            FullAttention(kv_heads=4, key_dim=192, value_dim=128), PLAIN, 16, 40_960, id="unequal K and V"
        ),
        pytest.param(LATENT, PLAIN, 64, 73_728, id="latent, 64 tokens of 1152 B"),
        pytest.param(WHISPER_CROSS, PLAIN, 16, 81_920, id="cross"),
        # 8192 x 3 x 2 B + 524288 x 2 B, the engine's default state dtype; alone it needs no alignment
        pytest.param(state(), PLAIN, 16, 1_097_728, id="state in the model's dtype"),
        pytest.param(state(state_dtype=FLOAT32), PLAIN, 16, 2_146_304, id="state in the stated dtype"),
        pytest.param(state("kda"), PLAIN, 16, 2_146_304, id="KDA states are fp32"),
    ],
)
def test_pages(rule: CacheRule, settings: CacheSettings, block_size: int, page_bytes: int) -> None:
    layer = only_run(rule, settings).layer
    assert (layer.block_size, layer.page_bytes) == (block_size, page_bytes)


@pytest.mark.parametrize(
    ("rule", "tokens", "charged", "at_rest"),
    [
        # in flight: (1 + 1) x 8192 tokens
        pytest.param(full(8, 128), 8193, 513, 513, id="full"),
        # ceil(min(1023 + 16384, tokens) / 16) + 1
        pytest.param(sliding(8, 128, 1024), 100_000, 1089, 64, id="window"),
        pytest.param(sliding(8, 128, 1024), 160, 11, 10, id="context inside the window"),
        # ceil(min(8192 + 16384, tokens) / 16)
        pytest.param(CHUNKED, 100_000, 1536, 512, id="chunk"),
        pytest.param(state(), 100_000, 2, 1, id="state and the last boundary's"),
        pytest.param(WHISPER_CROSS, 100, 94, 94, id="encoder tokens, whatever the context"),
    ],
)
def test_blocks_of_one_request(rule: CacheRule, tokens: int, charged: int, at_rest: int) -> None:
    layer = only_run(rule, PLAIN).layer
    in_flight = PLAIN.in_flight_tokens
    assert (layer.blocks_charged(tokens, in_flight), layer.blocks_at_rest(tokens, in_flight)) == (charged, at_rest)


@pytest.mark.parametrize(
    ("pp", "async_scheduling", "in_flight"),
    [(1, True, 16_384), (1, False, 8192), (4, True, 40_960), (4, False, 32_768)],
)
def test_tokens_in_flight(pp: int, async_scheduling: bool, in_flight: int) -> None:
    settings = CacheSettings(
        max_model_len=1, max_num_batched_tokens=8192, pp=pp, async_scheduling=async_scheduling
    )
    assert settings.in_flight_tokens == in_flight


@pytest.mark.parametrize(
    ("kind", "page_bytes"),
    [
        # each speculated token lengthens the convolution by 8192 x 2 B; Mamba 1 cannot speculate
        pytest.param("gated_delta", 1_097_728 + 3 * 16_384, id="gated delta"),
        pytest.param("mamba1", 1_097_728, id="mamba1"),
    ],
)
def test_speculation_lengthens_the_convolution_and_adds_states(kind: str, page_bytes: int) -> None:
    settings = CacheSettings(
        max_model_len=8192, max_num_batched_tokens=2048, num_speculative_tokens=3, prefix_caching=False
    )
    layer = only_run(state(kind), settings).layer
    assert layer.page_bytes == page_bytes
    assert layer.blocks_charged(8192, 0) == 1 + 3


@pytest.mark.parametrize(
    ("rules", "block_size", "state_page"),
    [
        # vLLM's start-up log for Qwen3-Next: "Setting attention block size to 544 tokens"
        pytest.param((state(), full(2, 256)), 544, 544 * 2048, id="Qwen3-Next"),
        # ceil(1097728 / (128 x 1152)) x 128
        pytest.param((state(), LATENT), 1024, 1024 * 1152, id="latent blocks are multiples of 128"),
    ],
)
def test_hybrid_alignment(rules: Sequence[CacheRule], block_size: int, state_page: int) -> None:
    runs = paged_layers(stack(*((1, rule) for rule in rules)), (), PLAIN)
    attention = next(run.layer for run in runs if run.layer.kind is not PageKind.STATE)
    mixer = next(run.layer for run in runs if run.layer.kind is PageKind.STATE)
    assert (attention.block_size, mixer.page_bytes) == (block_size, state_page)


def test_draft_takes_its_own_cache_dtype_and_the_targets_block_size() -> None:
    settings = CacheSettings(
        max_model_len=8192, max_num_batched_tokens=2048, kv_dtype="fp8", draft_kv_dtype="auto"
    )
    target, draft = paged_layers(stack((61, LATENT)), stack((1, full(8, 128))), settings)
    assert (target.layer.token_bytes, draft.layer.token_bytes) == (576, 4096)
    assert draft.layer.block_size == 64


def test_shared_and_absent_caches_take_no_pages() -> None:
    layers = stack((2, full(8, 128)), (2, SharedCache(source_layer=1)), (2, NoCache()))
    (run,) = paged_layers(layers, (), PLAIN)
    assert run.count == 2


def test_an_indexer_is_a_cache_layer_of_its_own() -> None:
    sparse = LatentAttention(latent_dim=512, rope_dim=64, indexer_bytes_per_token=132)
    runs = paged_layers(stack((61, sparse)), (), PLAIN)
    assert [(run.count, run.layer.token_bytes) for run in runs] == [(61, 1152), (61, 132)]


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        # vLLM's partition: the remainder goes to the stages before the last, from the back
        (80, 2, (40, 40)),
        (61, 2, (31, 30)),
        (62, 4, (15, 16, 16, 15)),
        (80, 3, (27, 27, 26)),
        (3, 1, (3,)),
    ],
)
def test_pipeline_stages(layers: int, stages: int, sizes: tuple[int, ...]) -> None:
    assert stage_sizes(layers, stages) == sizes


@given(layers=st.integers(0, 200), stages=st.integers(1, 16))
def test_stages_hold_every_layer(layers: int, stages: int) -> None:
    sizes = stage_sizes(layers, stages)
    assert (sum(sizes), len(sizes)) == (layers, stages)
    assert max(sizes) - min(sizes) <= 1


def test_draft_sits_on_the_last_stage() -> None:
    settings = CacheSettings(max_model_len=8192, max_num_batched_tokens=2048, pp=2)
    target, draft = paged_layers(stack((5, full(8, 128))), stack((1, full(8, 64))), settings)
    assert (target.stage_counts, draft.stage_counts) == ((3, 2), (0, 1))


def groups(target: tuple[LayerSpec, ...], draft: tuple[LayerSpec, ...] = ()) -> list[tuple[int, str, int]]:
    found = group_layers(paged_layers(target, draft, PLAIN))
    return [(group.layers, str(group.kind), group.block_size) for group in found]


@pytest.mark.parametrize(
    ("target", "draft", "expected"),
    [
        pytest.param(stack((80, full(8, 128))), stack((16, full(8, 64))), [(96, "full", 16)], id="dense + dense"),
        pytest.param(stack((61, LATENT)), stack((1, full(8, 128))), [(62, "full", 64)], id="latent + dense"),
        # 12 and 13 are close: the larger size, one layer of padding
        pytest.param(
            stack((12, sliding(8, 64, 128)), (12, full(8, 64))),
            stack((1, full(8, 64))),
            [(12, "sliding", 16), (13, "full", 16)],
            id="gpt-oss-20b + EAGLE",
        ),
        # 2 and 3: exactly one and a half is not close any more
        pytest.param(
            stack((2, sliding(8, 64, 128)), (3, full(8, 64))),
            (),
            [(2, "sliding", 16), (2, "full", 16), (1, "full", 16)],
            id="three to two is split",
        ),
        # 4096 B x 16 is half of 8192 B x 16: twice the tokens, no padding
        pytest.param(
            stack((4, sliding(16, 128, 1024)), (4, full(16, 128))),
            stack((4, full(8, 128))),
            [(4, "sliding", 16), (4, "full", 16), (4, "full", 32)],
            id="a page that divides",
        ),
        pytest.param(
            stack((4, sliding(16, 128, 1024)), (4, full(16, 128))),
            stack((4, full(8, 96))),
            [(4, "sliding", 16), (4, "full", 16), (4, "full", 16)],
            id="a page that does not is padded",
        ),
        pytest.param(
            stack((61, LATENT)),
            stack((6, sliding(8, 80, 2048))),
            [(67, "full", 64)],
            id="latent + window",
        ),
        pytest.param(stack((3, NoCache())), (), [], id="no cache at all"),
    ],
)
def test_groups(
    target: tuple[LayerSpec, ...], draft: tuple[LayerSpec, ...], expected: list[tuple[int, str, int]]
) -> None:
    assert groups(target, draft) == expected


def test_a_padded_page_costs_as_much_as_the_largest() -> None:
    found = group_layers(
        paged_layers(
            stack((4, sliding(16, 128, 1024)), (4, full(16, 128))),
            stack((4, full(8, 96))),
            PLAIN,
        )
    )
    assert {group.stage_page_bytes(0) for group in found} == {4 * 16 * 8192}


def test_layers_are_dealt_round_robin_over_stages() -> None:
    # (full, 3 sliding) x 4 on two stages: each of the three sliding groups has two layers on each stage
    settings = CacheSettings(max_model_len=8192, max_num_batched_tokens=2048, pp=2)
    pattern = stack((1, full(8, 128)), (3, sliding(8, 128, 512)))
    found = group_layers(paged_layers(pattern * 4, (), settings))
    assert [group.runs[0].stage_counts for group in found] == [(2, 2)] * 4


def test_states_take_the_dtype_that_is_set() -> None:
    settings = CacheSettings(max_model_len=8192, max_num_batched_tokens=2048, state_dtype=BFLOAT16)
    assert only_run(state(state_dtype=FLOAT32), settings).layer.page_bytes == 1_097_728
