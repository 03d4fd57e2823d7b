"""What a draft costs its target, by hand with an engine of simple figures, and its laws with vLLM's."""

from dataclasses import replace

import made_models
import pytest
from linear_engine import GIB, LinearEngine, made_device, made_model

from model_catalog.bounds import ByteRange
from model_catalog.drafts import DraftMethod
from planner.devices import Device
from planner.engines.base import Draft, Serving
from planner.planning import Plan, make_plan
from planner.speculation.draft_cost import draft_cost
from planner.speculation.ranges import Range
from planner.workload import Workload

TARGET = made_model("made/target", made_models.llama())
SHORT = made_model("made/short", made_models.llama(max_position_embeddings=2048))
DRAFT = Draft(
    method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=4, model=made_model("made/draft", made_models.llama())
)
WORK = Workload(context_tokens=1024)
CAPPED = "made/short caps the context at 2,048 tokens; the target alone takes 131,072"


def plans(
    engine: LinearEngine, *, work: Workload = WORK, draft: Draft = DRAFT, devices: tuple[Device, ...] = ()
) -> tuple[Plan, Plan]:
    places = devices or (made_device(40),)
    alone = Serving(target=TARGET, draft=None, workload=work)
    return make_plan(alone, places, engine), make_plan(replace(alone, draft=draft), places, engine)


def spread(found: Range | None) -> tuple[float, float]:
    assert found is not None
    return found.low, found.high


def test_tokens_at_one_fraction() -> None:
    """0.9 of 40 GiB less 10 for the target is 26 GiB of 1 MiB a token; the draft's 2 GiB leave 24."""
    cost = draft_cost(*plans(LinearEngine(target_gib=10, draft_gib=2)))
    assert cost.kv_tokens_alone == Range.point(26 * 1024)
    assert cost.kv_tokens_pair == Range.point(24 * 1024)
    assert spread(cost.kv_tokens_lost_share) == pytest.approx((2 / 26, 2 / 26))
    assert (cost.max_concurrency_alone, cost.max_concurrency_pair) == (26, 24)
    assert cost.text == "the draft costs 8% of the KV tokens: 26.0 -> 24.0 sequences"
    assert cost.footprint == ByteRange.point(2 * GIB)
    assert cost.share == cost.weights_share == 2 / 40
    assert cost.weights_to_target == Range.point(0.2)
    assert cost.cache_to_target == Range.point(0)
    assert cost.context_cap is None


def test_what_is_unsure_about_the_target_moves_both_pools() -> None:
    """4 GiB may or may not be taken: 22 to 26 GiB alone, 20 to 24 with the draft; 2 of 22 or 2 of 26 are lost."""
    cost = draft_cost(*plans(LinearEngine(target_gib=10, draft_gib=2, unsure_gib=4)))
    assert cost.kv_tokens_alone == Range(low=22 * 1024, high=26 * 1024)
    assert cost.kv_tokens_pair == Range(low=20 * 1024, high=24 * 1024)
    assert spread(cost.kv_tokens_lost_share) == pytest.approx((2 / 26, 2 / 22))
    assert (cost.max_concurrency_alone, cost.max_concurrency_pair) == (22, 20)
    assert cost.text == "the draft costs 8% to 9% of the KV tokens: 22.0 -> 20.0 sequences"


def test_both_pools_at_the_pairs_fraction() -> None:
    """25 GiB of cache fit 0.9 of 40 GiB alone; beside the draft only 39 of 40 GiB do, so both are taken there."""
    alone, pair = plans(LinearEngine(target_gib=10, draft_gib=2), work=replace(WORK, context_tokens=25 * 1024))
    assert alone.gpu_memory_utilization == 0.9
    assert pair.gpu_memory_utilization == pytest.approx(39 / 40)
    cost = draft_cost(alone, pair)
    assert cost.kv_tokens_alone == Range.point(29 * 1024)
    assert cost.kv_tokens_pair == Range.point(27 * 1024)


def test_a_pinned_pool_keeps_its_tokens() -> None:
    cost = draft_cost(
        *plans(LinearEngine(target_gib=10, draft_gib=2), work=replace(WORK, kv_cache_memory_bytes=8 * GIB))
    )
    assert cost.kv_tokens_alone == cost.kv_tokens_pair == Range.point(8 * 1024)
    assert cost.kv_tokens_lost_share == Range.point(0)


def test_no_room_for_the_target_alone() -> None:
    """Nothing is left to lose a share of."""
    cost = draft_cost(*plans(LinearEngine(target_gib=60, draft_gib=2)))
    assert cost.kv_tokens_alone == Range.point(0)
    assert cost.kv_tokens_lost_share is None
    assert cost.text is None


def test_an_unread_device_says_nothing_about_tokens() -> None:
    unread = replace(made_device(40), total_bytes=None, engine_total_bytes=None, free_bytes=None)
    cost = draft_cost(*plans(LinearEngine(target_gib=10, draft_gib=2), devices=(unread,)))
    assert cost.kv_tokens_alone is cost.kv_tokens_pair is cost.kv_tokens_lost_share is None
    assert cost.max_concurrency_alone is None
    assert cost.share is None
    assert cost.text is None
    assert cost.footprint == ByteRange.point(2 * GIB)


def test_inverse_answers_are_passed_on() -> None:
    made = plans(LinearEngine(target_gib=10, draft_gib=2))
    cost = draft_cost(*made, max_batch_alone=26, max_batch_pair=24, max_context_alone=9, max_context_pair=8)
    assert (cost.max_batch_alone, cost.max_batch_pair) == (26, 24)
    assert (cost.max_context_alone, cost.max_context_pair) == (9, 8)


@pytest.mark.parametrize(
    ("draft", "text"),
    [
        (
            replace(DRAFT, model=SHORT),
            "made/short caps the context at 2,048 tokens; the target alone takes 131,072",
        ),
        (replace(DRAFT, method=DraftMethod.EAGLE, model=SHORT), None),
        (DRAFT, None),
    ],
    ids=["draft model", "head, stretched to the target", "as long"],
)
def test_a_shorter_draft_caps_the_context(draft: Draft, text: str | None) -> None:
    """config/vllm.py, _limit_max_model_len_to_draft: for draft models only."""
    cap = draft_cost(*plans(LinearEngine(target_gib=10, draft_gib=2), draft=draft)).context_cap
    assert (cap.text if cap else None) == text


def test_the_rank_with_the_fewest_blocks_counts() -> None:
    """GeeeekExplorer/nano-vllm#259: ranks had 100 and 63 blocks of 16 MiB; 63 can be used by all."""
    engine = LinearEngine(target_gib=1)
    devices = []
    for index, blocks in enumerate((100, 63)):
        total = 2 * (GIB + blocks * 16 * 2**20)
        card = replace(made_device(1, index=index), name=f"card {index}", total_bytes=total, free_bytes=2 * total)
        devices.append(replace(card, engine_total_bytes=ByteRange.point(total)))
    work = Workload(context_tokens=16, pp=2, gpu_memory_utilization=0.5)
    alone, pair = plans(engine, work=work, devices=tuple(devices))
    assert alone.cache is not None
    assert alone.cache.blocks == 63
    assert draft_cost(alone, pair).kv_tokens_alone == Range.point(63 * 16)


def test_plans_that_cannot_be_compared() -> None:
    alone, pair = plans(LinearEngine(target_gib=10, draft_gib=2))
    other = make_plan(Serving(target=SHORT, draft=None, workload=WORK), (made_device(40),), pair.engine)
    for first, second in ((alone, alone), (pair, pair), (other, pair)):
        with pytest.raises(ValueError, match="a target alone with the same target and a draft"):
            draft_cost(first, second)
