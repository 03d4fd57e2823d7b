"""The SGLang profile: which lines a rank has, and where each stands against the engine's memory fraction.

``mem_fraction_static`` is a fraction of what is free once the process and its communicators exist: weights, what
loading brings along and the pool must fit into it; everything after (the working peak, graphs, the table of
requests) into the rest. Nothing of that rest is measured by the engine.

Source: SGLang 0.5.23 ``mem_cache/kv_cache_configurator.py``, ``model_executor/pool_configurator.py``,
``arg_groups/memory_hook.py`` and ``validation_hook.py``. Layers and vocabulary tables are split as in vLLM, from
which they descend, so weights are dealt out by the same rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import Component
from model_catalog.bounds import Basis, ByteRange
from model_catalog.drafts import READS_HIDDEN_STATES
from model_catalog.units import GIB, MIB, ceil_div
from planner.devices import Device
from planner.engines import sglang_cache
from planner.engines.base import BudgetBase, EngineCache, EngineDefaults, Loading, Rank, Serving, layers_of
from planner.engines.server_checks import check_serving, draft_architecture, refuse_pinned_cache
from planner.engines.server_lines import (
    AFTER,
    INSIDE,
    library_line,
    logits_line,
    overhead_line,
    process_lines,
    working_peak,
)
from planner.engines.sglang_defaults import FEWEST_REQUESTS, graph_reserve_mib, sglang_defaults, tier_of
from planner.engines.vllm_shape import HALF_BYTES, latent_rule
from planner.engines.vllm_stages import deal_layers
from planner.engines.vllm_weights import draft_weights, target_weights
from planner.errors import ParallelismError
from planner.memory.breakdown import Group, LineItem, Owner

SGLANG_VERSION: Final = "0.5.23"
CACHE_DTYPES: Final = ("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4")
_INT32_BYTES: Final = 4
#: Graphs against the engine's own reserve for them, which it calls a heuristic.
_GRAPHS_LOW_DIVISOR: Final = 4
_GRAPHS_HIGH_FACTOR: Final = 4
#: Embeddings of images and their transport, allocated after the pool and kept out of it.
_MULTIMODAL_HIGH_BYTES: Final = GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangProfile:
    """SGLang on CUDA devices, without attention data parallelism and disaggregation."""

    version: str = SGLANG_VERSION
    name: str = "sglang"
    budget_base: BudgetBase = "free_before_load"

    def check(self, serving: Serving) -> None:
        """Refuse what the engine refuses, and pools whose rule is not known here."""
        check_serving(serving, "SGLang", cache_dtypes=CACHE_DTYPES)
        refuse_pinned_cache(
            serving,
            "SGLang",
            "it takes tokens (--max-total-tokens), and no more than its fraction leaves",
            "use --gpu-memory-utilization, which is its --mem-fraction-static here",
        )
        if serving.draft is not None and serving.workload.pp > 1:
            raise ParallelismError(
                "SGLang does not speculate with pipeline stages",
                subject=serving.target.snapshot.repo_id,
                hint="use --pp 1 and a larger --tp, or --draft none",
            )

    def defaults(self, serving: Serving, device: Device) -> EngineDefaults:
        """Chunk, requests, page and fraction as the server would choose them."""
        return sglang_defaults(serving, device)

    def ranks_per_stage(self, serving: Serving) -> int:
        """Every stage is split over the TP ranks, the draft too."""
        return serving.workload.tp

    def stages(self, serving: Serving) -> tuple[tuple[int, ...], ...]:
        """Layer positions by pipeline stage, MTP layers aside."""
        layers = serving.target.architecture.layers
        positions = [number for number, layer in enumerate(layers) if layer.component is not Component.MTP]
        return deal_layers(positions, serving.workload.pp)

    def lines(self, serving: Serving, rank: Rank) -> tuple[LineItem, ...]:
        """Every line of one rank."""
        defaults = self.defaults(serving, rank.device)
        return (
            *target_weights(serving, rank),
            *_absorbed_copies(serving, rank),
            *_draft_weights(serving),
            *sglang_cache.sglang_cache_lines(serving, defaults, rank),
            *process_lines(serving, rank.device.total_bytes),
            library_line(serving, INSIDE),
            *_multimodal(serving),
            *_graphs(serving, defaults, rank),
            _request_table(serving, defaults),
            working_peak(
                serving,
                tokens=defaults.max_num_batched_tokens,
                draft=draft_architecture(serving),
                place=AFTER,
            ),
            *_logits(serving, defaults, rank),
        )

    def loading(self, serving: Serving, rank: Rank) -> Loading | None:
        """Not known: no start-up log tells what loading takes for a moment."""
        del serving, rank
        return None

    def pool(self, serving: Serving, rank: Rank, available: ByteRange) -> EngineCache | None:
        """The pool at the low end of ``available``."""
        return sglang_cache.sglang_pool(serving, self.defaults(serving, rank.device), rank, available)

    def pool_overshoot(self, serving: Serving, rank: Rank) -> float:
        """What the draft's true cache takes beyond its charge."""
        return sglang_cache.pool_overshoot(serving, rank)


def _draft_weights(serving: Serving) -> tuple[LineItem, ...]:
    """The draft's share; the joined projections that vLLM keeps for DFlash are not known to be kept here."""
    return tuple(line for line in draft_weights(serving) if line.label != "draft_context_projection")


def _absorbed_copies(serving: Serving, rank: Rank) -> Iterator[LineItem]:
    """Latent attention in absorbed form: copies of ``kv_b_proj`` beside the original, where it is in 16 bits."""
    if serving.target.quantization is not None:
        return  # counted with the weights: a quantised projection is always copied
    elements = sum(
        tensor.parameters
        for layer in layers_of(serving.target, rank.layers)
        for tensor in layer.tensors
        if "kv_b_proj" in tensor.name
    )
    if elements:
        yield LineItem(
            group=Group.TARGET_WEIGHTS,
            label="target_absorbed_projections",
            owner=Owner.TARGET,
            low_bytes=0,
            high_bytes=ceil_div(elements, serving.workload.tp) * HALF_BYTES,
            basis=Basis.ASSUMED,
            source="assumed: w_kc and w_vc of models/deepseek_v2.py may be views or copies",
            formula=f"none to {elements:,} elements of kv_b_proj x 2 B / {serving.workload.tp} ranks",
        )


def _multimodal(serving: Serving) -> Iterator[LineItem]:
    if serving.target.architecture.multimodal:
        yield overhead_line(
            "multimodal_reserve",
            ByteRange(low_bytes=0, high_bytes=_MULTIMODAL_HIGH_BYTES),
            INSIDE,
            source="assumed; SGLang 0.5.23 mem_cache/kv_cache_configurator.py, mm_runtime_reservation_gb",
            formula="embeddings of images and their transport, kept out of the pool",
        )


def _graphs(serving: Serving, defaults: EngineDefaults, rank: Rank) -> Iterator[LineItem]:
    work = serving.workload
    if work.enforce_eager:
        return
    tier = tier_of(rank.device.total_bytes, tp=work.tp)
    batch = min(tier.graph_batch, defaults.max_num_seqs)
    reserve = graph_reserve_mib(
        graph_batch=batch,
        chunked_prefill_size=defaults.max_num_batched_tokens,
        latent=latent_rule(serving.target.architecture.layers) is not None,
    )
    yield overhead_line(
        "cuda_graphs",
        ByteRange(low_bytes=reserve * MIB // _GRAPHS_LOW_DIVISOR, high_bytes=reserve * MIB * _GRAPHS_HIGH_FACTOR),
        AFTER,
        source="assumed around SGLang 0.5.23's own reserve (arg_groups/memory_hook.py, reserve_for_graph_mb)",
        formula=f"a quarter to four times {reserve:,} MiB: 2 for each of {batch} batches and the prefill graphs",
        owner=Owner.BOTH if serving.draft is not None else Owner.TARGET,
    )


def _request_table(serving: Serving, defaults: EngineDefaults) -> LineItem:
    """``req_to_token``: a slot number for each token that each admitted request may have."""
    work = serving.workload
    columns = work.context_tokens + 4 + 2 * (serving.num_speculative_tokens + 1)
    asked = work.max_num_seqs is not None or serving.draft is not None
    few = defaults.max_num_seqs if asked else min(defaults.max_num_seqs, FEWEST_REQUESTS)
    rows = ByteRange(low_bytes=few + 1, high_bytes=defaults.max_num_seqs + 1)
    return overhead_line(
        "request_table",
        ByteRange(
            low_bytes=rows.low_bytes * work.context_tokens * _INT32_BYTES,
            high_bytes=rows.high_bytes * columns * _INT32_BYTES,
        ),
        AFTER,
        basis=Basis.DERIVED,
        source="SGLang 0.5.23 mem_cache/memory_pool.py (ReqToTokenPool), kv_cache_configurator.py",
        formula=(
            (f"{rows.low_bytes:,} to " if rows.low_bytes != rows.high_bytes else "")
            + f"{rows.high_bytes:,} requests x {columns:,} tokens x 4 B"
        ),
    )


def _logits(serving: Serving, defaults: EngineDefaults, rank: Rank) -> Iterator[LineItem]:
    """Rows that are sampled or verified at once: the planned batch at least, the largest graph's at most."""
    if not rank.last_stage:
        return
    work, query = serving.workload, 1 + serving.num_speculative_tokens
    batch = min(work.batch, defaults.max_num_seqs)
    most = min(max(batch, tier_of(rank.device.total_bytes, tp=work.tp).graph_batch), defaults.max_num_seqs)
    yield logits_line(serving, rows_low=batch * query, rows_high=most * query, place=AFTER)
    method = None if serving.draft is None else serving.draft.method
    if method in READS_HIDDEN_STATES:
        # States of three target layers and the last, of each token of a prefill chunk, are handed to the head.
        hidden = serving.target.architecture.hidden_size
        tokens = defaults.max_num_batched_tokens
        yield overhead_line(
            "draft_hidden_states",
            ByteRange(low_bytes=0, high_bytes=4 * tokens * hidden * HALF_BYTES),
            AFTER,
            source="assumed: hidden states that the head reads, of four target layers at most",
            formula=f"none to 4 layers x {tokens:,} tokens x {hidden:,} hidden x 2 B",
            owner=Owner.DRAFT,
            group=Group.TEMPORARY_BUFFERS,
        )
