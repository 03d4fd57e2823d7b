"""TensorRT-LLM: its pool against printed start-ups, the tenth that it leaves, the draft's place, the verdict."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_models
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_plans import DFLASH, EAGLE3, head_of, known

from model_catalog.bounds import ByteRange
from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.model import Model
from model_catalog.units import GIB
from planner.commands.registry import start_command
from planner.declared_gpus import parse_gpu_option
from planner.devices import Device
from planner.engines.base import Draft, EngineCache, Serving
from planner.engines.registry import engine_profile
from planner.engines.tensorrt_llm import split_evenly
from planner.memory.breakdown import Group, LineItem
from planner.planning import Plan, make_plan
from planner.speculation.diagnosis import diagnose
from planner.speculation.draft_cost import draft_cost
from planner.verdict import Answer
from planner.workload import Workload

TRT = engine_profile("tensorrt-llm")
ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "measured" / "tensorrt_llm_memory.jsonl")
    .read_text("utf-8")
    .splitlines()
]
TARGET = made_models.model_of(made_models.llama(), "made/target")
DRAFT = made_models.model_of(made_models.llama(num_hidden_layers=2), "made/draft")
WORK = Workload(context_tokens=1024, max_num_seqs=8)


def plan(
    target: Model = TARGET,
    draft: Model | None = None,
    *,
    method: DraftMethod = DraftMethod.DRAFT_MODEL,
    k: int = 3,
    card: Device | None = None,
    work: Workload = WORK,
) -> Plan:
    chosen = None
    if draft is not None or method is not DraftMethod.DRAFT_MODEL:
        chosen = Draft(method=method, num_speculative_tokens=k, model=draft)
    places = [card or made_models.device(24 * GIB)] * (work.tp * work.pp)
    return make_plan(Serving(target=target, draft=chosen, workload=work), places, TRT)


def lines(made: Plan, rank: int = -1) -> dict[str, LineItem]:
    return {item.label: item for item in made.ranks[rank].breakdown.items}


def pool_of(made: Plan, size: ByteRange) -> EngineCache:
    pool = TRT.pool(made.serving, made.ranks[0].rank, size)
    assert pool is not None
    return pool


def rows_for(use: str) -> list[Any]:
    return [pytest.param(row, id=row["id"]) for row in ROWS if use in row.get("use", ())]


def test_every_row_is_replayed_or_says_why_not() -> None:
    assert all(row.get("use") or row.get("not_replayed") for row in ROWS)
    assert all(row["source"] and row["unit"] for row in ROWS)
    assert len(ROWS) == 5


@pytest.mark.parametrize("row", rows_for("kv_tokens"))
def test_tokens_of_a_printed_pool(row: dict[str, Any]) -> None:
    work = Workload(context_tokens=2048, kv_cache_dtype=row["kv_cache_dtype"], block_size=row.get("block_size"))
    made = plan(known(row["model"]), work=work, card=parse_gpu_option("h200")[0])
    pool = pool_of(made, ByteRange.point(int(row["available_kv_gib"] * GIB)))
    assert pool.tokens == pytest.approx(row["kv_tokens"], rel=0.003)
    if "exact" in row["use"]:
        assert pool.tokens == row["kv_tokens"]
    if "blocks" in row["use"]:
        # The memory is printed to 0.01 GiB, which is six blocks.
        ends = [ByteRange.point(int((row["available_kv_gib"] + half) * GIB)) for half in (-0.005, 0.005)]
        fewest, most = (pool_of(made, end).blocks for end in ends)
        assert fewest <= row["kv_blocks"] <= most <= fewest + 6


@pytest.mark.parametrize("row", rows_for("draft_context_buffer"))
def test_the_dense_buffer_of_a_dflash_head(row: dict[str, Any]) -> None:
    """A head of the row's widths: 5 layers, 8 KV heads of 128 over two ranks, a slot for each of 64 requests."""
    config = DFLASH | {
        "num_hidden_layers": row["draft_layers"],
        "num_key_value_heads": row["draft_kv_heads"],
        "head_dim": row["draft_head_dim"],
    }
    work = Workload(context_tokens=row["max_model_len"], max_num_seqs=row["max_batch_size"], tp=row["tp"])
    made = plan(TARGET, head_of(config), method=DraftMethod.DFLASH, work=work, card=parse_gpu_option("b200")[0])
    line = lines(made)["draft_context_buffer"]
    slots, length = row["max_batch_size"], row["max_model_len"]
    assert line.low_bytes == slots * length * row["draft_bytes_per_token"]
    assert line.high_bytes == pytest.approx(row["draft_context_buffer_gib"] * GIB, rel=0.003)
    assert "draft_kv_cache" not in lines(made)


# --- by hand --------------------------------------------------------------------------------------------------


def test_the_pool_is_nine_tenths_of_what_is_left() -> None:
    made = plan()
    rank = made.ranks[0]
    assert made.gpu_memory_utilization == 0.9
    before = rank.breakdown.before_budget
    left_low, left_high = 24 * GIB - before.high_bytes, 24 * GIB - before.low_bytes
    assert rank.verdict.base_bytes == left_low
    assert rank.verdict.budget_bytes == left_low * 9 // 10
    assert made.cache is not None
    assert made.cache.available == ByteRange(low_bytes=left_low * 9 // 10, high_bytes=left_high * 9 // 10)
    # 4 layers x 2 heads x (64 + 64) x 2 B = 2,048 B a token, 32 tokens a block.
    assert made.cache.bytes_per_block == 32 * 2048
    assert made.cache.blocks == left_low * 9 // 10 // (32 * 2048)
    assert rank.breakdown.inside_budget == rank.breakdown.of_group(Group.KV_CACHE)


def test_target_and_draft_share_the_pool_by_their_bytes_a_token() -> None:
    """2,048 B and, of half as many layers, 1,024 B. 1,024 tokens and up to 3 x 3 + 1 more: 33 blocks of 32."""
    made = plan(draft=DRAFT)
    found = lines(made)
    assert found["target_kv_cache"].size == ByteRange(low_bytes=1024 * 2048, high_bytes=33 * 32 * 2048)
    assert found["draft_kv_cache"].size == ByteRange(low_bytes=1024 * 1024, high_bytes=33 * 32 * 1024)
    assert made.cache is not None
    assert made.cache.bytes_per_block == 32 * (2048 + 1024)


def test_a_head_lives_on_the_last_stage() -> None:
    head = head_of(EAGLE3, published_parameters=10_000_000)
    made = plan(draft=head, method=DraftMethod.EAGLE3, work=replace(WORK, pp=2))
    first, last = lines(made, 0), lines(made, 1)
    assert "draft_kv_cache" not in first
    assert not any(label.startswith("draft_") for label in first)
    assert "draft_kv_cache" in last
    assert made.ranks[0].breakdown.of_group(Group.DRAFT_WEIGHTS) == ByteRange.point(0)


def test_layers_are_dealt_evenly_with_the_first_stages_longer() -> None:
    assert split_evenly(range(7), 3) == ((0, 1, 2), (3, 4), (5, 6))
    assert split_evenly(range(4), 2) == ((0, 1), (2, 3))


def test_a_window_that_rests() -> None:
    """12 layers of 512 B; 10 of them hold 128 tokens at best, all of them 2,048 at worst."""
    made = plan(made_models.model_of(made_models.windowed()), work=replace(WORK, context_tokens=2048))
    line = lines(made)["target_kv_cache"]
    assert (line.low_bytes, line.high_bytes) == (512 * (2 * 2048 + 10 * 128), 512 * 12 * 2048)


def test_latent_rows_are_whole_on_every_rank() -> None:
    made = plan(made_models.model_of(made_models.latent()), work=replace(WORK, tp=4))
    assert lines(made)["target_kv_cache"].size == ByteRange.point(1024 * 4 * (64 + 16) * 2)


def test_what_the_draft_costs() -> None:
    """A third of each token's bytes, and a little for its weights and buffers."""
    cost = draft_cost(plan(), plan(draft=DRAFT))
    assert cost.kv_tokens_lost_share is not None
    assert 0.33 < cost.kv_tokens_lost_share.low <= cost.kv_tokens_lost_share.high < 0.36


@pytest.mark.parametrize(
    ("gpu", "tp", "answer"),
    [
        # 61 GiB of weights: half of them on each of two cards of 80 GB; more than one of 40 GB has.
        pytest.param("h100-80gb:2", 2, Answer.FITS, id="two H100"),
        pytest.param("a100-40gb", 1, Answer.DOES_NOT_FIT, id="one A100 of 40 GB"),
    ],
)
def test_verdicts_of_a_known_model(gpu: str, tp: int, answer: Answer) -> None:
    serving = Serving(target=known("Qwen/Qwen3-32B"), draft=None, workload=Workload(tp=tp))
    assert make_plan(serving, parse_gpu_option(gpu), TRT).verdict.answer is answer


def test_a_fraction_that_leaves_nothing() -> None:
    made = plan(work=replace(WORK, gpu_memory_utilization=1.0))
    assert made.verdict.answer is Answer.TIGHT
    assert "fraction_leaves_too_little" in {problem.code for problem in diagnose(made)}


def test_the_command_says_what_was_planned() -> None:
    made = plan(draft=DRAFT, work=replace(WORK, block_size=64, enforce_eager=True, gpu_memory_utilization=0.8))
    command = start_command("tensorrt-llm", "1.2.1", made)
    text = dict(command.files)["specplan-tensorrt-llm.yaml"]
    assert "free_gpu_memory_fraction: 0.8" in text
    assert "tokens_per_block: 64" in text
    assert "cuda_graph_config: null" in text
    assert "--max_batch_size 8" in " ".join(command.argv)
    assert not any("no memory fraction" in note for note in command.notes)
    assert "cuda_graphs" not in lines(made)


@pytest.mark.parametrize(
    ("method", "work", "text"),
    [
        (None, {"kv_cache_memory_bytes": GIB}, "cannot be pinned"),
        (None, {"quantization": "fp8"}, "as they were published"),
        (None, {"kv_cache_dtype": "fp8_e5m2"}, "no cache of the dtype"),
        (DraftMethod.EAGLE, {}, "first-generation"),
        (DraftMethod.DRAFT_MODEL, {"pp": 2}, "pipeline stages is not known"),
        (DraftMethod.MTP, {}, "multi-token-prediction"),
    ],
)
def test_what_is_refused(method: DraftMethod | None, work: dict[str, Any], text: str) -> None:
    draft = DRAFT if method in {DraftMethod.EAGLE, DraftMethod.DRAFT_MODEL} else None
    with pytest.raises(UsageError, match=text):
        plan(draft=draft, method=method or DraftMethod.DRAFT_MODEL, work=replace(WORK, **work))


KINDS = {
    "llama": TARGET,
    "windowed": made_models.model_of(made_models.windowed()),
    "mixture": made_models.model_of(made_models.mixture()),
    "latent": made_models.model_of(made_models.latent()),
}
KIND = st.sampled_from(sorted(KINDS))
FIXED = Workload(max_num_batched_tokens=2048, max_num_seqs=8)


@given(KIND, st.integers(1, 60_000), st.integers(0, 5000), st.integers(1, 64), st.sampled_from([0, 3]))
def test_more_context_or_batch_never_needs_less(kind: str, context: int, more: int, batch: int, k: int) -> None:
    draft = DRAFT if k else None
    base = replace(FIXED, context_tokens=context, batch=batch)
    small = plan(KINDS[kind], draft, work=base)
    for larger in (replace(base, context_tokens=context + more), replace(base, batch=batch + more)):
        large = plan(KINDS[kind], draft, work=larger)
        for before, after in zip(small.ranks, large.ranks, strict=True):
            assert after.breakdown.total.low_bytes >= before.breakdown.total.low_bytes
            assert after.breakdown.total.high_bytes >= before.breakdown.total.high_bytes
    assert all(0 <= item.low_bytes <= item.high_bytes for item in small.ranks[0].breakdown.items)


@given(KIND, st.integers(1, 60_000), st.integers(1, 64), st.integers(1, 48), st.integers(0, 48))
def test_a_larger_device_never_worsens_an_answer(
    kind: str, context: int, batch: int, size: int, more: int
) -> None:
    order = [Answer.DOES_NOT_FIT, Answer.TIGHT, Answer.FITS]
    work = replace(FIXED, context_tokens=context, batch=batch)
    small = plan(KINDS[kind], work=work, card=made_models.device(size * GIB))
    large = plan(KINDS[kind], work=work, card=made_models.device((size + more) * GIB))
    assert order.index(large.verdict.answer) >= order.index(small.verdict.answer)


@given(KIND, st.integers(1, 60_000), st.integers(1, 8), st.integers(2, 48))
def test_a_fitting_plan_holds_its_load_in_its_own_pool(kind: str, context: int, batch: int, size: int) -> None:
    work = replace(FIXED, context_tokens=context, batch=batch)
    made = plan(KINDS[kind], work=work, card=made_models.device(size * GIB))
    if made.verdict.answer is Answer.FITS:
        assert made.cache is not None
        assert made.cache.max_concurrency >= batch
