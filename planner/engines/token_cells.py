"""A cache priced by the token: what one token costs over all layers of a rank, and what a batch then needs.

Owns the cells of engines whose pool is so many tokens of one size (SGLang, TensorRT-LLM), as against vLLM's groups
of layers with block tables of their own. Knows no budget and no fraction.

Sources: SGLang 0.5.23 ``model_executor/pool_configurator.py`` (``_compute_cell_size``: KV heads on the rank x
(key + value) x layers x bytes; latent rows whole on every rank, with the indexer's keys); NVIDIA/TensorRT-LLM
``_torch/pyexecutor/resource_manager.py`` (``get_cache_size_per_token``), which multiplies the same figures.
"""

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
from model_catalog.dtypes import DType
from model_catalog.errors import UsageError
from model_catalog.model import Model
from model_catalog.units import ceil_div
from planner.memory.kv_cache import KvFormat, headed_token_bytes, kv_format, latent_row_bytes

#: FlashMLA's packed row, which sparse latent attention keeps in fp8 on most GPUs.
_PACKED_FP8: Final = "fp8_ds_mla"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCell:
    """Bytes of one token on one rank.

    ``whole`` is the cell of the layers that keep the whole context; ``local`` has a (bytes, span) for each kind of
    window or chunk. ``whole`` is a range where a row's format depends on the GPU's kernels. ``layers`` are all
    that keep a cache, ``local_layers`` those of them with a window or chunk.
    """

    whole: ByteRange
    local: tuple[tuple[int, int], ...] = ()
    layers: int = 0
    local_layers: int = 0

    @property
    def local_bytes(self) -> int:
        """The windows' layers as if they kept everything."""
        return sum(size for size, _ in self.local)

    @property
    def high_bytes(self) -> int:
        """Every layer keeps every token."""
        return self.whole.high_bytes + self.local_bytes

    def low_bytes(self, tenths_kept: int) -> int:
        """Windows in a pool of their own with so many tenths of the tokens."""
        return self.whole.low_bytes + self.local_bytes * tenths_kept // 10

    def need_at_rest(self, tokens: int) -> int:
        """One sequence whose windows hold no more than their own length."""
        return self.whole.low_bytes * tokens + sum(size * min(tokens, span) for size, span in self.local)


def token_cell(layers: Sequence[LayerSpec], *, model_dtype: DType, kv_dtype: str, tp: int) -> TokenCell:
    """The cell of these layers on one of ``tp`` ranks. What has no price by the token is refused beforehand.

    Raises:
        UsageError: for an unknown cache dtype.
    """
    storage = kv_format(kv_dtype, model_dtype)
    low = high = kept = windowed = 0
    local: dict[int, int] = {}
    for layer in layers:
        for rule in layer.caches:
            if isinstance(rule, SlidingWindow | ChunkedAttention):
                span = rule.window_tokens if isinstance(rule, SlidingWindow) else rule.chunk_tokens
                local[span] = local.get(span, 0) + headed_token_bytes(rule, storage, tp)
                windowed += 1
            elif isinstance(rule, FullAttention | LatentAttention):
                row = _row(rule, storage, model_dtype, tp)
                low, high = low + row.low_bytes, high + row.high_bytes
            else:
                continue
            kept += 1
    return TokenCell(
        whole=ByteRange(low_bytes=low, high_bytes=high),
        local=tuple((size, span) for span, size in sorted(local.items())),
        layers=kept,
        local_layers=windowed,
    )


def refuse_unpriced(model: Model, engine: str) -> None:
    """Refuse layers whose cache is not so many bytes a token: this profile would be silently wrong about them.

    Raises:
        UsageError: naming the kind of layer.
    """
    kinds: dict[type[CacheRule], str] = {
        RecurrentState: "keep a recurrent state for each sequence",
        CrossAttention: "attend to an encoder's tokens",
        SharedCache: "share the cache of an earlier layer",
    }
    for layer in model.architecture.layers:
        for rule in layer.caches:
            reason = kinds.get(type(rule))
            if reason is not None and not isinstance(rule, NoCache):
                raise UsageError(
                    f"its layers {reason}, and how {engine} sizes that pool is not known here",
                    subject=model.snapshot.repo_id,
                    hint="plan for --engine vllm, or another model",
                )


def page_tokens(tokens: int, page_size: int) -> int:
    """Tokens rounded up to whole pages."""
    return ceil_div(tokens, page_size) * page_size


def _row(rule: FullAttention | LatentAttention, storage: KvFormat, model_dtype: DType, tp: int) -> ByteRange:
    if isinstance(rule, FullAttention):
        return ByteRange.point(headed_token_bytes(rule, storage, tp))
    plain = latent_row_bytes(rule, storage) + rule.indexer_bytes_per_token
    if not rule.indexer_bytes_per_token or storage.bytes_per_16_elements != 16 or storage.packed_latent:
        return ByteRange.point(plain)
    packed = latent_row_bytes(rule, kv_format(_PACKED_FP8, model_dtype)) + rule.indexer_bytes_per_token
    return ByteRange(low_bytes=min(plain, packed), high_bytes=max(plain, packed))
