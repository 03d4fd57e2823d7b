"""Markdown of the generated reference pages: tables whose cells hold any text, and how a page ends."""

from collections.abc import Sequence
from typing import Final

MADE: Final = "This page is made from the code (`make reference`); a test holds it to the code."


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *([escaped(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def listed(codes: Sequence[int]) -> str:
    return f"{', '.join(map(str, codes[:-1]))} and {codes[-1]}"


def page_text(lines: Sequence[str]) -> str:
    return "\n".join(line.rstrip() for line in "\n".join(lines).split("\n")) + "\n"
