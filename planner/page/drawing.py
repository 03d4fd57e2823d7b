"""Draws the page: the only importer of the template library. Every string is escaped, whoever wrote it.

The page is one file that asks for nothing: no script, no picture, font or style from elsewhere.
"""

from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from planner.page.content import PageContent
from planner.pictures import Picture, svg_text
from planner.report.plain import safe_block, safe_line, without_color

#: A sign beside each word of an answer: colour alone says nothing to some readers, and nothing in print.
_SIGNS: Final = {"good": "✓", "bad": "✗", "unsure": "?"}


def draw_page(content: PageContent) -> str:
    """The page as one HTML document."""
    environment = Environment(
        loader=PackageLoader("planner.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = _drawn
    return environment.get_template("report.html").render(page=content, signs=_SIGNS, newline=Markup("\n"))


def _drawn(picture: Picture) -> Markup:
    """The picture as markup; its texts were escaped when it was written, and are safe to show after this."""
    return Markup(safe_block(svg_text(picture)))  # noqa: S704 - an element tree, written out by the standard library


def _shown(value: object) -> object:
    """What an expression of the template becomes: one safe line of text, or markup that is ours."""
    return value if isinstance(value, Markup) else safe_line(without_color(str(value)))
