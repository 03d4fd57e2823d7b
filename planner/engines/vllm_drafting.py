"""What drafting itself takes on the last vLLM stage: query slots, the drafter's pass, the buffers of its heads.

Owns what differs between draft methods. The weights are ``vllm_weights``', the cache ``vllm_cache``'s.

Source: vLLM 0.33.0 ``config/vllm.py`` (num_lookahead_tokens), ``v1/worker/gpu/spec_decode/`` (speculator.py,
dflash/, dspark/, multi_module_mtp/), ``model_executor/models/qwen3_dflash.py`` (context keys and values),
``transformers_utils/configs/speculators/algos.py`` (sample_from_anchor).
"""

from collections.abc import Iterator
from typing import Final

from model_catalog.architecture import ArchitectureSpec, FullAttention, Role, SlidingWindow
from model_catalog.bounds import Basis, ByteRange
from model_catalog.drafts import PARALLEL_HEADS, DraftMethod
from model_catalog.units import MIB
from planner.engines.base import Draft
from planner.engines.vllm_shape import EngineShape
from planner.memory.breakdown import Group, LineItem, Owner
from planner.memory.working_set import expert_workspaces, layer_activations, logits_bytes

_SOURCE: Final = "vLLM 0.33.0 v1/worker/gpu/spec_decode"
_ALLOCATOR_SLACK_BYTES: Final = 64 * MIB
_EAGLE3_AUXILIARY_STATES: Final = 3  # a low, a middle and a high target layer
_INT64_BYTES: Final = 8
# dflash/speculator.py: three int64 and one int32 for each token that is sampled
_SAMPLING_BYTES_PER_TOKEN: Final = 28
# Context keys and values of all draft layers: the projection, its copy in layer order, and normalised keys.
_CONTEXT_COPIES: Final = 5


def lookahead_tokens(draft: Draft | None) -> int:
    """Cache slots that the drafter writes past a sequence's scheduled tokens.

    k for draft models, EAGLE and MTP; k + 1 for DFlash, whose block starts with the bonus token; k for DSpark, and
    k + 1 where its head does not sample from the anchor; 0 for n-gram.
    """
    if draft is None or draft.method is DraftMethod.NGRAM:
        return 0
    k = draft.num_speculative_tokens
    if draft.method is DraftMethod.DFLASH or (draft.method is DraftMethod.DSPARK and not _samples_anchor(draft)):
        return k + 1
    return k


def auxiliary_states(shape: EngineShape) -> int:
    """Hidden states of target layers that the head is fed beside the last: what its projection takes in.

    0 for methods that read the last hidden state only.
    """
    if shape.method not in PARALLEL_HEADS | {DraftMethod.EAGLE3} or shape.draft is None:
        return 0
    for _, _, tensor in shape.draft.tensors():
        if tensor.name == "fc.weight" and len(tensor.shape) > 1:
            return max(1, tensor.shape[1] // shape.target.hidden_size)
    return _EAGLE3_AUXILIARY_STATES if shape.method is DraftMethod.EAGLE3 else len(shape.draft.decoder_layers)


def draft_phase(shape: EngineShape) -> ByteRange:
    """The drafter's own pass in the profile run, after the target's, whose hidden states are still held."""
    if shape.method is None or shape.method is DraftMethod.NGRAM:
        return ByteRange.point(0)
    held = shape.max_num_batched_tokens * shape.target.hidden_size * shape.element_bytes
    inner = _parallel_pass(shape) if shape.method in PARALLEL_HEADS else _sequential_pass(shape)
    return ByteRange(
        low_bytes=inner.low_bytes + held,
        high_bytes=inner.high_bytes + (1 + auxiliary_states(shape)) * held + _ALLOCATOR_SLACK_BYTES,
    )


def drafting_buffers(shape: EngineShape) -> tuple[LineItem, ...]:
    """Kept buffers that only some draft methods have, on the rank that drafts."""
    if not shape.last_stage:
        return ()
    return tuple(line for line in (*_parallel_head_lines(shape), *_module_lines(shape)) if line.high_bytes)


def graph_logits_bytes(shape: EngineShape, largest_tokens: int) -> int:
    """Logits inside the graphs of a parallel head, which record sampling: a row for each captured token.

    0 for other methods, whose graphs sample a row for each sequence.
    """
    if shape.method not in PARALLEL_HEADS:
        return 0
    return _logit_copies(shape) * logits_bytes(
        rows=largest_tokens, vocabulary_size=_drafting(shape).vocabulary_size, bytes_per_logit=shape.element_bytes
    )


def _samples_anchor(draft: Draft) -> bool:
    """The head's own ``sample_from_anchor``; true by default, but false in the speculators format."""
    config = draft.model.snapshot.config if draft.model else {}
    stated = config.get("sample_from_anchor")
    return stated if isinstance(stated, bool) else "speculators_model_type" not in config


def _drafting(shape: EngineShape) -> ArchitectureSpec:
    return shape.draft or shape.target


def _sampled_rows(shape: EngineShape) -> int:
    return min(shape.max_num_seqs, shape.max_num_batched_tokens)


def _sequential_pass(shape: EngineShape) -> ByteRange:
    """One token after another: a forward pass over all batched tokens, then a row of logits a sequence."""
    drafting, width = _drafting(shape), shape.element_bytes
    # A stand-alone draft reads one token a sequence more than the target (max_num_new_slots_for_drafting).
    extra_rows = shape.max_num_seqs if shape.method is DraftMethod.DRAFT_MODEL else 0
    tokens = shape.max_num_batched_tokens + extra_rows
    forward = layer_activations(drafting, tokens=tokens, tp=shape.tp, element_bytes=width)
    experts = expert_workspaces(
        drafting, tokens=tokens, tp=shape.tp, expert_parallel=shape.expert_parallel, element_bytes=width
    )
    logits = logits_bytes(
        rows=_sampled_rows(shape), vocabulary_size=drafting.vocabulary_size, bytes_per_logit=width
    )
    return ByteRange(low_bytes=max(forward.low_bytes, logits), high_bytes=forward.high_bytes + experts + logits)


def _parallel_pass(shape: EngineShape) -> ByteRange:
    """A block of k + 1 query tokens (k where DSpark samples its anchor): k rows of logits a sequence at once.

    No more sequences run than blocks fit into the token budget. Three steps follow each other: the target's states
    are joined and projected, keys and values of the context are computed for all layers together, then the block
    runs. DSpark corrects the rows one position at a time.
    """
    drafting, width, k = _drafting(shape), shape.element_bytes, shape.num_speculative_tokens
    tokens = shape.max_num_batched_tokens
    seqs = _sampled_rows(shape)
    joined = tokens * (auxiliary_states(shape) * shape.target.hidden_size + drafting.hidden_size) * width
    context = tokens * (drafting.hidden_size + _CONTEXT_COPIES * _context_width(shape)) * width
    forward = layer_activations(drafting, tokens=min(seqs * (k + 1), tokens), tp=shape.tp, element_bytes=width)
    row = logits_bytes(rows=1, vocabulary_size=drafting.vocabulary_size, bytes_per_logit=width)
    corrected = 2 * seqs * row if shape.method is DraftMethod.DSPARK else 0
    block = forward.high_bytes + _logit_copies(shape) * min(seqs * k, tokens) * row + corrected
    return ByteRange(low_bytes=min(seqs, tokens // (k + 1)) * k * row, high_bytes=max(joined, context, block))


def _context_width(shape: EngineShape) -> int:
    """Elements of one token's keys over all layers of the head, on one rank."""
    rules = [rule for layer in _drafting(shape).decoder_layers for rule in layer.caches]
    return sum(
        max(1, rule.kv_heads // shape.tp) * rule.key_dim
        for rule in rules
        if isinstance(rule, FullAttention | SlidingWindow)
    )


def _logit_copies(shape: EngineShape) -> int:
    """Two where rows are gathered from other ranks, or spread over a larger vocabulary."""
    drafting = _drafting(shape)
    reduced = any(
        tensor.role is Role.HEAD and tensor.shape[0] != drafting.vocabulary_size
        for _, _, tensor in drafting.tensors()
    )
    return 2 if shape.tp > 1 or reduced else 1


def _parallel_head_lines(shape: EngineShape) -> Iterator[LineItem]:
    if shape.method not in PARALLEL_HEADS:
        return
    seqs, k, tokens = shape.max_num_seqs, shape.num_speculative_tokens, shape.max_num_batched_tokens
    yield _line(
        "draft_query_buffers",
        ByteRange.point(_SAMPLING_BYTES_PER_TOKEN * seqs * k + _INT64_BYTES * tokens),
        "dflash/speculator.py",
        f"{_SAMPLING_BYTES_PER_TOKEN} B x {seqs} seqs x {k} tokens + 8 B x {tokens:,} context positions",
    )
    if shape.enforce_eager:
        return
    rows, states = min(seqs * (k + 1), tokens), auxiliary_states(shape)
    hidden, width = shape.target.hidden_size, shape.element_bytes
    # Only where the head's attention backend can be captured in full.
    yield _line(
        "draft_staged_states",
        ByteRange(low_bytes=0, high_bytes=rows * states * hidden * width),
        "dflash/speculator.py (inputs of its CUDA graphs)",
        f"{rows:,} tokens x {states} target layers x {hidden:,} hidden x {width} B",
    )


def _module_lines(shape: EngineShape) -> Iterator[LineItem]:
    """A chain of several MTP modules keeps the last step's inputs, to bring later modules up to date."""
    if shape.method is not DraftMethod.MTP:
        return
    k = shape.num_speculative_tokens
    if min(len(shape.target.mtp_layers), k) < 2:
        return
    seqs, hidden, width = shape.max_num_seqs, shape.target.hidden_size, shape.element_bytes
    low = seqs * (k - 1) * (2 * _INT64_BYTES + hidden * width)
    more = seqs * (k - 1) * hidden * width if shape.target.multimodal else 0
    yield _line(
        "draft_module_states",
        ByteRange(low_bytes=low, high_bytes=low + more),
        "multi_module_mtp/speculator.py",
        f"{seqs} seqs x {k - 1} steps x (16 B + {hidden:,} hidden x {width} B)"
        + (", states twice where the draft takes image embeddings" if more else ""),
    )


def _line(label: str, size: ByteRange, place: str, formula: str) -> LineItem:
    return LineItem(
        group=Group.RUNTIME_OVERHEAD,
        label=label,
        owner=Owner.DRAFT,
        low_bytes=size.low_bytes,
        high_bytes=size.high_bytes,
        basis=Basis.DERIVED,
        source=f"{_SOURCE}/{place}",
        formula=formula,
    )
