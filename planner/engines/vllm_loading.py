"""What loading adds to the checkpoint's own bytes: kernel layouts, copies, the peak while loading, host memory.

Source: vLLM 0.33.0 ``model_executor/layers/attention/mla_attention.py`` (``process_weights_after_loading``),
``model_executor/layers/fused_moe/oracle/mxfp4.py`` (padding by backend), ``v1/worker/gpu/spec_decode/eagle``
(sharing), ``model_executor/model_loader/weight_utils.py`` (memory-mapped safetensors).
"""

from collections.abc import Iterable
from typing import Final

from model_catalog.architecture import ArchitectureSpec, Component, LayerSpec, Role
from model_catalog.bounds import Basis, ByteRange
from model_catalog.conversion import Quantization
from model_catalog.units import GIB, MIB, ceil_div
from planner.engines.vllm_buffers import pinned_host_bytes
from planner.engines.vllm_shape import HALF_BYTES, EngineShape
from planner.memory.breakdown import Group, LineItem, Owner

_MXFP4_BITS: Final = 17  # per four weights: 4 x 4 bits and a share of 8 bits for each 32
_MXFP4_BITS_PER: Final = 4
_PADDED_INTERMEDIATE: Final = 128
_PADDED_HIDDEN: Final = 256
#: What an MXFP4 kernel holds beside padded experts: an A100 prints 13.72 GiB where padding makes 13.67.
_KERNEL_WORKSPACE_BYTES: Final = 64 * MIB
_LOAD_SLACK_BYTES: Final = 512 * MIB  # 0.03 to 0.40 GiB above the resident weights in 59 start-ups of vLLM 0.19
_PROCESS_LOW_BYTES: Final = 2 * GIB
_PROCESS_HIGH_BYTES: Final = 6 * GIB


def kernel_copies(
    architecture: ArchitectureSpec,
    quantization: Quantization | None,
    *,
    layers: Iterable[int],
    tp: int,
    expert_parallel: bool,
    group: Group,
    owner: Owner,
) -> tuple[LineItem, ...]:
    """Weights that kernels keep beside or around the checkpoint's, for these layers on one of ``tp`` ranks.

    Two kinds. Latent attention keeps a 16-bit copy of a *quantised* ``kv_b_proj`` in absorbed form (an
    unquantised one is only viewed): 1.91 GiB for DeepSeek-V3 in FP8 on one rank. MXFP4 expert kernels pad the
    experts, by nothing up to (256, 128) multiples, depending on the GPU: gpt-oss-20b loads as 12.88 GiB on an
    RTX 3090, 13.47 on an H100 and 13.72 on an A100.
    """
    if quantization is None:
        return ()
    decoder_layers = len(architecture.decoder_layers)
    absorbed, padding = 0, 0
    for number in layers:
        layer = architecture.layers[number]
        absorbed += _absorbed_elements(layer, number, quantization, decoder_layers)
        if _has_mxfp4_experts(layer, number, quantization, decoder_layers):
            padding += _expert_padding_bytes(architecture, tp=tp, expert_parallel=expert_parallel)
    lines = (
        _line(
            f"{owner.value}_absorbed_projections",
            ByteRange.point(ceil_div(absorbed, tp) * HALF_BYTES),
            group=group,
            owner=owner,
            source="vLLM 0.33.0 model_executor/layers/attention/mla_attention.py, split_kv_b_proj",
            formula=f"{absorbed:,} elements of quantised kv_b_proj x 2 B / {tp} ranks",
        ),
        _line(
            f"{owner.value}_expert_padding",
            ByteRange(low_bytes=0, high_bytes=padding + _KERNEL_WORKSPACE_BYTES if padding else 0),
            group=group,
            owner=owner,
            source="vLLM 0.33.0 model_executor/layers/fused_moe/oracle/mxfp4.py, by MXFP4 kernel",
            formula="experts padded to (256 hidden, 128 inner) at most, 4.25 bits a weight, plus up to 64 MiB",
        ),
    )
    return tuple(line for line in lines if line.high_bytes)


def load_peak_bytes(shape: EngineShape) -> ByteRange:
    """What loading may hold on the device above the resident weights, for a moment.

    Low: nothing. High: the second copy of a tied output head (Gemma 3: 2.7 GiB for 27B), the embedding and head
    that an EAGLE or MTP checkpoint brings before they are shared with the target, and the slack of one layer's
    conversion.
    """
    width, tp = shape.element_bytes, shape.tp
    tables = []
    if shape.target.tied_head and (shape.first_stage or shape.last_stage):
        tables.append(shape.target)
    if shape.speculates_with_hidden_states:
        tables += [shape.draft or shape.target] * 2
    table = sum(
        ceil_div(architecture.vocabulary_size * architecture.hidden_size, tp) * width for architecture in tables
    )
    return ByteRange(low_bytes=0, high_bytes=table + _LOAD_SLACK_BYTES)


def host_memory_bytes(shape: EngineShape, *, largest_file_bytes: int | None) -> ByteRange:
    """Host memory of the engine's processes on one machine, with all ranks there.

    Pinned buffers and 2 to 6 GiB a process (one for each rank, the engine core and the API server); high adds one
    mapped safetensors file for each rank, which the kernel may reclaim. The figure a process is assumed.
    ``largest_file_bytes`` None, where no file is known, adds nothing: the high bound then covers processes only.
    """
    ranks = shape.world_size
    processes = ranks + 2
    pinned = ranks * pinned_host_bytes(shape)
    return ByteRange(
        low_bytes=pinned + processes * _PROCESS_LOW_BYTES,
        high_bytes=2 * pinned + processes * _PROCESS_HIGH_BYTES + ranks * (largest_file_bytes or 0),
    )


def _absorbed_elements(layer: LayerSpec, number: int, quantization: Quantization, decoder_layers: int) -> int:
    """Elements of the layer's up-projection of keys and values, where it is quantised."""
    return sum(
        tensor.parameters
        for tensor in layer.tensors
        if "kv_b_proj" in tensor.name
        and quantization.scheme_for(layer.component, number, tensor, decoder_layers=decoder_layers) is not None
    )


def _has_mxfp4_experts(layer: LayerSpec, number: int, quantization: Quantization, decoder_layers: int) -> bool:
    for tensor in layer.tensors:
        if tensor.role is not Role.EXPERT or layer.component is Component.MTP:
            continue
        scheme = quantization.scheme_for(layer.component, number, tensor, decoder_layers=decoder_layers)
        if scheme is not None and "MXFP4" in scheme.label:
            return True
    return False


def _expert_padding_bytes(architecture: ArchitectureSpec, *, tp: int, expert_parallel: bool) -> int:
    """Bytes that one layer's experts grow by on one rank under the most padding kernel."""
    hidden = architecture.hidden_size
    width = architecture.expert_intermediate_size or architecture.intermediate_size
    experts = ceil_div(architecture.experts, tp) if expert_parallel else architecture.experts
    width = width if expert_parallel else ceil_div(width, tp)
    padded = _round_up(width, _PADDED_INTERMEDIATE) * _round_up(hidden, _PADDED_HIDDEN)
    # gate, up and down projections
    weights = 3 * experts * (padded - width * hidden)
    return ceil_div(weights * _MXFP4_BITS, 8 * _MXFP4_BITS_PER)


def _round_up(value: int, multiple: int) -> int:
    return ceil_div(value, multiple) * multiple


def _line(label: str, size: ByteRange, *, group: Group, owner: Owner, source: str, formula: str) -> LineItem:
    return LineItem.of_size(
        size,
        group=group,
        label=label,
        owner=owner,
        basis=Basis.DERIVED,
        source=source,
        formula=formula,
    )
