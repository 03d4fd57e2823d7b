"""The transient peaks: what vLLM's profile run measures and charges, and what verification needs beyond it.

The profile runs one forward pass of ``max_num_batched_tokens`` and then the sampler on ``max_num_seqs`` rows. The
phases do not overlap, so the largest counts; expert workspaces stay allocated through all of them.

Source: vLLM 0.33.0 v1/worker/gpu/model_runner.py (``profile_run``, ``_dummy_sampler_run``) and
spec_decode/rejection_sampler.py. The bounds hold 59 of 59 start-ups of vLLM 0.19 and the older rows in
tests/measured/vllm_memory.jsonl.
"""

from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import LayerSpec
from model_catalog.bounds import Basis, ByteRange
from model_catalog.units import MIB, ceil_div
from planner.engines.vllm_buffers import context_workspace_rows
from planner.engines.vllm_drafting import auxiliary_states, draft_phase
from planner.engines.vllm_shape import EngineShape, latent_rule, release_of
from planner.memory.breakdown import Group, LineItem, Owner
from planner.memory.working_set import expert_workspaces, layer_activations, logits_bytes

_FP32_BYTES: Final = 4
# Sampler, bytes per logit beside the row in the model's dtype. V2 runner: from the fp32 copy alone (Gumbel
# sampling) to what V1 takes; too few starts of it state their peak to say more.
_SAMPLER_BYTES_PER_LOGIT: Final = (4, 13)
# V1 runner since 0.17: copy, probabilities and exponential noise are 12 B; fitted 12.6 to 13 with padding.
_V1_SAMPLER_BYTES_PER_LOGIT: Final = (12, 13)
# Before 0.17 the sampler sorted the whole vocabulary: fitted 32.7 (L40S) and 36.4 to 36.9 (H100).
_SORTING_SAMPLER_BYTES_PER_LOGIT: Final = (30, 38)
_FIRST_RELEASE_WITHOUT_SORT: Final = (0, 17)
_ALLOCATOR_SLACK_BYTES: Final = 64 * MIB
# Encoder phase of multimodal models: one batch of the largest images. Fitted 2.0 GiB at most (Qwen3.8-27B).
_ENCODER_HIGH_BYTES: Final = 2560 * MIB
# Encoder outputs and their merge stay through the forward pass: fitted 1 to 2.8 copies of the token budget.
_ENCODER_OUTPUT_COPIES: Final = 4
_VERIFICATION_CHUNK_BYTES: Final = 2**30  # rejection_sampler.py, MAX_CHUNK_BYTES
_SOURCE: Final = (
    "vLLM 0.33.0 v1/worker/gpu/model_runner.py, profile_run; bounds fitted to 59 start-ups of vLLM 0.19 on H100 "
    "(llm-d-incubation/llm-d-planner, accuracy results) and older logs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePhases:
    """The phases of the profile run; ``kept`` is added to whichever is the largest."""

    forward: ByteRange
    sampler: ByteRange
    draft: ByteRange
    encoder: ByteRange
    kept: ByteRange

    @property
    def peak(self) -> ByteRange:
        """The largest phase, with what stays allocated through all."""
        phases = (self.forward, self.sampler, self.draft, self.encoder)
        largest = ByteRange(
            low_bytes=max(phase.low_bytes for phase in phases),
            high_bytes=max(phase.high_bytes for phase in phases),
        )
        return largest + self.kept


def activation_peak(shape: EngineShape) -> LineItem:
    """The transient peak that vLLM profiles and subtracts from its budget on this rank."""
    phases = profile_phases(shape)
    peak = phases.peak
    parts = {
        "forward": phases.forward,
        "sampler": phases.sampler,
        "draft": phases.draft,
        "encoder": phases.encoder,
    }
    largest = max(parts, key=lambda name: parts[name].high_bytes)
    return LineItem.of_size(
        peak,
        group=Group.TEMPORARY_BUFFERS,
        label="activation_peak",
        owner=Owner.BOTH if shape.draft_layers else Owner.TARGET,
        basis=Basis.CALIBRATED,
        source=_SOURCE,
        formula=(
            f"largest phase of {shape.max_num_batched_tokens:,} tokens forward and {_sampled_rows(shape):,} rows "
            f"x {shape.target.vocabulary_size:,} vocabulary sampled (at most the {largest}), plus kept workspaces"
        ),
    )


def profile_phases(shape: EngineShape) -> ProfilePhases:
    """Bounds of every phase of the profile run on this rank."""
    target, width = shape.target, shape.element_bytes
    tokens = shape.max_num_batched_tokens
    forward = layer_activations(target, tokens=tokens, tp=shape.tp, element_bytes=width)
    # States that a head reads are collected while the layers run.
    collected = auxiliary_states(shape) * tokens * target.hidden_size * width
    forward = ByteRange(
        low_bytes=forward.low_bytes,
        high_bytes=max(forward.high_bytes, _latent_context_bytes(shape)) + collected + _ALLOCATOR_SLACK_BYTES,
    )
    nothing = ByteRange.point(0)
    multimodal = target.multimodal and shape.first_stage
    experts = expert_workspaces(
        target,
        tokens=tokens,
        tp=shape.tp,
        expert_parallel=shape.expert_parallel,
        element_bytes=width,
    )
    outputs = _ENCODER_OUTPUT_COPIES * tokens * target.hidden_size * width if multimodal else 0
    return ProfilePhases(
        forward=forward,
        sampler=_sampler(shape) if shape.last_stage else nothing,
        draft=draft_phase(shape) if shape.last_stage else nothing,
        encoder=ByteRange(low_bytes=0, high_bytes=_ENCODER_HIGH_BYTES) if multimodal else nothing,
        # Other expert kernels than the Triton one bring their own, smaller, workspaces.
        kept=ByteRange(low_bytes=0, high_bytes=experts + outputs),
    )


def verification_logits(shape: EngineShape) -> tuple[LineItem, ...]:
    """What verifying drafts needs beyond the profiled peak: nothing reserves it, so it lies outside the budget.

    R(1 + k) rows of logits in the model's dtype, and an fp32 chunk of at most 1 GiB where sampling parameters ask
    for one, less the profiled peak, whose memory is free again by then. Low: the planned batch, sampled greedily,
    against the highest profile. High: every sequence the engine admits, against the lowest profile.
    """
    if not shape.num_speculative_tokens or not shape.last_stage:
        return ()
    query = 1 + shape.num_speculative_tokens
    vocabulary, width = shape.target.vocabulary_size, shape.element_bytes
    profiled = profile_phases(shape).peak
    few = query * min(shape.batch, shape.max_num_seqs)
    most = min(query * shape.max_num_seqs, shape.max_num_batched_tokens)
    few = min(few, most)
    low = logits_bytes(rows=few, vocabulary_size=vocabulary, bytes_per_logit=width)
    high = logits_bytes(rows=most, vocabulary_size=vocabulary, bytes_per_logit=width)
    high += min(
        _VERIFICATION_CHUNK_BYTES,
        logits_bytes(rows=most, vocabulary_size=vocabulary, bytes_per_logit=_FP32_BYTES),
    )
    return (
        LineItem(
            group=Group.TEMPORARY_BUFFERS,
            label="verification_logits",
            owner=Owner.DRAFT,
            low_bytes=max(0, low - profiled.high_bytes),
            high_bytes=max(0, high - profiled.low_bytes),
            basis=Basis.DERIVED,
            source="vLLM 0.33.0 v1/worker/gpu/spec_decode/rejection_sampler.py (MAX_CHUNK_BYTES)",
            formula=(
                f"{few:,} to {most:,} rows x {vocabulary:,} vocabulary x {width} B, up to 1 GiB in fp32, less the "
                "profiled peak"
            ),
            inside_budget=False,
        ),
    )


def sampler_bytes(shape: EngineShape, seqs: int) -> ByteRange:
    """Bytes of sampling ``seqs`` rows, which is what lowering ``--max-num-seqs`` saves at the peak."""
    if shape.v2_runner:
        extra = _SAMPLER_BYTES_PER_LOGIT
    elif release_of(shape.version) >= _FIRST_RELEASE_WITHOUT_SORT:
        extra = _V1_SAMPLER_BYTES_PER_LOGIT
    else:
        extra = _SORTING_SAMPLER_BYTES_PER_LOGIT
    low, high = (
        logits_bytes(
            rows=seqs,
            vocabulary_size=shape.target.vocabulary_size,
            bytes_per_logit=shape.element_bytes + bytes_per_logit,
        )
        for bytes_per_logit in extra
    )
    return ByteRange(low_bytes=low, high_bytes=high)


def _sampler(shape: EngineShape) -> ByteRange:
    """Sampling, while the hidden states of the forward pass are still held."""
    held = shape.max_num_batched_tokens * shape.target.hidden_size * shape.element_bytes
    sampled = sampler_bytes(shape, _sampled_rows(shape))
    return ByteRange(
        low_bytes=sampled.low_bytes + held,
        high_bytes=sampled.high_bytes + held + _ALLOCATOR_SLACK_BYTES,
    )


def _sampled_rows(shape: EngineShape) -> int:
    return min(shape.max_num_seqs, shape.max_num_batched_tokens)


def _latent_context_bytes(shape: EngineShape) -> int:
    """Up-projected keys and values of a gathered context chunk, which the profile run allocates to simulate it.

    rows x heads x (key + value) elements; up to 4 GiB for DeepSeek-V3 on one rank. Source: mla_attention.py.
    """
    if latent_rule(shape.layers) is None:
        return 0
    outputs = max((_up_projection_width(layer) for layer in shape.layers), default=0)
    return context_workspace_rows(shape) * ceil_div(outputs, shape.tp) * shape.element_bytes


def _up_projection_width(layer: LayerSpec) -> int:
    """Rows of ``kv_b_proj``: heads x (key without position + value)."""
    return max((tensor.shape[0] for tensor in layer.tensors if "kv_b_proj" in tensor.name), default=0)
