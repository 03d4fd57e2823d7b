"""Makes text safe to show: no control characters, no tokens, colour only where it is wanted."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from model_catalog.snapshot import as_text

# Hub tokens are "hf_" and 34 letters and digits; shorter ones are cut ones, which are no less secret.
_TOKEN: Final = re.compile(r"(hf|api_org)_[A-Za-z0-9]{8,}")
_COLOR: Final = re.compile(r"\x1b\[[0-9;]*m")
_STYLES: Final = {"good": "1;32", "bad": "1;31", "unsure": "1;33", "heading": "1"}

Style = Literal["good", "bad", "unsure", "heading"]


def redact(text: str) -> str:
    """The text with everything that looks like a Hub token replaced by ``hf_***``."""
    return _TOKEN.sub(r"\1_***", text)


def document_text(document: Mapping[str, Any]) -> str:
    """A document as it is written: indented ASCII, without what looks like a Hub token."""
    return redact(json.dumps(_readable(document), indent=2, ensure_ascii=True, allow_nan=False)) + "\n"


def _readable(value: object) -> object:
    """The document with every text as it reads: arguments and paths may hold bytes that were not decoded."""
    if isinstance(value, Mapping):
        return {key: _readable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(inner) for inner in value]
    return as_text(value) if isinstance(value, str) and not value.isascii() else value


def printable(text: str) -> str:
    """The text with control, bidirectional and other unprintable characters written as escapes."""
    if text.isprintable():
        return text
    text = as_text(text)
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def safe_line(text: object) -> str:
    """One safe line of whatever came from a repository, a driver or an exception."""
    return redact(printable(str(text)))


def safe_block(text: str, *, color: bool = False) -> str:
    """Several safe lines: line breaks stay, and colour where it is wanted."""
    return "\n".join(_safe_colored(line) if color else safe_line(without_color(line)) for line in text.split("\n"))


def paint(text: str, style: Style) -> str:
    """Colour a piece of our own text; whoever prints it decides whether the colour stays."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def without_color(text: str) -> str:
    """The text without colour sequences."""
    return _COLOR.sub("", text)


def _safe_colored(line: str) -> str:
    pieces = _COLOR.split(line)
    colors = [*_COLOR.findall(line), ""]
    return "".join(safe_line(piece) + color for piece, color in zip(pieces, colors, strict=True))
