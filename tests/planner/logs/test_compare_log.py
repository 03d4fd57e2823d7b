"""A log's figures beside a plan: which lines make up a figure, what off means, what is measured of it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog.bounds import ByteRange
from model_catalog.catalogue import find_row
from model_catalog.model import Model, describe
from planner.calibration import MARGIN
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Serving
from planner.engines.registry import engine_profile
from planner.logs.calibrate import measured_lines
from planner.logs.compare import LogLine, Side, compare_log
from planner.logs.meanings import meaning
from planner.logs.readings import ROUNDING_BYTES, Readings, StartLog, read_log
from planner.logs.settings import LogSettings
from planner.memory.breakdown import Group, sum_items
from planner.planning import Plan, make_plan
from planner.workload import Workload

GIB = 2**30
NOTHING: frozenset[str] = frozenset()
GRAPHS = ("cuda_graph_estimate", "cuda_graphs")


def model(name: str) -> Model:
    row = find_row(name)
    assert row is not None
    return describe(row)


def planned(name: str, gpus: str, version: str, **settings: Any) -> Plan:  # noqa: ANN401 - of any kind
    workload = replace(Workload(gpu_memory_utilization=0.92), **settings)
    serving = Serving(target=model(name), draft=None, workload=workload)
    return make_plan(serving, parse_gpu_option(gpus), engine_profile(f"vllm=={version}"))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned("Qwen/Qwen3-8B", "h100-80gb", "0.32.0", context_tokens=8192)


def log(**figures: Any) -> StartLog:  # noqa: ANN401 - of any kind
    return StartLog(
        settings=LogSettings(engine="vllm"),
        readings=replace(Readings(), **figures),
        failure=None,
        starts=1,
        ignored_lines=0,
    )


def only(plan: Plan, **figures: Any) -> LogLine:  # noqa: ANN401 - of any kind
    (line,) = compare_log(plan, log(**figures), unknown=NOTHING)
    return line


def overheads(plan: Plan, *labels: str) -> ByteRange:
    return sum_items(item for item in plan.ranks[0].breakdown.items if item.label in labels)


def test_weights_are_the_models_parameters_in_their_dtype(plan: Plan) -> None:
    """The Hub counts 8,190,735,360 parameters: 15.26 GiB in 16 bits."""
    line = only(plan, weights_bytes=8_190_735_360 * 2)
    assert line.side is Side.INSIDE
    assert only(plan, weights_bytes=round(15.8 * GIB)).side is Side.ABOVE
    half = only(plan, weights_bytes=8_190_735_360)
    assert half.side is Side.BELOW
    assert "about half" in (meaning(half, plan) or "")
    twice = only(plan, weights_bytes=8_190_735_360 * 4)
    assert "about twice" in (meaning(twice, plan) or "")


def test_the_distance_is_to_the_nearer_bound(plan: Plan) -> None:
    line = only(plan, activation_bytes=40 * GIB)
    assert line.high is not None
    assert line.off_by == pytest.approx(40 * GIB - line.high, abs=ROUNDING_BYTES)
    assert "max_num_batched_tokens" in (meaning(line, plan) or "")


@pytest.mark.parametrize(
    ("figure", "names"),
    [
        ("activation_bytes", ["max_num_seqs", "max_num_batched_tokens", "draft"]),
        ("cuda_graph_bytes", ["max_num_seqs", "max_num_batched_tokens", "draft"]),
        ("kv_cache_bytes", ["device", "gpu_memory_utilization", "draft"]),
        ("kv_cache_tokens", ["device", "gpu_memory_utilization", "draft", "context"]),
        ("weights_bytes", ["draft"]),
        ("consumed_bytes", ["max_num_seqs", "draft"]),
    ],
)
def test_what_depends_on_an_unsaid_setting_is_not_judged(plan: Plan, figure: str, names: list[str]) -> None:
    for name in names:
        (line,) = compare_log(plan, log(**{figure: 7 * GIB}), unknown=frozenset({name}))
        assert line.side is Side.NOT_COMPARED
        assert line.why


def test_consumed_is_weights_and_what_stays(plan: Plan) -> None:
    """All that is charged to the budget but the peak, the graphs and the cache."""
    inside = plan.ranks[0].breakdown.inside_budget
    rest = overheads(plan, "activation_peak", "cuda_graphs")
    cache = plan.ranks[0].breakdown.of_group(Group.KV_CACHE)
    line = only(plan, consumed_bytes=inside.high_bytes - rest.high_bytes - cache.high_bytes)
    assert line.side is Side.INSIDE
    assert line.high is not None
    assert line.high >= inside.high_bytes - rest.high_bytes - cache.high_bytes


def test_tokens_are_judged_from_the_bytes_that_were_printed(plan: Plan) -> None:
    """36 layers of 8 KV heads of 128 in 16 bits are 147,456 B a token: 10 GiB hold 72,817."""
    side = {}
    for tokens in (72_817 // 16 * 16, 73_500, 145_600):
        found = compare_log(plan, log(kv_cache_bytes=10 * GIB, kv_cache_tokens=tokens), unknown=NOTHING)
        side[tokens] = next(line.side for line in found if line.code == "kv_cache_tokens")
    assert side == {72_816: Side.INSIDE, 73_500: Side.ABOVE, 145_600: Side.ABOVE}


def test_a_pinned_pool_is_a_setting_and_not_a_figure(plan: Plan) -> None:
    found = compare_log(plan, log(kv_cache_bytes=10 * GIB, kv_cache_pinned=True), unknown=NOTHING)
    assert found == ()


def test_concurrency_stands_in_for_tokens_that_were_not_printed(plan: Plan) -> None:
    """10 GiB hold 72,816 tokens: 8.89 sequences of 8,192."""
    found = compare_log(plan, log(kv_cache_bytes=10 * GIB, max_concurrency=8.89), unknown=NOTHING)
    assert next(line.side for line in found if line.code == "max_concurrency") is Side.INSIDE
    both = compare_log(plan, log(kv_cache_tokens=72_816, max_concurrency=8.89), unknown=NOTHING)
    assert "max_concurrency" not in {line.code for line in both}


@given(st.integers(0, 2**40), st.sampled_from(["weights_bytes", "activation_bytes", "consumed_bytes"]))
def test_every_line_that_is_off_has_a_meaning(size: int, figure: str) -> None:
    made = planned_once()
    for line in compare_log(made, log(**{figure: size}), unknown=NOTHING):
        off = line.side in {Side.ABOVE, Side.BELOW}
        assert (meaning(line, made) is not None) == off
        assert (line.off_by > 0) == off


def planned_once() -> Plan:
    global _PLAN  # noqa: PLW0603 - made once for all examples
    _PLAN = _PLAN or planned("Qwen/Qwen3-8B", "h100-80gb", "0.32.0", context_tokens=8192)
    return _PLAN


_PLAN: Plan | None = None


def test_every_code_has_a_meaning_on_both_sides(plan: Plan) -> None:
    for code in (
        "non_torch",
        "consumed",
        "cuda_graph_estimate",
        "cuda_graphs",
        "before_loading",
        "kv_cache_memory",
    ):
        for side in (Side.ABOVE, Side.BELOW):
            line = LogLine(code=code, unit="bytes", measured=1, low=2, high=3, side=side, off_by=1)
            assert meaning(line, plan)


def test_what_was_printed_becomes_bounds_around_it(plan: Plan) -> None:
    found = measured_lines(plan, log(activation_bytes=GIB, non_torch_bytes=GIB // 2))
    assert set(found) == {"activation_peak", "driver_growth"}
    assert found["activation_peak"].low_bytes == pytest.approx(GIB * (1 - MARGIN), abs=ROUNDING_BYTES + 1)
    assert found["activation_peak"].high_bytes == pytest.approx(GIB * (1 + MARGIN), abs=ROUNDING_BYTES + 1)


def test_what_grew_outside_torch_follows_from_what_was_consumed(plan: Plan) -> None:
    """Consumed less weights less the planned buffers: 0.3 GiB were put in, and come out."""
    buffers = sum_items(
        item
        for item in plan.ranks[0].breakdown.items
        if item.inside_budget
        and item.group is Group.RUNTIME_OVERHEAD
        and item.label not in {"driver_growth", "cuda_graphs", "rotary_table"}
    )
    put_in = round(0.3 * GIB)
    consumed = 16 * GIB + buffers.high_bytes + put_in
    found = measured_lines(plan, log(weights_bytes=16 * GIB, consumed_bytes=consumed))["driver_growth"]
    assert found.low_bytes <= put_in <= found.high_bytes
    assert measured_lines(plan, log(weights_bytes=16 * GIB, consumed_bytes=15 * GIB)) == {}


def test_graphs_that_are_charged_and_what_capture_took_beyond(plan: Plan) -> None:
    """Charged since vLLM 0.21; before, all of it lies beside the budget."""
    figures: dict[str, Any] = {"cuda_graph_estimate_bytes": GIB, "cuda_graph_bytes": round(1.25 * GIB)}
    new = measured_lines(plan, log(**figures))
    assert new["cuda_graphs"].low_bytes < GIB < new["cuda_graphs"].high_bytes
    assert new["cuda_graph_excess"].low_bytes == 0
    assert 0.25 * GIB < new["cuda_graph_excess"].high_bytes < 0.3 * GIB
    old = measured_lines(planned("Qwen/Qwen3-8B", "h100-80gb", "0.19.0"), log(**figures))
    assert old["cuda_graphs"].low_bytes < 1.25 * GIB < old["cuda_graphs"].high_bytes
    assert old["cuda_graph_excess"].high_bytes == 0
    assert measured_lines(plan, log(cuda_graph_bytes=GIB)) == {}


#: vllm-project/vllm#21348 and sgl-project/sglang#18263 print such lines; Qwen3-30B-A3B there: 48 layers of 4 KV
#: heads of 128 in 16 bits, 98,304 B a token; 30,532,122,624 parameters are 56.87 GiB.
SGLANG = (
    "[2026-01-01 00:00:00 TP0] Load weight end. elapsed=20.1 s, type=Qwen3MoeForCausalLM, dtype=torch.bfloat16, "
    "avail mem=230.20 GB, mem usage=56.98 GB.\n"
    "[2026-01-01 00:00:01 TP0] KV Cache is allocated. #tokens: 1669816, K size: 76.44 GB, V size: 76.44 GB\n"
)


def test_sglang_weights_and_bytes_a_token() -> None:
    made = planned("Qwen/Qwen3-30B-A3B", "h200", "0.32.0")
    start = read_log(SGLANG)
    found = {line.code: line for line in compare_log(made, start, unknown=NOTHING)}
    assert {code: line.side for code, line in found.items()} == {
        "weights": Side.INSIDE,
        "kv_bytes_per_token": Side.INSIDE,
    }
    assert found["kv_bytes_per_token"].measured == pytest.approx(98_304, rel=1e-3)


def test_sglang_half_a_cache_is_seen() -> None:
    made = planned("Qwen/Qwen3-30B-A3B", "h200", "0.32.0")
    start = read_log(SGLANG.replace("76.44", "38.22"))
    line = next(line for line in compare_log(made, start, unknown=NOTHING) if line.code == "kv_bytes_per_token")
    assert line.side is Side.BELOW
    assert "narrower" in (meaning(line, made) or "")
