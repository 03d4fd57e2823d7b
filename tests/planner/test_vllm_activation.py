"""Verification logits and the phases of the profile, by hand from vLLM's own rules."""

from dataclasses import replace

import pytest
from engine_shapes import FULL, QWEN3_8B, engine_shape, with_rules

from model_catalog.architecture import ArchitectureSpec
from model_catalog.bounds import ByteRange
from model_catalog.drafts import DraftMethod
from model_catalog.units import GIB, MIB
from planner.engines.vllm_activation import activation_peak, profile_phases, sampler_bytes, verification_logits
from planner.engines.vllm_shape import EngineShape
from planner.memory.breakdown import Group, Owner
from planner.memory.working_set import expert_workspaces, layer_activations


def model(*, hidden: int = 4096, intermediate: int = 12288) -> ArchitectureSpec:
    return replace(
        QWEN3_8B, hidden_size=hidden, intermediate_size=intermediate, layers=with_rules(*36 * (FULL,)).layers
    )


def shape(*, seqs: int = 256, tokens: int = 2048, batch: int = 1) -> EngineShape:
    return engine_shape(model(), seqs=seqs, tokens=tokens, batch=batch)


def speculating(base: EngineShape, k: int) -> EngineShape:
    return replace(
        base,
        method=DraftMethod.DRAFT_MODEL,
        draft=model(hidden=1024, intermediate=3072),
        num_speculative_tokens=k,
    )


def test_nothing_to_verify_without_speculation() -> None:
    assert verification_logits(shape()) == ()
    assert verification_logits(replace(speculating(shape(), 3), last_stage=False)) == ()


# rows = min(S x (1 + k), T); bf16 rows + min(1 GiB, fp32 rows), rejection_sampler.py
@pytest.mark.parametrize(
    ("seqs", "tokens", "k", "rows"), [(256, 8192, 3, 1024), (256, 512, 3, 512), (1024, 8192, 4, 5120)]
)
def test_verification_needs_every_row_at_once(seqs: int, tokens: int, k: int, rows: int) -> None:
    drafting = speculating(shape(seqs=seqs, tokens=tokens), k)
    (line,) = verification_logits(drafting)
    chunk = min(2**30, rows * 151936 * 4)
    expected = rows * 151936 * 2 + chunk - profile_phases(drafting).peak.low_bytes
    assert line.high_bytes == max(0, expected)
    assert line.high_bytes > 0
    assert line.low_bytes == 0
    assert (line.group, line.owner, line.inside_budget) == (Group.TEMPORARY_BUFFERS, Owner.DRAFT, False)


def test_verification_of_a_large_planned_batch_is_certain() -> None:
    """1024 sequences x 8 rows x 151,936 x 2 B are 2.3 GiB, whatever the sampling; the profile may hold 1.0 GiB."""
    drafting = speculating(shape(seqs=1024, tokens=16384, batch=1024), 7)
    (line,) = verification_logits(replace(drafting, defaults=replace(drafting.defaults, max_num_seqs=1024)))
    peak = profile_phases(drafting).peak.high_bytes
    assert line.low_bytes == max(0, 8 * 1024 * 151936 * 2 - peak)


# vLLM 0.19 and older printed Qwen3-14B (V = 151,936, S = 1024, T = 8192) as 5.64 GiB up to 0.16 and 2.23 from 0.17
# (llm-d-incubation/llm-d-planner, accuracy results, version sweep).
@pytest.mark.parametrize(("version", "printed_gib"), [("0.15.0", 5.64), ("0.16.0", 5.64), ("0.17.0", 2.23)])
def test_the_sorting_sampler_went_with_0_17(version: str, printed_gib: float) -> None:
    qwen3_14b = model(hidden=5120, intermediate=17408)
    sized = replace(shape(seqs=1024, tokens=8192), target=qwen3_14b, version=version)
    size = activation_peak(sized).size
    assert size.low_bytes <= printed_gib * GIB <= size.high_bytes


def test_phases_do_not_add_up() -> None:
    """The largest phase counts, not the sum: sampling runs after the forward pass has freed its tensors."""
    sized = shape(seqs=1024, tokens=8192)
    phases = profile_phases(sized)
    assert activation_peak(sized).high_bytes == max(phases.forward.high_bytes, phases.sampler.high_bytes)
    stage = replace(sized, last_stage=False)
    assert activation_peak(stage).high_bytes == phases.forward.high_bytes


@pytest.mark.parametrize("method", list(DraftMethod))
def test_a_draft_never_lowers_the_peak(method: DraftMethod) -> None:
    plain = shape(tokens=8192)
    drafting = replace(plain, method=method, draft=model(hidden=1024), num_speculative_tokens=3)
    with_draft, without = activation_peak(drafting).size, activation_peak(plain).size
    assert with_draft.low_bytes >= without.low_bytes
    assert with_draft.high_bytes >= without.high_bytes


def test_sampling_fewer_sequences_saves_in_proportion() -> None:
    """Six to fifteen bytes a logit: the bf16 row, its fp32 copy, probabilities and noise."""
    assert sampler_bytes(shape(), 100) == ByteRange(low_bytes=6 * 100 * 151936, high_bytes=15 * 100 * 151936)


# experts/triton_moe.py, workspace_shapes, 8192 tokens in bf16
@pytest.mark.parametrize(
    ("hidden", "width", "experts", "chosen", "tp", "mib"),
    [
        (2048, 768, 128, 8, 1, 544.0),  # Qwen3-30B-A3B: (8 x 2048 + 8 x 2048 + 2048) x 2 B
        (4096, 14336, 8, 2, 2, 736.0),  # Mixtral-8x7B: (2 x 7168 + 2 x 14336 + 4096) x 2 B
        (4096, 14336, 0, 0, 1, 0.0),
    ],
)
def test_expert_workspaces(hidden: int, width: int, experts: int, chosen: int, tp: int, mib: float) -> None:
    spec = replace(
        model(hidden=hidden, intermediate=width),
        experts=experts,
        experts_per_token=chosen,
        expert_intermediate_size=width,
    )
    found = expert_workspaces(spec, tokens=8192, tp=tp, expert_parallel=False, element_bytes=2)
    assert found == mib * MIB


def test_dense_layers_shrink_with_ranks() -> None:
    spec = model()
    one, two = (layer_activations(spec, tokens=1000, tp=tp, element_bytes=2) for tp in (1, 2))
    assert one.low_bytes == 1000 * (2 * 4096 + 2 * 12288) * 2
    assert two.high_bytes == 1000 * (8 * 4096 + 3 * 6144) * 2
