"""Figures in words: the only place where bytes become GiB for people. Needs are rounded up, room down."""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Final

from model_catalog.bounds import Basis, ByteRange
from model_catalog.units import to_gib
from planner.devices import Device
from planner.memory.breakdown import Group, LineItem
from planner.report.plain import without_color

#: Columns of a page of text, and what it is laid out for on a terminal that has fewer.
WIDEST: Final = 80
NARROWEST: Final = 60
#: Of an answer in one line.
LINE_LENGTH: Final = 120
#: A character with the colour sequences that begin before it and end after it.
_COLORED_CHARACTER: Final = re.compile(r"(?:\x1b\[[0-9;]*m)*\S(?:\x1b\[0m)*")
GROUP_NAMES: Final = {
    Group.TARGET_WEIGHTS: "Target weights",
    Group.DRAFT_WEIGHTS: "Draft weights",
    Group.KV_CACHE: "KV cache",
    Group.RUNTIME_OVERHEAD: "Runtime overhead",
    Group.TEMPORARY_BUFFERS: "Temporary buffers",
}


def need(size: ByteRange) -> str:
    """A need between two bounds: ``1.20 – 1.45 GiB``, or one figure where both round to the same."""
    low, high = to_gib(size.low_bytes, "up"), to_gib(size.high_bytes, "up")
    return f"{high} GiB" if low == high else f"{low} – {high} GiB"


def need_bytes(size_bytes: int) -> str:
    """A need of one figure."""
    return f"{to_gib(size_bytes, 'up')} GiB"


def room(size_bytes: int) -> str:
    """Room for something: rounded down."""
    return f"{to_gib(size_bytes, 'down')} GiB"


def room_range(size: ByteRange) -> str:
    """Room between two bounds."""
    low, high = to_gib(size.low_bytes, "down"), to_gib(size.high_bytes, "down")
    return f"{low} GiB" if low == high else f"{low} – {high} GiB"


def percent_up(share: float) -> str:
    """A share taken, rounded up to a tenth of a percent."""
    whole, tenths = divmod(-(-round(share * 10**9) // 10**6), 10)
    return f"{whole}.{tenths} %" if tenths else f"{whole} %"


def count(number: float, noun: str) -> str:
    """``1 block``, ``2,048 blocks``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def parameters(number: int) -> str:
    """``32.8 B`` parameters, to three figures."""
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if number >= size:
            return f"{number / size:.3g} {letter}" if number < 1000 * size else f"{number // size:,} {letter}"
    return f"{number:,}"


def basis_of(items: Iterable[LineItem]) -> str:
    """How the lines of a term are known, the surest first."""
    present = {item.basis for item in items if item.high_bytes}
    return ", ".join(basis.value for basis in Basis if basis in present)


def device_line(devices: tuple[Device, ...]) -> str:
    """``2 × NVIDIA H100 80GB HBM3 (declared)``; devices that differ are listed."""
    kinds: dict[tuple[str, str], int] = {}
    for device in devices:
        kind = (device.name, device.source.value)
        kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{number} × {name} ({source})" for (name, source), number in kinds.items())


def page_width() -> int:
    """Columns of a page: 80, or as many as the terminal has where they are fewer, but never below 60."""
    if not sys.stdout.isatty():
        return WIDEST
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size().columns))


def one_line(text: str) -> str:
    """An answer in at most 120 characters: what stands in brackets at its end goes first, then its last words."""
    if len(without_color(text)) <= LINE_LENGTH:
        return text
    shorter = re.sub(r"; [^;()]*\)\.$", ").", text)
    if len(without_color(shorter)) > LINE_LENGTH:
        shorter = re.sub(r" \([^()]*\)\.$", ".", text)
    if len(without_color(shorter)) <= LINE_LENGTH:
        return shorter
    begun = without_color(shorter)[: LINE_LENGTH - 1]
    cut = (begun.rpartition(" ")[0] or begun).rstrip(" ,;:(")
    return "".join(_colored_again([cut], shorter)) + "…"


def wrapped(text: str, *, indent: int = 0) -> list[str]:
    """Lines of at most a page's width; those after the first are indented. Colour sequences take no room."""
    plain = without_color(text)
    lines = textwrap.wrap(
        plain,
        page_width(),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]
    return lines if plain == text else _colored_again(lines, text)


def _colored_again(lines: list[str], text: str) -> list[str]:
    """Put the colour sequences of ``text`` back where they were: wrapping moves blanks alone."""
    pieces = iter(_COLORED_CHARACTER.findall(text))
    return ["".join(char if char.isspace() else next(pieces, char) for char in line) for line in lines]
