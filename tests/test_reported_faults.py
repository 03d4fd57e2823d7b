"""Every reported fault is accounted for: by a test that is there, or by an answer in words."""

import re
from pathlib import Path

import pytest
from reference_reported import TITLES, kind_of, reported

ROOT = Path(__file__).resolve().parents[1]
FIGURES = "tests/test_reported_figures.py"


def test_all_of_them_are_told_once() -> None:
    """160 were collected: docs/reference/fault-cases.md says where each comes from."""
    assert len({case["id"] for case in reported()}) == len(reported()) == 160
    assert {kind_of(case) for case in reported()} == set(TITLES)


@pytest.mark.parametrize("case", reported(), ids=lambda case: case["id"])
def test_a_case_has_an_answer_and_its_test_is_there(case: dict[str, str | None]) -> None:
    assert all(case[key] for key in ("source", "went_wrong", "answer"))
    if case["test"] is None:
        assert len(str(case["answer"])) > 40  # why there is none, in words
        return
    file, _, name = case["test"].partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^ *def {name}\(", text, re.MULTILINE)
    if file == FIGURES:
        number = str(case["id"]).rpartition("-")[2]
        kind = kind_of(case)
        assert re.search(rf"{kind}-{number}|{kind}-\d\d(, -\d\d)*, -{number}", text)
