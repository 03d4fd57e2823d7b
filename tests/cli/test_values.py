"""How option values are read: what is taken, what is refused, and that a refusal names the option."""

import pytest

from model_catalog.errors import UsageError
from planner.service.values import COUNT, FRACTION, SHARE, SIZE, TOKEN_RANGE, TokenRange, Value


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        (COUNT, "1", 1),
        (COUNT, "8192", 8192),
        (SIZE, "24GiB", 24 * 2**30),
        (SIZE, "24GB", 24 * 10**9),
        (SIZE, "1024", 1024),
        (SHARE, "15%", 0.15),
        (SHARE, "1", 1.0),
        (FRACTION, "0.9", 0.9),
        (FRACTION, "1", 1.0),
        (TOKEN_RANGE, "5", TokenRange(least=5, most=5)),
        (TOKEN_RANGE, "3-8", TokenRange(least=3, most=8)),
        (TOKEN_RANGE, " 0 - 4 ", TokenRange(least=0, most=4)),
        (TOKEN_RANGE, "16", TokenRange(least=16, most=16)),
    ],
)
def test_taken(value: Value[object], text: str, expected: object) -> None:
    assert value.parse(text, "--it") == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (COUNT, "0"),
        (COUNT, "-1"),
        (COUNT, "8k"),
        (COUNT, "1.5"),
        (COUNT, "1000000001"),
        (SIZE, "24G"),
        (SIZE, "0GiB"),
        (SIZE, "much"),
        (SIZE, "-1GiB"),
        (SHARE, "0%"),
        (SHARE, "150%"),
        (SHARE, "nan"),
        (FRACTION, "0"),
        (FRACTION, "1.01"),
        (FRACTION, "nan"),
        (FRACTION, "inf"),
        (TOKEN_RANGE, "0"),
        (TOKEN_RANGE, "0-0"),
        (TOKEN_RANGE, "8-3"),
        (TOKEN_RANGE, "17"),
        (TOKEN_RANGE, "-3"),
        (TOKEN_RANGE, "3-"),
        (TOKEN_RANGE, "five"),
    ],
)
def test_refused_with_the_option_and_a_hint(value: Value[object], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        value.parse(text, "--it")
    assert caught.value.subject == "--it"
    assert caught.value.hint


@pytest.mark.parametrize("text", ["5", "3-8", "0-16"])
def test_a_range_prints_as_it_is_read(text: str) -> None:
    assert str(TOKEN_RANGE.parse(text, "--it")) == text
