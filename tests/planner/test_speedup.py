"""The speedup's formulas against published figures, and predictions of pairs whose fate is known."""

import math

import pytest
from made_models import llama, model_of

from model_catalog.bounds import Basis
from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from planner.declared_gpus import find_gpu
from planner.engines.base import Draft
from planner.speculation.mean_length import geometric_length
from planner.speculation.prediction import Acceptance, Demand, Prediction, StepTimes, Task
from planner.speculation.ranges import Range
from planner.speculation.speedup import (
    best_num_speculative_tokens,
    break_even_rate,
    ceiling_speedup,
    cost_ratio_of,
    cycle_cost,
    cycle_ratio_of,
    end_to_end,
    predict,
    speedup_at,
    speedup_range,
)
from planner.workload import Workload

H100 = find_gpu("h100-80gb").device()


def described(name: str) -> Model:
    row = find_row(name)
    assert row is not None
    return describe(row)


def drafted(name: str | None, method: DraftMethod = DraftMethod.DRAFT_MODEL) -> Draft:
    return Draft(method=method, num_speculative_tokens=5, model=None if name is None else described(name))


def theorem(rate: float, k: int, cost: float) -> float:
    return speedup_at(geometric_length(rate, k), cycle_cost(cost, k))


def certain(rate: float) -> Acceptance:
    return Acceptance(rate=Range.point(rate), source="given", basis=Basis.CALIBRATED, decay_per_position=1.0)


# Best k of 1 .. 32 and its speedup, theorem 3.8 of arXiv:2211.17192, by cost ratio and acceptance: worked out
# independently of this code; the paper prints the same optimum as a figure.
BEST = {
    0.02: ((4, 1.79), (6, 2.17), (8, 2.76), (11, 3.82), (19, 6.37)),
    0.05: ((3, 1.63), (4, 1.92), (6, 2.35), (8, 3.09), (13, 4.67)),
    0.10: ((2, 1.46), (3, 1.67), (4, 1.98), (6, 2.47), (10, 3.43)),
    0.20: ((1, 1.25), (2, 1.40), (3, 1.58), (4, 1.87), (7, 2.37)),
    0.30: ((1, 1.15), (1, 1.23), (2, 1.37), (3, 1.55), (5, 1.87)),
    0.50: ((1, 1.00), (1, 1.07), (1, 1.13), (2, 1.22), (3, 1.38)),
}


@pytest.mark.parametrize(
    ("cost", "rate", "expected"),
    [
        (cost, rate, pair)
        for cost, row in BEST.items()
        for rate, pair in zip((0.5, 0.6, 0.7, 0.8, 0.9), row, strict=True)
    ],
)
def test_best_k_and_its_speedup(cost: float, rate: float, expected: tuple[int, float]) -> None:
    k, speedup = best_num_speculative_tokens(rate, cost, range(1, 33))
    assert (k, round(speedup, 2)) == expected


# arXiv:2211.17192 table 2 (T5-XXL with T5-small, base, large): k, acceptance, cost ratio (table 4), measured, and
# how far theorem 3.8 lies from the measurement in per cent.
LEVIATHAN = (
    (7, 0.75, 0.02, 3.4, -7),
    (7, 0.80, 0.04, 2.8, 16),
    (7, 0.82, 0.11, 1.7, 47),
    (7, 0.62, 0.02, 2.6, -13),
    (5, 0.68, 0.04, 2.4, -2),
    (3, 0.71, 0.11, 1.4, 38),
    (5, 0.65, 0.02, 3.1, -23),
    (5, 0.73, 0.04, 3.0, -13),
    (3, 0.74, 0.11, 2.2, -8),
    (5, 0.53, 0.02, 2.3, -18),
    (3, 0.55, 0.04, 2.2, -18),
    (3, 0.56, 0.11, 1.7, -9),
)


@pytest.mark.parametrize(("k", "rate", "cost", "measured", "error"), LEVIATHAN)
def test_theorem_against_the_paper_s_own_measurements(
    k: int, rate: float, cost: float, measured: float, error: int
) -> None:
    assert round((theorem(rate, k, cost) / measured - 1) * 100) == pytest.approx(error, abs=1)


def test_common_formula_is_far_too_high_on_the_same_rows() -> None:
    common = [ceiling_speedup(rate) / measured - 1 for _, rate, _, measured, _ in LEVIATHAN]
    honest = [theorem(rate, k, cost) / measured - 1 for k, rate, cost, measured, _ in LEVIATHAN]
    assert sum(common) / len(common) == pytest.approx(0.52, abs=0.01)
    assert sum(honest) / len(honest) == pytest.approx(-0.01, abs=0.01)


def test_endless_free_drafts_reach_the_ceiling() -> None:
    assert theorem(0.8, 400, 0.0) == pytest.approx(ceiling_speedup(0.8))
    assert ceiling_speedup(0.8) == pytest.approx(5.0)
    assert ceiling_speedup(1.0) == math.inf


# NVIDIA/TensorRT-LLM#12905: the acceptance threshold below which speculation should be off.
@pytest.mark.parametrize(("cost", "k", "rate"), [(0.1, 3, 0.234), (0.25, 5, 0.571)])
def test_break_even_acceptance(cost: float, k: int, rate: float) -> None:
    found = break_even_rate(k, cycle_cost(cost, k))
    assert found is not None
    assert found == pytest.approx(rate, abs=0.001)
    assert theorem(found, k, cost) == pytest.approx(1.0)


def test_no_acceptance_breaks_even_when_the_draft_is_deeper_than_its_target() -> None:
    # vllm-project/vllm#15025: SmolLM2-135M has 30 layers, SmolLM2-1.7B 24; 30 % slower at any k.
    assert theorem(1.0, 5, 30 / 24) == pytest.approx(0.83, abs=0.005)
    assert break_even_rate(5, cycle_cost(30 / 24, 5)) is None


def test_prefill_dilutes_the_speedup() -> None:
    # 1 / (0.5 + 0.5 / 2) and 1 / (0.2 + 0.8 / 4).
    assert end_to_end(Range.point(2.0), Range.point(0.5)).low == pytest.approx(4 / 3)
    assert end_to_end(Range.point(4.0), Range.point(0.2)).high == pytest.approx(2.5)


def test_independent_errors_stay_inside_the_outer_quotient() -> None:
    length, cycle = Range(low=2.0, high=3.0), Range(low=1.2, high=1.8)
    found = speedup_range(length, cycle)
    assert 2.0 / 1.8 < found.low < found.high < 3.0 / 1.2
    assert speedup_range(Range.point(3.0), Range.point(1.5)).middle == pytest.approx(2.0)


def test_measured_times_become_ratios_and_never_beat_the_length() -> None:
    times = StepTimes(
        target_seconds=Range.point(0.02),
        draft_seconds=Range(low=0.002, high=0.004),
        verify_seconds=Range.point(0.018),
        overhead_seconds=Range.point(0.0),
        source="a run",
        basis=Basis.CALIBRATED,
    )
    assert cost_ratio_of(times) == Range(low=0.1, high=0.2)
    # A verification faster than a plain step is a mismatched baseline: the cycle costs one step at least.
    assert cycle_ratio_of(times, 0) == Range(low=1.0, high=1.0)
    assert cycle_ratio_of(times, 3).high == pytest.approx(1.5)


def test_measured_step_times_are_used_as_they_are() -> None:
    def measured(k: int) -> StepTimes | None:
        if k > 4:
            return None
        return StepTimes(
            target_seconds=Range.point(0.010),
            draft_seconds=Range.point(0.001),
            verify_seconds=Range.point(0.010),
            overhead_seconds=Range.point(0.0),
            source="measured here",
            basis=Basis.CALIBRATED,
        )

    found = predict(
        model_of(llama()),
        Draft(
            method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=3, model=model_of(llama(num_hidden_layers=1))
        ),
        None,
        Workload(),
        Demand(),
        acceptance=certain(0.7),
        step_times=measured,
    )
    # Theorem 3.8 at a = 0.7, c = 0.1: the best k is 4 with 1.98.
    assert found.num_speculative_tokens == 4
    assert found.speedup is not None
    assert found.speedup.middle == pytest.approx(1.98, abs=0.005)
    assert found.cost_source == "measured here"
    assert found.break_even_acceptance == pytest.approx(break_even_rate(4, 1.4))
    assert [k for k, _ in found.by_num_speculative_tokens] == [0, 1, 2, 3, 4]
    assert any("k above 4" in note for note in found.notes)


def smollm(*, k_range: tuple[int, int] = (3, 8), eager: bool = False) -> Prediction:
    return predict(
        described("HuggingFaceTB/SmolLM2-1.7B-Instruct"),
        drafted("HuggingFaceTB/SmolLM2-135M-Instruct"),
        H100,
        Workload(enforce_eager=eager),
        Demand(),
        k_range=k_range,
    )


def test_a_draft_deeper_than_its_target_loses() -> None:
    found = smollm(eager=True)
    assert found.speedup is not None
    assert found.speedup.high < 1
    assert found.cost_ratio.low <= 30 / 24 <= found.cost_ratio.high * 1.05
    assert found.stops_paying_at_batch == 1
    assert smollm(k_range=(0, 8), eager=True).num_speculative_tokens == 0


@pytest.mark.parametrize("k", [3, 5, 10])
def test_smaller_drafts_of_qwen3_32b_come_first(k: int) -> None:
    # vllm-project/vllm#21278: 0.6B before 1.7B before 4B at every k tried.
    speeds = []
    for name in ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B"):
        found = predict(described("Qwen/Qwen3-32B"), drafted(name), H100, Workload(tp=2), Demand(), k_range=(k, k))
        assert found.speedup is not None
        speeds.append(found.speedup.middle)
    assert speeds == sorted(speeds, reverse=True)


# Requests that must obey the laws below whatever the constants are.
CASES = (
    ("meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct", DraftMethod.DRAFT_MODEL, 1),
    (
        "meta-llama/Llama-3.1-8B-Instruct",
        "lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge",
        DraftMethod.EAGLE3,
        8,
    ),
    ("Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16", DraftMethod.DFLASH, 1),
    ("deepseek-ai/DeepSeek-V3", None, DraftMethod.MTP, 4),
    ("Qwen/Qwen3-30B-A3B", None, DraftMethod.NGRAM, 1),
)


@pytest.mark.parametrize(("target", "draft", "method", "batch"), CASES)
@pytest.mark.parametrize("task", [Task.CHAT, Task.MIXED])
def test_speedup_stays_below_the_length_and_the_ceiling(
    target: str, draft: str | None, method: DraftMethod, batch: int, task: Task
) -> None:
    found = predict(
        described(target), drafted(draft, method), H100, Workload(), Demand(task=task, batch=batch), k_range=(3, 8)
    )
    assert found.speedup is not None
    assert found.end_to_end_speedup is not None
    assert 3 <= found.num_speculative_tokens <= 8
    assert found.speedup.high <= found.mean_acceptance_length.high
    assert found.speedup.high <= found.ceiling_speedup
    assert found.end_to_end_speedup.high <= max(found.speedup.high, 1.0)
    table = dict(found.by_num_speculative_tokens)
    assert table[0] == Range.point(1.0)
    assert table[found.num_speculative_tokens] == found.speedup
    assert all(table[k].middle <= found.speedup.middle for k in range(3, 9) if k in table)


def test_a_batch_beyond_what_was_measured_is_refused_not_extrapolated() -> None:
    found = predict(
        described("meta-llama/Llama-3.1-8B-Instruct"),
        drafted(None, DraftMethod.NGRAM),
        H100,
        Workload(),
        Demand(batch=100),
    )
    assert found.speedup is None
    assert found.end_to_end_speedup is None
    assert found.break_even_acceptance is None
    assert any("400 tokens" in note and "256" in note for note in found.notes)


def test_gain_falls_with_the_batch() -> None:
    # EAGLE-3 paper (arXiv:2503.01840), chains of 3 on H100: 1.81 at batch 2 falls to 1.38 at batch 64.
    middles = []
    for batch in (2, 16, 64):
        found = predict(
            described("meta-llama/Llama-3.1-8B-Instruct"),
            drafted("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", DraftMethod.EAGLE3),
            H100,
            Workload(),
            Demand(batch=batch, task=Task.CHAT),
            k_range=(3, 3),
        )
        assert found.speedup is not None
        middles.append(found.speedup.middle)
    assert middles == sorted(middles, reverse=True)
    assert middles[-1] < 0.9 * middles[0]


def test_long_prompts_with_short_answers_gain_less() -> None:
    def whole(prompt: int, output: int) -> float:
        found = predict(
            described("Qwen/Qwen3-32B"),
            drafted("Qwen/Qwen3-0.6B"),
            H100,
            Workload(),
            Demand(prompt_tokens=prompt, output_tokens=output, context_tokens=prompt + output),
        )
        assert found.end_to_end_speedup is not None
        return found.end_to_end_speedup.middle

    assert whole(8000, 64) < 0.85 * whole(256, 2048)


def test_k_range_must_be_a_range() -> None:
    with pytest.raises(ValueError, match="range of k"):
        predict(model_of(llama()), drafted(None, DraftMethod.NGRAM), None, Workload(), Demand(), k_range=(4, 3))


@pytest.mark.parametrize(
    ("k_range", "permitted"),
    [((3, 8), {3, 6}), ((1, 8), {1, 2, 3, 6}), ((4, 5), {4, 5})],  # (4, 5) holds no multiple: the engine refuses
)
def test_k_is_a_whole_round_of_mtp_layers(k_range: tuple[int, int], permitted: set[int]) -> None:
    target = described("XiaomiMiMo/MiMo-V2-Flash")  # ships three layers
    demand = Demand(task=Task.MIXED, batch=1, context_tokens=8192, prompt_tokens=1024, output_tokens=1024)
    found = predict(
        target, drafted(None, DraftMethod.MTP), H100, Workload(tp=8), demand, k_range=k_range, k_step=3
    )
    assert found.num_speculative_tokens in permitted
