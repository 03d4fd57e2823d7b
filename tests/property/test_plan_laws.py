"""Laws that hold for every plan: more work never needs less, a larger device never worsens an answer."""

from dataclasses import replace
from functools import cache

import made_models
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from model_catalog.drafts import DraftMethod
from model_catalog.model import Model
from model_catalog.units import GIB
from planner.capacity import MOST_BATCH, max_batch, max_context_tokens, with_workload
from planner.engines.base import Draft, Serving
from planner.engines.registry import engine_profile
from planner.memory.breakdown import Group, Owner, sum_items
from planner.planning import Plan, make_plan
from planner.verdict import Answer
from planner.workload import Workload

KINDS = {
    "llama": made_models.llama,
    "windowed": made_models.windowed,
    "mixture": made_models.mixture,
    "latent": made_models.latent,
}
VLLM = engine_profile("vllm")
# Knobs that the engine would otherwise derive from the workload are held fixed, as the laws ask.
FIXED = Workload(max_num_batched_tokens=2048, max_num_seqs=256, block_size=16)


@cache
def made(kind: str) -> Model:
    return made_models.model_of(KINDS[kind](), f"made/{kind}")


def serving(
    kind: str,
    *,
    k: int = 0,
    context_tokens: int = 8192,
    batch: int = 1,
    tp: int = 1,
    pp: int = 1,
    eager: bool = False,
) -> Serving:
    draft = None
    if k:
        draft = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=k, model=made("llama"))
    workload = replace(
        FIXED,
        context_tokens=context_tokens,
        batch=batch,
        tp=tp,
        pp=pp,
        enforce_eager=eager,
    )
    return Serving(target=made(kind), draft=draft, workload=workload)


def plan(what: Serving, size_bytes: int = 24 * GIB) -> Plan:
    ranks = what.workload.tp * what.workload.pp
    return make_plan(what, tuple(made_models.device(size_bytes) for _ in range(ranks)), VLLM)


KIND = st.sampled_from(sorted(KINDS))
CONTEXT = st.integers(1, 65_536)
BATCH = st.integers(1, 256)
MORE = st.integers(0, 5_000)


def assert_not_less(small: Plan, large: Plan) -> None:
    for before, after in zip(small.ranks, large.ranks, strict=True):
        assert after.breakdown.total.low_bytes >= before.breakdown.total.low_bytes
        assert after.breakdown.total.high_bytes >= before.breakdown.total.high_bytes


@given(KIND, CONTEXT, MORE, BATCH)
def test_more_context_never_needs_less(kind: str, context: int, more: int, batch: int) -> None:
    assert_not_less(
        plan(serving(kind, context_tokens=context, batch=batch)),
        plan(serving(kind, context_tokens=context + more, batch=batch)),
    )


@given(KIND, CONTEXT, BATCH, MORE)
def test_more_batch_never_needs_less(kind: str, context: int, batch: int, more: int) -> None:
    assert_not_less(
        plan(serving(kind, context_tokens=context, batch=batch)),
        plan(serving(kind, context_tokens=context, batch=batch + more)),
    )


@given(KIND, CONTEXT, BATCH, st.integers(1, 8), st.integers(0, 8))
def test_more_drafted_tokens_never_need_less(kind: str, context: int, batch: int, k: int, more: int) -> None:
    # Without CUDA graphs: the engine captures multiples of k + 1, and how many there are is not monotonic in k.
    assert_not_less(
        plan(serving(kind, k=k, context_tokens=context, batch=batch, eager=True)),
        plan(serving(kind, k=k + more, context_tokens=context, batch=batch, eager=True)),
    )


@settings(max_examples=400)
@given(KIND, CONTEXT, BATCH, st.integers(1, 48), st.integers(0, 48))
def test_a_larger_device_never_worsens_an_answer(
    kind: str, context: int, batch: int, size: int, more: int
) -> None:
    order = [Answer.DOES_NOT_FIT, Answer.TIGHT, Answer.FITS]
    what = serving(kind, context_tokens=context, batch=batch)
    small, large = plan(what, size * GIB), plan(what, (size + more) * GIB)
    assert order.index(large.verdict.answer) >= order.index(small.verdict.answer)


@given(KIND, CONTEXT, BATCH, st.sampled_from([0, 3]), st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2)]))
def test_the_total_is_the_sum_of_the_five_terms(
    kind: str, context: int, batch: int, k: int, ranks: tuple[int, int]
) -> None:
    made_plan = plan(serving(kind, k=k, context_tokens=context, batch=batch, tp=ranks[0], pp=ranks[1]))
    for rank in made_plan.ranks:
        terms = [rank.breakdown.of_group(group) for group in Group]
        total = rank.breakdown.total
        assert total.low_bytes == sum(term.low_bytes for term in terms)
        assert total.high_bytes == sum(term.high_bytes for term in terms)
        both = rank.breakdown.inside_budget + rank.breakdown.outside_budget
        assert both == total == sum_items(rank.breakdown.items)


@given(KIND, CONTEXT, BATCH, st.integers(2, 48))
def test_a_fitting_plan_holds_its_load_in_its_own_pool(kind: str, context: int, batch: int, size: int) -> None:
    made_plan = plan(serving(kind, context_tokens=context, batch=batch), size * GIB)
    assume(made_plan.verdict.answer is Answer.FITS)
    assert made_plan.cache is not None
    need = made_plan.ranks[0].breakdown.of_group(Group.KV_CACHE)
    assert made_plan.cache.blocks * made_plan.cache.bytes_per_block >= need.high_bytes
    if kind != "windowed":  # the engine's own figure charges tokens in flight to every request
        assert made_plan.cache.max_concurrency >= batch


@settings(max_examples=25)
@given(KIND, CONTEXT, BATCH, st.integers(2, 24))
def test_the_largest_that_fits_fits_and_one_more_does_not(kind: str, context: int, batch: int, size: int) -> None:
    what = serving(kind, context_tokens=context, batch=batch)
    gpu = (made_models.device(size * GIB),)
    most = max_batch(what, gpu, VLLM)
    longest = max_context_tokens(what, gpu, VLLM)

    def answer(workload: Workload) -> Answer:
        return make_plan(with_workload(what, workload), gpu, VLLM).verdict.answer

    if most is not None:
        assert answer(replace(what.workload, batch=most)) is Answer.FITS
    if most != MOST_BATCH:
        assert answer(replace(what.workload, batch=(most or 0) + 1)) is not Answer.FITS
    if longest is not None:
        assert answer(replace(what.workload, context_tokens=longest)) is Answer.FITS
    if longest != 131_072:
        assert answer(replace(what.workload, context_tokens=(longest or 0) + 1)) is not Answer.FITS


def test_a_draft_costs_weights_cache_and_says_so() -> None:
    alone, paired = plan(serving("llama", batch=4)), plan(serving("llama", k=4, batch=4))
    added = paired.ranks[0].breakdown.of_owner(Owner.DRAFT)
    assert alone.draft_budget is None
    assert paired.draft_budget is not None
    assert paired.draft_budget.footprint == added
    # The same model twice: its own cache, 2 heads x 2 x 64 x 2 B in 4 layers, doubles the line.
    per_token = 4 * 2 * 2 * 64 * 2
    assert paired.ranks[0].breakdown.of_group(Group.KV_CACHE).low_bytes >= 4 * 8192 * 2 * per_token


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_two_devices_of_unlike_size_are_planned_each(engine: str) -> None:
    what = Serving(target=made("llama"), draft=None, workload=replace(FIXED, tp=2))
    gpus = (made_models.device(24 * GIB, name="large"), made_models.device(1 * GIB, name="small", index=1))
    made_plan = make_plan(what, gpus, engine_profile(engine))
    assert [rank.rank.device.name for rank in made_plan.ranks] == ["large", "small"]
    assert made_plan.ranks[made_plan.binding_rank].rank.device.name == "small"
