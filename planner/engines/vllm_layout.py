"""How vLLM sees a model's caches: one paged layer for each cache rule, with its page size and its charge.

Owns the translation from cache rules to pages, the block sizes and the hybrid alignment. Does not group layers
(``vllm_grouping``) nor count blocks (``vllm_pool``). Everything is for one tensor-parallel rank.

Source of the rules: vLLM 0.32.0, ``v1/kv_cache_interface.py`` (pages, charge per request),
``platforms/interface.py`` (alignment of hybrid models), ``model_executor/layers/mamba/mamba_utils.py`` (state
shapes under speculation), ``config/vllm.py`` (tokens in flight).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
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
from model_catalog.dtypes import BFLOAT16, FLOAT32, DType
from model_catalog.units import ceil_bits, ceil_div
from planner.engines.vllm_stages import stage_sizes
from planner.memory.kv_cache import KvFormat, headed_token_bytes, heads_per_rank, kv_format, latent_row_bytes

DEFAULT_BLOCK_SIZE: Final = 16
#: FlashMLA reads pages of 64 tokens; every layer beside a latent one gets the same block size.
LATENT_BLOCK_SIZE: Final = 64
#: Hybrid latent models: decode kernels want the block to be a multiple of 128 tokens.
HYBRID_LATENT_ALIGNMENT: Final = 128
#: The smallest block that FlashAttention's paged kernels take.
KERNEL_BLOCK_SIZE: Final = 16
#: Mixers whose convolution history grows by one step for each speculated token.
_SPECULATIVE_CONVOLUTIONS: Final = frozenset({"mamba2", "gated_delta", "kda", "short_conv"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """The engine settings that decide the cache's layout and its charge per request.

    ``kv_dtype`` and ``draft_kv_dtype`` are ``--kv-cache-dtype`` names; the draft's is the target's when None.
    ``state_dtype`` overrides the recurrent state's (``--mamba-ssm-cache-dtype``). ``block_size`` None: the
    usual one of the attention backend. ``lookahead_tokens`` are the slots reserved past the scheduled tokens:
    ``num_speculative_tokens`` where a draft has layers of its own, 0 where it has none (None means this),
    one more for DFlash. ``retained_tokens``: kept below a window by a chain of several MTP modules (their
    number - 1). ``hybrid_manager`` False: ``--disable-hybrid-kv-cache-manager``.
    """

    max_model_len: int
    max_num_batched_tokens: int
    async_scheduling: bool = True
    tp: int = 1
    pp: int = 1
    block_size: int | None = None
    model_dtype: DType = BFLOAT16
    kv_dtype: str = "auto"
    draft_kv_dtype: str | None = None
    state_dtype: DType | None = None
    num_speculative_tokens: int = 0
    lookahead_tokens: int | None = None
    retained_tokens: int = 0
    prefix_caching: bool = True
    hybrid_manager: bool = True

    @property
    def in_flight_tokens(self) -> int:
        """Tokens scheduled but not settled: a full batch for each step that may overlap.

        A pipeline keeps one step a stage under way; asynchronous scheduling one more.
        """
        return (self.pp + int(self.async_scheduling)) * self.max_num_batched_tokens


class PageKind(StrEnum):
    """What decides how many blocks of a layer a request holds."""

    FULL = "full"
    LATENT = "latent"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    STATE = "state"
    CROSS = "cross"


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedLayer:
    """One cached layer as the engine's planner compares them: equal layers are interchangeable.

    ``token_bytes`` is one token's row; a state layer has ``state_bytes`` instead and keeps ``state_blocks`` of
    them at rest, ``charged_state_blocks`` at most. ``span_tokens`` is the window, the chunk or the encoder's
    length. ``shape`` keeps layers apart whose rows have equal size but unequal form.
    """

    kind: PageKind
    block_size: int
    shape: tuple[int | str, ...]
    token_bytes: int = 0
    span_tokens: int = 0
    retained_tokens: int = 0
    state_bytes: int = 0
    state_blocks: int = 0
    charged_state_blocks: int = 0
    padded_page_bytes: int | None = None

    @property
    def page_bytes(self) -> int:
        """Bytes of one block in this layer."""
        if self.padded_page_bytes is not None:
            return self.padded_page_bytes
        return self.state_bytes if self.kind is PageKind.STATE else self.block_size * self.token_bytes

    def blocks_charged(self, tokens: int, in_flight_tokens: int) -> int:
        """Blocks the engine reckons for one request of ``tokens``: its peak while chunks are being prefilled."""
        match self.kind:
            case PageKind.FULL | PageKind.LATENT:
                return ceil_div(tokens, self.block_size)
            case PageKind.SLIDING:
                # A window seldom starts at a block's first token: one block more.
                reach = self.span_tokens - 1 + self.retained_tokens + in_flight_tokens
                return ceil_div(min(reach, tokens), self.block_size) + 1
            case PageKind.CHUNKED:
                return ceil_div(min(self.span_tokens + in_flight_tokens, tokens), self.block_size)
            case PageKind.STATE:
                return self.charged_state_blocks
            case PageKind.CROSS:
                return ceil_div(self.span_tokens, self.block_size)

    def blocks_at_rest(self, tokens: int, in_flight_tokens: int) -> int:
        """Blocks one decoding request of ``tokens`` cannot do without; never more than it is charged."""
        charged = self.blocks_charged(tokens, in_flight_tokens)
        match self.kind:
            case PageKind.SLIDING | PageKind.CHUNKED:
                kept = min(self.span_tokens + self.retained_tokens, tokens)
                return min(charged, ceil_div(kept, self.block_size))
            case PageKind.STATE:
                return self.state_blocks
            case _:
                return charged


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """Equal layers and how many of them each pipeline stage holds."""

    layer: PagedLayer
    stage_counts: tuple[int, ...]

    @property
    def count(self) -> int:
        """Layers over all stages."""
        return sum(self.stage_counts)


def paged_layers(
    target_layers: Sequence[LayerSpec], draft_layers: Sequence[LayerSpec], settings: CacheSettings
) -> tuple[LayerRun, ...]:
    """All cached layers of target and draft, equal ones together, in order of first appearance.

    The draft sits on the last pipeline stage.

    Raises:
        UsageError: for an unknown cache dtype.
    """
    target_format = kv_format(settings.kv_dtype, settings.model_dtype)
    draft_format = kv_format(settings.draft_kv_dtype or settings.kv_dtype, settings.model_dtype)
    block_size, padded_state_bytes = _block_size(target_layers, target_format, settings)
    counts: dict[PagedLayer, list[int]] = {}

    def add(layers: Iterable[LayerSpec], storage: KvFormat, stage: int) -> None:
        seen: dict[CacheRule, tuple[PagedLayer, ...]] = {}
        for layer in layers:
            for rule in layer.caches:
                if rule not in seen:
                    seen[rule] = tuple(_pages(rule, storage, block_size, padded_state_bytes, settings))
                for page in seen[rule]:
                    counts.setdefault(page, [0] * settings.pp)[stage] += 1

    first = 0
    for stage, size in enumerate(stage_sizes(len(target_layers), settings.pp)):
        add(target_layers[first : first + size], target_format, stage)
        first += size
    add(draft_layers, draft_format, settings.pp - 1)
    return tuple(LayerRun(layer=page, stage_counts=tuple(stages)) for page, stages in counts.items())


def _block_size(
    target_layers: Sequence[LayerSpec], storage: KvFormat, settings: CacheSettings
) -> tuple[int, int | None]:
    """Tokens a block, and the page that states are padded to (None in a target without both).

    Beside recurrent states, the attention block grows in whole kernel blocks until its page holds a state.
    """
    rules = {rule for layer in target_layers for rule in layer.caches}
    latent = any(isinstance(rule, LatentAttention) for rule in rules)
    block_size = settings.block_size or (LATENT_BLOCK_SIZE if latent else DEFAULT_BLOCK_SIZE)
    token_bytes = max((_row_bytes(rule, storage, settings.tp) for rule in rules), default=0)
    state_bytes = max(
        (_state_page(rule, settings) for rule in rules if isinstance(rule, RecurrentState)), default=0
    )
    if not token_bytes or not state_bytes:
        return block_size, None
    step = max(KERNEL_BLOCK_SIZE, block_size, HYBRID_LATENT_ALIGNMENT if latent else 0)
    kernel = LATENT_BLOCK_SIZE if latent else KERNEL_BLOCK_SIZE
    raised = step * ceil_div(state_bytes, step * token_bytes)
    block_size = max(block_size, kernel * ceil_div(raised, kernel))
    return block_size, block_size * token_bytes


def _row_bytes(rule: CacheRule, storage: KvFormat, tp: int) -> int:
    """One token's row in a self-attention layer; 0 for every other rule."""
    match rule:
        case FullAttention() | SlidingWindow() | ChunkedAttention():
            return headed_token_bytes(rule, storage, tp)
        case LatentAttention():
            return latent_row_bytes(rule, storage)
        case _:
            return 0


def _state_dtype(rule: RecurrentState, settings: CacheSettings) -> DType:
    """The recurrent state's dtype: as set, as the model states, or the engine's default for the mixer."""
    default = FLOAT32 if rule.kind == "kda" else settings.model_dtype
    return settings.state_dtype or rule.state_dtype or default


def _state_page(rule: RecurrentState, settings: CacheSettings) -> int:
    """Bytes of one recurrent state on one rank, its convolution history lengthened by speculation."""
    ranks = min(settings.tp, max(1, rule.heads))
    extra_steps = settings.num_speculative_tokens if rule.kind in _SPECULATIVE_CONVOLUTIONS else 0
    conv_elements = ceil_div(rule.conv_elements_per_step, ranks) * (rule.conv_steps + extra_steps)
    state_bits = ceil_div(rule.state_elements, ranks) * _state_dtype(rule, settings).bits
    return ceil_bits(conv_elements * settings.model_dtype.bits) + ceil_bits(state_bits)


def _pages(
    rule: CacheRule, storage: KvFormat, block_size: int, padded_state_bytes: int | None, settings: CacheSettings
) -> Iterator[PagedLayer]:
    match rule:
        case FullAttention() | SlidingWindow() | ChunkedAttention() | CrossAttention():
            yield _headed_page(rule, storage, block_size, settings)
        case LatentAttention():
            shape = (1, rule.latent_dim + rule.rope_dim, 0, storage.name)
            row = latent_row_bytes(rule, storage)
            page = PagedLayer(kind=PageKind.LATENT, block_size=block_size, shape=shape, token_bytes=row)
            yield page
            if rule.indexer_bytes_per_token:
                # The indexer registers a cache layer of its own.
                indexer = rule.indexer_bytes_per_token
                yield replace(page, shape=(1, indexer, 0, "indexer"), token_bytes=indexer)
        case RecurrentState():
            yield _state_layer(rule, block_size, padded_state_bytes, settings)
        case SharedCache() | NoCache():
            return


def _headed_page(
    rule: FullAttention | SlidingWindow | ChunkedAttention | CrossAttention,
    storage: KvFormat,
    block_size: int,
    settings: CacheSettings,
) -> PagedLayer:
    shape = (heads_per_rank(rule.kv_heads, settings.tp), rule.key_dim, rule.value_dim, storage.name)
    page = PagedLayer(
        kind=PageKind.FULL,
        block_size=block_size,
        shape=shape,
        token_bytes=headed_token_bytes(rule, storage, settings.tp),
    )
    match rule:
        case SlidingWindow():
            return replace(
                page,
                kind=PageKind.SLIDING,
                span_tokens=rule.window_tokens,
                retained_tokens=settings.retained_tokens,
            )
        case ChunkedAttention():
            return replace(page, kind=PageKind.CHUNKED, span_tokens=rule.chunk_tokens)
        case CrossAttention():
            # An encoder of unknown length is reckoned like the longest sequence.
            return replace(page, kind=PageKind.CROSS, span_tokens=rule.encoder_tokens or settings.max_model_len)
        case FullAttention():
            return page


def _state_layer(
    rule: RecurrentState, block_size: int, padded_state_bytes: int | None, settings: CacheSettings
) -> PagedLayer:
    """A request keeps one state and one for each speculated token; with prefix caching one more is charged,
    the last block boundary's.
    """
    state_bytes = _state_page(rule, settings)
    blocks = 1 + settings.num_speculative_tokens
    return PagedLayer(
        kind=PageKind.STATE,
        block_size=block_size if settings.prefix_caching else settings.max_model_len,
        shape=(
            rule.kind,
            rule.conv_elements_per_step,
            rule.conv_steps,
            rule.state_elements,
            _state_dtype(rule, settings).name,
        ),
        state_bytes=state_bytes,
        state_blocks=blocks,
        charged_state_blocks=blocks + int(settings.prefix_caching),
        padded_page_bytes=max(padded_state_bytes, state_bytes) if padded_state_bytes else None,
    )
