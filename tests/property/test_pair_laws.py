"""Laws of a pair: a draft frees no memory, its footprint is the sum of its lines, drafting more costs more."""

from dataclasses import replace
from functools import cache

import made_models
from hypothesis import assume, given
from hypothesis import strategies as st

from model_catalog.drafts import HEADS, DraftMethod
from model_catalog.model import Model, describe
from model_catalog.snapshot import RepoKind
from model_catalog.units import GIB
from planner.engines.base import Draft, Serving
from planner.engines.registry import engine_profile
from planner.memory.breakdown import Group, Owner, sum_items
from planner.planning import Plan, make_plan
from planner.speculation.draft_cost import draft_cost
from planner.workload import Workload

VLLM = engine_profile("vllm")
TARGETS = {
    "llama": made_models.llama(),
    "mixture": made_models.mixture(),
    "latent": made_models.latent(),
    "windowed": made_models.windowed(),
    "mtp": made_models.llama(architectures=["MiMoForCausalLM"], model_type="mimo", num_nextn_predict_layers=1),
}
_FLASH = made_models.llama(
    architectures=["DFlashDraftModel"],
    model_type="qwen3",
    num_hidden_layers=2,
    dflash_config={"target_layer_ids": [0, 1, 2]},
)
DRAFTS = {
    DraftMethod.DRAFT_MODEL: made_models.llama(),
    DraftMethod.EAGLE: made_models.llama(architectures=["EagleLlamaForCausalLM"], num_hidden_layers=1),
    DraftMethod.EAGLE3: made_models.llama(
        architectures=["LlamaForCausalLMEagle3"], num_hidden_layers=1, draft_vocab_size=500
    ),
    DraftMethod.DFLASH: _FLASH,
    DraftMethod.DSPARK: _FLASH | {"architectures": ["DSparkDraftModel"]},
}
# Knobs that the engine would otherwise derive from the workload are held fixed.
FIXED = Workload(max_num_batched_tokens=2048, max_num_seqs=256, block_size=16)


@cache
def target(kind: str) -> Model:
    return made_models.model_of(TARGETS[kind], f"made/{kind}")


@cache
def drafting(method: DraftMethod) -> Model | None:
    config = DRAFTS.get(method)
    if config is None:
        return None
    snapshot = made_models.model_of(config, f"made/{method.value}").snapshot
    kind = RepoKind.DRAFT_HEAD if method in HEADS else RepoKind.MODEL
    return describe(replace(snapshot, kind=kind))


def plan(kind: str, method: DraftMethod | None, k: int, work: Workload) -> Plan:
    draft = None if method is None else Draft(method=method, num_speculative_tokens=k, model=drafting(method))
    places = (made_models.device(24 * GIB),) * (work.tp * work.pp)
    return make_plan(Serving(target=target(kind), draft=draft, workload=work), places, VLLM)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, DraftMethod, Workload]:
    kind = draw(st.sampled_from(sorted(TARGETS)))
    methods = [method for method in DraftMethod if method is not DraftMethod.MTP or kind == "mtp"]
    tp, pp = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2)]))
    work = replace(
        FIXED,
        context_tokens=draw(st.integers(1, 65_536)),
        batch=draw(st.integers(1, 256)),
        enforce_eager=draw(st.booleans()),
        tp=tp,
        pp=pp,
    )
    return kind, draw(st.sampled_from(sorted(methods))), work


TOKENS = st.integers(1, 16)


@given(pairs(), TOKENS)
def test_a_pair_never_needs_less_than_its_target(pair: tuple[str, DraftMethod, Workload], k: int) -> None:
    kind, method, work = pair
    # Beside windows, a draft's layers may make fewer groups of layers with less padding and fewer block tables.
    assume(kind != "windowed")
    # Which graphs are captured depends on k, and fewer may be.
    eager = replace(work, enforce_eager=True)
    alone, both = plan(kind, None, 0, eager), plan(kind, method, k, eager)
    for before, after in zip(alone.ranks, both.ranks, strict=True):
        assert after.breakdown.total.low_bytes >= before.breakdown.total.low_bytes
        assert after.breakdown.total.high_bytes >= before.breakdown.total.high_bytes
        assert after.breakdown.outside_budget.high_bytes >= before.breakdown.outside_budget.high_bytes


@given(pairs(), TOKENS)
def test_the_footprint_is_the_sum_of_the_drafts_lines(pair: tuple[str, DraftMethod, Workload], k: int) -> None:
    kind, method, work = pair
    made = plan(kind, method, k, work)
    assert made.draft_budget is not None
    owned = [sum_items(item for item in rank.breakdown.items if item.owner is Owner.DRAFT) for rank in made.ranks]
    assert made.draft_budget.footprint == max(owned, key=lambda size: size.high_bytes)
    for rank in made.ranks[:-1]:
        held = rank.breakdown.of_group(Group.DRAFT_WEIGHTS)
        assert held.high_bytes == 0 or rank.rank.last_stage


def gross(made: Plan) -> list[tuple[int, ...]]:
    """What each rank needs, verification whole: its line only holds what the profiled peak does not cover."""
    needs: list[tuple[int, ...]] = []
    for rank in made.ranks:
        items = rank.breakdown.items
        peak = sum_items(item for item in items if item.label == "activation_peak")
        beyond = sum_items(item for item in items if item.label == "verification_logits")
        rest = sum_items(item for item in items if item.label not in {"activation_peak", "verification_logits"})
        whole = (peak.low_bytes + beyond.high_bytes, peak.high_bytes + beyond.low_bytes)
        needs.append((rest.low_bytes, rest.high_bytes, peak.low_bytes, peak.high_bytes, *whole))
    return needs


@given(pairs(), TOKENS, TOKENS)
def test_more_drafted_tokens_never_need_less(pair: tuple[str, DraftMethod, Workload], few: int, more: int) -> None:
    kind, method, work = pair
    eager = replace(work, enforce_eager=True)
    first, second = sorted((few, more))
    small, large = gross(plan(kind, method, first, eager)), gross(plan(kind, method, second, eager))
    for before, after in zip(small, large, strict=True):
        assert all(now >= then for then, now in zip(before, after, strict=True))


@given(pairs(), TOKENS)
def test_a_draft_costs_between_nothing_and_all(pair: tuple[str, DraftMethod, Workload], k: int) -> None:
    kind, method, work = pair
    alone, both = plan(kind, None, 0, work), plan(kind, method, k, work)
    cost = draft_cost(alone, both)
    assert both.draft_budget is not None
    assert cost.footprint == both.draft_budget.footprint
    if cost.kv_tokens_alone is None or cost.kv_tokens_pair is None:
        return
    if cost.kv_tokens_lost_share is not None:
        assert 0 <= cost.kv_tokens_lost_share.low <= cost.kv_tokens_lost_share.high <= 1
    assert cost.kv_tokens_pair.low <= cost.kv_tokens_alone.low
    assert cost.kv_tokens_pair.high <= cost.kv_tokens_alone.high
