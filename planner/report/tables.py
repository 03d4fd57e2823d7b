"""Tables in words: the only importer of the table library. Cells are shown as they are given."""

from collections.abc import Sequence

from tabulate import tabulate


def table(rows: Sequence[Sequence[str]], headers: Sequence[str], align: str) -> str:
    """A table without blanks at line ends; ``align`` has ``l`` or ``r`` for each column. Leading blanks stay."""
    text = tabulate(
        rows,
        headers=headers,
        colalign=[{"l": "left", "r": "right"}[side] for side in align],
        disable_numparse=True,
        preserve_whitespace=True,
    )
    return "\n".join(line.rstrip() for line in text.splitlines())
