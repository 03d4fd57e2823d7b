"""Which share of each weight a rank holds under tensor, pipeline and expert parallelism.

Rules, by role (vLLM 0.33.0 ``model_executor/layers/{linear,vocab_parallel_embedding}.py`` and ``fused_moe``):
vocabulary tables are padded to a multiple of 64 rows and split; queries, outputs and feed-forwards are split;
keys and values are split by KV head and replicated once ranks outnumber them; latent projections, routers,
norms and positions are whole on every rank; routed experts are split inside, or dealt out under expert
parallelism.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import ArchitectureSpec, Component, Role
from model_catalog.bounds import ByteRange
from model_catalog.units import ceil_div
from model_catalog.weight_residency import ResidentGroup

VOCABULARY_PADDING: Final = 64  # vocab_parallel_embedding.DEFAULT_VOCAB_PADDING_SIZE

_REPLICATED: Final = frozenset(
    {Role.POSITION, Role.NORM, Role.LATENT, Role.ROUTER, Role.STATE_REPLICATED, Role.BUFFER}
)
_SPLIT: Final = frozenset({Role.QUERY, Role.ATTENTION_OUTPUT, Role.MLP, Role.SHARED_EXPERT, Role.STATE_MIXER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What one rank holds: which layers, and whether the tables and the MTP layers are here."""

    tp: int
    layers: frozenset[int]
    holds_embedding: bool
    holds_head: bool
    holds_mtp: bool
    holds_towers: bool
    expert_parallel: bool = False


def padded_vocabulary(vocabulary_size: int) -> int:
    """Rows that vLLM allocates for a vocabulary table."""
    return ceil_div(vocabulary_size, VOCABULARY_PADDING) * VOCABULARY_PADDING


def resident_share(
    groups: Iterable[ResidentGroup], architecture: ArchitectureSpec, placement: Placement
) -> ByteRange:
    """Bytes of these weights on one rank."""
    whole: dict[Role, list[int]] = {}
    for group in groups:
        if _held(group, architecture, placement):
            sums = whole.setdefault(group.role, [0, 0])
            sums[0] += group.low_bytes
            sums[1] += group.high_bytes
    total = ByteRange.point(0)
    for role, (low, high) in whole.items():
        total += _share(role, low, high, architecture, placement)
    return total


def _held(group: ResidentGroup, architecture: ArchitectureSpec, placement: Placement) -> bool:
    if group.component is Component.MTP:
        return placement.holds_mtp
    if group.component in (Component.VISION, Component.AUDIO, Component.PROJECTOR):
        return placement.holds_towers
    if group.component is Component.TEXT and group.layer is not None:
        return group.layer in placement.layers
    if group.role in (Role.EMBEDDING, Role.POSITION):
        # A tied table serves as the output projection too, so the last stage keeps a copy.
        return placement.holds_embedding or (architecture.tied_head and placement.holds_head)
    if group.role is Role.HEAD or (group.role is Role.NORM and group.component is Component.TEXT):
        return placement.holds_head
    return placement.holds_embedding


def _share(role: Role, low: int, high: int, architecture: ArchitectureSpec, placement: Placement) -> ByteRange:
    tp = placement.tp
    if role in (Role.EMBEDDING, Role.HEAD):
        rows = max(architecture.vocabulary_size, 1)
        padded = padded_vocabulary(rows)
        return ByteRange(
            low_bytes=ceil_div(low * padded, rows * tp), high_bytes=ceil_div(high * padded, rows * tp)
        )
    if tp == 1 or role in _REPLICATED:
        return ByteRange(low_bytes=low, high_bytes=high)
    if role in _SPLIT:
        return ByteRange(low_bytes=ceil_div(low, tp), high_bytes=ceil_div(high, tp))
    if role is Role.KEY_VALUE:
        ranks = min(tp, max(architecture.kv_heads, 1))
        return ByteRange(low_bytes=ceil_div(low, ranks), high_bytes=ceil_div(high, ranks))
    if role is Role.QKV:
        return _fused(low, high, architecture, tp)
    if role is Role.EXPERT:
        if placement.expert_parallel and architecture.experts:
            held = ceil_div(architecture.experts, tp)
            return ByteRange(
                low_bytes=ceil_div(low * held, architecture.experts),
                high_bytes=ceil_div(high * held, architecture.experts),
            )
        return ByteRange(low_bytes=ceil_div(low, tp), high_bytes=ceil_div(high, tp))
    # Towers and tensors whose rule is unknown: split at best, whole at worst.
    return ByteRange(low_bytes=ceil_div(low, tp), high_bytes=high)


def _fused(low: int, high: int, architecture: ArchitectureSpec, tp: int) -> ByteRange:
    """A fused query-key-value matrix: its query rows are split, its KV rows at most by KV head."""
    queries, keys = max(architecture.attention_heads, 1), max(architecture.kv_heads, 1)
    heads = queries + 2 * keys
    ranks = min(tp, keys)
    numerator, denominator = queries * ranks + 2 * keys * tp, heads * tp * ranks
    return ByteRange(
        low_bytes=ceil_div(low * numerator, denominator), high_bytes=ceil_div(high * numerator, denominator)
    )
