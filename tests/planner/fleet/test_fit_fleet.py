"""A `fit` for nodes that were read: degrees, copies, the report, the words, the exit code. No cluster is asked."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from fleet_nodes import gpu, node

from model_catalog.errors import UsageError
from model_catalog.units import GIB
from planner.capacity import fewest_devices
from planner.engines.registry import engine_profile
from planner.errors import ClusterError
from planner.fleet.records import NodeReading, NodeState
from planner.report.document import Report, read_report
from planner.report.fleet_text import fleet_line, fleet_text
from planner.report.plain import without_color
from planner.report.saved_plan import read_saved_report
from planner.service.fleet import FleetResult, fit_fleet
from planner.service.remarks import CollectedRemarks
from planner.service.request import PlanOptions
from planner.verdict import Answer


def asked(**changes: object) -> PlanOptions:
    given: dict[str, Any] = {
        "context": 8192,
        "batch": 1,
        "drafts": ("none",),
        "draft_budget": 0.15,
        "num_speculative_tokens": None,
        "tp": None,
        "pp": 1,
        "enable_expert_parallel": False,
        "memory_limit": None,
        "engine": "vllm",
        "dtype": "auto",
        "quantization": None,
        "kv_cache_dtype": "auto",
        "draft_kv_cache_dtype": "auto",
        "gpu_memory_utilization": None,
        "max_num_batched_tokens": None,
        "max_num_seqs": None,
        "block_size": None,
        "enforce_eager": False,
        "no_async_scheduling": False,
        "kv_cache_memory": None,
        "offline": True,
        **changes,
    }
    return PlanOptions(**given)


def fitted(nodes: Sequence[NodeReading], target: str = "Qwen/Qwen3-32B", **changes: object) -> FleetResult:
    return fit_fleet(target, asked(**changes), nodes, "cluster", CollectedRemarks())


def told(result: FleetResult) -> str:
    text = fleet_text(result.fleet, result.recipes, result.cluster, with_draft=True)
    assert all(len(line) <= 80 for line in without_color(text).splitlines())
    return without_color(text)


def test_a_copy_takes_the_fewest_devices_of_each_kind() -> None:
    """As many as the search behind `specplan gpus` finds for the kind; 61 GiB of weights fill one H100."""
    result = fitted([node("big", [gpu("h100-80gb")] * 2), node("small", [gpu("l4")] * 8), node("head")])
    serving = result.copy.plan.serving
    found = fewest_devices(serving, gpu("l4"), engine_profile("vllm"))
    assert found is not None
    fewest = found[0]
    assert fewest > 2  # two have 44 GiB
    assert {kind: (recipe.tp, recipe.pp) for kind, recipe in result.recipes.items()} == {
        gpu("h100-80gb").name: (1, 1),
        gpu("l4").name: (fewest, 1),
    }
    assert [verdict.copies for verdict in result.fleet.nodes] == [2, 8 // fewest, 0]
    assert result.exit_code == 0


def test_what_no_node_holds_is_laid_over_as_few_nodes_as_hold_it() -> None:
    """27.5 GiB of weights, 22 GiB on each node."""
    result = fitted([node(f"n{number}", [gpu("l4")]) for number in range(5)], target="Qwen/Qwen3-14B")
    (recipe,) = result.recipes.values()
    assert (recipe.tp, recipe.pp) == (1, 2)
    assert len(result.fleet.spans) == 2
    assert (result.fleet.copies, result.exit_code) == (2, 0)
    assert "n0 + n1" in told(result)
    assert [line.split()[-2:] for line in told(result).splitlines() if line.startswith("n0 +3")] == [
        ["a", "stage"]
    ]
    assert "n4: a copy takes 2 devices, and it has 1" in told(result)
    assert "2 copies of the plan on 4 of 5 nodes" in told(result)


def test_a_fleet_too_small_is_a_no_and_says_what_binds() -> None:
    result = fitted([node("a", [gpu("l4")]), node("b", [gpu("l4")])])
    assert (result.fleet.answer, result.exit_code) == (Answer.DOES_NOT_FIT, 3)
    assert "DOES NOT FIT: no node holds a copy" in told(result)
    assert "engine budget; largest line: target_feed_forward; 46.13 GiB short" in " ".join(told(result).split())
    shortage = result.fleet.nodes[0].headroom_bytes
    assert shortage is not None
    assert -46.13 * GIB <= shortage < -46.12 * GIB


def test_an_unread_node_makes_a_no_a_cannot_tell() -> None:
    small, unread = node("a", [gpu("l4")]), node("silent", state=NodeState.UNREAD)
    result = fitted([small, unread])
    assert (result.fleet.answer, result.exit_code) == (Answer.UNKNOWN, 4)
    assert "1 node could not be judged" in " ".join(told(result).split())
    assert fitted([small, node("gone", state=NodeState.LOST)]).exit_code == 3


def test_degrees_that_were_asked_for_are_kept() -> None:
    nodes = [node("a", [gpu("h100-80gb")] * 8)]
    result = fitted(nodes, tp=2, pp=2)
    (recipe,) = result.recipes.values()
    assert (recipe.tp, recipe.pp) == (2, 2)
    assert result.fleet.copies == 2  # 8 devices, 4 a copy, all in one node
    across = fitted([node(name, [gpu("h100-80gb")] * 2) for name in "abc"], tp=2, pp=3)
    assert [len(span.nodes) for span in across.fleet.spans] == [3]
    with pytest.raises(UsageError, match="no node has as many devices"):
        fitted(nodes, tp=16)


def test_a_kind_that_cannot_be_split_so_does_not_keep_the_others_from_their_answer() -> None:
    """Two L4 cannot be eight; the H100 of another node can."""
    result = fitted([node("a", [gpu("h100-80gb")] * 8), node("b", [gpu("l4")] * 2)], tp=8)
    assert [verdict.copies for verdict in result.fleet.nodes] == [1, 0]
    assert result.fleet.nodes[1].binding == "a copy takes 8 devices, and it has 2"
    held_back = node("c", [gpu("a100-80gb")] * 8, offered=0)
    result = fitted([node("a", [gpu("h100-80gb")]), held_back])
    assert (result.exit_code, result.fleet.nodes[1].binding) == (0, "the cluster gives out none of its GPUs")


def test_a_draft_is_chosen_for_the_fleet() -> None:
    nodes = [node("a", [gpu("h100-80gb")] * 2)]
    result = fitted(nodes, drafts=("Qwen/Qwen3-0.6B",))
    (recipe,) = result.recipes.values()
    assert recipe.serving.draft is not None
    assert result.copy.recommended is not None
    assert result.exit_code == 0


def test_no_draft_that_will_do_is_a_no_though_the_target_fits() -> None:
    """As in a `fit`: a named draft whose vocabulary is another is refused, and that is exit code 3."""
    result = fitted([node("a", [gpu("h100-80gb")])], drafts=("meta-llama/Llama-3.2-1B",))
    assert (result.exit_code, result.fleet.copies) == (3, 1)
    line = without_color(fleet_line(result.fleet, result.recipes, with_draft=False))
    assert line.startswith("NO DRAFT: none will do. The target alone: FITS: 1 copy")


def test_nobody_to_plan_for_is_an_error_that_says_why() -> None:
    hint = "pip install"
    failed = NodeReading(
        node_id="1",
        name="a",
        address="",
        state=NodeState.FAILED,
        code="specplan_missing",
        why="no specplan",
        hint=hint,
    )
    with pytest.raises(ClusterError, match=r"none of its 2 nodes.*a: no specplan") as caught:
        fitted([failed, node("head")])
    assert caught.value.hint.startswith(hint)


def test_the_report_has_the_fleet_beside_one_copy() -> None:
    full = gpu("h100-80gb", used_bytes=70 * GIB)
    result = fitted([node("a", [gpu("h100-80gb")]), node("b", [full]), node("c", state=NodeState.UNREAD)])
    document = json.loads(json.dumps(result.report()))
    report = read_report(document)
    assert isinstance(report, Report)
    assert report.fleet is not None
    assert (report.exit_code, report.fleet.copies, report.fleet.answer) == (0, 1, "fits")
    assert [(told.name, told.state, told.copies, told.answer) for told in report.fleet.nodes] == [
        ("a", "read", 1, "fits"),
        ("b", "read", 0, "does_not_fit"),
        ("c", "unread", 0, "unknown"),
    ]
    assert report.fleet.plans[0].model_dump() == {
        "device": gpu("h100-80gb").name,
        "draft": None,
        "num_speculative_tokens": None,
        "tp": 1,
        "pp": 1,
    }
    assert report.verdict.answer == "fits"
    # `specplan check` reads it as any other.
    assert read_saved_report(json.dumps(document).encode(), "r").plan.answer is Answer.FITS


def test_a_trial_that_has_no_place_is_said_so() -> None:
    def never(*_: object) -> None:
        raise AssertionError("there is nowhere to run it")

    remarks = CollectedRemarks()
    fit_fleet("Qwen/Qwen3-32B", asked(), [node("a", [gpu("l4")])], "cluster", remarks, start_trials=never)
    assert [remark.code for remark in remarks.remarks] == ["no_trial"]


def test_equal_nodes_share_a_row() -> None:
    nodes = [node(f"n{number:03}", [gpu("h100-80gb", used_bytes=number)] * 8) for number in range(40)]
    text = told(fitted([*nodes, node("odd", [gpu("l4")])]))
    assert "n000 +39" in text
    assert len([line for line in text.splitlines() if line.startswith("n0")]) == 1


def test_names_from_the_cluster_cannot_write_to_the_terminal() -> None:
    text = told(fitted([node("evil\x1b[2J\u202e", [gpu("h100-80gb")])]))
    assert "\x1b[2J" not in text
    assert "\u202e" not in text
