"""What a draft that reads hidden states shares with its target in vLLM, and what it keeps of its own.

Owns the vocabulary tables of heads and MTP layers, and the joined projections of DFlash heads. A stand-alone draft
model shares nothing.

Source: vLLM 0.33.0 ``v1/worker/gpu/spec_decode`` (eagle/utils.py: ``maybe_share_target_embed``, ``_should_share``;
dflash/utils.py, dspark/utils.py); ``model_executor/models`` (qwen3_dflash.py: ``_build_context_kv_buffers``;
llama_eagle3.py and qwen3_dspark.py: projections and Markov tables are whole on every rank).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from model_catalog.architecture import Component, FullAttention, Role, SlidingWindow
from model_catalog.bounds import Basis, ByteRange
from model_catalog.drafts import PARALLEL_HEADS, DraftMethod
from model_catalog.model import Model
from model_catalog.snapshot import ModelSnapshot, WeightsKnownFrom
from model_catalog.units import ceil_div
from model_catalog.weight_residency import ResidentGroup
from planner.engines.base import Serving
from planner.engines.vllm_shape import activation_bytes
from planner.memory.breakdown import Group, LineItem, Owner
from planner.memory.sharding import padded_vocabulary

_SOURCE: Final = "vLLM 0.33.0 v1/worker/gpu/spec_decode/eagle/utils.py"


def head_groups(model: Model, target: Model, *, element_bytes: int) -> tuple[list[ResidentGroup], bool | None]:
    """A head's weights without its token table, and whether the checkpoint stores one (None: nobody told).

    An output table of the target's own size is shared when the two are equal, so it may cost nothing. Projections
    of joined hidden states and Markov tables are whole on every rank, as norms are.
    """
    architecture = model.architecture
    table_bytes = architecture.vocabulary_size * architecture.hidden_size * element_bytes
    stored = False if _total_is_known(model.snapshot) else None
    rows = target.architecture.vocabulary_size
    groups: list[ResidentGroup] = []
    for item in model.weights.resident:
        if item.role is Role.EMBEDDING:
            stored = True
            continue
        if item.component is Component.OTHER and item.role is Role.OTHER and item.high_bytes >= table_bytes:
            # What a published total leaves beyond the structure: a table first of all.
            stored = True
            rest = item.high_bytes - table_bytes
            groups.append(replace(item, low_bytes=min(item.low_bytes, rest), high_bytes=rest))
        elif item.role is Role.HEAD and item.parameters >= rows * architecture.hidden_size:
            groups.append(replace(item, low_bytes=0))
        else:
            groups.append(replace(item, role=Role.NORM) if item.role is Role.OTHER else item)
    return groups, stored


def needs_own_table(serving: Serving) -> bool:
    """Whether the drafting rank lacks the target's token table: pipeline stages, and none tied to the head."""
    return serving.workload.pp > 1 and not serving.target.architecture.tied_head


def lacks_token_table(serving: Serving, head: Model) -> bool:
    """Whether this head cannot start: no table to share on its stage, and for certain none in its checkpoint."""
    if not needs_own_table(serving):
        return False
    width = activation_bytes(serving.target.architecture, serving.workload.dtype)
    return head_groups(head, serving.target, element_bytes=width)[1] is False


def token_table(serving: Serving, model: Model, *, stored: bool | None) -> Iterator[LineItem]:
    """The draft's own token table.

    On one stage the target's is shared unless the checkpoint stores one that differs (``stored`` None: it may).
    On several, the last stage has none to share, so the draft keeps its own.
    """
    architecture = model.architecture
    workload = serving.workload
    width = activation_bytes(serving.target.architecture, workload.dtype)
    rows, hidden = padded_vocabulary(architecture.vocabulary_size), architecture.hidden_size
    table = ceil_div(rows * hidden * width, workload.tp)
    staged = workload.pp > 1
    if stored is False and not staged:
        return
    low = table if needs_own_table(serving) else 0
    reason = "on the last stage, where the target has none" if low else "the target's unless it differs"
    yield _line(
        "draft_token_table",
        ByteRange(low_bytes=low, high_bytes=table),
        source=_SOURCE,
        formula=f"{rows:,} tokens x {hidden:,} hidden x {width} B{_share(workload.tp)}; {reason}",
    )


def context_projection(method: DraftMethod, model: Model, *, tp: int, element_bytes: int) -> Iterator[LineItem]:
    """The joined key and value projections of all layers that DFlash and DSpark keep beside the layers' own.

    Quantised projections are not joined, so with a quantised head it may be nothing.
    """
    if method not in PARALLEL_HEADS:
        return
    rules = [
        rule
        for layer in model.architecture.decoder_layers
        for rule in layer.caches
        if isinstance(rule, FullAttention | SlidingWindow)
    ]
    rows = sum(max(1, rule.kv_heads // tp) * (rule.key_dim + rule.value_dim) for rule in rules)
    size = rows * model.architecture.hidden_size * element_bytes
    yield _line(
        "draft_context_projection",
        ByteRange(low_bytes=0 if model.quantization else size, high_bytes=size),
        source="vLLM 0.33.0 model_executor/models/qwen3_dflash.py, _build_context_kv_buffers",
        formula=(
            f"{rows:,} key and value rows of {len(rules)} layers x {model.architecture.hidden_size:,} hidden "
            f"x {element_bytes} B"
        ),
    )


def _total_is_known(snapshot: ModelSnapshot) -> bool:
    """Whether anything beyond the configuration says how much the checkpoint holds."""
    told = (snapshot.index_total_bytes, snapshot.published_bytes, snapshot.published_parameters)
    return (
        bool(snapshot.weight_groups)
        or any(figure is not None for figure in told)
        or snapshot.weights_from is not WeightsKnownFrom.CONFIG
    )


def _share(tp: int) -> str:
    return f" / {tp} ranks" if tp > 1 else ""


def _line(label: str, size: ByteRange, *, source: str, formula: str) -> LineItem:
    return LineItem(
        group=Group.DRAFT_WEIGHTS,
        label=label,
        owner=Owner.DRAFT,
        low_bytes=size.low_bytes,
        high_bytes=size.high_bytes,
        basis=Basis.DERIVED,
        source=source,
        formula=formula,
    )
