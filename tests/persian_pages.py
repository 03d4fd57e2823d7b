"""The Persian pages, taken apart: running text, code in it, transcripts; and what to ask a browser of them."""

import html
import re
from pathlib import Path
from typing import Final

from doc_commands import PAGES as ALL_PAGES
from doc_commands import ROOT, fenced, shown_commands

PERSIAN: Final = ROOT / "docs" / "fa"
PAGES: Final = [page for page in ALL_PAGES if page.parent == PERSIAN or page.name == "README.fa.md"]

LETTER: Final = "آ-یءأؤئة"
LATIN: Final = "A-Za-zα-ωΑ-Ω"
TO_LATIN: Final = str.maketrans("۰۱۲۳۴۵۶۷۸۹٫", "0123456789.")
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Code that keeps its own order within a right-to-left sentence.
ISOLATED: Final = re.compile(r'<code dir="ltr">(.*?)</code>')
PLAIN: Final = re.compile(r"`([^`\n]+)`")

#: For each piece of code: does any character stand left of the one before it, on the same line?
CODE_OUT_OF_ORDER: Final = """() => [...document.querySelectorAll('[dir="rtl"] code')].filter(code => {
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  let last = null;
  while (walker.nextNode()) {
    const node = walker.currentNode;
    for (let i = 0; i < node.length; i++) {
      const range = document.createRange();
      range.setStart(node, i);
      range.setEnd(node, i + 1);
      const box = range.getBoundingClientRect();
      if (!box.width) continue;
      if (last && Math.abs(last.top - box.top) < 2 && box.left < last.left) return true;
      last = box;
    }
  }
  return false;
}).map(code => code.textContent)"""
LEFT_TO_RIGHT: Final = """() => [...document.querySelectorAll('[dir="rtl"] :is(p, h1, h2, h3, li, td, th)')]
  .filter(e => getComputedStyle(e).direction != "rtl").map(e => e.textContent)"""
LINES_RIGHT_TO_LEFT: Final = """() => [...document.querySelectorAll('[dir="rtl"] pre')]
  .filter(e => getComputedStyle(e).direction != "ltr").map(e => e.textContent)"""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, *languages: str) -> list[str]:
    return [block for language, block in fenced(page) if language in languages]


def without_blocks(page: Path) -> str:
    return FENCE.sub("", text_of(page))


def words_only(page: Path) -> str:
    """Running text: no fences, no tags, no targets of links; the word Code stands for inline code."""
    text = ISOLATED.sub("Code", without_blocks(page))
    text = PLAIN.sub("Code", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"</?\w[^>]*>", "", text)


def code_spans(page: Path) -> list[str]:
    text = without_blocks(page)
    return [html.unescape(found) for found in ISOLATED.findall(text)] + PLAIN.findall(text)


def printed_on(page: Path) -> str:
    """What the page's commands print, lines joined, so that a figure at a line's end is found."""
    return " ".join(" ".join(shown.printed or "" for shown in shown_commands(page)).split())
