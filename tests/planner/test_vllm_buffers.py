"""The kept buffers: sizes by hand from the allocations in vLLM's V2 model runner."""

from dataclasses import replace

import pytest
from engine_shapes import FULL, QWEN3_8B, engine_shape, with_rules

from model_catalog.architecture import (
    ArchitectureSpec,
    CacheRule,
    Component,
    LatentAttention,
    Role,
    SlidingWindow,
    TensorTemplate,
)
from model_catalog.bounds import Basis
from model_catalog.drafts import DraftMethod
from model_catalog.units import MIB
from planner.engines.vllm_buffers import (
    context_workspace_rows,
    persistent_buffers,
    pinned_host_bytes,
)
from planner.engines.vllm_shape import EngineShape
from planner.memory.breakdown import Group, LineItem, sum_items


def model(
    *,
    vocabulary: int = 151936,
    hidden: int = 4096,
    rules: tuple[CacheRule, ...] = (FULL,),
    multimodal: bool = False,
) -> ArchitectureSpec:
    return replace(with_rules(*rules), vocabulary_size=vocabulary, hidden_size=hidden, multimodal=multimodal)


def shape(
    target: ArchitectureSpec = QWEN3_8B,
    *,
    seqs: int = 1024,
    tokens: int = 8192,
    context: int = 8192,
    capability: tuple[int, int] | None = (9, 0),
) -> EngineShape:
    return engine_shape(target, seqs=seqs, tokens=tokens, context=context, capability=capability)


def by_label(lines: tuple[LineItem, ...]) -> dict[str, LineItem]:
    found = {line.label: line for line in lines}
    assert len(found) == len(lines)
    return found


# vLLM 0.33.0 v1/worker/gpu/sample/penalties.py: int32 (max_num_reqs, vocab_size)
@pytest.mark.parametrize(
    ("seqs", "vocabulary", "mib"),
    [(1024, 151936, 593.5), (1024, 262208, 1024.25), (256, 128256, 125.25)],
)
def test_output_counts_are_always_kept(seqs: int, vocabulary: int, mib: float) -> None:
    line = by_label(persistent_buffers(shape(model(vocabulary=vocabulary), seqs=seqs)))["sampler_output_counts"]
    assert line.low_bytes == line.high_bytes == mib * MIB
    assert line.basis is Basis.DERIVED
    assert line.group is Group.RUNTIME_OVERHEAD
    assert line.inside_budget
    assert line.formula == f"4 x {seqs} seqs x {vocabulary:,} vocabulary"


def test_bit_masks_hold_32_tokens_a_word() -> None:
    lines = by_label(persistent_buffers(replace(shape(seqs=100), num_speculative_tokens=3)))
    assert lines["sampler_prompt_mask"].high_bytes == 4 * 100 * 4748
    assert lines["grammar_bitmask"].high_bytes == 4 * 100 * 4 * 4748


def test_probabilistic_drafts_keep_their_logits() -> None:
    """spec_decode/speculator.py: (seqs, k, vocabulary) in the model's dtype; Qwen3 with k = 3 takes 890.25 MiB."""
    drafting = replace(shape(), method=DraftMethod.DRAFT_MODEL, draft=model(hidden=1024), num_speculative_tokens=3)
    assert "draft_logits" not in by_label(persistent_buffers(drafting))
    lines = by_label(persistent_buffers(drafting, probabilistic_draft=True))
    assert lines["draft_logits"].high_bytes == 890.25 * MIB


def test_ngram_scans_token_ids_on_the_device() -> None:
    """states.py, use_dense_all_token_ids: 4 x 1024 x 131072 = 512 MiB, in pinned host memory otherwise."""
    plain = shape(context=131072)
    ngram = replace(plain, method=DraftMethod.NGRAM, num_speculative_tokens=3)
    assert "ngram_token_ids" not in by_label(persistent_buffers(plain))
    assert by_label(persistent_buffers(ngram))["ngram_token_ids"].high_bytes == 512 * MIB + 8 * 1024 * 512
    assert (pinned_host_bytes(plain), pinned_host_bytes(ngram)) == (512 * MIB, 0)


def test_block_tables_come_after_the_profile() -> None:
    """block_table.py: two int32 tables a group and an int64 slot for each batched token."""
    line = by_label(persistent_buffers(shape(context=131072), cache_groups=2))["block_tables"]
    assert line.high_bytes == 2 * (2 * 4 * 1024 * 8192 + 8 * 8192)
    assert not line.inside_budget


@pytest.mark.parametrize("method", [DraftMethod.EAGLE, DraftMethod.EAGLE3, DraftMethod.MTP])
def test_drafts_on_hidden_states_keep_them(method: DraftMethod) -> None:
    """spec_decode/target_dependent_ar/speculator.py: (tokens, hidden) in the model's dtype."""
    drafting = replace(shape(), method=method, draft=model(hidden=2048), num_speculative_tokens=1)
    line = by_label(persistent_buffers(drafting))["draft_hidden_states"]
    assert line.low_bytes == line.high_bytes == 8192 * 2048 * 2


def test_stages_split_the_buffers() -> None:
    """The sampler sits on the last stage, image embeddings on the first, received activations on all but it."""
    whole = shape(model(multimodal=True))
    first = by_label(persistent_buffers(replace(whole, last_stage=False)))
    last = by_label(persistent_buffers(replace(whole, first_stage=False)))
    assert "input_embeddings" in first
    assert "sampler_output_counts" not in first
    assert "stage_inputs" not in first
    assert "input_embeddings" not in last
    assert last["stage_inputs"].high_bytes == 2 * 8192 * 4096 * 2
    assert "sampler_output_counts" in last


# mla_attention.py, determine_chunked_prefill_workspace_size: min(max(8 L, 4 S block), 65536)
@pytest.mark.parametrize(("context", "seqs", "rows"), [(1024, 16, 8192), (1024, 1024, 65536), (131072, 8, 65536)])
def test_latent_context_workspace(context: int, seqs: int, rows: int) -> None:
    latent = model(rules=(LatentAttention(latent_dim=512, rope_dim=64),))
    sized = shape(latent, seqs=seqs, context=context)
    assert context_workspace_rows(sized) == rows
    assert by_label(persistent_buffers(sized))["latent_context_workspace"].high_bytes == rows * 576 * 2


# platforms/cuda.py: FlashInfer first on sm_100, FlashAttention on 8.x, 9.0 and 12.x unless the cache is quantised
@pytest.mark.parametrize(
    ("capability", "cache", "low_mib", "high_mib"),
    [
        ((10, 0), "auto", 394, 394),
        ((9, 0), "auto", 0, 0),
        ((8, 6), "bfloat16", 0, 0),
        ((8, 6), "fp8", 0, 394),
        ((7, 5), "auto", 0, 394),
        (None, "auto", 0, 394),
    ],
)
def test_flashinfer_workspace_is_certain_on_blackwell_only(
    capability: tuple[int, int] | None, cache: str, low_mib: int, high_mib: int
) -> None:
    sized = replace(shape(capability=capability), kv_cache_dtype=cache)
    line = by_label(persistent_buffers(sized)).get("flashinfer_workspace")
    found = (line.low_bytes, line.high_bytes) if line else (0, 0)
    assert found == (low_mib * MIB, high_mib * MIB)


def test_rotary_table_follows_the_models_own_limit() -> None:
    """Llama 4 Scout's 10,485,760 positions x 128 x 2 B explain 2.5 GiB of its 53.12 GiB load (vLLM 0.19, tp 4)."""
    scout = replace(model(), max_context_tokens=10485760)
    line = by_label(persistent_buffers(shape(scout)))["rotary_table"]
    assert line.low_bytes <= 2.5 * 1024 * MIB == line.high_bytes
    windowed = model(
        rules=(FULL, SlidingWindow(kv_heads=8, key_dim=128, value_dim=128, window_tokens=1024)),
    )
    two_kinds = by_label(persistent_buffers(shape(windowed)))["rotary_table"]
    assert two_kinds.high_bytes == 2 * 40960 * 128 * 2
    table = TensorTemplate(name="wpe.weight", shape=(1024, 768), role=Role.POSITION)
    learned = replace(model(), root_tensors=((Component.TEXT, table),))
    assert "rotary_table" not in by_label(persistent_buffers(shape(learned)))


def test_what_fewer_sequences_save() -> None:
    """1024 -> 256 sequences of Qwen3 at 8192 tokens: 3/4 of counts, masks and tables."""
    sized = shape()
    many, few = (
        sum_items(persistent_buffers(replace(sized, defaults=replace(sized.defaults, max_num_seqs=seqs))))
        for seqs in (1024, 256)
    )
    assert many.high_bytes - few.high_bytes == 768 * (4 * 151936 + 2 * 4 * 4748 + 2 * 4 * 512)
