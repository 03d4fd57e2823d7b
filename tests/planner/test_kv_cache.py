"""What caches need before paging. Shapes come from the models' public configurations."""

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
from model_catalog.bounds import ByteRange
from model_catalog.dtypes import BFLOAT16, FLOAT32, DType
from model_catalog.errors import UsageError
from model_catalog.units import GIB
from planner.memory.kv_cache import (
    cache_bytes_per_token,
    cache_need,
    kv_format,
    latent_row_bytes,
    state_bytes_per_sequence,
)


def stack(*runs: tuple[int, CacheRule]) -> tuple[LayerSpec, ...]:
    rules = [rule for count, rule in runs for _ in range(count)]
    return tuple(LayerSpec(component=Component.TEXT, tensors=(), caches=(rule,)) for rule in rules)


def full(kv_heads: int, dim: int) -> FullAttention:
    return FullAttention(kv_heads=kv_heads, key_dim=dim, value_dim=dim)


def sliding(kv_heads: int, dim: int, window: int) -> SlidingWindow:
    return SlidingWindow(kv_heads=kv_heads, key_dim=dim, value_dim=dim, window_tokens=window)


def chunked(kv_heads: int, dim: int, chunk: int) -> ChunkedAttention:
    return ChunkedAttention(kv_heads=kv_heads, key_dim=dim, value_dim=dim, chunk_tokens=chunk)


def gated_delta(state_dtype: DType | None) -> RecurrentState:
    """Qwen3-Next: (2 x 16 + 32) heads x 128 channels, kernel 4; 32 x 128 x 128 state."""
    return RecurrentState(
        kind="gated_delta",
        conv_elements_per_step=8192,
        conv_steps=3,
        state_elements=32 * 128 * 128,
        state_dtype=state_dtype,
        heads=32,
    )


DEEPSEEK_ROW = LatentAttention(latent_dim=512, rope_dim=64)
GPT_OSS_120B = stack((18, sliding(8, 64, 128)), (18, full(8, 64)))
GEMMA_3_27B = stack((52, sliding(16, 128, 1024)), (10, full(16, 128)))


def qwen3_next(state_dtype: DType | None) -> tuple[LayerSpec, ...]:
    return stack((36, gated_delta(state_dtype)), (12, full(2, 256)))


@pytest.mark.parametrize(
    ("layers", "low_gib", "high_gib"),
    [
        # layers x 2 x KV heads x head_dim x 2 B x 8192 x 16
        pytest.param(stack((32, full(8, 128))), 16.000, 16.000, id="Llama-3.1-8B"),
        pytest.param(stack((80, full(8, 128))), 40.000, 40.000, id="Llama-3.1-70B"),
        pytest.param(stack((64, full(8, 128))), 32.000, 32.000, id="Qwen3-32B"),
        pytest.param(stack((28, full(8, 128))), 14.000, 14.000, id="Qwen3-0.6B"),
        pytest.param(stack((24, full(2, 64))), 1.500, 1.500, id="Qwen2.5-0.5B"),
        pytest.param(stack((32, full(8, 128))), 16.000, 16.000, id="Mixtral-8x7B"),
        # 10 full + 52 of 1024 tokens, to 62 full
        pytest.param(GEMMA_3_27B, 16.500, 62.000, id="gemma-3-27b"),
        # (18 x 8192 + 18 x 128) x 2048 B x 16 to 36 full
        pytest.param(GPT_OSS_120B, 4.570, 9.000, id="gpt-oss-120b"),
        # 61 x (512 + 64) x 2 B = 70272 B a token
        pytest.param(stack((61, DEEPSEEK_ROW)), 8.578, 8.578, id="DeepSeek-V3"),
        # 3 GiB of attention + 16 x 36 x (49152 B convolution + 524288 elements)
        pytest.param(qwen3_next(FLOAT32), 4.151, 4.151, id="Qwen3-Next, fp32 state"),
        pytest.param(qwen3_next(BFLOAT16), 3.589, 3.589, id="Qwen3-Next, bf16 state"),
        pytest.param(qwen3_next(None), 3.589, 4.151, id="Qwen3-Next, state dtype not stated"),
    ],
)
def test_need_of_16_sequences_of_8192_tokens(layers: Sequence[LayerSpec], low_gib: float, high_gib: float) -> None:
    need = cache_need(layers, context_tokens=8192, batch=16, model_dtype=BFLOAT16)
    assert (round(need.low_bytes / GIB, 3), round(need.high_bytes / GIB, 3)) == (low_gib, high_gib)


@pytest.mark.parametrize(
    ("layers", "tp", "low", "high"),
    [
        # Qwen3-0.6B: 28 x 2 x 8 x 128 x 2 B
        pytest.param(stack((28, full(8, 128))), 1, 114_688, 114_688, id="Qwen3-0.6B"),
        pytest.param(stack((28, full(8, 128))), 4, 28_672, 28_672, id="heads split"),
        # 2 KV heads on 8 ranks: each keeps one
        pytest.param(stack((24, full(2, 64))), 8, 6144, 6144, id="heads replicated"),
        pytest.param(stack((61, DEEPSEEK_ROW)), 8, 70_272, 70_272, id="latent rows on every rank"),
        # DeepSeek-V3.2: 132 B of indexer a layer more
        pytest.param(
            stack((61, LatentAttention(latent_dim=512, rope_dim=64, indexer_bytes_per_token=132))),
            1,
            61 * 1284,
            61 * 1284,
            id="DeepSeek-V3.2",
        ),
        pytest.param(GPT_OSS_120B, 1, 18 * 2048, 36 * 2048, id="windows stop growing"),
        pytest.param(stack((3, chunked(8, 128, 8192)), (1, full(8, 128))), 1, 4096, 4 * 4096, id="chunks"),
        pytest.param(stack((36, gated_delta(None))), 1, 0, 0, id="states do not grow"),
    ],
)
def test_bytes_per_token(layers: Sequence[LayerSpec], tp: int, low: int, high: int) -> None:
    expected = ByteRange(low_bytes=low, high_bytes=high)
    assert cache_bytes_per_token(layers, model_dtype=BFLOAT16, tp=tp) == expected


@pytest.mark.parametrize(
    ("kv_dtype", "per_token"),
    [
        # one layer of 8 heads x (128 + 128); sources: the formats' own layouts
        pytest.param("auto", 8 * 512, id="auto is the model's dtype"),
        pytest.param("bfloat16", 8 * 512, id="bfloat16"),
        pytest.param("float32", 8 * 1024, id="float32"),
        pytest.param("fp8", 8 * 256, id="fp8: a scale per tensor"),
        pytest.param("fp8_e5m2", 8 * 256, id="fp8_e5m2"),
        pytest.param("fp8_per_token_head", 8 * (256 + 8), id="fp8, two fp32 scales"),
        pytest.param("int8_per_token_head", 8 * (256 + 8), id="int8, two fp32 scales"),
        pytest.param("int4_per_token_head", 8 * (128 + 8), id="int4, two fp32 scales"),
        pytest.param("nvfp4", 8 * 2 * (64 + 8), id="nvfp4: a byte per 16 elements"),
    ],
)
def test_cache_dtypes(kv_dtype: str, per_token: int) -> None:
    found = cache_bytes_per_token(stack((1, full(8, 128))), model_dtype=BFLOAT16, kv_dtype=kv_dtype)
    assert found == ByteRange.point(per_token)


@pytest.mark.parametrize(
    ("kv_dtype", "row"),
    [
        pytest.param("auto", 1152, id="bf16"),
        pytest.param("fp8", 576, id="fp8"),
        # FlashMLA's packed rows for DeepSeek-V3's 512 + 64
        pytest.param("fp8_ds_mla", 656, id="fp8_ds_mla"),
        pytest.param("nvfp4_ds_mla", 352, id="nvfp4_ds_mla"),
    ],
)
def test_latent_rows(kv_dtype: str, row: int) -> None:
    assert latent_row_bytes(DEEPSEEK_ROW, kv_format(kv_dtype, BFLOAT16)) == row


def test_unknown_cache_dtype_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="fp3") as caught:
        kv_format("fp3", BFLOAT16)
    assert "nvfp4" in caught.value.hint


@pytest.mark.parametrize(
    ("tp", "low", "high"),
    [
        # 36 x (8192 x 3 x 2 B + 524288 elements of 2 or 4 B), split over the ranks
        pytest.param(1, 36 * (49_152 + 1_048_576), 36 * (49_152 + 2_097_152), id="one rank"),
        pytest.param(4, 36 * (12_288 + 262_144), 36 * (12_288 + 524_288), id="four ranks"),
        pytest.param(64, 36 * (1_536 + 32_768), 36 * (1_536 + 65_536), id="never below one of 32 heads"),
    ],
)
def test_states_per_sequence(tp: int, low: int, high: int) -> None:
    found = state_bytes_per_sequence(qwen3_next(None), model_dtype=BFLOAT16, tp=tp)
    assert found == ByteRange(low_bytes=low, high_bytes=high)


@pytest.mark.parametrize(
    ("rule", "low_tokens", "high_tokens"),
    [
        pytest.param(sliding(8, 128, 1024), 100, 100, id="context inside the window"),
        pytest.param(sliding(8, 128, 32), 32, 100, id="context beyond the window"),
        pytest.param(chunked(8, 128, 64), 64, 100, id="context beyond the chunk"),
        pytest.param(
            CrossAttention(kv_heads=8, key_dim=128, value_dim=128, encoder_tokens=1500), 1500, 1500, id="Whisper"
        ),
        pytest.param(
            CrossAttention(kv_heads=8, key_dim=128, value_dim=128, encoder_tokens=None), 0, 100, id="as prompted"
        ),
        pytest.param(SharedCache(source_layer=0), 0, 0, id="shared"),
        pytest.param(NoCache(), 0, 0, id="none"),
    ],
)
def test_tokens_kept_by_each_rule(rule: CacheRule, low_tokens: int, high_tokens: int) -> None:
    need = cache_need(stack((1, rule)), context_tokens=100, batch=3, model_dtype=BFLOAT16)
    assert need == ByteRange(low_bytes=3 * low_tokens * 4096, high_bytes=3 * high_tokens * 4096)


def test_an_encoder_decoder_layer_keeps_both_caches() -> None:
    cross = CrossAttention(kv_heads=6, key_dim=64, value_dim=64, encoder_tokens=1500)
    layer = LayerSpec(component=Component.TEXT, tensors=(), caches=(full(6, 64), cross))
    need = cache_need((layer,) * 4, context_tokens=448, batch=1, model_dtype=BFLOAT16)
    assert need == ByteRange.point(4 * (448 + 1500) * 6 * 128 * 2)


TOKENS = st.integers(min_value=1, max_value=10**6)


@given(
    layers=st.sampled_from([GPT_OSS_120B, GEMMA_3_27B, qwen3_next(None), stack((61, DEEPSEEK_ROW))]),
    contexts=st.tuples(TOKENS, TOKENS),
    batches=st.tuples(TOKENS, TOKENS),
    tp=st.sampled_from([1, 2, 8]),
)
def test_more_context_or_batch_never_needs_less(
    layers: Sequence[LayerSpec], contexts: tuple[int, int], batches: tuple[int, int], tp: int
) -> None:
    less, more = (
        cache_need(layers, context_tokens=context, batch=batch, model_dtype=BFLOAT16, tp=tp)
        for context, batch in zip(sorted(contexts), sorted(batches), strict=True)
    )
    assert less.low_bytes <= more.low_bytes
    assert less.high_bytes <= more.high_bytes


@given(context=TOKENS, batch=TOKENS)
def test_without_limits_the_need_is_tokens_times_bytes_per_token(context: int, batch: int) -> None:
    layers = stack((80, full(8, 128)))
    per_token = cache_bytes_per_token(layers, model_dtype=BFLOAT16)
    need = cache_need(layers, context_tokens=context, batch=batch, model_dtype=BFLOAT16)
    assert need == per_token.times(context * batch)
