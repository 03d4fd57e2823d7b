"""Buffers that vLLM's V2 model runner allocates once and keeps: sampler state, block tables, workspaces.

Owns everything that scales with ``max_num_seqs``. What is allocated before the memory profile counts inside the
budget; block tables and attention workspaces come after it, so they must fit beside the budget.

Source: vLLM 0.33.0 ``v1/worker/gpu/`` (model_runner.py, states.py, block_table.py, structured_outputs.py,
sample/penalties.py, spec_decode/), ``v1/attention/backends/``, ``model_executor/layers/attention/``.
"""

from collections.abc import Iterator
from typing import Final

from model_catalog.architecture import ArchitectureSpec, ChunkedAttention, FullAttention, Role, SlidingWindow
from model_catalog.bounds import Basis, ByteRange
from model_catalog.drafts import PARALLEL_HEADS, DraftMethod
from model_catalog.units import MIB, ceil_div
from planner.engines.vllm_shape import BLACKWELL_DATACENTER, EngineShape, latent_rule
from planner.memory.breakdown import Group, LineItem, Owner

_SOURCE: Final = "vLLM 0.33.0 v1/worker/gpu"
_INT32_BYTES: Final = 4
_INT64_BYTES: Final = 8
_BITS_PER_WORD: Final = 32
# input_ids (int32), positions (int64), is_padding (bool): input_batch.py, InputBuffers
_INPUT_BYTES_PER_TOKEN: Final = 13
_FLASHINFER_WORKSPACE_BYTES: Final = 394 * MIB  # envs.py, VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE
_FLASHINFER_LATENT_WORKSPACE_BYTES: Final = 128 * MIB  # mla/flashinfer_mla.py
_FLASH_ATTENTION_MAJORS: Final = frozenset({8, 9, 12})
_PLAIN_CACHES: Final = frozenset({"auto", "bfloat16", "float16"})
_LARGEST_CONTEXT_WORKSPACE_ROWS: Final = 64 * 1024
_NGRAM_BLOCK_TOKENS: Final = 256
_SMALLEST_ROTARY_SHARE: Final = 4  # partial rotary embeddings rotate a quarter of the head at least


def persistent_buffers(
    shape: EngineShape, *, cache_groups: int = 1, probabilistic_draft: bool = False
) -> tuple[LineItem, ...]:
    """Every kept buffer of one rank, each with the formula filled in.

    ``cache_groups`` is the number of KV cache groups; ``probabilistic_draft`` is
    ``draft_sample_method: probabilistic``, which keeps the draft's logits (the default is greedy).
    """
    lines = (
        *_sequence_lines(shape, cache_groups=cache_groups, probabilistic_draft=probabilistic_draft),
        *_token_lines(shape),
        *_rotary_lines(shape),
        *_workspace_lines(shape),
    )
    return tuple(line for line in lines if line.high_bytes)


def pinned_host_bytes(shape: EngineShape) -> int:
    """Pinned host memory for every sequence's token ids: 4 x seqs x context (states.py, ``all_token_ids``)."""
    return 0 if _keeps_token_ids(shape) else _INT32_BYTES * shape.max_num_seqs * shape.context_tokens


def context_workspace_rows(shape: EngineShape) -> int:
    """Rows of cached context that latent attention gathers at once for a chunked prefill.

    min(max(8 x context, 4 x seqs x block), 65536), rounded up to the block (mla_attention.py,
    ``determine_chunked_prefill_workspace_size``).
    """
    block = shape.defaults.block_size
    rows = min(
        max(8 * shape.context_tokens, 4 * shape.max_num_seqs * block),
        _LARGEST_CONTEXT_WORKSPACE_ROWS,
    )
    return ceil_div(max(rows, block), block) * block


def _sequence_lines(shape: EngineShape, *, cache_groups: int, probabilistic_draft: bool) -> Iterator[LineItem]:
    seqs = shape.max_num_seqs
    if shape.last_stage and shape.v2_runner:
        yield from _sampler_lines(shape)
    drafting = shape.draft or (shape.target if shape.method is DraftMethod.MTP else None)
    if probabilistic_draft and drafting is not None:
        k, width = shape.num_speculative_tokens, shape.element_bytes
        yield _derived(
            "draft_logits",
            seqs * k * drafting.vocabulary_size * width,
            "spec_decode/speculator.py",
            f"{seqs} seqs x {k} tokens x {drafting.vocabulary_size:,} vocabulary x {width} B",
            owner=Owner.DRAFT,
        )
    if _keeps_token_ids(shape):
        context, blocks = shape.context_tokens, ceil_div(shape.context_tokens, _NGRAM_BLOCK_TOKENS)
        yield _derived(
            "ngram_token_ids",
            seqs * (_INT32_BYTES * context + _INT64_BYTES * blocks),
            "states.py, spec_decode/ngram/speculator.py",
            f"{seqs} seqs x (4 x {context:,} context + 8 x {blocks:,} blocks)",
            owner=Owner.DRAFT,
        )
    table = ceil_div(shape.context_tokens, shape.defaults.block_size)
    tokens = shape.max_num_batched_tokens
    yield _derived(
        "block_tables",
        cache_groups * (2 * _INT32_BYTES * seqs * table + _INT64_BYTES * tokens),
        "block_table.py (after the memory profile)",
        f"{cache_groups} groups x (2 x 4 x {seqs} seqs x {table:,} blocks + 8 x {tokens:,} tokens)",
        inside_budget=False,
    )


def _sampler_lines(shape: EngineShape) -> Iterator[LineItem]:
    seqs, vocabulary = shape.max_num_seqs, shape.target.vocabulary_size
    words = ceil_div(vocabulary, _BITS_PER_WORD)
    query = 1 + shape.num_speculative_tokens
    yield _derived(
        "sampler_output_counts",
        _INT32_BYTES * seqs * vocabulary,
        "sample/penalties.py",
        f"4 x {seqs} seqs x {vocabulary:,} vocabulary",
    )
    yield _derived(
        "sampler_prompt_mask",
        _INT32_BYTES * seqs * words,
        "sample/penalties.py",
        f"4 x {seqs} seqs x {words:,} words of 32 tokens",
    )
    yield _derived(
        "grammar_bitmask",
        _INT32_BYTES * seqs * query * words,
        "structured_outputs.py",
        f"4 x {seqs} seqs x {query} positions x {words:,} words of 32 tokens",
    )


def _token_lines(shape: EngineShape) -> Iterator[LineItem]:
    tokens, width = shape.max_num_batched_tokens, shape.element_bytes
    hidden = shape.target.hidden_size
    runners = 2 if shape.draft_layers else 1
    yield _derived(
        "input_buffers",
        runners * _INPUT_BYTES_PER_TOKEN * tokens,
        "input_batch.py",
        f"{runners} x 13 B x {tokens:,} tokens",
    )
    if shape.target.multimodal and shape.first_stage:
        yield _derived(
            "input_embeddings",
            tokens * hidden * width,
            "mm/encoder_runner.py",
            f"{tokens:,} tokens x {hidden:,} hidden x {width} B",
        )
    if not shape.first_stage:
        yield _derived(
            "stage_inputs",
            2 * tokens * hidden * width,
            "model_runner.py, intermediate_tensors",
            f"2 x {tokens:,} tokens x {hidden:,} hidden x {width} B",
        )
    if shape.speculates_with_hidden_states:
        draft_hidden = (shape.draft or shape.target).hidden_size
        low = tokens * draft_hidden * width
        copies = 2 if shape.target.multimodal and shape.method not in PARALLEL_HEADS else 1
        yield _line(
            "draft_hidden_states",
            ByteRange(low_bytes=low, high_bytes=copies * low),
            "spec_decode, hidden_states of the method's speculator",
            f"{tokens:,} tokens x {draft_hidden:,} hidden x {width} B"
            + (", twice where the draft takes image embeddings" if copies == 2 else ""),
            owner=Owner.DRAFT,
        )


def _rotary_lines(shape: EngineShape) -> Iterator[LineItem]:
    for owner, architecture in ((Owner.TARGET, shape.target), (Owner.DRAFT, shape.draft)):
        if architecture is None:
            continue
        positions = architecture.max_context_tokens
        if owner is Owner.DRAFT and positions is not None and shape.speculates_with_hidden_states:
            # a head's table is raised to the length that the target serves (config/speculative.py)
            positions = max(positions, shape.context_tokens)
        found = _rotary_table(architecture, positions, shape.element_bytes)
        if found is None:
            continue
        size, formula = found
        if owner is Owner.DRAFT:
            # layers with the same rotary settings share one table, across models
            size = ByteRange(low_bytes=0, high_bytes=size.high_bytes)
        yield _line(
            "rotary_table" if owner is Owner.TARGET else "draft_rotary_table",
            size,
            "model_executor/layers/rotary_embedding (counted by 'Model loading took')",
            formula,
            owner=owner,
        )


def _rotary_table(
    architecture: ArchitectureSpec, positions: int | None, width: int
) -> tuple[ByteRange, str] | None:
    """The cosine and sine table over every position of the model: exact for latent attention, else bounded."""
    learned = any(tensor.role is Role.POSITION for _, _, tensor in architecture.tensors())
    if positions is None or learned:
        return None
    latent = latent_rule(architecture.decoder_layers)
    if latent is not None:
        size = positions * latent.rope_dim * width
        return ByteRange.point(size), f"{positions:,} positions x {latent.rope_dim} dimensions x {width} B"
    heads = [
        rule
        for layer in architecture.decoder_layers
        for rule in layer.caches
        if isinstance(rule, FullAttention | SlidingWindow | ChunkedAttention)
    ]
    if not heads:
        return None
    dimension = max(rule.key_dim for rule in heads)
    windowed = {isinstance(rule, SlidingWindow) for rule in heads}
    table = positions * dimension * width
    return (
        ByteRange(low_bytes=table // _SMALLEST_ROTARY_SHARE, high_bytes=len(windowed) * table),
        f"{positions:,} positions x {dimension // _SMALLEST_ROTARY_SHARE} to {dimension} dimensions x {width} B"
        + (", a table for each kind of layer" if len(windowed) > 1 else ""),
    )


def _workspace_lines(shape: EngineShape) -> Iterator[LineItem]:
    latent = latent_rule(shape.layers)
    if latent is not None:
        rows, width = context_workspace_rows(shape), latent.latent_dim + latent.rope_dim
        yield _derived(
            "latent_context_workspace",
            rows * width * shape.element_bytes,
            "mla_attention.py, chunked_prefill_workspace (after the memory profile)",
            f"{rows:,} rows x {width} x {shape.element_bytes} B",
            inside_budget=False,
        )
    size = _flashinfer_workspace(shape, latent=latent is not None)
    yield _line(
        "flashinfer_workspace",
        size,
        "v1/attention/backends/flashinfer.py (after the memory profile)",
        "394 MiB (128 MiB for latent attention) where FlashInfer attends: the default on data-centre Blackwell",
        inside_budget=False,
    )


def _flashinfer_workspace(shape: EngineShape, *, latent: bool) -> ByteRange:
    """Nothing where FlashAttention or Triton attends: 16-bit caches on Ampere, Ada, Hopper and RTX Blackwell."""
    capability = shape.device.compute_capability
    major = capability[0] if capability else None
    low = 0
    if major == BLACKWELL_DATACENTER:
        low = _FLASHINFER_LATENT_WORKSPACE_BYTES if latent else _FLASHINFER_WORKSPACE_BYTES
    elif major in _FLASH_ATTENTION_MAJORS and shape.kv_cache_dtype in _PLAIN_CACHES:
        return ByteRange.point(0)
    return ByteRange(low_bytes=low, high_bytes=_FLASHINFER_WORKSPACE_BYTES)


def _keeps_token_ids(shape: EngineShape) -> bool:
    """N-gram drafting scans token ids on the device; otherwise they stay in pinned host memory."""
    return shape.method is DraftMethod.NGRAM


def _derived(
    label: str,
    size_bytes: int,
    place: str,
    formula: str,
    *,
    owner: Owner = Owner.TARGET,
    inside_budget: bool = True,
) -> LineItem:
    return _line(label, ByteRange.point(size_bytes), place, formula, owner=owner, inside_budget=inside_budget)


def _line(
    label: str,
    size: ByteRange,
    place: str,
    formula: str,
    *,
    owner: Owner = Owner.TARGET,
    inside_budget: bool = True,
) -> LineItem:
    return LineItem.of_size(
        size,
        group=Group.RUNTIME_OVERHEAD,
        label=label,
        owner=owner,
        basis=Basis.DERIVED,
        source=f"{_SOURCE}: {place}",
        formula=formula,
        inside_budget=inside_budget,
    )
