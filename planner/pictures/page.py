"""What all pictures share: colours that differ in lightness too, fonts, and a page with title, legend and notes.

Nothing here touches matplotlib's global state beyond ``drawing_style``, which puts it back.
"""

import logging
import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from planner.memory.breakdown import Group
from planner.report.plain import safe_line

WIDTH_INCHES: Final = 9.0
MARGIN_INCHES: Final = 0.25
_LINE_INCHES: Final = 0.17
_TITLE_INCHES: Final = 0.32
_AXIS_INCHES: Final = 0.55  #: tick labels and the axis' own label
_LEGEND_ROW_INCHES: Final = 0.19
_LINE_CHARACTERS: Final = 128

#: The five terms, from dark to light: told apart in greyscale and by readers who see few colours.
TERM_COLORS: Final = {
    Group.TARGET_WEIGHTS: "#440154",
    Group.DRAFT_WEIGHTS: "#3b528b",
    Group.KV_CACHE: "#21918c",
    Group.RUNTIME_OVERHEAD: "#5ec962",
    Group.TEMPORARY_BUFFERS: "#fde725",
}
INK: Final = "#1a1a1a"
FAINT: Final = "#d9d9d9"
DRAFT_HATCH: Final = "\\\\\\\\\\"
MAYBE_HATCH: Final = "/////"

_STYLE: Final[dict[str, Any]] = {
    "font.family": "sans-serif",
    # The second one has the same widths and is on machines that lack the first: an SVG keeps its text as text.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "hatch.linewidth": 0.7,
    "text.parse_math": False,  # a dollar sign in a model's name is a dollar sign
    "svg.fonttype": "none",
    "svg.hashsalt": "specplan",
    "pdf.fonttype": 42,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture. ``alt``: what it says, in one sentence with its numbers; ``name`` fits file names and ids."""

    name: str
    title: str
    alt: str
    figure: Figure


@contextmanager
def drawing_style() -> Iterator[None]:
    """Our own look, whatever the user's matplotlibrc says; matplotlib keeps quiet about fonts and caches."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # a name in a script that the font lacks
            yield
    finally:
        logger.setLevel(level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What stands around the data of one picture. ``legend``: (handle, label)."""

    title: str
    subtitle: str = ""
    legend: tuple[tuple[Any, str], ...] = ()
    legend_columns: int = 4
    notes: tuple[str, ...] = ()

    def lay_out(
        self, height_inches: float, *, left_inches: float, right_inches: float = 0.3, columns: int = 1
    ) -> tuple[Figure, list[Axes]]:
        """A figure with axes of this height beside each other, the title above, legend and notes below them."""
        subtitle = _wrapped(self.subtitle)
        notes = [line for note in self.notes for line in _wrapped(note)]
        above = MARGIN_INCHES + _TITLE_INCHES + _LINE_INCHES * len(subtitle) + 0.27
        legend_rows = math.ceil(len(self.legend) / self.legend_columns)
        below_legend = MARGIN_INCHES + (_LINE_INCHES * len(notes) + 0.1 if notes else 0)
        below = below_legend + _LEGEND_ROW_INCHES * legend_rows + _AXIS_INCHES
        whole = above + height_inches + below
        figure = Figure(figsize=(WIDTH_INCHES, whole), facecolor="white")
        top = whole - MARGIN_INCHES
        figure.text(
            MARGIN_INCHES / WIDTH_INCHES, top / whole, safe_line(self.title), va="top", fontsize=12, weight="bold"
        )
        _write_lines(figure, subtitle, top - _TITLE_INCHES)
        _write_lines(figure, notes, below_legend - 0.1)
        if self.legend:
            figure.legend(
                [handle for handle, _ in self.legend],
                [label for _, label in self.legend],
                loc="lower left",
                bbox_to_anchor=(MARGIN_INCHES / WIDTH_INCHES, below_legend / whole),
                ncols=self.legend_columns,
                borderaxespad=0,
                borderpad=0,
                handlelength=2.4,
                handleheight=1.1,
                columnspacing=1.4,
            )
        gap = 0.35
        each = (WIDTH_INCHES - left_inches - right_inches - gap * (columns - 1)) / columns
        axes = [
            figure.add_axes(
                (
                    (left_inches + number * (each + gap)) / WIDTH_INCHES,
                    below / whole,
                    each / WIDTH_INCHES,
                    height_inches / whole,
                )
            )
            for number in range(columns)
        ]
        return figure, axes


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(safe_line(text), _LINE_CHARACTERS, break_on_hyphens=False)


def _write_lines(figure: Figure, lines: Sequence[str], top_inches: float) -> None:
    height = figure.get_figheight()
    for number, line in enumerate(lines):
        top = (top_inches - number * _LINE_INCHES) / height
        figure.text(MARGIN_INCHES / WIDTH_INCHES, top, line, va="top", fontsize=8.5)


def short_name(name: str, most: int = 40) -> str:
    """A model's name within so many characters: without its organisation, then with its middle left out."""
    shown = safe_line(name)
    if len(shown) > most:
        shown = shown.rpartition("/")[2] or shown
    if len(shown) <= most:
        return shown
    kept = most - 1
    return f"{shown[: kept - kept // 2]}…{shown[len(shown) - kept // 2 :]}"


def lighter(color: str, share: float = 0.7) -> str:
    """The colour mixed with so much white."""
    parts = [int(color[start : start + 2], 16) for start in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


def hatch_ink(color: str) -> str:
    """White on dark colours, ink on light ones."""
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 128 else INK


def power_ticks(low: float, high: float, most: int) -> list[int]:
    """Powers of two from ``low`` to ``high``, at most so many."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = max(1, math.ceil((last - first + 1) / most))
    return [1 << power for power in range(max(first, 0), last + 1, step)]
