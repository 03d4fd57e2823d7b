"""What one decode step reads and computes: bytes and operations of a model on one rank, from its structure.

Owns what counts as active: a table that is only looked up is not read, routed experts are read as far as they are
touched. Knows no times.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from model_catalog.architecture import ArchitectureSpec, Component, LayerSpec, Role
from model_catalog.drafts import HEADS, DraftMethod
from model_catalog.model import Model
from planner.engines.base import Draft
from planner.memory.kv_cache import cache_need


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTraffic:
    """One step over the whole model, before tensor parallelism.

    ``dense_bytes``: weights read whatever the batch; ``expert_bytes``: all routed experts together, of which a
    step touches a share; ``cache_bytes``: cache and state of one sequence; ``parameters_per_token``: weights that
    one token multiplies with.
    """

    dense_bytes: float
    expert_bytes: float
    cache_bytes: float
    parameters_per_token: float
    layers: int
    experts: int = 0
    experts_per_token: int = 0

    def expert_share(self, tokens: int) -> float:
        """Share of the routed experts that ``tokens`` touch under uniform routing: 1 - (1 - k/E)^N."""
        if not self.experts:
            return 0.0
        return 1.0 - (1.0 - self.experts_per_token / self.experts) ** tokens


#: A choice among candidates asks for the same models again at every k and batch.
_REMEMBERED: Final = 128


@lru_cache(maxsize=_REMEMBERED)
def model_traffic(
    model: Model, *, context_tokens: int, kv_cache_dtype: str = "auto", head_bytes: float = 0.0
) -> StepTraffic:
    """Traffic of a stand-alone model, or of a draft head that borrows a head of ``head_bytes`` from its target.

    Raises:
        UsageError: for an unknown ``kv_cache_dtype``.
    """
    architecture = model.architecture
    groups = [group for group in model.weights.resident if group.component in (Component.TEXT, Component.OTHER)]
    dense = sum(
        _middle(group.low_bytes, group.high_bytes) for group in groups if _is_read(group.role, architecture)
    )
    routed = [group for group in groups if group.role is Role.EXPERT]
    parameters = _parameters_per_token(architecture, (Component.TEXT,))
    return StepTraffic(
        dense_bytes=dense + head_bytes,
        expert_bytes=sum(_middle(group.low_bytes, group.high_bytes) for group in routed),
        cache_bytes=_cache_bytes(architecture.decoder_layers, model, context_tokens, kv_cache_dtype),
        parameters_per_token=parameters + head_bytes / 2,
        layers=len(architecture.decoder_layers),
        experts=architecture.experts,
        experts_per_token=architecture.experts_per_token,
    )


@lru_cache(maxsize=_REMEMBERED)
def draft_traffic(
    target: Model, draft: Draft, *, context_tokens: int, kv_cache_dtype: str = "auto"
) -> StepTraffic:
    """Traffic of one pass of the draft; nothing for n-gram.

    A head without a vocabulary table of its own multiplies with the target's. One that is not known otherwise is
    taken as one layer of the target.

    Raises:
        UsageError: for an unknown ``kv_cache_dtype``.
    """
    if draft.method is DraftMethod.NGRAM:
        return StepTraffic(dense_bytes=0, expert_bytes=0, cache_bytes=0, parameters_per_token=0, layers=0)
    if draft.model is not None:
        borrowed = 0.0
        if draft.method in HEADS and not _has_head(draft.model):
            borrowed = _head_bytes(target)
        return model_traffic(
            draft.model, context_tokens=context_tokens, kv_cache_dtype=kv_cache_dtype, head_bytes=borrowed
        )
    return _layer_of_target(target, context_tokens, kv_cache_dtype)


def _layer_of_target(target: Model, context_tokens: int, kv_cache_dtype: str) -> StepTraffic:
    """One MTP layer (or one decoder layer in its place) and the target's output table."""
    architecture = target.architecture
    whole = model_traffic(target, context_tokens=context_tokens, kv_cache_dtype=kv_cache_dtype)
    head = _head_bytes(target)
    count = max(whole.layers, 1)
    mtp = [group for group in target.weights.resident if group.component is Component.MTP]
    stored = max(len(architecture.mtp_layers), 1)
    dense = (whole.dense_bytes - head) / count
    experts = whole.expert_bytes / count
    if mtp:
        dense = sum(_middle(g.low_bytes, g.high_bytes) for g in mtp if g.role not in _NOT_DENSE) / stored
        experts = sum(_middle(g.low_bytes, g.high_bytes) for g in mtp if g.role is Role.EXPERT) / stored
    return StepTraffic(
        dense_bytes=dense + head,
        expert_bytes=experts,
        cache_bytes=whole.cache_bytes / count,
        parameters_per_token=whole.parameters_per_token / count + head / 2,
        layers=1,
        experts=architecture.experts,
        experts_per_token=architecture.experts_per_token,
    )


_NOT_DENSE = frozenset({Role.EMBEDDING, Role.POSITION, Role.BUFFER, Role.EXPERT})


def _is_read(role: Role, architecture: ArchitectureSpec) -> bool:
    if role is Role.EMBEDDING:
        return architecture.tied_head
    return role not in _NOT_DENSE


def _has_head(model: Model) -> bool:
    return any(group.role is Role.HEAD for group in model.weights.resident)


def _head_bytes(model: Model) -> float:
    """The output table: the head, or the embedding it is tied to."""
    role = Role.EMBEDDING if model.architecture.tied_head else Role.HEAD
    return sum(
        _middle(group.low_bytes, group.high_bytes)
        for group in model.weights.resident
        if group.role is role and group.component is Component.TEXT
    )


def _middle(low: int, high: int) -> float:
    return (low + high) / 2


def _parameters_per_token(architecture: ArchitectureSpec, components: Iterable[Component]) -> float:
    """Weights that a token multiplies with: routed experts by the share that one token takes."""
    wanted = frozenset(components)
    share = architecture.experts_per_token / architecture.experts if architecture.experts else 1.0
    total = 0.0
    for component, _, tensor in architecture.tensors():
        if component in wanted and _is_read_template(tensor.role, architecture):
            total += tensor.parameters * (share if tensor.role is Role.EXPERT else 1.0)
    return total


def _is_read_template(role: Role, architecture: ArchitectureSpec) -> bool:
    return role is Role.EXPERT or _is_read(role, architecture)


def _cache_bytes(layers: tuple[LayerSpec, ...], model: Model, context_tokens: int, kv_cache_dtype: str) -> float:
    need = cache_need(
        layers,
        context_tokens=max(context_tokens, 1),
        batch=1,
        model_dtype=model.architecture.dtype,
        kv_dtype=kv_cache_dtype,
    )
    # A window is read only as far as it reaches: the low bound.
    return float(need.low_bytes)
