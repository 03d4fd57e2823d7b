"""Figures in words: needs are rounded up, room is rounded down, and a range that rounds to one figure is one."""

import io
import shutil
import sys
from functools import partial

import pytest

from model_catalog.bounds import Basis, ByteRange
from planner.memory.breakdown import Group, LineItem, Owner
from planner.report.plain import paint, without_color
from planner.report.words import (
    WIDEST,
    basis_of,
    count,
    need,
    need_bytes,
    one_line,
    page_width,
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
    assert max(map(len, lines)) <= WIDEST
    assert " ".join(line.strip() for line in lines).split() == ["seventeen-letters"] * words


def test_colour_takes_no_room_on_any_line_and_stays_where_it_was() -> None:
    text = f"{paint('DOES NOT FIT', 'bad')}: " + " ".join(["at worst 12.50 GiB is missing"] * 8)
    lines = wrapped(text, indent=2)
    assert [without_color(line) for line in lines] == wrapped(without_color(text), indent=2)
    assert max(len(without_color(line)) for line in lines) <= WIDEST
    assert lines[0].startswith(f"{paint('DOES NOT FIT', 'bad')}: at worst")


def test_stray_escape_characters_do_not_confuse_the_colours() -> None:
    assert wrapped(f"{paint('ok', 'good')} \x1b[2J \x1b") == [f"{paint('ok', 'good')} \x1b[2J \x1b"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("columns", "expected"), [("200", 80), ("80", 80), ("79", 79), ("60", 60), ("40", 60), ("x", 80)]
)
def test_a_page_is_as_wide_as_the_terminal_lets_it(
    columns: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("shutil.get_terminal_size", partial(shutil.get_terminal_size, (80, 24)))
    monkeypatch.setattr(sys, "__stdout__", None)
    assert page_width() == expected
    assert max(map(len, wrapped("word " * 100))) <= expected


def test_a_file_is_eighty_columns_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", "60")
    assert page_width() == 80


LONG = "the engine's budget on rank 3 of the second stage of the pipeline"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FITS: 1.00 GiB to spare (a; b).", "FITS: 1.00 GiB to spare (a; b)."),
        (
            f"FITS: 1.00 GiB to spare of so much ({LONG}; largest line: kv).",
            f"FITS: 1.00 GiB to spare of so much ({LONG}).",
        ),
        (f"FITS: 1.00 GiB to spare inside {LONG} ({LONG}).", f"FITS: 1.00 GiB to spare inside {LONG}."),
        (f"CANNOT TELL: {'word ' * 40}", f"CANNOT TELL: {'word ' * 20}word…"),
        ("x" * 200, "x" * 119 + "…"),
    ],
)
@pytest.mark.parametrize("colored", [False, True])
def test_an_answer_in_one_line(text: str, expected: str, colored: bool) -> None:
    if colored:
        word, colon, rest = text.partition(":")
        lead, _, kept = expected.partition(":")
        if not colon:
            return
        text, expected = f"{paint(word, 'good')}:{rest}", f"{paint(lead, 'good')}:{kept}"
    assert one_line(text) == expected
    assert len(without_color(expected)) <= 120
