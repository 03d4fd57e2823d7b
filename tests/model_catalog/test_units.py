import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog.bounds import ByteRange
from model_catalog.dtypes import find_dtype
from model_catalog.units import GIB, ceil_bits, ceil_share, floor_share, parse_share, parse_size, to_gib


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("24GiB", 24 * 2**30),
        ("24 GB", 24_000_000_000),
        ("1.5GiB", 3 * 2**29),
        ("512MiB", 2**29),
        ("80gb", 80_000_000_000),
        ("0.1GB", 100_000_000),
        ("4096", 4096),
        ("1TiB", 2**40),
    ],
)
def test_sizes_by_their_definition(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["24G", "24g", "1T"])
def test_a_bare_letter_is_refused_with_both_spellings(text: str) -> None:
    with pytest.raises(ValueError, match=r"iB .*B "):
        parse_size(text)


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1GiB", "1e9", "24 GiB GiB", "NaN", "inf", "9" * 30, "1,000MiB", "3QiB"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=2**58))
def test_bytes_parse_as_themselves(size: int) -> None:
    assert parse_size(str(size)) == size


@given(st.integers(min_value=0, max_value=2**50))
def test_needs_round_up_and_room_rounds_down(size: int) -> None:
    up = float(to_gib(size, "up").replace(",", ""))
    down = float(to_gib(size, "down").replace(",", ""))
    assert down <= size / GIB + 1e-9
    assert up >= size / GIB - 1e-9
    assert up - down <= 0.01 + 1e-9


@pytest.mark.parametrize(("text", "expected"), [("15%", 0.15), ("0.15", 0.15), ("100%", 1.0), (" 7.5% ", 0.075)])
def test_shares(text: str, expected: float) -> None:
    assert parse_share(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["0", "0%", "101%", "-1", "nan", "15 percent", "15"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(ValueError, match=r"share|range"):
        parse_share(text)


def test_fractions_round_to_the_safe_side() -> None:
    assert ceil_share(0.9001) == 0.901
    assert floor_share(0.9009) == 0.9


@pytest.mark.parametrize(("bits", "expected"), [(0, 0), (1, 1), (8, 1), (9, 2), (12, 2)])
def test_bits_are_held_by_whole_bytes(bits: int, expected: int) -> None:
    assert ceil_bits(bits) == expected


@pytest.mark.parametrize(
    ("spelling", "bits"),
    [
        ("BF16", 16),
        ("torch.bfloat16", 16),
        ("F8_E4M3", 8),
        ("fp8", 8),
        ("float32", 32),
        ("F4", 4),
        ("U8", 8),
        ("I32", 32),
    ],
)
def test_every_spelling_of_a_type(spelling: str, bits: int) -> None:
    found = find_dtype(spelling)
    assert found is not None
    assert found.bits == bits


def test_an_unknown_type_is_none() -> None:
    assert find_dtype("bf17") is None


def test_a_range_must_be_one() -> None:
    with pytest.raises(ValueError, match="not a byte range"):
        ByteRange(low_bytes=2, high_bytes=1)
    with pytest.raises(ValueError, match="not a byte range"):
        ByteRange(low_bytes=-1, high_bytes=1)


def test_ranges_add_at_both_ends() -> None:
    total = ByteRange(low_bytes=1, high_bytes=4) + ByteRange.point(2).times(3)
    assert (total.low_bytes, total.high_bytes) == (7, 10)
