"""Lines that SGLang and TensorRT-LLM share: a process's context, libraries, the working peak, graphs.

The context and the communicators are the same driver's and the same library's as in vLLM, so the figures measured
there are taken over: the context as measured, the communicators as assumed, because each engine adds buffers of
its own. Everything else is assumed and wide: no start-up log with these terms told apart is at hand for either.
"""

from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import ArchitectureSpec
from model_catalog.bounds import Basis, ByteRange
from model_catalog.units import MIB
from planner.engines.base import Serving
from planner.engines.vllm_shape import activation_bytes
from planner.memory.breakdown import Group, LineItem, Owner
from planner.memory.overhead import SOURCE as CONTEXT_SOURCE
from planner.memory.overhead import communicators, cuda_context
from planner.memory.working_set import expert_workspaces, layer_activations, logits_bytes

#: Kernels and libraries that a process loads with the model; vLLM's logs show 0.02 to 0.5 GiB on one rank.
_LIBRARIES: Final = ByteRange(low_bytes=16 * MIB, high_bytes=1024 * MIB)
#: With all-reduce workspaces; vLLM's logs show 0.2 to 2.2 GiB.
_LIBRARIES_TP: Final = ByteRange(low_bytes=16 * MIB, high_bytes=2432 * MIB)
#: Attention workspaces are fixed buffers of a few hundred MiB in the kernels that both engines use.
_WORKSPACE_HIGH_BYTES: Final = 768 * MIB
#: fp32 logits, probabilities and noise of a sampled row, beside the row in the model's dtype.
_SAMPLER_HIGH_BYTES_PER_LOGIT: Final = 12
#: An encoder's pass over the largest images: vLLM's logs show 2 GiB at most.
_ENCODER_HIGH_BYTES: Final = 2560 * MIB
_ACTIVATION_HIGH_FACTOR: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a line stands against the budget."""

    inside_budget: bool = False
    before_budget: bool = False


BEFORE: Final = Place(before_budget=True)
INSIDE: Final = Place(inside_budget=True)
AFTER: Final = Place()


def process_lines(serving: Serving, total_bytes: int | None) -> tuple[LineItem, ...]:
    """The CUDA context and the communicators, which exist before any engine reads free memory."""
    work = serving.workload
    lines = [
        overhead_line(
            "cuda_context",
            cuda_context(total_bytes),
            BEFORE,
            basis=Basis.CALIBRATED,
            source=CONTEXT_SOURCE,
            formula="one process on the device",
        )
    ]
    ranks = work.tp * work.pp
    if ranks > 1:
        lines.append(
            overhead_line(
                "communicators",
                communicators(world_size=ranks, expert_parallel=work.expert_parallel),
                BEFORE,
                source=f"assumed to be as in vLLM: {CONTEXT_SOURCE}",
                formula=f"NCCL and all-reduce buffers of {ranks} ranks",
            )
        )
    return tuple(lines)


def library_line(serving: Serving, place: Place) -> LineItem:
    """What the driver takes for kernels and libraries while the model loads."""
    tp = serving.workload.tp
    return overhead_line(
        "driver_growth",
        _LIBRARIES_TP if tp > 1 else _LIBRARIES,
        place,
        source="assumed; wider than what vLLM's start-up logs call non_torch",
        formula="libraries and kernels" + (f", all-reduce workspaces of {tp} ranks" if tp > 1 else ""),
    )


def working_peak(serving: Serving, *, tokens: int, draft: ArchitectureSpec | None, place: Place) -> LineItem:
    """The forward pass of ``tokens`` tokens: one layer's tensors, expert workspaces, an encoder's pass.

    High: twice the layer's tensors, as other kernels keep other intermediates, and an attention workspace. A draft
    runs after its target, over the same tokens: the larger of the two counts.
    """
    target, work = serving.target.architecture, serving.workload
    width = activation_bytes(target, work.dtype)
    low = high = 0
    for model in (target, *([draft] if draft is not None else [])):
        size = layer_activations(model, tokens=tokens, tp=work.tp, element_bytes=width)
        experts = expert_workspaces(
            model, tokens=tokens, tp=work.tp, expert_parallel=work.expert_parallel, element_bytes=width
        )
        low = max(low, size.low_bytes)
        high = max(high, size.high_bytes * _ACTIVATION_HIGH_FACTOR + experts)
    encoder = _ENCODER_HIGH_BYTES if target.multimodal else 0
    return LineItem(
        group=Group.TEMPORARY_BUFFERS,
        label="activation_peak",
        owner=Owner.BOTH if draft is not None else Owner.TARGET,
        low_bytes=low,
        high_bytes=max(high, encoder) + _WORKSPACE_HIGH_BYTES,
        basis=Basis.ASSUMED,
        source="tensors of one layer (see planner.memory.working_set); doubled, with an attention workspace",
        formula=(
            f"{tokens:,} tokens in one pass x the widest layer, high twice, plus expert workspaces and up to "
            f"{_WORKSPACE_HIGH_BYTES // MIB} MiB" + (", or an encoder's pass of 2.5 GiB" if encoder else "")
        ),
        inside_budget=place.inside_budget,
        before_budget=place.before_budget,
    )


def logits_line(serving: Serving, *, rows_low: int, rows_high: int, place: Place) -> LineItem:
    """Logits of so many rows: in the model's dtype at least, with fp32 copies for sampling at most."""
    target = serving.target.architecture
    width = activation_bytes(target, serving.workload.dtype)
    return LineItem(
        group=Group.TEMPORARY_BUFFERS,
        label="logits",
        owner=Owner.BOTH if serving.draft is not None else Owner.TARGET,
        low_bytes=logits_bytes(rows=rows_low, vocabulary_size=target.vocabulary_size, bytes_per_logit=width),
        high_bytes=logits_bytes(
            rows=rows_high,
            vocabulary_size=target.vocabulary_size,
            bytes_per_logit=width + _SAMPLER_HIGH_BYTES_PER_LOGIT,
        ),
        basis=Basis.ASSUMED,
        source="rows x vocabulary: the model's dtype at least, three fp32 copies for sampling at most",
        formula=(
            f"{rows_low:,} to {rows_high:,} rows x {target.vocabulary_size:,} vocabulary x {width} to "
            f"{width + _SAMPLER_HIGH_BYTES_PER_LOGIT} B"
        ),
        inside_budget=place.inside_budget,
        before_budget=place.before_budget,
    )


def overhead_line(
    label: str,
    size: ByteRange,
    place: Place,
    *,
    source: str,
    formula: str,
    basis: Basis = Basis.ASSUMED,
    owner: Owner = Owner.TARGET,
    group: Group = Group.RUNTIME_OVERHEAD,
) -> LineItem:
    """A line of runtime overhead at this place."""
    return LineItem.of_size(
        size,
        group=group,
        label=label,
        owner=owner,
        basis=basis,
        source=source,
        formula=formula,
        inside_budget=place.inside_budget,
        before_budget=place.before_budget,
    )
