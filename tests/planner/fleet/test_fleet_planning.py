"""A fleet is judged as each of its nodes would be by itself; equal sets of devices are planned once."""

from dataclasses import replace

import pytest
from fleet_nodes import gpu, node
from hypothesis import given, settings
from hypothesis import strategies as st

from model_catalog.catalogue import lookup
from model_catalog.model import Model, describe
from model_catalog.units import GIB, MIB
from planner.devices import Device
from planner.engines.base import Serving
from planner.engines.registry import engine_profile
from planner.fleet.planning import Judge, Recipe, plan_fleet
from planner.fleet.records import NodeState
from planner.planning import make_plan
from planner.verdict import Answer
from planner.workload import Workload

VLLM = engine_profile("vllm")
H100, L4 = gpu("h100-80gb").name, gpu("l4").name


def model(name: str) -> Model:
    row = lookup(name)
    assert row is not None
    return describe(row)


QWEN_8B, QWEN_14B, QWEN_32B = (model(f"Qwen/Qwen3-{size}") for size in ("8B", "14B", "32B"))


def recipe(target: Model, *, tp: int = 1, pp: int = 1) -> Recipe:
    return Recipe(serving=Serving(target=target, draft=None, workload=Workload(tp=tp, pp=pp)), engine=VLLM)


def alone(given: Recipe, devices: list[Device]) -> Answer:
    return make_plan(given.serving, devices, given.engine).verdict.answer


def test_copies_are_counted_on_devices_of_their_own() -> None:
    busy = gpu("h100-80gb", used_bytes=60 * GIB)
    fleet = plan_fleet(
        [
            node("idle", [gpu("h100-80gb")] * 4),
            node("half", [busy, gpu("h100-80gb"), busy, gpu("h100-80gb")]),
            node("small", [gpu("l4")]),
            node("none"),
        ],
        {H100: recipe(QWEN_32B), L4: recipe(QWEN_32B)},
    )
    assert [verdict.copies for verdict in fleet.nodes] == [4, 2, 0, 0]
    assert [verdict.answer for verdict in fleet.nodes] == [Answer.FITS] * 2 + [Answer.DOES_NOT_FIT] * 2
    assert (fleet.copies, fleet.answer) == (6, Answer.FITS)
    assert fleet.nodes[3].binding == "no GPU"
    # 32.8 B parameters in bf16 alone are 61 GiB; an L4 has 22.
    assert fleet.nodes[2].headroom_bytes is not None
    assert fleet.nodes[2].headroom_bytes < -30 * GIB


def test_tensor_parallel_takes_whole_groups_of_one_kind() -> None:
    mixed = [gpu("h100-80gb"), gpu("l4"), gpu("h100-80gb"), gpu("h100-80gb"), gpu("l4")]
    fleet = plan_fleet([node("mixed", mixed)], {H100: recipe(QWEN_32B, tp=2), L4: recipe(QWEN_8B)})
    # One pair of H100, the third is left over; an 8B (15.3 GiB) on each L4.
    assert fleet.nodes[0].copies == 1 + 2


def test_a_group_is_as_good_as_its_tightest_device() -> None:
    full = gpu("h100-80gb", used_bytes=70 * GIB)
    fleet = plan_fleet([node("a", [full, gpu("h100-80gb")])], {H100: recipe(QWEN_32B, tp=2)})
    assert alone(recipe(QWEN_32B, tp=2), [full, gpu("h100-80gb")]) is Answer.DOES_NOT_FIT
    assert (fleet.nodes[0].copies, fleet.nodes[0].answer) == (0, Answer.DOES_NOT_FIT)


def test_a_lost_node_holds_nothing_and_an_unread_one_may() -> None:
    holds = {H100: recipe(QWEN_32B), L4: recipe(QWEN_32B)}
    small, lost = node("small", [gpu("l4")]), node("lost", state=NodeState.LOST)
    unread, failed = node("unread", state=NodeState.UNREAD), node("failed", state=NodeState.FAILED)
    assert plan_fleet([small, lost], holds).answer is Answer.DOES_NOT_FIT
    assert plan_fleet([small, unread], holds).answer is Answer.UNKNOWN
    assert plan_fleet([small, failed], holds).answer is Answer.UNKNOWN
    fleet = plan_fleet([node("big", [gpu("h100-80gb")]), lost, unread], holds)
    assert (fleet.answer, fleet.copies) == (Answer.FITS, 1)
    assert [read.name for read in fleet.in_state(NodeState.LOST)] == ["lost"]
    assert [read.name for read in fleet.in_state(NodeState.UNREAD)] == ["unread"]


def test_devices_whose_memory_was_not_read_never_count() -> None:
    blind = replace(gpu("h100-80gb"), free_bytes=None, notes=("GPU 0: free memory not readable",))
    fleet = plan_fleet([node("blind", [blind])], {H100: recipe(QWEN_32B)})
    assert (fleet.copies, fleet.answer) == (0, Answer.UNKNOWN)
    assert fleet.nodes[0].least_free_bytes is None


@pytest.mark.parametrize(("offered", "copies"), [(0, 0), (1, 1), (4, 4)])
def test_what_the_cluster_does_not_give_out_holds_nothing(offered: int, copies: int) -> None:
    fleet = plan_fleet([node("a", [gpu("h100-80gb")] * 4, offered=offered)], {H100: recipe(QWEN_32B)})
    assert fleet.nodes[0].copies == copies
    if not offered:
        assert fleet.nodes[0].binding == "the cluster gives out none of its GPUs"


def test_stages_lie_on_several_nodes_where_one_holds_no_copy() -> None:
    three = [node(name, [gpu("l4")]) for name in ("a", "b", "c")]
    fleet = plan_fleet(three, {L4: recipe(QWEN_14B, pp=2)})
    # 27.5 GiB of weights and 22 GiB on a node: two nodes make one copy, the third is left over.
    assert [[read.name for read in span.nodes] for span in fleet.spans] == [["a", "b"]]
    assert (fleet.copies, fleet.answer) == (1, Answer.FITS)
    assert all("a copy takes 2 devices, and it has 1" in verdict.binding for verdict in fleet.nodes)


def test_one_instance_of_a_gpu_serves_one_copy() -> None:
    instance = replace(gpu("h100-80gb"), mig=True, name="H100 MIG 7g.80gb")
    fleet = plan_fleet([node("a", [instance] * 2)], {"H100 MIG 7g.80gb": recipe(QWEN_32B)})
    assert fleet.copies == 2
    together = plan_fleet([node("a", [instance] * 2)], {"H100 MIG 7g.80gb": recipe(QWEN_32B, tp=2)})
    assert together.copies == 0
    assert "one MIG instance" in together.nodes[0].binding


def test_equal_sets_of_devices_are_planned_once() -> None:
    judge = Judge()
    fleet = plan_fleet(
        [node(f"n{number}", [gpu("h100-80gb")] * 8) for number in range(200)],
        {H100: recipe(QWEN_32B, tp=2)},
        judge=judge,
    )
    assert (fleet.copies, judge.planned) == (800, 1)


def test_idle_nodes_that_differ_a_little_are_planned_once_too() -> None:
    judge = Judge()
    nodes = [node(f"n{number}", [gpu("h100-80gb", used_bytes=number * MIB)]) for number in range(60)]
    assert plan_fleet(nodes, {H100: recipe(QWEN_32B)}, judge=judge).copies == 60
    assert judge.planned <= 2  # the two steps of 64 MiB that 60 MiB can touch


@settings(max_examples=60)
@given(
    used=st.lists(st.integers(0, 30 * GIB), min_size=1, max_size=6),
    tp=st.sampled_from([1, 2]),
)
def test_no_verdict_depends_on_the_steps(used: list[int], tp: int) -> None:
    """Each node's answer is that of a plan of exactly its devices."""
    given_recipe = recipe(QWEN_32B, tp=tp)
    judge = Judge()
    # 61 GiB of weights and a few more: with 0 to 30 GiB taken, one GPU lies on either side of the edge.
    for taken in used:
        devices = [gpu("h100-80gb", used_bytes=taken)] * tp
        assert judge.judge(given_recipe, devices).answer is alone(given_recipe, devices)


def test_the_edge_itself_is_told_exactly() -> None:
    """The most that may be taken, found by plans of exactly such a device, is where the fleet's verdict turns."""
    given_recipe = recipe(QWEN_32B)
    low, high = 0, 40 * GIB
    while high - low > 1:
        middle = (low + high) // 2
        fits = alone(given_recipe, [gpu("h100-80gb", used_bytes=middle)]) is Answer.FITS
        low, high = (middle, high) if fits else (low, middle)
    judge = Judge()
    assert judge.judge(given_recipe, [gpu("h100-80gb", used_bytes=low)]).answer is Answer.FITS
    assert judge.judge(given_recipe, [gpu("h100-80gb", used_bytes=high)]).answer is not Answer.FITS
