"""Which layers share a block table in vLLM's cache.

Owns the grouping: layers in one group hold the same blocks, all groups draw from one pool, and a block of the
pool is as large as the widest group. Does not know bytes available or requests.

Source: vLLM 0.32.0, ``v1/core/kv_cache_utils.py`` (grouping, page unification, promotion) for layouts in which
layers lie outermost, which grouped-query and latent attention resolve to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from model_catalog.errors import UsageError
from model_catalog.units import ceil_div
from planner.engines.vllm_layout import LayerRun, PagedLayer, PageKind

_FULL_FAMILY: Final = frozenset({PageKind.FULL, PageKind.LATENT})
_LOCAL: Final = frozenset({PageKind.SLIDING, PageKind.CHUNKED})
#: Buckets closer in size than 3 : 2 are padded to the larger one rather than split by the smaller one.
_PADDING_LIMIT: Final = (3, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers with one block table.

    ``uniform`` is False where layers of one type but of different forms were put together.
    """

    runs: tuple[LayerRun, ...]

    @property
    def layers(self) -> int:
        """Layers over all pipeline stages."""
        return sum(run.count for run in self.runs)

    @property
    def uniform(self) -> bool:
        """Whether all layers are equal."""
        return len(self.runs) == 1

    @property
    def kind(self) -> PageKind:
        """What decides the blocks a request holds; full where full and latent layers are together."""
        kinds = {run.layer.kind for run in self.runs}
        return kinds.pop() if len(kinds) == 1 else PageKind.FULL

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return self.runs[0].layer.block_size

    def stage_page_bytes(self, stage: int) -> int:
        """Bytes of one block over this group's layers on one pipeline stage."""
        return sum(run.stage_counts[stage] * run.layer.page_bytes for run in self.runs)

    def blocks_charged(self, tokens: int, in_flight_tokens: int) -> int:
        """Blocks the engine reckons for one request."""
        return max(run.layer.blocks_charged(tokens, in_flight_tokens) for run in self.runs)

    def blocks_at_rest(self, tokens: int, in_flight_tokens: int) -> int:
        """Blocks one decoding request cannot do without."""
        return max(run.layer.blocks_at_rest(tokens, in_flight_tokens) for run in self.runs)


def group_layers(runs: Sequence[LayerRun], *, hybrid_manager: bool = True) -> tuple[LayerGroup, ...]:
    """Split layers into groups the way the engine does.

    Raises:
        UsageError: where the engine itself would refuse to start: pages that cannot be brought to one size, or
            a hybrid model without the hybrid manager.
    """
    layers = tuple(runs)
    if not layers:
        return ()
    if not hybrid_manager:
        promoted = _promote_local_layers(layers)
        if promoted is None:
            raise UsageError(
                "vLLM cannot keep these layers as one type",
                subject="hybrid KV cache manager",
                hint="leave the hybrid KV cache manager on for this model",
            )
        layers = promoted
    if _one_type(layers):
        return (LayerGroup(runs=layers),)
    unified = _unify_pages(layers)
    if unified is None:
        return (LayerGroup(runs=_full_allocation(layers)),)
    return _split(unified)


def _one_type(runs: Sequence[LayerRun]) -> bool:
    """Whether all layers need the same number of token slots, so that one block table serves them all."""
    layers = [run.layer for run in runs]
    first = layers[0]
    if any(layer.block_size != first.block_size for layer in layers):
        return False
    if first.kind in _FULL_FAMILY:
        return all(layer.kind in _FULL_FAMILY for layer in layers)
    if any(layer.kind is not first.kind for layer in layers):
        return False
    if first.kind is PageKind.STATE:
        return all(
            (layer.page_bytes, layer.state_blocks) == (first.page_bytes, first.state_blocks) for layer in layers
        )
    return first.kind is PageKind.CROSS or all(layer.span_tokens == first.span_tokens for layer in layers)


def _promote_local_layers(runs: tuple[LayerRun, ...]) -> tuple[LayerRun, ...] | None:
    """Windows and chunks allocated like full attention, beside a full layer; None if that makes no one type.

    The engine stops at two window lengths (or two chunk lengths), unless a latent layer keeps it from merging.
    """
    if _one_type(runs):
        return runs
    full_sizes = {run.layer.block_size for run in runs if run.layer.kind in _FULL_FAMILY}
    if not full_sizes or (
        _local_lengths_differ(runs) and all(run.layer.kind is not PageKind.LATENT for run in runs)
    ):
        return None
    counts: dict[PagedLayer, tuple[int, ...]] = {}
    for run in runs:
        layer = run.layer
        if layer.kind in _LOCAL:
            block_size = next(iter(full_sizes)) if len(full_sizes) == 1 else layer.block_size
            layer = replace(layer, kind=PageKind.FULL, block_size=block_size, span_tokens=0, retained_tokens=0)
        earlier = counts.get(layer, (0,) * len(run.stage_counts))
        counts[layer] = tuple(a + b for a, b in zip(earlier, run.stage_counts, strict=True))
    promoted = tuple(LayerRun(layer=layer, stage_counts=stages) for layer, stages in counts.items())
    return promoted if _one_type(promoted) else None


def _local_lengths_differ(runs: Sequence[LayerRun]) -> bool:
    lengths = {(run.layer.kind, run.layer.span_tokens) for run in runs if run.layer.kind in _LOCAL}
    return len(lengths) > len({kind for kind, _ in lengths})


def _full_allocation(runs: tuple[LayerRun, ...]) -> tuple[LayerRun, ...]:
    """The engine's last resort for latent layers beside windows of another page size."""
    kinds = {run.layer.kind for run in runs}
    promoted = None
    if PageKind.LATENT in kinds and PageKind.SLIDING in kinds and PageKind.CHUNKED not in kinds:
        promoted = _promote_local_layers(runs)
    if promoted is None:
        raise UsageError(
            "vLLM cannot bring the cache pages of these layers to one size",
            subject="KV cache layout",
            hint="choose another draft, or the same KV cache dtype for target and draft",
        )
    return promoted


def _unify_pages(runs: tuple[LayerRun, ...]) -> tuple[LayerRun, ...] | None:
    """Bring every page to the largest one's size; None where a latent page does not divide it.

    A page that divides the largest takes more tokens, without loss; any other is padded.
    """
    largest = max(run.layer.page_bytes for run in runs)
    unified = []
    for run in runs:
        layer = run.layer
        if layer.page_bytes == largest:
            unified.append(run)
            continue
        if layer.kind is PageKind.STATE or (largest % layer.page_bytes and layer.kind is not PageKind.LATENT):
            grown = replace(layer, padded_page_bytes=largest)
        elif largest % layer.page_bytes:
            return None
        else:
            grown = replace(layer, block_size=layer.block_size * (largest // layer.page_bytes))
        unified.append(replace(run, layer=grown))
    return tuple(unified)


def _split(runs: Sequence[LayerRun]) -> tuple[LayerGroup, ...]:
    """Cut each kind of layer into groups of one size: the smallest bucket's, or the largest's if close."""
    sizes = [run.count for run in runs]
    least, most = min(sizes), max(sizes)
    group_size = most if most * _PADDING_LIMIT[1] < least * _PADDING_LIMIT[0] else least
    groups = []
    for run in runs:
        number = ceil_div(run.count, group_size)
        for index in range(number):
            counts = _dealt(run.stage_counts, number, index)
            groups.append(LayerGroup(runs=(LayerRun(layer=run.layer, stage_counts=counts),)))
    return tuple(groups)


def _dealt(stage_counts: tuple[int, ...], hands: int, hand: int) -> tuple[int, ...]:
    """Layers of each stage when all layers are dealt round robin to ``hands`` groups, seen by one group."""
    dealt = []
    first = 0
    for count in stage_counts:
        last = first + count
        dealt.append(ceil_div(max(0, last - hand), hands) - ceil_div(max(0, first - hand), hands))
        first = last
    return tuple(dealt)
