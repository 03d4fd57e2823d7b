"""Where an acceptance rate comes from, and how rates become lengths."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from made_models import llama, model_of

from model_catalog.bounds import Basis
from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from planner.engines.base import Draft
from planner.speculation.acceptance import acceptance_for, published_pairs, same_family
from planner.speculation.mean_length import (
    conditional_rates,
    decayed_rates,
    geometric_length,
    length_from_rates,
    mean_acceptance_length,
    rate_from_length,
)
from planner.speculation.prediction import Acceptance, Demand, Task
from planner.speculation.ranges import Range

HEAD = "lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge"


def described(name: str) -> Model:
    row = find_row(name)
    assert row is not None
    return describe(row)


def pair(target: str, draft: str | None, method: DraftMethod) -> tuple[Model, Draft]:
    model = None if draft is None else described(draft)
    return described(target), Draft(method=method, num_speculative_tokens=5, model=model)


# (1 - a^(k+1)) / (1 - a), by hand: 1 + 0.5 + 0.25; 1 + 0.8 + 0.64 + 0.512; k + 1 at full acceptance.
@pytest.mark.parametrize(("rate", "k", "length"), [(0.5, 2, 1.75), (0.8, 3, 2.952), (1.0, 7, 8.0), (0.0, 4, 1.0)])
def test_geometric_length(rate: float, k: int, length: float) -> None:
    assert geometric_length(rate, k) == pytest.approx(length)
    assert length_from_rates([rate] * k) == pytest.approx(length)


def test_vllm_s_unconditional_rates_become_conditional_ones() -> None:
    # vllm-project/vllm-ascend#9803 prints a mean length of 3.16 with per-position rates 0.891, 0.717, 0.549.
    rates = conditional_rates((0.891, 0.717, 0.549))
    assert rates == pytest.approx((0.891, 0.8047, 0.7657), abs=1e-4)
    assert length_from_rates(rates) == pytest.approx(3.16, abs=0.005)


@pytest.mark.parametrize(("length", "k"), [(2.05, 5), (3.9, 7), (1.85, 1)])
def test_rate_from_length_is_the_inverse(length: float, k: int) -> None:
    assert length_from_rates(decayed_rates(rate_from_length(length, k), k)) == pytest.approx(length)


@pytest.mark.parametrize("length", [0.9, 4.1])
def test_impossible_lengths_are_refused(length: float) -> None:
    with pytest.raises(ValueError, match="impossible"):
        rate_from_length(length, 3)


def test_extrapolated_lengths_are_shrunk_by_what_published_pairs_show() -> None:
    """Fit at k = 3, predict k = 7: a flat rate is 4 to 7 per cent too hopeful, ours is not."""
    by_pair: dict[tuple[str, str, Task], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in published_pairs():
        for item in row.lengths:
            if row.method is DraftMethod.EAGLE3 and "SpecForge" in row.source:
                by_pair[row.target, row.draft, item.task][item.num_speculative_tokens].append(item.length)
    flat, decayed = [], []
    for lengths in by_pair.values():
        for short, long in zip(sorted(lengths[3]), sorted(lengths[7]), strict=False):
            flat.append(geometric_length(rate_from_length(short, 3, 1.0), 7) / long - 1)
            decayed.append(length_from_rates(decayed_rates(rate_from_length(short, 3), 7)) / long - 1)
    assert len(flat) >= 60
    assert 0.04 < sum(flat) / len(flat) < 0.07
    assert abs(sum(decayed) / len(decayed)) < 0.01


def test_known_positions_are_kept_and_later_ones_decay() -> None:
    acceptance = Acceptance(
        rate=Range.point(0.9),
        source="given",
        basis=Basis.CALIBRATED,
        per_position=(Range.point(0.9), Range.point(0.8)),
        decay_per_position=0.5,
    )
    assert mean_acceptance_length(acceptance, 2).low == pytest.approx(1 + 0.9 + 0.72)
    assert mean_acceptance_length(acceptance, 3).high == pytest.approx(1 + 0.9 + 0.72 + 0.72 * 0.4)


def test_a_measurement_of_this_pair_goes_first() -> None:
    target, draft = pair("meta-llama/Llama-3.1-8B-Instruct", HEAD, DraftMethod.EAGLE3)
    measured = Acceptance(rate=Range.point(0.5), source="here", basis=Basis.CALIBRATED)
    assert acceptance_for(target, draft, Demand(), measured=measured) is measured


def test_a_published_pair_goes_before_the_family() -> None:
    target, draft = pair("meta-llama/Llama-3.1-8B-Instruct", HEAD, DraftMethod.EAGLE3)
    found = acceptance_for(target, draft, Demand(task=Task.CHAT))
    assert found.basis is Basis.DERIVED
    assert "SpecForge" in found.source
    # sgl-project/SpecForge, MT-bench at k = 3: 2.898 tokens a pass.
    length = mean_acceptance_length(found, 3)
    assert length.low < 2.898 < length.high
    prior = acceptance_for(target, draft, Demand(task=Task.CHAT), published=())
    assert prior.basis is Basis.ASSUMED
    assert prior.rate.high - prior.rate.low > found.rate.high - found.rate.low


def test_a_task_nobody_published_is_said_to_be_another() -> None:
    target, draft = pair("meta-llama/Llama-3.1-8B-Instruct", HEAD, DraftMethod.EAGLE3)
    carried = acceptance_for(target, draft, Demand(task=Task.TRANSLATE))
    assert "carried over to translate" in carried.source
    chat = acceptance_for(target, draft, Demand(task=Task.CHAT)).rate
    # Nobody measured it for this task, so the range is wider; translation is accepted less often than chat.
    assert carried.rate.high - carried.rate.low > chat.high - chat.low
    assert carried.rate.middle < chat.middle


def test_one_task_does_not_stand_for_all() -> None:
    # vllm-ascend#11765 measured GSM8K only, the easiest of tasks: a mixed load gets less, and a wider range.
    target, draft = pair("Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16", DraftMethod.DFLASH)
    math = acceptance_for(target, draft, Demand(task=Task.MATH)).rate
    mixed = acceptance_for(target, draft, Demand(task=Task.MIXED)).rate
    assert mixed.middle < math.middle
    assert mixed.high - mixed.low > math.high - math.low


def test_positions_published_for_an_mtp_head() -> None:
    target, draft = pair("zai-org/GLM-5", None, DraftMethod.MTP)
    found = acceptance_for(target, draft, Demand())
    assert len(found.per_position) == 3
    assert found.per_position[1].low < 0.717 / 0.891 < found.per_position[1].high
    assert found.decay_per_position < 0.95


# Rates that others measured and that a prior must hold: arXiv:2211.17192 table 3 (LaMDA, dialog) 0.61 to 0.75;
# table 2 (T5, translation at T = 1) 0.62 to 0.71; DeepSeek-V3's MTP 0.85 to 0.90.
@pytest.mark.parametrize(
    ("method", "task", "temperature", "low", "high"),
    [
        (DraftMethod.DRAFT_MODEL, Task.CHAT, 0.0, 0.61, 0.75),
        (DraftMethod.DRAFT_MODEL, Task.TRANSLATE, 0.0, 0.45, 0.65),
        (DraftMethod.MTP, Task.MIXED, 0.0, 0.85, 0.90),
    ],
)
def test_priors_hold_the_published_rates(
    method: DraftMethod, task: Task, temperature: float, low: float, high: float
) -> None:
    small = model_of(llama(num_hidden_layers=1), "made/llama-small")
    draft = Draft(
        method=method, num_speculative_tokens=3, model=small if method is DraftMethod.DRAFT_MODEL else None
    )
    large = model_of(llama(num_hidden_layers=60), "made/llama-large")
    found = acceptance_for(large, draft, Demand(task=task, temperature=temperature), published=())
    assert found.rate.low <= low
    assert high <= found.rate.high


@pytest.mark.parametrize("method", list(DraftMethod))
@pytest.mark.parametrize("task", list(Task))
def test_every_method_and_task_has_a_prior_with_a_source(method: DraftMethod, task: Task) -> None:
    draft = Draft(method=method, num_speculative_tokens=3, model=None)
    found = acceptance_for(model_of(llama()), draft, Demand(task=task), published=())
    assert 0 < found.rate.low < found.rate.high < 1
    assert len(found.source) > len("family prior for , task : ") + 20


def test_sampling_lowers_the_rate_and_an_unknown_temperature_widens_it() -> None:
    draft = Draft(method=DraftMethod.EAGLE3, num_speculative_tokens=3, model=None)

    def rate(temperature: float | None) -> Range:
        demand = Demand(task=Task.CODE, temperature=temperature)
        return acceptance_for(model_of(llama()), draft, demand, published=()).rate

    greedy, sampled, unknown = rate(0.0), rate(1.0), rate(None)
    assert sampled.low < greedy.low
    assert sampled.high < greedy.high
    assert unknown.low < greedy.low
    assert unknown.high == greedy.high


def test_another_family_agrees_less() -> None:
    target = described("Qwen/Qwen2.5-7B-Instruct")
    own, other = described("Qwen/Qwen2.5-0.5B-Instruct"), described("HuggingFaceTB/SmolLM2-360M-Instruct")
    assert same_family(target, own)
    assert not same_family(target, other)

    def rate(model: Model) -> Range:
        draft = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=3, model=model)
        return acceptance_for(target, draft, Demand(), published=()).rate

    assert rate(other).high < rate(own).high


def test_published_pairs_name_their_source_and_are_possible() -> None:
    rows = published_pairs()
    assert len(rows) >= 20
    for row in rows:
        assert row.source
        assert row.lengths or row.unconditional
        for item in row.lengths:
            assert 1 <= item.length <= item.num_speculative_tokens + 1
        for _, rates in row.unconditional:
            assert list(rates) == sorted(rates, reverse=True)


def test_no_measured_row_is_impossible() -> None:
    """A speedup above the length means a mismatched baseline: such rows have no place in the table."""
    lines = (Path(__file__).parents[1] / "measured" / "published_pairs.jsonl").read_text(encoding="utf-8")
    for row in map(json.loads, lines.splitlines()):
        assert row["source"]
        assert row["speedup"] <= row.get("length", row["speedup"]) * 1.0001
