"""What llama.cpp holds beside weights and caches: compute buffers of its contexts, kernels' scratch, the process.

The compute buffer was measured with ``llama-server`` b10434 (tests/measured/llama_cpp_memory.jsonl): ten models,
contexts of 2,048 to 131,072, one to four slots. A pass of ``ub`` tokens held three times the width of the
feed-forward and two to four times the hidden size in F32 a token at its peak, and mostly the mask, in F16. Older
releases, before output limits, reserved logits for all ``ub`` rows, and before F16 masks one in F32 and a
copy (ggml-org/llama.cpp#10664, #22546).
"""

from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import (
    ArchitectureSpec,
    ChunkedAttention,
    FullAttention,
    LatentAttention,
    LayerSpec,
    Role,
    SlidingWindow,
)
from model_catalog.bounds import Basis, ByteRange
from model_catalog.model import Model
from model_catalog.units import MIB
from planner.devices import Device, DeviceSource
from planner.engines.llama_cpp_cache import Cells, widest_layer_elements
from planner.memory.breakdown import Group, LineItem, Owner
from planner.memory.overhead import SOURCE as CONTEXT_SOURCE
from planner.memory.overhead import cuda_context

_MEASURED: Final = "llama-server b10434, compute buffers of ten models (tests/measured/llama_cpp_memory.jsonl)"
_FLOAT_BYTES: Final = 4
_MASK_BYTES: Final = (2, 4 + 2)
#: Inputs are kept this many times where several GPUs work in a pipeline (GGML_SCHED_MAX_COPIES).
_PIPELINE_COPIES: Final = 4
#: Server, libraries and a vocabulary of 151,936: 53 MiB beside buffers. High: threads, requests, larger builds.
_SERVER_PROCESS: Final = ByteRange(low_bytes=32 * MIB, high_bytes=512 * MIB)
#: cuBLAS' workspace and small pools, at most: assumed.
_WORKSPACE_BYTES: Final = 96 * MIB
#: Prompts whose windows or states are kept for later (``--ctx-checkpoints`` 32, one each 8,192 tokens).
_MOST_CHECKPOINTS: Final = 32
_CHECKPOINT_STEP_TOKENS: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One context's passes: its cells, how many rows of logits it reserves, and GPUs that share the layers."""

    cells: Cells
    outputs: int
    devices: int = 1


def compute_line(model: Model, layers: tuple[LayerSpec, ...], work: Pass, owner: Owner) -> LineItem:
    """The compute buffer of one context on one device."""
    size = compute_bytes(model.architecture, layers, work)
    tokens = work.cells.ubatch
    return LineItem.of_size(
        size,
        group=Group.TEMPORARY_BUFFERS,
        label=f"{owner.value}_compute_buffer",
        owner=owner,
        basis=Basis.CALIBRATED,
        source=_MEASURED,
        formula=(
            f"{tokens:,} tokens of one pass x widest layer in F32, or x {model.architecture.vocabulary_size:,} "
            f"logits; mask of {tokens:,} x {work.cells.per_slot:,} cells"
        ),
    )


def compute_bytes(architecture: ArchitectureSpec, layers: tuple[LayerSpec, ...], work: Pass) -> ByteRange:
    """Bounds of that buffer. Low: its largest part alone; high: the mask beside the larger of layer and logits."""
    tokens, hidden = work.cells.ubatch, architecture.hidden_size
    narrow, wide = _layer_elements(architecture, layers)
    row = architecture.vocabulary_size
    mask = tokens * _mask_cells(layers, work.cells)
    copies = _PIPELINE_COPIES if work.devices > 1 else 1
    low = max(
        tokens * narrow * _FLOAT_BYTES,
        min(tokens, work.outputs) * row * _FLOAT_BYTES if work.devices == 1 else 0,
        mask * _MASK_BYTES[0],
    )
    high = max(tokens * wide, tokens * (row + 2 * hidden)) * _FLOAT_BYTES + mask * _MASK_BYTES[1] * copies
    return ByteRange(low_bytes=low, high_bytes=high)


def _mask_cells(layers: tuple[LayerSpec, ...], cells: Cells) -> int:
    """Columns of the masks: one for full attention, one for windows."""
    rules = [rule for layer in layers for rule in layer.caches]
    whole = cells.per_slot if any(isinstance(r, FullAttention | LatentAttention) for r in rules) else 0
    windows = [r.window_tokens for r in rules if isinstance(r, SlidingWindow)]
    windows += [r.chunk_tokens for r in rules if isinstance(r, ChunkedAttention)]
    return whole + (cells.window(max(windows)) // cells.slots if windows else 0)


def _layer_elements(architecture: ArchitectureSpec, layers: tuple[LayerSpec, ...]) -> tuple[int, int]:
    """F32 elements a token that the widest layer holds at its peak, at least and at most."""
    hidden, dense = architecture.hidden_size, architecture.intermediate_size
    chosen = max(1, architecture.experts_per_token)
    expert = architecture.expert_intermediate_size or dense
    narrow, wide = 2 * hidden, 4 * hidden
    if architecture.experts:
        # The chosen experts' halves, their product, and what each gives back before they are added up.
        narrow += chosen * (hidden + expert)
        wide += chosen * (2 * hidden + 3 * expert) + 3 * (dense if expert != dense else 0)
    else:
        narrow, wide = narrow + 2 * dense, wide + 3 * dense
    mixer = max((_mixer_elements(layer) for layer in layers), default=0)
    return narrow, max(wide, 4 * hidden + 3 * mixer)


def _mixer_elements(layer: LayerSpec) -> int:
    """Outputs of a layer's projections before its feed-forward; latent queries are as wide as the cache's rows."""
    roles = {Role.QUERY, Role.KEY_VALUE, Role.QKV, Role.STATE_MIXER, Role.LATENT}
    outputs = sum(t.shape[0] for t in layer.tensors if t.role in roles and t.linear and len(t.shape) == 2)
    for rule in layer.caches:
        if isinstance(rule, LatentAttention):
            outputs += layer.attention_heads * (rule.latent_dim + rule.rope_dim)
    return outputs


def process_line(device: Device) -> LineItem:
    """What the server takes before any model: a CUDA context, or in host memory its own code and vocabulary."""
    host = device.source is DeviceSource.HOST
    return LineItem.of_size(
        _SERVER_PROCESS if host else cuda_context(device.total_bytes),
        group=Group.RUNTIME_OVERHEAD,
        label="host_process" if host else "device_context",
        owner=Owner.BOTH,
        basis=Basis.ASSUMED if host else Basis.CALIBRATED,
        source="assumed around 53 MiB, measured of llama-server b10434" if host else CONTEXT_SOURCE,
        formula="one process in host memory" if host else "one process on one device",
    )


def scratch_line(layers: tuple[LayerSpec, ...], cells: Cells, *, packed_cache: bool) -> LineItem:
    """What CUDA kernels borrow while they run.

    A packed cache is unpacked to F16 a layer at a time in flash attention: in sudoingX/qwen38-mtp 5,120 B a token
    beside a q4_0 cache of 18,432 B, of which 4,096 B are one layer's keys and values in F16 and 1,024 B mask.
    Matrices that no kernel multiplies as stored are unpacked for cuBLAS.
    """
    unpacked = widest_layer_elements(layers) * cells.total * 2 if packed_cache else 0
    matrices = [t.parameters // max(t.count, 1) for layer in layers for t in layer.tensors if t.linear]
    return LineItem(
        group=Group.TEMPORARY_BUFFERS,
        label="kernel_scratch",
        owner=Owner.BOTH,
        low_bytes=0,
        high_bytes=unpacked + max(matrices, default=0) * 2 + _WORKSPACE_BYTES,
        basis=Basis.ASSUMED,
        source="llama.cpp ggml-cuda (fattn-common.cuh, cuBLAS path); sudoingX/qwen38-mtp for packed caches",
        formula=f"one layer's cache in F16 ({unpacked:,} B), the largest matrix in F16, workspaces",
    )


def checkpoint_line(kept: ByteRange, cells: Cells) -> LineItem:
    """Copies of windows and recurrent states that the server keeps in host memory to go back to."""
    count = min(_MOST_CHECKPOINTS, cells.per_slot // _CHECKPOINT_STEP_TOKENS + 2)
    return LineItem(
        group=Group.RUNTIME_OVERHEAD,
        label="context_checkpoints",
        owner=Owner.TARGET,
        low_bytes=0,
        high_bytes=kept.high_bytes * count,
        basis=Basis.ASSUMED,
        source="llama.cpp b11434 common/common.h (n_ctx_checkpoints 32, checkpoint_min_step 8192)",
        formula=f"at most {count} copies a slot of {kept.high_bytes:,} B of windows and states",
    )
