"""The only place that writes: answers to stdout, everything else to stderr, one JSON document where asked."""

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, Final, Literal, TextIO

from planner.cli.status_line import STATUS_LINE, terminal_columns
from planner.report.files import write_file
from planner.report.plain import document_text, safe_block
from planner.service.remarks import Step, UnseenStep
from planner.verdict import Reason

STDOUT: Final = "-"
_ASCII_LOCALES: Final = frozenset({"C", "POSIX"})
_BESIDE: Final = ("error: ", "hint: ", "note: ", "warning: ")
#: Columns that these are laid out for on a terminal.
_NARROWEST: Final = 40
_WIDEST: Final = 80
ColorChoice = Literal["auto", "always", "never"]
_ASCII: Final = str.maketrans({"–": "-", "×": "x", "≥": ">=", "≤": "<=", "…": "..."})


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where a command's words go.

    With ``json_target`` "-" stdout belongs to the document alone and the answer in words is not printed. ``quiet``
    drops notes; the answer in words is then its verdict line alone, which the commands see to.
    """

    json_target: str | None = None
    quiet: bool = False
    progress: bool = True
    color: ColorChoice = "auto"
    remarks: list[Reason] = field(default_factory=list)  #: every note and warning, for the document

    @property
    def wants_words(self) -> bool:
        """Whether the answer in words goes to stdout."""
        return self.json_target != STDOUT

    def answer(self, text: str) -> None:
        """Print the answer in words, unless stdout is the document's."""
        if self.wants_words:
            _write(sys.stdout, text, color=self._colored(sys.stdout))

    def answer_line(self, text: str) -> None:
        """Print an answer that is one line, cut to what a log takes."""
        from planner.report.words import one_line  # noqa: PLC0415 - only with --quiet

        self.answer(one_line(text))

    def note(self, code: str, text: str) -> None:
        """Say something beside the answer; ``code`` is for scripts."""
        self.remarks.append(Reason(code=code, text=text))
        if not self.quiet:
            _write(sys.stderr, f"note: {text}")

    def warn(self, code: str, text: str) -> None:
        """Say something that changes how far the answer can be trusted."""
        self.remarks.append(Reason(code=code, text=text))
        _write(sys.stderr, f"warning: {text}")

    def step(self, text: str) -> AbstractContextManager[Step]:
        """What is being done while the block runs, for people who wait."""
        return STATUS_LINE.step(text) if self.progress and not self.quiet else nullcontext(UnseenStep())

    @property
    def shows_bars(self) -> bool:
        """Whether somebody watches who wants to see how far a download has come."""
        return self.progress and not self.quiet and sys.stderr.isatty()

    def document(self, document: Mapping[str, Any]) -> None:
        """Write the JSON document where it was asked for, if it was.

        Raises:
            UsageError: the path cannot be written.
        """
        if self.json_target is not None:
            write_document(document, self.json_target)

    def _colored(self, stream: TextIO) -> bool:
        if self.color != "auto":
            return self.color == "always"
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return not plain and stream.isatty()


def write_document(document: Mapping[str, Any], target: str) -> None:
    """Write one JSON document to stdout ("-") or, as a whole or not at all, to a path.

    Raises:
        UsageError: the path cannot be written.
    """
    text = document_text(document)
    if target == STDOUT:
        with STATUS_LINE.wiped():
            sys.stdout.write(text)
        return
    write_file(text, target, option="--json", what="document")


def write_error(text: str) -> None:
    """Print lines to stderr, whatever the options say."""
    _write(sys.stderr, text)


def _write(stream: TextIO, text: str, *, color: bool = False) -> None:
    shown = safe_block(text, color=color)
    encoding = stream.encoding or "ascii"
    if os.environ.get("LC_ALL") in _ASCII_LOCALES and not stream.isatty():
        encoding = "ascii"  # Python would write UTF-8 all the same
    if encoding.lower().replace("-", "") != "utf8":
        shown = shown.translate(_ASCII).encode(encoding, errors="backslashreplace").decode(encoding)
    if stream is sys.stderr and stream.isatty():
        shown = _broken_at_blanks(shown, max(_NARROWEST, min(_WIDEST, terminal_columns(stream))))
    with STATUS_LINE.wiped():
        stream.write(shown + "\n")


def _broken_at_blanks(text: str, width: int) -> str:
    """What is told beside an answer, as a terminal shows it best; in a file each stays one line, for scripts."""
    lines = [
        wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        if line.startswith(_BESIDE)
        else [line]
        for line in text.split("\n")
    ]
    return "\n".join(piece for pieces in lines for piece in pieces)
