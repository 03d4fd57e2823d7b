"""Figures of a trial against what can be counted by hand."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trial_children import RUN

from planner.trial.statistics import acceptance_intervals, measure, tokens_per_pass


def test_acceptance_lengths_and_step_times_are_counted() -> None:
    found = measure([RUN])
    assert list(found.acceptance_per_position) == pytest.approx([5 / 10, 3 / 5])
    # Judged: 5 rounds judge one proposal, 2 + 3 rounds judge both.
    assert found.acceptance_rate == pytest.approx(8 / 15)
    assert found.accepted_per_drafted == pytest.approx(8 / 20)
    assert found.mean_acceptance_length.value == pytest.approx(1.8)
    assert found.target_step_seconds == pytest.approx(0.1)
    assert found.draft_step_seconds == pytest.approx(0.01)
    assert found.verify_step_seconds == pytest.approx(0.1)
    assert found.speedup.value == pytest.approx(1.5)
    # L t_T / (k t_D + t_V) = 1.8 x 0.1 / (2 x 0.01 + 0.1)
    assert found.predicted_speedup == pytest.approx(1.5)
    assert found.baseline_tokens_per_second == pytest.approx(10)


def test_one_prompt_has_no_interval_and_none_is_an_error() -> None:
    assert (measure([RUN]).speedup.low, measure([RUN]).speedup.high) == (None, None)
    with pytest.raises(ValueError, match="no prompt"):
        measure([])


def test_the_interval_is_narrow_where_prompts_agree_and_holds_the_value_where_not() -> None:
    alike = measure([RUN] * 12).speedup
    assert alike.low == pytest.approx(1.5)
    assert alike.high == pytest.approx(1.5)
    slower = replace(RUN, speculative_seconds=2.4)
    mixed = measure([RUN] * 6 + [slower] * 6).speedup
    assert mixed.value == pytest.approx(12 * 1.8 / (6 * 1.2 + 6 * 2.4))
    assert mixed.low is not None
    assert mixed.high is not None
    assert 0.75 <= mixed.low < mixed.value < mixed.high <= 1.5


def test_a_position_never_reached_has_no_rate() -> None:
    never = replace(RUN, accepted_counts=(10, 0, 0))
    assert measure([never]).acceptance_per_position == (0.0, None)


def test_diverged_prompts_are_counted_with_their_widest_gap() -> None:
    parted = [replace(RUN, same_tokens=False, logit_gap=gap) for gap in (0.01, 0.03)]
    found = measure([RUN, *parted])
    assert found.diverged == 2
    assert found.max_logit_gap == 0.03


@given(rate=st.floats(0, 0.99), k=st.integers(1, 16))
def test_tokens_per_pass_is_the_papers_sum_for_a_constant_rate(rate: float, k: int) -> None:
    """Leviathan et al., equation 1: (1 - a^(k+1)) / (1 - a)."""
    assert tokens_per_pass([rate] * k, k) == pytest.approx((1 - rate ** (k + 1)) / (1 - rate))


def test_of_few_prompts_the_interval_is_students() -> None:
    """Two prompts at 1.5 and 2.0 times: by hand, mean and spread of the logarithms, t(1) = 12.706."""
    faster = replace(RUN, speculative_seconds=0.9)
    found = measure([RUN, faster]).speedup
    logs = (math.log(1.5), math.log(2.0))
    deviation = abs(logs[0] - logs[1]) / math.sqrt(2)
    half = 12.706 * deviation / math.sqrt(2)
    assert found.value == pytest.approx((36 / 2.1) / 10)
    assert found.low == pytest.approx(found.value / math.exp(half), rel=1e-6)
    assert found.high == pytest.approx(found.value * math.exp(half), rel=1e-6)


def test_the_rate_of_a_position_has_an_interval_between_nought_and_one() -> None:
    worse = replace(RUN, accepted_counts=(8, 1, 1))
    first, second = acceptance_intervals([RUN, worse])
    assert first is not None
    assert second is not None
    assert (first.low, first.high) == (0.0, 1.0)  # 0.5 and 0.2: two prompts tell next to nothing
    alike = acceptance_intervals([RUN] * 12)[0]
    assert alike is not None
    assert (alike.low, alike.high) == pytest.approx((0.5, 0.5))
    assert acceptance_intervals([RUN])[0] is not None


def test_a_run_in_which_the_machine_stalled_is_left_out_and_counted() -> None:
    """One baseline that took ten times as long would make 1.5 into 4.1; the others say what is so."""
    stalled = replace(RUN, baseline_seconds=18.0)
    found = measure([RUN] * 5 + [stalled])
    assert found.speedup.value == pytest.approx(1.5)
    assert (found.prompts, found.stalled) == (5, 1)
    slow_draft = replace(RUN, speculative_seconds=12.0)
    assert measure([RUN] * 5 + [slow_draft]).speedup.value == pytest.approx(1.5)


def test_of_three_runs_none_is_left_out() -> None:
    assert measure([RUN, RUN, replace(RUN, baseline_seconds=18.0)]).stalled == 0


@given(speeds=st.lists(st.floats(0.5, 0.99), min_size=4, max_size=11))
def test_ordinary_spread_leaves_nothing_out(speeds: list[float]) -> None:
    spread = [replace(RUN, baseline_seconds=1.8 * speed, speculative_seconds=1.2 * speed) for speed in speeds]
    assert measure(spread).stalled == 0
