"""Tables in words: the only importer of the table library. Cells are shown as they are given."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from tabulate import tabulate

from planner.report.plain import without_color
from planner.report.words import page_width

#: Narrower columns are worse to read than a table that is too wide.
_LEAST_FOLDED: Final = 10


def table(rows: Sequence[Sequence[str]], headers: Sequence[str], align: str, *, fold: int | None = None) -> str:
    """A table without blanks at line ends; ``align`` has ``l`` or ``r`` for each column. Leading blanks stay.

    ``fold``: the column whose cells take several lines where the table is too wide for the page.
    """
    text = _laid_out(rows, headers, align)
    over = max((len(without_color(line)) for line in text.splitlines()), default=0) - page_width()
    if over > 0 and fold is not None:
        room = max(_LEAST_FOLDED, max(len(row[fold]) for row in rows) - over)
        folded = [[*row[:fold], "\n".join(wrap(row[fold], room)), *row[fold + 1 :]] for row in rows]
        text = _laid_out(folded, headers, align)
    return text


def _laid_out(rows: Sequence[Sequence[str]], headers: Sequence[str], align: str) -> str:
    text = tabulate(
        rows,
        headers=headers,
        colalign=[{"l": "left", "r": "right"}[side] for side in align],
        disable_numparse=True,
        preserve_whitespace=True,
    )
    return "\n".join(line.rstrip() for line in text.splitlines())
