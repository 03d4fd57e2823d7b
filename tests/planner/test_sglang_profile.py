"""SGLang: its pool against printed start-ups, its own fraction by hand, the draft it charges wrongly, verdicts."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_models
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair_plans import known

from model_catalog.bounds import Basis, ByteRange
from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.model import Model
from model_catalog.units import GIB, MIB
from planner.commands.registry import start_command
from planner.declared_gpus import parse_gpu_option
from planner.devices import Device
from planner.engines.base import Draft, EngineCache, Serving
from planner.engines.registry import engine_profile
from planner.engines.sglang_cache import pair_cells
from planner.engines.sglang_defaults import automatic_fraction, prefill_graphs, tier_of
from planner.errors import ParallelismError
from planner.free_share import FreeBudget
from planner.memory.breakdown import Group, LineItem, MemoryBreakdown, Owner
from planner.planning import Plan, make_plan
from planner.speculation.diagnosis import diagnose
from planner.speculation.draft_cost import draft_cost
from planner.verdict import Answer, RankRoom
from planner.workload import Workload

SGLANG = engine_profile("sglang")
ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "measured" / "sglang_memory.jsonl").read_text("utf-8").splitlines()
]
TARGET = made_models.model_of(made_models.llama(), "made/target")
#: 8 KV heads where the target has 2, in 2 layers where it has 4.
WIDE = made_models.model_of(made_models.llama(num_hidden_layers=2, num_key_value_heads=8), "made/wide")
NARROW = made_models.model_of(made_models.llama(num_hidden_layers=2), "made/narrow")
WORK = Workload(context_tokens=1024)


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
    return make_plan(Serving(target=target, draft=chosen, workload=work), places, SGLANG)


def lines(made: Plan) -> dict[str, LineItem]:
    return {item.label: item for item in made.ranks[-1].breakdown.items}


def pool_of(made: Plan, size: ByteRange) -> EngineCache:
    pool = SGLANG.pool(made.serving, made.ranks[0].rank, size)
    assert pool is not None
    return pool


# --- measured ----------------------------------------------------------------------------------------------


def rows_for(use: str) -> list[Any]:
    return [pytest.param(row, id=row["id"]) for row in ROWS if use in row.get("use", ())]


def plan_of(row: dict[str, Any]) -> Plan:
    work = Workload(
        context_tokens=row.get("max_model_len") or 8192,
        tp=row["tp"],
        kv_cache_dtype=row["kv_cache_dtype"],
        block_size=row.get("block_size"),
    )
    return plan(known(row["model"]), work=work, card=parse_gpu_option("h200")[0])


def test_every_row_is_replayed_or_says_why_not() -> None:
    assert all(row.get("use") or row.get("not_replayed") for row in ROWS)
    assert all(row["source"] and row["unit"] for row in ROWS)
    assert len(ROWS) == 8


@pytest.mark.parametrize("row", rows_for("kv_tokens"))
def test_tokens_of_a_printed_pool(row: dict[str, Any]) -> None:
    pool = pool_of(plan_of(row), ByteRange.point(int(row["available_kv_gib"] * GIB)))
    assert pool.tokens == pytest.approx(row["kv_tokens"], rel=0.003)


@pytest.mark.parametrize("row", rows_for("cell"))
def test_the_printed_cell(row: dict[str, Any]) -> None:
    made = plan_of(row)
    assert pair_cells(made.serving, made.ranks[0].rank).certain_bytes == row["cell_size_bytes"]


@pytest.mark.parametrize("row", rows_for("weights"))
def test_what_loading_takes(row: dict[str, Any]) -> None:
    """The log's weight usage is what free memory fell by: weights and the libraries loaded with them."""
    made = plan_of(row)
    weights = made.ranks[0].breakdown.of_group(Group.TARGET_WEIGHTS)
    taken = row["weights_gib"] * GIB
    assert weights.low_bytes <= taken <= weights.high_bytes + lines(made)["driver_growth"].high_bytes


@pytest.mark.parametrize("row", rows_for("budget"))
def test_the_budget_rule(row: dict[str, Any]) -> None:
    """Free now less (1 - fraction) x free before loading: all that loading took is charged."""
    before, after = row["gpu_memory_gib"], row["free_after_load_gib"]
    loaded = _line("loaded", int((before - after) * GIB), inside=True)
    room = RankRoom(engine_total=None, free_bytes=int(before * GIB))
    verdict = FreeBudget(breakdown=MemoryBreakdown(items=(loaded,)), room=room).judge(row["mem_fraction_static"])
    assert verdict.headroom_bytes == pytest.approx(row["available_kv_gib"] * GIB, rel=1e-6)


# --- the engine's own fraction, by hand -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mib", "ranks", "latent", "expected"),
    [
        # 512 + 1.5 x 4096 + 128 + 2 x 48 + 8 x 50 = 7,280 of 24,564
        pytest.param(24_564, 1, False, 0.704, id="24 GB"),
        # 512 + 1.5 x 4096 + 128 + 2 x 32 + 8 x 50 = 7,248 of 46,068
        pytest.param(46_068, 1, False, 0.843, id="48 GB"),
        # 512 + 1.5 x 8192 + 128 + 2 x 256 + 8 x 58 = 13,904 of 81,559
        pytest.param(81_559, 1, False, 0.830, id="80 GB"),
        # the same 13,904 of 143,771
        pytest.param(143_771, 1, False, 0.903, id="141 GB"),
        # 512 + 1.5 x 16384 + 128 + 2 x 512 + 8 x 74 = 26,832 of 183,359
        pytest.param(183_359, 1, False, 0.854, id="180 GB"),
        # 512 + 1.5 x 8192 + 1024 + 2 x 512 + 1536 = 16,384 of 143,771
        pytest.param(143_771, 8, True, 0.886, id="141 GB, latent, tp 8"),
    ],
)
def test_the_automatic_fraction(mib: int, ranks: int, latent: bool, expected: float) -> None:
    tier = tier_of(mib * MIB, tp=ranks)
    found = automatic_fraction(
        mib * MIB,
        chunked_prefill_size=tier.chunked_prefill_size,
        graph_batch=tier.graph_batch,
        ranks=ranks,
        latent=latent,
    )
    assert found == expected


def test_a_large_gpu_keeps_ten_gib_aside() -> None:
    # 512 + 1.5 x 2048 + 128 + 2 x 8 + 8 x 42 = 4,064 MiB, so 10,240 of 81,559.
    assert prefill_graphs(2048) == 8 + 14 + 8 + 8 + 4
    assert automatic_fraction(81_559 * MIB, chunked_prefill_size=2048, graph_batch=8) == 0.874


def test_a_vision_encoder_lowers_it() -> None:
    """32 layers of 1280: 32 x 1280^2 / (24 x 1024^2) = 2.083 times ViT-L/14, so 0.95 x (1 - 0.1083)."""
    plain = automatic_fraction(81_559 * MIB, chunked_prefill_size=8192, graph_batch=256)
    vision = {"num_hidden_layers": 32, "hidden_size": 1280}
    found = automatic_fraction(81_559 * MIB, chunked_prefill_size=8192, graph_batch=256, vision=vision)
    assert found == pytest.approx(plain * 0.95 * (1 - 0.1 * (2.0833 - 1)), abs=0.001)


def test_defaults_with_and_without_speculation() -> None:
    card = parse_gpu_option("h100-80gb")[0]
    alone, pair = plan(card=card), plan(draft=NARROW, card=card)
    assert pair.defaults.max_num_seqs == 48
    assert alone.defaults.max_num_seqs == 4096
    assert pair.defaults.max_num_batched_tokens == 8192
    # Graphs up to 48 requests: 512 + 12,288 + 128 + 2 x 48 + 464 = 13,488 of 81,559.
    assert (alone.gpu_memory_utilization, pair.gpu_memory_utilization) == (0.830, 0.835)
    asked = plan(draft=NARROW, card=card, work=replace(WORK, batch=60))
    assert asked.defaults.max_num_seqs == 60


# --- cells and the draft's charge, by hand ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "tp", "dtype", "expected"),
    [
        pytest.param(made_models.llama(num_key_value_heads=8), 1, "auto", 4 * 8 * (64 + 64) * 2, id="all heads"),
        pytest.param(made_models.llama(), 1, "auto", 4 * 2 * (64 + 64) * 2, id="grouped"),
        pytest.param(made_models.llama(), 2, "auto", 4 * 1 * (64 + 64) * 2, id="split over two ranks"),
        pytest.param(made_models.llama(), 4, "auto", 4 * 1 * (64 + 64) * 2, id="one head on each rank at least"),
        pytest.param(made_models.llama(), 1, "fp8_e4m3", 4 * 2 * (64 + 64), id="fp8"),
        pytest.param(made_models.latent(), 1, "auto", 4 * (64 + 16) * 2, id="latent"),
        pytest.param(made_models.latent(), 8, "auto", 4 * (64 + 16) * 2, id="latent rows are whole on every rank"),
    ],
)
def test_cells(config: dict[str, Any], tp: int, dtype: str, expected: int) -> None:
    made = plan(made_models.model_of(config), work=replace(WORK, tp=tp, kv_cache_dtype=dtype))
    cells = pair_cells(made.serving, made.ranks[0].rank)
    assert (cells.target.whole.low_bytes, cells.certain_bytes) == (expected, expected)
    assert lines(made)["target_kv_cache"].size == ByteRange.point(1024 * expected)


def test_windows_are_kept_whole_at_worst_and_eight_tenths_in_a_pool_of_their_own() -> None:
    """12 layers, of which 2 are full and 10 have windows; 2 heads x 128 x 2 B a layer."""
    made = plan(made_models.model_of(made_models.windowed()))
    line = lines(made)["target_kv_cache"]
    assert (line.low_bytes, line.high_bytes) == (1024 * 512 * (2 + 8), 1024 * 512 * 12)


def test_the_draft_is_charged_as_layers_of_the_target() -> None:
    """2 of 4 layers: half of the target's 2,048 B. The true figure is 2 layers x 8 heads x 128 x 2 B = 4,096 B."""
    made = plan(draft=WIDE)
    cells = pair_cells(made.serving, made.ranks[0].rank)
    assert cells.charged == ByteRange.point(1024)
    assert cells.taken == ByteRange.point(4096)
    low, high = 1024, 1024 + 2 * (3 + 1)  # twice a step's tokens are held ahead
    found = lines(made)
    assert found["draft_kv_cache"].size == ByteRange(low_bytes=low * 1024, high_bytes=high * 1024)
    assert found["draft_kv_cache_excess"].size == ByteRange(low_bytes=low * 3072, high_bytes=high * 3072)
    assert not found["draft_kv_cache_excess"].inside_budget
    assert made.cache is not None
    assert made.cache.bytes_per_block == 2048 + 1024
    problem = {problem.code: problem for problem in diagnose(made)}["draft_cache_miscounted"]
    assert "keeps 4,096 B a token on each rank and is charged 1,024 B" in problem.evidence


def test_a_draft_of_the_same_heads_is_charged_rightly() -> None:
    made = plan(draft=NARROW)
    assert "draft_kv_cache_excess" not in lines(made)
    assert "draft_cache_miscounted" not in {problem.code for problem in diagnose(made)}


def test_the_fraction_leaves_room_for_what_is_not_charged() -> None:
    """For each 3,072 B charged 3,072 B more are taken: a full pool may be half of what is left at most."""
    card = made_models.device(24 * GIB)
    right, wrong = plan(draft=NARROW, card=card), plan(draft=WIDE, card=card)
    assert right.window is not None
    assert wrong.window is not None
    assert wrong.window.high < right.window.high / 1.9
    assert wrong.gpu_memory_utilization == wrong.window.high
    assert wrong.cache is not None
    base = wrong.ranks[0].verdict.base_bytes
    assert base is not None
    after = wrong.ranks[0].breakdown.after_budget
    # What all of the pool takes, charged and not, with weights and what comes after, is no more than there is.
    planned = lines(wrong)["draft_kv_cache_excess"].high_bytes
    beyond = wrong.cache.tokens * 3072
    assert wrong.gpu_memory_utilization * base + beyond - planned + after.high_bytes <= base


def test_methods_without_a_model() -> None:
    ngram = plan(method=DraftMethod.NGRAM)
    assert not {label for label in lines(ngram) if label.startswith("draft_")}
    config = made_models.llama(architectures=["MiMoForCausalLM"], model_type="mimo", num_nextn_predict_layers=1)
    mtp = plan(made_models.model_of(config), method=DraftMethod.MTP)
    assert pair_cells(mtp.serving, mtp.ranks[0].rank).charged == ByteRange.point(512)
    assert "draft_mtp_layers" in lines(mtp)


# --- fraction of free memory -------------------------------------------------------------------------------------


def _line(label: str, size: int, *, inside: bool = False, before: bool = False) -> LineItem:
    return LineItem(
        group=Group.RUNTIME_OVERHEAD,
        label=label,
        owner=Owner.TARGET,
        low_bytes=size,
        high_bytes=size,
        basis=Basis.ASSUMED,
        source="made",
        formula="made",
        inside_budget=inside,
        before_budget=before,
    )


def budget(*, overshoot: float = 0.0, limit_gib: int | None = None) -> FreeBudget:
    """100 GiB free, 10 taken before, 45 inside the budget, 18 after."""
    items = (
        _line("before", 10 * GIB, before=True),
        _line("inside", 45 * GIB, inside=True),
        _line("after", 18 * GIB),
    )
    return FreeBudget(
        breakdown=MemoryBreakdown(items=items),
        room=RankRoom(engine_total=None, free_bytes=100 * GIB),
        limit_bytes=None if limit_gib is None else limit_gib * GIB,
        overshoot=overshoot,
    )


def test_the_window_by_hand() -> None:
    """Of 90 GiB, 45 are half; 18 after are a fifth, so four fifths at most."""
    pair = budget().windows()
    assert pair is not None
    assert [(window.low, window.high) for window in pair] == [(0.5, 0.8), (0.5, 0.8)]
    over = budget(overshoot=0.25).windows()
    assert over is not None
    assert over[0].high == 0.74  # (90 - 18 + 0.25 x 45) / (90 x 1.25)
    limited = budget(limit_gib=80).windows()
    assert limited is not None
    assert limited[0].high == 0.577  # (80 - 10 - 18) / 90


@pytest.mark.parametrize(
    ("fraction", "answer", "headroom", "beside"),
    [
        (0.6, Answer.FITS, 9, 18),
        (0.4, Answer.DOES_NOT_FIT, -9, 36),
        (0.9, Answer.DOES_NOT_FIT, -9, -9),
    ],
)
def test_the_verdict_by_hand(fraction: float, answer: Answer, headroom: int, beside: int) -> None:
    verdict = budget().judge(fraction)
    assert verdict.answer is answer
    assert verdict.headroom_bytes == headroom * GIB
    assert verdict.beside_bytes == beside * GIB
    assert verdict.base_bytes == 90 * GIB


def test_an_unread_device_is_unknown() -> None:
    card = replace(made_models.device(24 * GIB), free_bytes=None)
    made = plan(card=card)
    assert made.verdict.answer is Answer.UNKNOWN
    assert made.window is None


def test_a_memory_limit_lowers_the_fraction_not_the_base() -> None:
    free, limited = plan(), plan(work=replace(WORK, memory_limit_bytes=12 * GIB))
    assert free.window is not None
    assert limited.window is not None
    assert limited.window.high < free.window.high / 1.9
    assert limited.ranks[0].verdict.base_bytes == free.ranks[0].verdict.base_bytes


# --- whole plans ---


@pytest.mark.parametrize(
    ("gpu", "tp", "answer"),
    [
        # 61 GiB of weights; a card of 80 GB gives the pool the rest of 0.83 of what is free, two give plenty.
        pytest.param("h100-80gb:2", 2, Answer.FITS, id="two H100"),
        pytest.param("a100-40gb", 1, Answer.DOES_NOT_FIT, id="one A100 of 40 GB"),
    ],
)
def test_verdicts_of_a_known_model(gpu: str, tp: int, answer: Answer) -> None:
    work = Workload(tp=tp)
    serving = Serving(target=known("Qwen/Qwen3-32B"), draft=None, workload=work)
    assert make_plan(serving, parse_gpu_option(gpu), SGLANG).verdict.answer is answer


def test_the_command_says_what_was_planned() -> None:
    made = plan(draft=NARROW, work=replace(WORK, max_num_batched_tokens=2048, block_size=16, enforce_eager=True))
    words = start_command("sglang", "0.5.23", made).argv
    said = dict(itertools.pairwise(words))
    assert made.gpu_memory_utilization is not None
    assert float(said["--mem-fraction-static"]) == made.gpu_memory_utilization
    assert said["--chunked-prefill-size"] == "2048"
    assert said["--page-size"] == "16"
    assert "--disable-cuda-graph" in words
    assert said["--speculative-algorithm"] == "STANDALONE"
    assert "cuda_graphs" not in lines(made)


@pytest.mark.parametrize(
    ("target", "draft", "work", "text"),
    [
        ("llama", None, {"kv_cache_memory_bytes": GIB}, "cannot be pinned"),
        ("llama", "draft", {"pp": 2}, "does not speculate with pipeline stages"),
        ("llama", None, {"kv_cache_dtype": "int8_per_token_head"}, "no cache of the dtype"),
        ("llama", None, {"context_tokens": 200_000}, "exceeds its limit"),
        ("llama", None, {"tp": 3}, "does not divide"),
        ("mamba", None, {}, "recurrent state"),
    ],
)
def test_what_is_refused(target: str, draft: str | None, work: dict[str, Any], text: str) -> None:
    mamba = {
        "architectures": ["MambaForCausalLM"],
        "model_type": "mamba",
        "hidden_size": 256,
        "intermediate_size": 512,
        "state_size": 16,
        "conv_kernel": 4,
        "num_hidden_layers": 4,
        "vocab_size": 1000,
        "time_step_rank": 16,
        "torch_dtype": "bfloat16",
    }
    model = TARGET if target == "llama" else made_models.model_of(mamba)
    with pytest.raises((UsageError, ParallelismError), match=text):
        plan(model, NARROW if draft else None, work=replace(WORK, **work))


def test_what_the_draft_costs() -> None:
    """1,024 B of 3,072 B a token, and its weights."""
    alone, pair = plan(), plan(draft=NARROW)
    cost = draft_cost(alone, pair)
    assert cost.kv_tokens_lost_share is not None
    assert 0.33 < cost.kv_tokens_lost_share.low < 0.36


KINDS = {
    "llama": TARGET,
    "windowed": made_models.model_of(made_models.windowed()),
    "mixture": made_models.model_of(made_models.mixture()),
    "latent": made_models.model_of(made_models.latent()),
}
KIND = st.sampled_from(sorted(KINDS))
FIXED = Workload(max_num_batched_tokens=2048, max_num_seqs=8, block_size=16)


@given(KIND, st.integers(1, 60_000), st.integers(0, 5000), st.integers(1, 64), st.sampled_from([0, 3]))
def test_more_context_or_batch_never_needs_less(kind: str, context: int, more: int, batch: int, k: int) -> None:
    draft = NARROW if k else None
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
    work = replace(FIXED, context_tokens=context, batch=batch, enforce_eager=True)
    small = plan(KINDS[kind], work=work, card=made_models.device(size * GIB))
    large = plan(KINDS[kind], work=work, card=made_models.device((size + more) * GIB))
    assert order.index(large.verdict.answer) >= order.index(small.verdict.answer)


@given(KIND, st.integers(1, 60_000), st.integers(1, 8), st.integers(2, 48))
def test_a_fitting_plan_holds_its_load_in_its_own_pool(kind: str, context: int, batch: int, size: int) -> None:
    made = plan(
        KINDS[kind],
        WIDE if kind == "llama" else None,
        work=replace(FIXED, context_tokens=context, batch=batch),
        card=made_models.device(size * GIB),
    )
    if made.verdict.answer is Answer.FITS:
        assert made.cache is not None
        assert made.cache.max_concurrency >= batch
