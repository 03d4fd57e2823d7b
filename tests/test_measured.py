"""Plans of engine logs' own settings against what the logs printed: each comparison, the figures, the split.

The rows are in ``measured/vllm_memory.jsonl``, each with its source; ``docs/accuracy.md`` shows them. The log
prints weights with two decimals of GiB once the model stands, rotary tables included.
"""

from collections import Counter
from dataclasses import replace

import pytest
from replay import Line, Replay, replays, serving_of, with_line
from replay_figures import MISSES, Figure, figures, holds, missed
from replay_rows import FAMILIES, FITTED_FAMILIES, log_rows, replayable
from replay_terms import ENOUGH_ROWS, terms

from model_catalog.units import GIB
from planner.verdict import Answer


def part(name: str) -> list[Replay]:
    return [each for each in replays() if each.row.part == name]


def compared(quantity: str) -> list[object]:
    """Comparisons that are not in the list of known misses."""
    pairs = [(each, line) for each, line in with_line(quantity, replays())]
    return [
        pytest.param(each, line, id=each.row.id) for each, line in pairs if (each.row.id, quantity) not in MISSES
    ]


@pytest.mark.parametrize(("each", "line"), compared("weights"))
def test_weights_of_a_rank_are_within_one_per_cent(each: Replay, line: Line) -> None:
    assert line.low * 0.99 <= line.measured <= line.high * 1.01
    if each.row.facts.get("quantization") == "mxfp4":
        assert line.low <= line.measured <= line.high


@pytest.mark.parametrize(("_each", "line"), compared("bytes a token"))
def test_bytes_per_token_are_within_a_fifth_of_a_per_cent(_each: Replay, line: Line) -> None:
    assert abs(line.error) <= 0.002


@pytest.mark.parametrize("quantity", ["non-KV", "available KV", "activation", "non-torch", "context"])
@pytest.mark.parametrize("side", ["fit", "validation"])
def test_what_a_log_states_of_memory_lies_within_the_plans_bounds(quantity: str, side: str) -> None:
    pairs = with_line(quantity, part(side))
    assert len(pairs) >= 10
    outside = {(each.row.id, quantity) for each, line in pairs if not line.inside}
    assert outside == {miss for miss in outside if miss in MISSES}
    assert len(outside) <= 0.1 * len(pairs)


def test_the_figures_of_rows_that_were_not_fitted_reach_their_goals() -> None:
    """All but the hybrids' bytes a token, and that one too without DeepSeek V4, whose layout is not known here."""
    missed_goals = [figure for figure in figures(part("validation")) if not figure.reached]
    assert [figure.name for figure in missed_goals] == ["cache bytes a token, hybrids, mean error"]
    others = [each for each in part("validation") if each.row.family != "DeepSeek V4"]
    assert all(figure.reached for figure in figures(others))
    assert all(figure.count for figure in figures(others))


def test_the_figures_of_the_fitted_rows_reach_their_goals() -> None:
    found: tuple[Figure, ...] = figures(part("fit"))
    assert all(figure.reached for figure in found)


def test_every_miss_has_a_reason_and_no_reason_is_left_over() -> None:
    found = missed(replays())
    assert {(one.replay.row.id, one.line.quantity) for one in found} == set(MISSES)
    assert all(one.reason for one in found)
    assert not any(each.wrong_answer for each in replays())


def test_no_row_is_left_out_because_it_is_inconvenient() -> None:
    """Every row that was collected stands in the table with its source, whatever it says of the plan."""
    rows = log_rows()
    assert Counter(row.engine == "vllm" for row in rows) == {True: 197, False: 8}
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert row.facts["source"]
        assert row.facts["unit"]
        assert row.facts["confidence"] in {"high", "medium", "low"}
        assert row.facts["outcome"]
        assert row.not_replayed != ""
    assert len(replayable()) >= 100
    assert all(each.lines or each.answer for each in replays()), "a row is replayed and nothing compared"


def test_no_family_stands_on_both_sides() -> None:
    sides: dict[str, set[str]] = {}
    for row in replayable():
        assert row.family in FAMILIES.values(), row.structure
        sides.setdefault(row.family, set()).add(row.part)
    assert all(len(side) == 1 for side in sides.values())
    assert set(sides) > FITTED_FAMILIES
    share = len(part("fit")) / len(replays())
    assert 0.6 <= share <= 0.7


def test_what_is_said_of_a_term_rests_on_enough_rows() -> None:
    found = list(terms(replays()))
    assert all(term.too_few == (len(term.fit) < ENOUGH_ROWS) for term in found)
    sampler = next(term for term in found if term.name.startswith("sampler") and term.release == "0.17 to 0.20")
    # fp32 copy, probabilities and noise of 4 B each, and what the allocator rounds up
    assert 12 <= sampler.fit[0] <= sampler.fit[-1] <= 13.1
    assert 12 <= sampler.validation[0] <= sampler.validation[-1] <= 13.1


@pytest.mark.parametrize(
    ("line", "held"),
    [
        (Line(quantity="weights", measured=10.0, low=10.05, high=10.1), True),
        (Line(quantity="weights", measured=10.0, low=10.2, high=10.3), False),
        (Line(quantity="non-KV", measured=10.0, low=10.004, high=11.0, rounding=0.005), True),
        (Line(quantity="non-KV", measured=10.0, low=10.006, high=11.0, rounding=0.005), False),
    ],
)
def test_a_comparison_holds_within_its_tolerance(line: Line, held: bool) -> None:
    assert holds(line) is held


@pytest.mark.parametrize(
    ("outcome", "answer", "wrong"),
    [
        ("ok", Answer.DOES_NOT_FIT, True),
        ("ok", Answer.TIGHT, False),
        ("oom", Answer.FITS, True),
        ("runtime_oom", Answer.FITS, True),
        ("oom", Answer.DOES_NOT_FIT, False),
        ("error", Answer.FITS, False),
    ],
)
def test_tight_is_never_a_wrong_answer(outcome: str, answer: Answer, wrong: bool) -> None:
    each = replays()[0]
    row = replace(each.row, facts={**each.row.facts, "outcome": outcome})
    assert replace(each, row=row, answer=answer).wrong_answer is wrong


def test_a_row_is_planned_with_the_settings_that_it_states() -> None:
    """A start of vLLM 0.26 on one RTX 5090 with every setting of the pool stated (vllm-project/vllm#52872)."""
    row = next(row for row in replayable() if row.id == "vllm-52872-3072")
    workload = serving_of(row, pinned_bytes=GIB).workload
    assert (workload.context_tokens, workload.max_num_batched_tokens) == (262144, 3072)
    assert (workload.tp, workload.gpu_memory_utilization) == (1, 0.93)
    assert workload.kv_cache_memory_bytes == GIB
