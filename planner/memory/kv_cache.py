"""What a model's layers must keep per token and per sequence, before any engine pages it.

Owns the bytes of one cached token under every cache dtype and the need of a batch without paging. Does not
know blocks, padding or admission rules; those are an engine's (``planner.engines``). An engine that allocates
what it uses, such as transformers' dynamic cache, needs just this.

Sources: model configurations for the shapes; vLLM's ``--kv-cache-dtype`` values for the scaled formats (one
fp32 scale for each of K and V per head and token, one fp8 scale per 16 NVFP4 elements).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import (
    CacheRule,
    ChunkedAttention,
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
from model_catalog.dtypes import FLOAT32, DType, find_dtype
from model_catalog.errors import UsageError
from model_catalog.units import ceil_bits, ceil_div

HeadedAttention = FullAttention | SlidingWindow | ChunkedAttention | CrossAttention


@dataclass(frozen=True, slots=True, kw_only=True)
class KvFormat:
    """How a cache stores a row of elements.

    ``bytes_per_16_elements`` holds data and block scales together (bf16: 32, NVFP4: 8 + 1);
    ``scale_bytes_per_head`` comes on top for each head and token. ``packed_latent`` marks the formats that
    quantise a latent row's compressed part and its rotary part differently.
    """

    name: str
    bytes_per_16_elements: int
    scale_bytes_per_head: int = 0
    packed_latent: bool = False

    def row_bytes(self, elements: int) -> int:
        """Bytes of one row of ``elements`` elements, without per-head scales."""
        return ceil_div(elements * self.bytes_per_16_elements, 16)


_TWO_SCALES_BYTES: Final = 2 * 4
_SCALED_FORMATS: Final = {
    row.name: row
    for row in (
        KvFormat(name="fp8_per_token_head", bytes_per_16_elements=16, scale_bytes_per_head=_TWO_SCALES_BYTES),
        KvFormat(name="int8_per_token_head", bytes_per_16_elements=16, scale_bytes_per_head=_TWO_SCALES_BYTES),
        KvFormat(name="int4_per_token_head", bytes_per_16_elements=8, scale_bytes_per_head=_TWO_SCALES_BYTES),
        KvFormat(name="nvfp4", bytes_per_16_elements=9),
        KvFormat(name="fp8_ds_mla", bytes_per_16_elements=16, packed_latent=True),
        KvFormat(name="nvfp4_ds_mla", bytes_per_16_elements=9, packed_latent=True),
    )
}
#: ggml's block types, as llama.cpp stores rows in them (``model_catalog.gguf_types``): halves of blocks of 32.
GGML_CACHE_FORMATS: Final = {
    name: KvFormat(name=name, bytes_per_16_elements=half)
    for name, half in (("q8_0", 17), ("q5_1", 12), ("q5_0", 11), ("q4_1", 10), ("q4_0", 9), ("iq4_nl", 9))
}


def kv_format(kv_dtype: str, model_dtype: DType) -> KvFormat:
    """The storage format behind a cache dtype's name; ``auto`` is the model's own dtype.

    Raises:
        UsageError: for a name that is neither a dtype nor a known scaled format.
    """
    name = kv_dtype.strip().lower()
    scaled = _SCALED_FORMATS.get(name) or GGML_CACHE_FORMATS.get(name)
    if scaled is not None:
        return scaled
    dtype = model_dtype if name == "auto" else find_dtype(name)
    if dtype is None:
        raise UsageError(
            f"unknown KV cache dtype {kv_dtype!r}",
            subject="kv cache dtype",
            hint=f"use auto, bfloat16, float16, fp8, fp8_e4m3, fp8_e5m2 or one of {', '.join(_SCALED_FORMATS)}",
        )
    return KvFormat(name=dtype.name, bytes_per_16_elements=dtype.bits * 2)


def heads_per_rank(kv_heads: int, tp: int) -> int:
    """KV heads on one tensor-parallel rank: at least one, because heads are replicated rather than cut."""
    return max(1, kv_heads // tp)


def headed_token_bytes(rule: HeadedAttention, storage: KvFormat, tp: int) -> int:
    """Keys and values of one token in one layer on one rank."""
    per_head = storage.row_bytes(rule.key_dim) + storage.row_bytes(rule.value_dim) + storage.scale_bytes_per_head
    return heads_per_rank(rule.kv_heads, tp) * per_head


def latent_row_bytes(rule: LatentAttention, storage: KvFormat) -> int:
    """One token's compressed row in one layer, without the indexer; every tensor-parallel rank keeps all of it.

    Packed rows (FlashMLA): ``fp8_ds_mla`` has one fp32 scale per 128 latent elements and a 16-bit rotary part
    (512 + 16 + 128 = 656 B for DeepSeek-V3), ``nvfp4_ds_mla`` an fp8 rotary part (256 + 32 + 64 = 352 B).
    """
    if not storage.packed_latent:
        return storage.row_bytes(rule.latent_dim + rule.rope_dim) + storage.scale_bytes_per_head
    compressed = storage.row_bytes(rule.latent_dim)
    if storage.name == "fp8_ds_mla":
        return compressed + 4 * ceil_div(rule.latent_dim, 128) + 2 * rule.rope_dim
    return compressed + rule.rope_dim


def count_rules(layers: Sequence[LayerSpec]) -> Counter[CacheRule]:
    """How often each cache rule occurs; layers of a model are few kinds repeated."""
    return Counter(rule for layer in layers for rule in layer.caches)


def cache_bytes_per_token(
    layers: Sequence[LayerSpec], *, model_dtype: DType, kv_dtype: str = "auto", tp: int = 1
) -> ByteRange:
    """Bytes one more token of context costs on one rank.

    Low: layers that grow without limit only, as beyond every window. High: windows and chunks count as full
    attention, as before the first window is full, or in an engine that never drops tokens.

    Raises:
        UsageError: for an unknown ``kv_dtype``.
    """
    storage = kv_format(kv_dtype, model_dtype)
    low = high = 0
    for rule, count in count_rules(layers).items():
        if isinstance(rule, FullAttention | LatentAttention):
            low += count * _token_bytes(rule, storage, tp)
        if isinstance(rule, FullAttention | LatentAttention | SlidingWindow | ChunkedAttention):
            high += count * _token_bytes(rule, storage, tp)
    return ByteRange(low_bytes=low, high_bytes=high)


def state_bytes_per_sequence(layers: Sequence[LayerSpec], *, model_dtype: DType, tp: int = 1) -> ByteRange:
    """Recurrent and convolutional state of one sequence on one rank, whatever its context.

    The convolution history is in the model's dtype. Where the model names no dtype for its state, low takes
    the model's dtype and high fp32.
    """
    total = ByteRange.point(0)
    for rule, count in count_rules(layers).items():
        if isinstance(rule, RecurrentState):
            total += _state_bytes(rule, model_dtype, tp).times(count)
    return total


def cache_need(
    layers: Sequence[LayerSpec],
    *,
    context_tokens: int,
    batch: int,
    model_dtype: DType,
    kv_dtype: str = "auto",
    tp: int = 1,
) -> ByteRange:
    """What ``batch`` sequences of ``context_tokens`` keep on one rank, allocated to the byte.

    Low: windows and chunks hold at most their own length. High: every attention layer holds the whole
    context. Cross-attention keeps the encoder's tokens once a sequence; where their number is not known it
    lies between none and ``context_tokens``.

    Raises:
        UsageError: for an unknown ``kv_dtype``.
    """
    storage = kv_format(kv_dtype, model_dtype)
    total = ByteRange.point(0)
    for rule, count in count_rules(layers).items():
        total += _rule_need(rule, context_tokens, model_dtype, storage, tp).times(count * batch)
    return total


def _token_bytes(rule: HeadedAttention | LatentAttention, storage: KvFormat, tp: int) -> int:
    if isinstance(rule, LatentAttention):
        return latent_row_bytes(rule, storage) + rule.indexer_bytes_per_token
    return headed_token_bytes(rule, storage, tp)


def _state_bytes(rule: RecurrentState, model_dtype: DType, tp: int) -> ByteRange:
    ranks = min(tp, max(1, rule.heads))
    conv_elements = ceil_div(rule.conv_elements_per_step, ranks) * rule.conv_steps
    state_elements = ceil_div(rule.state_elements, ranks)
    conv = ceil_bits(conv_elements * model_dtype.bits)
    narrow = rule.state_dtype or model_dtype
    wide = rule.state_dtype or FLOAT32
    return ByteRange(
        low_bytes=conv + ceil_bits(state_elements * narrow.bits),
        high_bytes=conv + ceil_bits(state_elements * wide.bits),
    )


def _rule_need(rule: CacheRule, context_tokens: int, model_dtype: DType, storage: KvFormat, tp: int) -> ByteRange:
    match rule:
        case FullAttention() | LatentAttention():
            low_tokens = high_tokens = context_tokens
        case SlidingWindow():
            low_tokens, high_tokens = min(rule.window_tokens, context_tokens), context_tokens
        case ChunkedAttention():
            low_tokens, high_tokens = min(rule.chunk_tokens, context_tokens), context_tokens
        case CrossAttention():
            known = rule.encoder_tokens
            low_tokens, high_tokens = (0, context_tokens) if known is None else (known, known)
        case RecurrentState():
            return _state_bytes(rule, model_dtype, tp)
        case SharedCache() | NoCache():
            return ByteRange.point(0)
    per_token = _token_bytes(rule, storage, tp)
    return ByteRange(low_bytes=low_tokens * per_token, high_bytes=high_tokens * per_token)
