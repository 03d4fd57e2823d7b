"""What a forward pass and its logits need beside weights and cache, whichever engine runs it.

Owns the widths of intermediate tensors. How many tokens run at once, and which phases overlap, is the engine's.
"""

from typing import Final

from model_catalog.architecture import ArchitectureSpec
from model_catalog.bounds import ByteRange
from model_catalog.units import ceil_div

# Live copies of the residual stream at the widest point of a layer: the hidden state and the residual at least.
# Fitted: 4.2 explain CodeLlama-7B and Granite-3.1-8B (vLLM 0.19, 8192 tokens), 7.1 the first pipeline stage of
# Llama-3.1-8B, which also hands both on.
_RESIDUAL_COPIES: Final = (2, 8)
# Feed-forward: the gate and up halves at least; the product beside them at most.
_FEED_FORWARD_COPIES: Final = (2, 3)


def layer_activations(architecture: ArchitectureSpec, *, tokens: int, tp: int, element_bytes: int) -> ByteRange:
    """Bytes that the widest layer holds for ``tokens`` tokens on one of ``tp`` ranks, without expert buffers.

    Source: the tensors of a gated transformer layer; the copies are fitted to the start-up logs of vLLM 0.19 on
    H100 (llm-d-incubation/llm-d-planner, accuracy/results/v0.19.0), as the constants above say.
    """
    hidden = architecture.hidden_size
    dense = 0 if _all_layers_routed(architecture) else ceil_div(architecture.intermediate_size, tp)
    low, high = (
        tokens * (residual * hidden + feed_forward * dense) * element_bytes
        for residual, feed_forward in zip(_RESIDUAL_COPIES, _FEED_FORWARD_COPIES, strict=True)
    )
    return ByteRange(low_bytes=low, high_bytes=high)


def expert_workspaces(
    architecture: ArchitectureSpec, *, tokens: int, tp: int, expert_parallel: bool, element_bytes: int
) -> int:
    """Bytes of a fused expert kernel's three buffers: both projections of every chosen expert, and the output.

    tokens x chosen x max(I, H) + tokens x chosen x max(2I, H) + tokens x H elements, I the experts' width on this
    rank. Source: vLLM 0.33.0 model_executor/layers/fused_moe/experts/triton_moe.py (``workspace_shapes``). 0
    without experts.
    """
    if not architecture.experts:
        return 0
    width = architecture.expert_intermediate_size or architecture.intermediate_size
    if not expert_parallel:
        width = ceil_div(width, tp)
    hidden, chosen = architecture.hidden_size, max(1, architecture.experts_per_token)
    return tokens * (chosen * (max(width, hidden) + max(2 * width, hidden)) + hidden) * element_bytes


def logits_bytes(*, rows: int, vocabulary_size: int, bytes_per_logit: int) -> int:
    """Bytes of ``rows`` rows over the whole vocabulary."""
    return rows * vocabulary_size * bytes_per_logit


def _all_layers_routed(architecture: ArchitectureSpec) -> bool:
    """Experts of the model's only feed-forward width (Mixtral, gpt-oss): no dense layer beside them."""
    return bool(architecture.experts) and architecture.expert_intermediate_size in {
        0,
        architecture.intermediate_size,
    }
