"""llama.cpp's profile: sizes by hand from its source's formulas, laws, refusals, devices."""

from dataclasses import replace
from typing import Any

import made_models
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_cpp_rows import GIB, MIB, host, known, lines, plan_of

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.model import Model, describe
from planner.commands.llama_cpp import llama_cpp_command
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Serving
from planner.engines.llama_cpp import LlamaCppProfile
from planner.engines.llama_cpp_cache import Cells, server_cells
from planner.engines.registry import engine_profile
from planner.errors import ParallelismError
from planner.memory.breakdown import Group
from planner.planning import Plan
from planner.workload import Workload

QWEN, SMALL = "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"
L4 = parse_gpu_option("l4")


def made(file_type: str | None = None, **changes: object) -> Model:
    snapshot = made_models.model_of(made_models.llama(**changes)).snapshot
    return describe(snapshot, on_the_fly=file_type, gguf=True)


@pytest.mark.parametrize(
    ("context", "batch", "cells"),
    [
        (8192, 1, (1, 8192)),
        (1000, 1, (1, 1024)),  # n_ctx in steps of 256
        (1000, 3, (3, 1024)),  # 3,000 -> 3,072, a third of it 1,024
        (300, 4, (4, 512)),  # 1,200 -> 1,280, a quarter of it 320 -> 512
    ],
)
def test_cells_of_the_server(context: int, batch: int, cells: tuple[int, int]) -> None:
    """By hand from llama-context.cpp: n_ctx and n_ctx_seq, each rounded up to 256."""
    found = server_cells(Workload(context_tokens=context, batch=batch))
    assert (found.slots, found.per_slot) == cells
    assert found.per_slot >= context


def test_cells_of_a_window() -> None:
    """pad256(min(n_ctx_seq, window + ubatch)) a slot (llama-kv-cache-iswa.cpp)."""
    assert Cells(slots=1, per_slot=32768, ubatch=512).window(1024) == 1536
    assert Cells(slots=2, per_slot=32768, ubatch=512).window(128) == 2 * 768
    assert Cells(slots=1, per_slot=1024, ubatch=512).window(1024) == 1024


@pytest.mark.parametrize(
    ("dtype", "block_bytes"),
    [("auto", 64), ("f16", 64), ("bfloat16", 64), ("q8_0", 34), ("q4_0", 18), ("f32", 128)],
)
def test_cache_of_qwen3_8b(dtype: str, block_bytes: int) -> None:
    """36 layers, 8 KV heads of 128, keys and values, 8,192 cells; bytes for each 32 elements."""
    found = lines(plan_of(known(QWEN), context_tokens=8192, kv_cache_dtype=dtype))["target_kv_cache"]
    assert found.low_bytes == found.high_bytes == 36 * 2 * 8 * 128 // 32 * block_bytes * 8192
    assert (found.basis.value, found.group) == ("derived", Group.KV_CACHE)


def test_latent_rows_are_kept_once() -> None:
    """DeepSeek-V3: 61 layers of 512 + 64 elements, no values (has_v = !is_mla)."""
    found = lines(plan_of(known("deepseek-ai/DeepSeek-V3", "q4_k_m"), context_tokens=4096))["target_kv_cache"]
    assert found.low_bytes == found.high_bytes == 61 * (512 + 64) * 2 * 4096


def test_the_draft_has_a_context_as_long_as_the_target() -> None:
    """28 layers of 8 KV heads of 128 in f16, whatever the target's cache is."""
    plan = plan_of(
        known(QWEN),
        method=DraftMethod.DRAFT_MODEL,
        draft=known(SMALL),
        context_tokens=8192,
        batch=2,
        kv_cache_dtype="q8_0",
    )
    assert lines(plan)["draft_kv_cache"].low_bytes == 28 * 2 * 8 * 128 * 2 * 8192 * 2


@pytest.mark.parametrize(("k", "rows"), [(2, 3), (5, 6)])
def test_states_that_can_be_taken_back(k: int, rows: int) -> None:
    """48 layers x (3 x 10,240 + 48 x 128 x 128) elements in F32, one row and k more."""
    target = known("Qwen/Qwen3.6-27B", "q8_0")
    alone, pair = plan_of(target), plan_of(target, method=DraftMethod.MTP, k=k)
    row = 48 * (3 * 10_240 + 48 * 128 * 128) * 4
    assert lines(alone)["target_recurrent_state"].low_bytes == row
    assert lines(pair)["target_recurrent_state"].low_bytes == rows * row


def weights(plan: Plan, group: Group = Group.TARGET_WEIGHTS) -> int:
    size = plan.ranks[0].breakdown.of_group(group)
    assert size.low_bytes == size.high_bytes
    return size.low_bytes


def test_the_token_table_stays_in_host_memory() -> None:
    """1,000 x 512 in f16; untied, so a GPU holds all else, and host memory holds both."""
    model = made("f16")
    on_gpu, on_host = plan_of(model, devices=L4), plan_of(model, devices=(host(),))
    assert weights(on_host) - weights(on_gpu) == 1000 * 512 * 2
    loading = on_gpu.ranks[0].loading
    assert loading is not None
    assert loading.host.low_bytes == 1000 * 512 * 2


def test_a_tied_table_is_copied_to_the_gpu_as_output_matrix() -> None:
    """Under q4_k_m a tied table of 512 columns is q6_k: 2 blocks of 210 B a row."""
    model = made("q4_k_m", tie_word_embeddings=True)
    on_gpu, on_host = plan_of(model, devices=L4), plan_of(model, devices=(host(),))
    assert weights(on_gpu) == weights(on_host)
    assert lines(on_gpu)["target_output_head"].low_bytes == 1000 * 2 * 210
    assert "target_embedding" not in lines(on_gpu)
    assert lines(on_host)["target_embedding"].low_bytes == 1000 * 2 * 210


def test_weights_of_a_small_model_by_hand() -> None:
    """Four layers, 512 wide, 8 heads of 64, 2 KV heads, 1,024 feed-forward, q8_0: 34 B for 32 elements."""
    matrices = 4 * (2 * 512 * 512 + 2 * 128 * 512 + 3 * 1024 * 512) + 2 * 1000 * 512
    norms = (4 * 2 + 1) * 512
    assert weights(plan_of(made("q8_0"), devices=(host(),))) == matrices // 32 * 34 + norms * 4


def test_layers_over_two_gpus() -> None:
    """Layer i of 36 on GPU i x 2 // 37, the output matrix last, the draft first."""
    pair: dict[str, Any] = {"method": DraftMethod.DRAFT_MODEL, "draft": known(SMALL, "q8_0")}
    plan = plan_of(known(QWEN, "q8_0"), devices=parse_gpu_option("l4:2"), context_tokens=4096, **pair)
    assert [len(rank.rank.layers) for rank in plan.ranks] == [19, 17]
    assert "target_output_head" in lines(plan, 1)
    assert "target_output_head" not in lines(plan, 0)
    assert ["draft_kv_cache" in lines(plan, rank) for rank in (0, 1)] == [True, False]
    words = llama_cpp_command(plan).text
    assert "--tensor-split 1,1" in words
    assert "--spec-draft-device CUDA0" in words


def test_host_memory_is_planned_and_commanded() -> None:
    plan = plan_of(made("q8_0"), devices=(host(),), method=DraftMethod.DRAFT_MODEL, draft=made("q8_0"))
    assert {"host_process", "target_compute_buffer", "draft_compute_buffer"} <= set(lines(plan))
    assert not {"device_context", "kernel_scratch"} & set(lines(plan))
    words = llama_cpp_command(plan).text
    assert "--device none --n-gpu-layers 0 --cache-ram 0" in words
    assert "--spec-draft-ngl 0 --spec-draft-device none" in words


def test_windows_and_states_are_checkpointed_in_host_memory_alone() -> None:
    """At most one copy each 8,192 tokens and two more, of the state: three layers of Qwen3.5 have one."""
    target = known("Qwen/Qwen3.5-9B", "f16", 4)
    found = lines(plan_of(target, devices=(host(),), context_tokens=32_768))
    state = 3 * (3 * 8192 + 32 * 128 * 128) * 4
    assert (found["context_checkpoints"].low_bytes, found["context_checkpoints"].high_bytes) == (0, 6 * state)
    assert "context_checkpoints" not in lines(plan_of(target, context_tokens=32_768))


def test_ngram_takes_nothing() -> None:
    alone, pair = plan_of(made("q8_0")), plan_of(made("q8_0"), method=DraftMethod.NGRAM)
    assert alone.ranks[0].breakdown.of_group(Group.KV_CACHE) == pair.ranks[0].breakdown.of_group(Group.KV_CACHE)
    assert pair.ranks[0].breakdown.of_group(Group.DRAFT_WEIGHTS).high_bytes == 0


def test_a_head_has_its_own_weights_and_cache() -> None:
    """EAGLE-3 for Qwen3-8B: one layer of 8 KV heads of 128."""
    snapshot = known("AngelSlim/Qwen3-8B_eagle3", "q8_0")
    plan = plan_of(known(QWEN, "q8_0"), method=DraftMethod.EAGLE3, draft=snapshot, context_tokens=8192)
    assert lines(plan)["draft_kv_cache"].low_bytes == 2 * 8 * 128 * 2 * 8192
    assert plan.ranks[0].breakdown.of_group(Group.DRAFT_WEIGHTS).low_bytes > 0


def test_there_is_neither_fraction_nor_pool() -> None:
    plan = plan_of(made("q8_0"), devices=L4)
    assert (plan.cache, plan.gpu_memory_utilization, plan.window) == (None, None, None)
    assert (plan.defaults.max_num_seqs, plan.defaults.max_num_batched_tokens) == (1, 512)
    assert engine_profile("llama.cpp==10434") == LlamaCppProfile(version="10434")


@pytest.mark.parametrize(
    ("work", "subject"),
    [
        ({"kv_cache_dtype": "fp8"}, "--kv-cache-dtype"),
        ({"kv_cache_dtype": "nvfp4"}, "--kv-cache-dtype"),
        ({"gpu_memory_utilization": 0.9}, "--gpu-memory-utilization"),
        ({"kv_cache_memory_bytes": GIB}, "--kv-cache-memory"),
        ({"block_size": 16}, "--block-size"),
        ({"expert_parallel": True}, "--enable-expert-parallel"),
        ({"max_num_seqs": 4}, "--max-num-seqs"),
        ({"batch": 257}, "--batch"),
    ],
    ids=str,
)
def test_options_it_has_not_are_refused(work: dict[str, Any], subject: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan_of(made("q8_0"), context_tokens=256, **work)
    assert refused.value.subject == subject


def test_first_generation_heads_are_refused() -> None:
    with pytest.raises(UsageError, match="first-generation"):
        plan_of(made("q8_0"), method=DraftMethod.EAGLE, draft=made("q8_0"))


def test_blocks_that_do_not_divide_a_head_are_refused() -> None:
    """Heads of 80 in blocks of 32 (llama-context.cpp)."""
    with pytest.raises(UsageError, match="do not divide its heads of 80"):
        plan_of(made("q8_0", head_dim=80), kv_cache_dtype="q8_0")


def test_caches_that_are_not_known_are_refused() -> None:
    with pytest.raises(UsageError, match="not known here"):
        plan_of(known("deepseek-ai/DeepSeek-V4-Pro", "q8_0"))


def test_more_devices_than_layers_are_refused() -> None:
    with pytest.raises(ParallelismError):
        plan_of(made("q8_0"), devices=parse_gpu_option("l4:5"))


WORK = st.fixed_dictionaries(
    {
        "context_tokens": st.integers(1, 40_000),
        "batch": st.integers(1, 16),
        "kv_cache_dtype": st.sampled_from(["auto", "q8_0", "q4_0"]),
    }
)


@given(
    work=WORK,
    more=st.integers(0, 5_000),
    kind=st.sampled_from(["f16", "q8_0", "q4_k_m", "q2_k"]),
    config=st.sampled_from([made_models.llama(), made_models.windowed(), made_models.mixture()]),
    drafting=st.booleans(),
)
def test_more_context_never_needs_less(
    work: dict[str, Any], more: int, kind: str, config: dict[str, Any], drafting: bool
) -> None:
    snapshot = made_models.model_of(config).snapshot
    model = describe(snapshot, on_the_fly=kind, gguf=True)
    pair: dict[str, Any] = {"method": DraftMethod.DRAFT_MODEL, "draft": model} if drafting else {}
    small = plan_of(model, devices=L4, **work, **pair).ranks[0].breakdown.total
    large = plan_of(model, devices=L4, **work | {"context_tokens": work["context_tokens"] + more}, **pair)
    total = large.ranks[0].breakdown.total
    assert small.low_bytes <= total.low_bytes
    assert small.high_bytes <= total.high_bytes


@given(context=st.integers(1, 100_000), batch=st.integers(1, 64))
def test_a_packed_cache_is_smaller_by_its_blocks(context: int, batch: int) -> None:
    """q8_0 is 34 of 64 bytes, q4_0 18 of 64, at any size."""
    sizes = {
        kind: lines(plan_of(made("f16"), context_tokens=context, batch=batch, kv_cache_dtype=kind))[
            "target_kv_cache"
        ].low_bytes
        for kind in ("f16", "q8_0", "q4_0")
    }
    assert sizes["q8_0"] * 64 == sizes["f16"] * 34
    assert sizes["q4_0"] * 64 == sizes["f16"] * 18


@pytest.mark.parametrize("smaller", ["q2_k", "q3_k_s", "q3_k_m", "q4_k_m", "q5_k_m", "q6_k", "q8_0"])
def test_file_types_are_ordered(smaller: str) -> None:
    order = ["q2_k", "q3_k_s", "q3_k_m", "q4_k_m", "q5_k_m", "q6_k", "q8_0", "f16"]
    larger = order[order.index(smaller) + 1]
    sizes = [known(QWEN, kind).weights.resident_bytes() for kind in (smaller, larger)]
    assert sizes[0].high_bytes < sizes[1].low_bytes


def test_what_is_left_over_is_free_memory() -> None:
    """An L4 has no fraction: verdict and headroom are judged on what is free."""
    plan = plan_of(known(QWEN, "q4_k_m"), devices=L4, context_tokens=8192)
    free = replace(L4[0]).free_bytes
    assert free is not None
    assert plan.verdict.headroom_bytes == free - plan.ranks[0].breakdown.total.high_bytes
    assert plan.ranks[0].verdict.budget_bytes is None
    assert Serving(target=known(QWEN, "q4_k_m"), draft=None, workload=Workload()).num_speculative_tokens == 0
    assert 4 * GIB < plan.ranks[0].breakdown.of_group(Group.TARGET_WEIGHTS).low_bytes < 4789.19 * MIB
