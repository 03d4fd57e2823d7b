import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.capacity import largest_that


@given(limit=st.integers(1, 300), edge=st.integers(0, 400), guess=st.integers(-50, 500), step=st.integers(1, 99))
def test_the_search_finds_every_edge_from_every_guess(limit: int, edge: int, guess: int, step: int) -> None:
    asked: list[int] = []

    def fits(value: int) -> bool:
        asked.append(value)
        assert 1 <= value <= limit
        return value <= edge

    assert largest_that(fits, limit, guess, step=step) == (min(edge, limit) or None)
    assert len(asked) == len(set(asked)), "nothing is asked twice"


@pytest.mark.parametrize(("edge", "most"), [(1000, 3), (990, 12), (0, 22)])
def test_a_good_guess_needs_few_plans(edge: int, most: int) -> None:
    asked: list[int] = []

    def fits(value: int) -> bool:
        asked.append(value)
        return value <= edge

    largest_that(fits, 65_536, 1000)
    assert len(asked) <= most
