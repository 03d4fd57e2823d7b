"""Figures in words: needs are rounded up, room is rounded down, and a range that rounds to one figure is one."""

import pytest

from model_catalog.bounds import Basis, ByteRange
from planner.memory.breakdown import Group, LineItem, Owner
from planner.report.plain import paint, without_color
from planner.report.words import (
    WIDTH,
    basis_of,
    count,
    need,
    need_bytes,
    parameters,
    percent_up,
    room,
    room_range,
    wrapped,
)

GIB = 2**30
#: A hundredth of a GiB is 10,737,418.24 bytes.
HUNDREDTH = 10_737_419


@pytest.mark.parametrize(
    ("low", "high", "as_need", "as_room"),
    [
        (0, 0, "0.00 GiB", "0.00 GiB"),
        (1, 1, "0.01 GiB", "0.00 GiB"),
        (GIB, GIB, "1.00 GiB", "1.00 GiB"),
        (GIB, GIB + 1, "1.00 – 1.01 GiB", "1.00 GiB"),
        (GIB + 1, GIB + 2, "1.01 GiB", "1.00 GiB"),
        (GIB - 1, GIB, "1.00 GiB", "0.99 – 1.00 GiB"),
        (GIB, 1024 * GIB, "1.00 – 1,024.00 GiB", "1.00 – 1,024.00 GiB"),
    ],
)
def test_needs_go_up_and_room_goes_down(low: int, high: int, as_need: str, as_room: str) -> None:
    size = ByteRange(low_bytes=low, high_bytes=high)
    assert need(size) == as_need
    assert room_range(size) == as_room


@pytest.mark.parametrize("size", [0, 1, HUNDREDTH - 1, HUNDREDTH, GIB - 1, GIB, 7 * GIB + 12_345])
def test_one_figure_agrees_with_the_range(size: int) -> None:
    assert need_bytes(size) == need(ByteRange.point(size))
    assert room(size) == room_range(ByteRange.point(size))


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.15, "15 %"),
        (0.1499, "15 %"),
        (0.1491, "15 %"),
        (0.149, "14.9 %"),
        (1.0, "100 %"),
        (0.00001, "0.1 %"),
    ],
)
def test_shares_taken_go_up(share: float, text: str) -> None:
    assert percent_up(share) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (8_030_261_248, "8.03 B"),  # Hub parameter count of Llama 3.1 8B
        (1_235_814_400, "1.24 B"),  # Hub parameter count of Llama 3.2 1B
        (124_439_808, "124 M"),  # Hub parameter count of GPT-2
        (1_000_000_000_000, "1 T"),
        (999, "999"),
    ],
)
def test_parameters_to_three_figures(number: int, text: str) -> None:
    assert parameters(number) == text


def test_counts_have_their_plural() -> None:
    assert (count(1, "block"), count(0, "block"), count(2048, "block")) == ("1 block", "0 blocks", "2,048 blocks")


def line(basis: Basis, high_bytes: int) -> LineItem:
    return LineItem(
        group=Group.KV_CACHE,
        label="line",
        owner=Owner.TARGET,
        low_bytes=0,
        high_bytes=high_bytes,
        basis=basis,
        source="made",
        formula="made",
    )


def test_a_term_names_every_basis_that_has_bytes_surest_first() -> None:
    lines = [line(Basis.ASSUMED, 1), line(Basis.EXACT, 5), line(Basis.CALIBRATED, 0), line(Basis.EXACT, 2)]
    assert basis_of(lines) == "exact, assumed"


@pytest.mark.parametrize("words", [1, 10, 100])
def test_no_line_is_wider_than_the_terminal(words: int) -> None:
    lines = wrapped(" ".join(["seventeen-letters"] * words), indent=16)
    assert max(map(len, lines)) <= WIDTH
    assert " ".join(line.strip() for line in lines).split() == ["seventeen-letters"] * words


def test_colour_takes_no_room_on_any_line_and_stays_where_it_was() -> None:
    text = f"{paint('DOES NOT FIT', 'bad')}: " + " ".join(["at worst 12.50 GiB is missing"] * 8)
    lines = wrapped(text, indent=2)
    assert [without_color(line) for line in lines] == wrapped(without_color(text), indent=2)
    assert max(len(without_color(line)) for line in lines) <= WIDTH
    assert lines[0].startswith(f"{paint('DOES NOT FIT', 'bad')}: at worst")


def test_stray_escape_characters_do_not_confuse_the_colours() -> None:
    assert wrapped(f"{paint('ok', 'good')} \x1b[2J \x1b") == [f"{paint('ok', 'good')} \x1b[2J \x1b"]
