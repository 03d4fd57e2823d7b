"""How many cells llama.cpp's caches have, and what a cell or a recurrent state takes.

Sources: llama.cpp b11434 ``src/llama-context.cpp`` (n_ctx, n_ctx_seq), ``src/llama-kv-cache.cpp`` and
``llama-kv-cache-iswa.cpp`` (tensors, windows), ``src/llama-memory-recurrent.cpp``, ``llama-hparams.cpp`` (states),
``src/llama-model.cpp`` (``create_memory``: states in F32), ``common/speculative.cpp`` (a draft's context).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import (
    ChunkedAttention,
    FullAttention,
    LatentAttention,
    LayerSpec,
    RecurrentState,
    SlidingWindow,
)
from model_catalog.bounds import ByteRange
from model_catalog.drafts import READS_HIDDEN_STATES, DraftMethod
from model_catalog.gguf_types import F16, BlockType, find_block_type
from model_catalog.model import Model
from model_catalog.units import ceil_div
from planner.engines.base import Draft
from planner.workload import Workload

PAD_TOKENS: Final = 256
UBATCH_TOKENS: Final = 512
#: Types that ``--cache-type-k`` and ``-v`` take.
CACHE_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
#: Model types whose windows llama.cpp knows (``swa_type`` in ``src/models``); others attend to everything there.
_KNOWN_WINDOWS: Final = (
    "afmoe",
    "cohere2",
    "exaone4",
    "exaone_moe",
    "gemma2",
    "gemma3",
    "gemma4",
    "gpt_oss",
    "llama4",
    "mimo_v2",
    "olmo3",
    "smallthinker",
    "step3p5",
)
#: Model types whose recurrent state llama.cpp takes back by keeping one state more for each drafted token
#: (``llm_arch_supports_rs_rollback``).
_ROLLS_BACK: Final = ("qwen3_5", "nemotron_h", "lfm2", "bailing")


def cache_type(name: str) -> BlockType | None:
    """The type behind ``--kv-cache-dtype``; ``auto`` is llama.cpp's default, f16. None for what it lacks."""
    if name.strip().lower() == "auto":
        return F16
    found = find_block_type(name)
    return found if found is not None and found.name in CACHE_TYPES else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The server's context: ``slots`` streams of ``per_slot`` cells each. ``ubatch``: tokens of one pass."""

    slots: int
    per_slot: int
    ubatch: int

    @property
    def total(self) -> int:
        """n_ctx."""
        return self.slots * self.per_slot

    def window(self, tokens: int) -> int:
        """Cells of a layer that attends to the last ``tokens``: all slots together."""
        return self.slots * padded(min(self.per_slot, tokens + self.ubatch))


def padded(tokens: int) -> int:
    """Rounded up to 256 cells."""
    return ceil_div(tokens, PAD_TOKENS) * PAD_TOKENS


def server_cells(workload: Workload) -> Cells:
    """``--parallel batch --ctx-size context x batch``: named slots have streams of their own, not one pool."""
    whole = padded(workload.context_tokens * workload.batch)
    per_slot = padded(whole // workload.batch)
    ubatch = workload.max_num_batched_tokens or UBATCH_TOKENS
    return Cells(slots=workload.batch, per_slot=per_slot, ubatch=min(ubatch, per_slot * workload.batch))


def kv_bytes(model: Model, layers: Iterable[LayerSpec], cells: Cells, kind: BlockType) -> ByteRange:
    """Keys and values of these layers: (row of keys + row of values) x cells, in the type of the cache.

    A latent row is kept once, for keys (``is_mla``). Windows are a range where llama.cpp may not know the model's.
    """
    known = model.architecture.model_type.startswith(_KNOWN_WINDOWS)
    low = high = 0
    for layer in layers:
        for rule in layer.caches:
            match rule:
                case FullAttention():
                    row = _row(rule.kv_heads, rule.key_dim, rule.value_dim, kind)
                    low, high = low + row * cells.total, high + row * cells.total
                case SlidingWindow() | ChunkedAttention():
                    row = _row(rule.kv_heads, rule.key_dim, rule.value_dim, kind)
                    tokens = rule.window_tokens if isinstance(rule, SlidingWindow) else rule.chunk_tokens
                    capped = min(cells.window(tokens), cells.total)
                    low, high = low + row * capped, high + row * (capped if known else cells.total)
                case LatentAttention():
                    row = kind.row_bytes(rule.latent_dim + rule.rope_dim)
                    # The indexer's keys: as many elements as bytes in fp8, its scale (4 B) aside.
                    extra = kind.row_bytes(max(rule.indexer_bytes_per_token - 4, 0))
                    low += (row + extra) * cells.total
                    high += (row + 2 * extra) * cells.total
                case _:
                    pass
    return ByteRange(low_bytes=low, high_bytes=high)


def widest_layer_elements(layers: Iterable[LayerSpec]) -> int:
    """Elements of keys and values of one token in the layer that has most."""
    widths = [0]
    for layer in layers:
        for rule in layer.caches:
            if isinstance(rule, FullAttention | SlidingWindow | ChunkedAttention):
                widths.append(rule.kv_heads * (rule.key_dim + rule.value_dim))
            elif isinstance(rule, LatentAttention):
                widths.append(rule.latent_dim + rule.rope_dim)
    return max(widths)


def state_bytes(layers: Iterable[LayerSpec], rows: int) -> int:
    """Recurrent states: convolution history and matrix in F32, ``rows`` of each."""
    elements = sum(
        rule.conv_elements_per_step * rule.conv_steps + rule.state_elements
        for layer in layers
        for rule in layer.caches
        if isinstance(rule, RecurrentState)
    )
    return elements * 4 * rows


def state_rows(model: Model, draft: Draft | None, slots: int) -> int:
    """States a slot: one, and one more for each token drafted from hidden states where they can be taken back."""
    drafts = draft is not None and draft.method in READS_HIDDEN_STATES and draft.method is not DraftMethod.EAGLE
    if draft is None or not drafts or not model.architecture.model_type.startswith(_ROLLS_BACK):
        return slots
    return slots * (1 + draft.num_speculative_tokens)


def _row(kv_heads: int, key_dim: int, value_dim: int, kind: BlockType) -> int:
    return kind.row_bytes(kv_heads * key_dim) + kind.row_bytes(kv_heads * value_dim)
