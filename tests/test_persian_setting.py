"""The Persian pages are well set: right to left, with half-spaces and punctuation in place and code in order.

A browser tells whether a code host shows them in order; ``test_site`` asks the same of the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from doc_commands import ROOT, where
from persian_pages import (
    CODE_OUT_OF_ORDER,
    ISOLATED,
    LATIN,
    LEFT_TO_RIGHT,
    LETTER,
    LINES_RIGHT_TO_LEFT,
    PAGES,
    PERSIAN,
    PLAIN,
    text_of,
    without_blocks,
    words_only,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = Path("/usr/bin/chromium")
_STRONG = rf"[{LATIN}{LETTER}]"
#: Shows the same inside a right-to-left sentence without isolation: nothing neutral and no number at its ends.
_NEEDS_NO_ISOLATION = re.compile(r"[A-Za-z]([\x21-\x7e ]*[A-Za-z0-9])?")

#: What is wrong wherever it stands in running text.
FAULTS = [
    (r"[يكة٠-٩ۀ]", "an Arabic letter or digit, or a heh with hamza in one"),
    (r"[\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff]", "an invisible mark of direction: use dir="),
    (rf"(?<![{LETTER}\u200c])ن?می (?=[{LETTER}])", "a verb parted from its prefix by a space"),
    (rf"(?<=[{LETTER}]) (ها|های|هایی|هایش|تر|ترین|ام|اند)(?![{LETTER}\u200c])", "a suffix parted by a space"),
    (rf"(?<![{LETTER}])(ن?می|بی|پیش)\u200c(?![{LETTER}])", "a half-space before nothing"),
    (r"\u200c\u200c|\u200c[\s،؛؟.»)]|[\s«(]\u200c", "a half-space at the edge of a word"),
    (rf"[{LETTER}][,;?]", "Latin punctuation after a Persian letter"),
    (r" [،؛؟:.](?![\w/])", "a space before punctuation"),
    (
        r"(?<=[A-Za-z])(?<!Code)\)?، ?\(?(?!Code)[A-Za-z]",
        "Latin words beside a comma are ordered left to right: write «and» or «or»",
    ),
    (rf"[،؛؟](?=[{LETTER}])", "no space after punctuation"),
    (r"«\s|\s»", "a space inside quotation marks"),
    (r"(?<![A-Za-z0-9._/+-])[0-9]+(?:[.,][0-9]+)*(?![A-Za-z0-9.])", "Latin digits in Persian prose"),
    (r"[۰-۹][.,][۰-۹]", "a Latin decimal point between Persian digits"),
]

each_page = pytest.mark.parametrize("page", PAGES, ids=where)


@each_page
def test_right_to_left_with_code_left_to_right(page: Path) -> None:
    """A code host takes direction from the nearest ``dir``: a rtl page, each fence in ltr."""
    lines = text_of(page).splitlines()
    assert lines[0] == '<div dir="rtl" markdown="1">' and lines[1] == ""
    assert lines[-1] == "</div>" and lines[-2] == ""
    nested, fence = 0, False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            fence = not fence
            assert nested == 2, f"line {number + 1}: a fence outside an ltr block"
        elif not fence and "<div" in line:
            # Markdown inside is read as such only after a blank line.
            assert line == f'<div dir="{"ltr" if nested else "rtl"}" markdown="1">' and lines[number + 1] == ""
            nested += 1
        elif not fence and "</div>" in line:
            assert line == "</div>" and lines[number - 1] == ""
            nested -= 1
    assert (nested, fence) == (0, False)


def runs(page: Path) -> list[str]:
    """What the bidirectional algorithm orders as one: paragraphs, headings, list items, cells."""
    return re.split(r"\n\s*\n|\||\n(?=[-#>]|\d+\. )", without_blocks(page))


@each_page
def test_inline_code_keeps_its_order(page: Path) -> None:
    """Not isolated, ``--context`` shows as ``context--``, and Latin words beside code change places with it."""
    wrong = []
    for run in runs(page):
        # An isolated span counts as neutral; the target of a link is not shown.
        seen = re.sub(r"\]\([^)]*\)", "]", ISOLATED.sub("", run))
        for span in PLAIN.finditer(seen):
            before = re.findall(_STRONG, seen[: span.start()])[-1:]
            after = re.findall(_STRONG, seen[span.end() :])[:1]
            beside = "".join(before + after)
            if not _NEEDS_NO_ISOLATION.fullmatch(span[1]) or re.search(f"[{LATIN}]", beside):
                wrong.append(run)
    assert wrong == []


@each_page
def test_a_persian_number_does_not_follow_latin(page: Path) -> None:
    """Persian digits right after a Latin word are ordered with it, left to right."""
    seen = re.sub(rf"[^{LATIN}{LETTER}۰-۹|\n]", "", words_only(page))
    assert re.findall(rf"[{LATIN}]+[۰-۹]+", seen) == []


@each_page
def test_every_paragraph_begins_in_persian(page: Path) -> None:
    """Code hosts give a paragraph the direction of its first strong letter outside elements with a ``dir``."""
    wrong = []
    for line in re.split(r"\n\s*\n|\n(?=[-|#>]|\d+\. )", without_blocks(page)):
        # Cells take their direction from the page.
        if line.startswith("|") or "<div" in line or "</div>" in line:
            continue
        seen = re.sub(r"\]\([^)]*\)", "]", ISOLATED.sub("", line))
        first = re.search(_STRONG, seen)
        if first and not re.match(f"[{LETTER}]", first.group()):
            wrong.append(line)
    assert wrong == []


@each_page
@pytest.mark.parametrize(("pattern", "why"), FAULTS, ids=[why for _, why in FAULTS])
def test_persian_is_well_set(page: Path, pattern: str, why: str) -> None:
    # The numbers of a list are drawn by the browser.
    text = re.sub(r"^\d+\. ", "", words_only(page), flags=re.MULTILINE)
    found = [text[max(0, m.start() - 20) : m.end() + 20] for m in re.finditer(pattern, text)]
    assert found == [], why


@each_page
def test_the_menu_has_the_title_of_the_page(page: Path) -> None:
    """A title inside a block is not found by mkdocs: the navigation says it."""
    if page.parent != PERSIAN:
        return
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    [section] = [part["فارسی"] for part in navigation if isinstance(part, dict) and "فارسی" in part]
    titles = {name: title for entry in section for title, name in entry.items()}
    heading = re.search(r"^# (.+)$", text_of(page), re.MULTILINE)
    assert heading is not None
    assert titles[f"fa/{page.name}"] == heading[1]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip("no Chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    quiet = ["background-networking", "component-update", "sync", "gpu"]
    options = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    with playwright.sync_playwright() as tools:
        opened = tools.chromium.launch(executable_path=str(CHROMIUM), args=options)
        yield opened
        opened.close()


def as_a_code_host_shows(page: Path) -> str:
    """Without style of its own, and with ``dir="auto"`` where code hosts put it."""
    markdown = pytest.importorskip("markdown")
    body = markdown.markdown(text_of(page), extensions=["tables", "fenced_code", "md_in_html"])
    body = re.sub(r"<(p|h[1-6]|ul|ol)>", r'<\1 dir="auto">', body)
    # Hosts cut wide blocks off; that is no matter of direction.
    style = "<style>pre, table { overflow: auto; display: block; max-width: 100% }</style>"
    return f'<!doctype html><html lang="en"><meta charset="utf-8">{style}<body>{body}</body></html>'


@each_page
@pytest.mark.parametrize("width", [1100, 390])
def test_a_browser_shows_everything_in_order(page: Path, width: int, browser: Browser) -> None:
    opened = browser.new_page(viewport={"width": width, "height": 800})
    opened.set_content(as_a_code_host_shows(page))
    assert opened.evaluate("document.querySelectorAll('h1').length") == 1
    assert opened.evaluate(CODE_OUT_OF_ORDER) == []
    assert opened.evaluate(LEFT_TO_RIGHT) == []
    assert opened.evaluate(LINES_RIGHT_TO_LEFT) == []
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.close()


def test_the_browser_sees_what_is_out_of_order(browser: Browser) -> None:
    """The three questions of the test above, on a page where each has something to find."""
    opened = browser.new_page()
    opened.set_content(
        '<div dir="rtl"><p dir="auto">در <code>--context</code> است</p><pre>$ a</pre><h1 dir="ltr">a</h1></div>'
    )
    assert opened.evaluate(CODE_OUT_OF_ORDER) == ["--context"]
    assert opened.evaluate(LEFT_TO_RIGHT) == ["a"]
    assert opened.evaluate(LINES_RIGHT_TO_LEFT) == ["$ a"]
    opened.close()
