"""A serving engine's own words beside the plan: agreement, surplus, and what was not printed."""

import pytest

from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Draft, Serving
from planner.engines.registry import engine_profile
from planner.planning import Plan, make_plan
from planner.trial.protocol import TrialRequest
from planner.trial.serving.lines import compare_engine
from planner.trial.serving.options import vllm_options
from planner.workload import Workload

GIB = 2**30
REQUEST = TrialRequest(target_folder="t", draft_folder="d")


def model(name: str) -> Model:
    row = find_row(name)
    assert row is not None
    return describe(row)


@pytest.fixture(scope="module")
def plan() -> Plan:
    draft = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=3, model=model("Qwen/Qwen3-0.6B"))
    workload = Workload(context_tokens=8192, batch=4, tp=2, max_num_seqs=64, kv_cache_dtype="fp8")
    serving = Serving(target=model("Qwen/Qwen3-32B"), draft=draft, workload=workload)
    return make_plan(serving, parse_gpu_option("h100-80gb:2"), engine_profile("vllm"))


def test_lines_that_agree_are_told_and_those_not_printed_are_left_out(plan: Plan) -> None:
    """The Hub counts 32,762,123,264 parameters: in 16 bits on each of two ranks 30.51 GiB; the draft adds 0.56."""
    engine = {
        "baseline": {"weights_bytes": round(30.51 * GIB)},
        "speculative": {"weights_bytes": round(31.07 * GIB)},
    }
    found = {line["name"]: line for line in compare_engine(plan, engine)}
    assert sorted(found) == ["target weights", "weights of both"]
    assert all(line["agrees"] for line in found.values())


def test_more_than_planned_is_harmful_and_less_only_wrong(plan: Plan) -> None:
    (more,) = compare_engine(plan, {"speculative": {"weights_bytes": 33 * GIB}})
    (less,) = compare_engine(plan, {"speculative": {"weights_bytes": 29 * GIB}})
    assert (more["agrees"], more["harmful"]) == (False, True)
    assert (less["agrees"], less["harmful"]) == (False, False)


def test_a_pool_smaller_than_promised_is_harmful_and_a_larger_one_is_not_wrong(plan: Plan) -> None:
    assert plan.cache is not None
    (enough,) = compare_engine(plan, {"speculative": {"kv_cache_tokens": plan.cache.tokens}})
    (fewer,) = compare_engine(plan, {"speculative": {"kv_cache_tokens": plan.cache.tokens - 16}})
    assert enough["agrees"]
    assert (fewer["agrees"], fewer["harmful"]) == (False, True)


@pytest.mark.parametrize("engine", [{}, {"speculative": None}, {"speculative": {"weights_bytes": "much"}}])
def test_a_log_that_says_nothing_compares_nothing(plan: Plan, engine: dict[str, object]) -> None:
    assert compare_engine(plan, engine) == ()


def test_the_engine_is_started_as_it_was_planned(plan: Plan) -> None:
    options = vllm_options(plan, REQUEST)
    assert options["max_model_len"] == 8192
    assert options["tensor_parallel_size"] == 2
    assert options["max_num_seqs"] == 64
    assert options["kv_cache_dtype"] == "fp8"
    assert options["gpu_memory_utilization"] == pytest.approx(plan.gpu_memory_utilization, abs=1e-4)
    assert options["speculative_config"] == {"draft_tensor_parallel_size": 2}
    assert "block_size" not in options


def test_without_a_plan_it_holds_the_trials_own_lengths() -> None:
    options = vllm_options(None, REQUEST)
    assert options["max_num_seqs"] == 1
    assert options["enforce_eager"]
    assert options["max_model_len"] > REQUEST.new_tokens
