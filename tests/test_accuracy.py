"""The promise on predicted speedups, held on published pairs, and the document that shows it."""

from collections.abc import Sequence

import pytest
from accuracy_memory import accuracy_json
from write_accuracy import DATA, DOCUMENT, Outcome, accuracy_document, orders, outcomes, spearman


def coverage(rows: Sequence[Outcome]) -> float:
    return sum(row.held for row in rows) / len(rows)


def test_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == accuracy_document(), "run: make accuracy"


def test_data_is_up_to_date() -> None:
    assert DATA.read_text(encoding="utf-8") == accuracy_json(), "run: make accuracy"


def test_predicted_ranges_hold_four_of_five_published_pairs() -> None:
    assert len(outcomes()) >= 60
    assert coverage(outcomes()) >= 0.80


def test_held_out_families_do_no_worse() -> None:
    held_out = [row for row in outcomes() if row.pair.held_out]
    assert len(held_out) >= 60
    assert coverage(held_out) >= 0.80


def test_no_range_is_wider_than_45_per_cent() -> None:
    assert max(row.width for row in outcomes()) <= 0.45


def test_the_common_formula_errs_more() -> None:
    ours = sorted(abs(row.predicted.middle / row.pair.measured - 1) for row in outcomes())
    common = sorted(abs(row.common / row.pair.measured - 1) for row in outcomes())
    assert ours[len(ours) // 2] < 0.6 * common[len(common) // 2]


def test_order_of_drafts_is_mostly_right() -> None:
    rows = orders(outcomes())
    assert len(rows) >= 5
    assert sum(rank for _, _, rank, _ in rows) / len(rows) > 0.5


def test_rows_are_diverse() -> None:
    rows = [row.pair.row for row in outcomes()]
    assert {row["method"] for row in rows} >= {"draft_model", "eagle", "eagle3", "mtp", "dflash", "ngram"}
    assert len({row["target"] for row in rows}) >= 25
    assert len({row["source"] for row in rows}) >= 20
    assert len({row["id"] for row in rows}) == len(rows)


# Ranks 1, 2, 3 against 1, 3, 2: 1 - 6 x 2 / (3 x 8) = 0.5; ties share a rank.
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [((1, 2, 3), (1, 2, 3), 1.0), ((1, 2, 3), (5, 4, 3), -1.0), ((1, 2, 3), (1, 3, 2), 0.5)],
)
def test_spearman(first: Sequence[float], second: Sequence[float], expected: float) -> None:
    assert spearman(first, second) == pytest.approx(expected)
