"""Reads what a log prints of Python values: ``name=value`` lists and ``{'name': value}``. Nothing is evaluated.

A value keeps its text; ``scalar`` makes a string, number, truth value or None of it. Text that is cut, or was
never Python, ends the reading: what came before it is kept.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

#: vLLM's longest line of settings has some 6,000 characters.
_LONGEST_CHARACTERS: Final = 64 << 10
_LONGEST_NAME: Final = 80
_LONGEST_VALUE: Final = 500
_MOST_PAIRS: Final = 2000
_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_WHOLE: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,18}(?:\.\d{0,18})?(?:[eE][+-]?\d{1,3})?", re.ASCII)

Scalar = str | int | float | bool | None


def read_pairs(text: str, start: int, separator: Literal["=", ":"]) -> Mapping[str, str]:
    """The pairs that begin at ``start``, by name, until their bracket closes or the line ends.

    ``separator`` stands between name and value: ``=`` in a call's arguments, ``:`` in a dictionary.
    """
    found: dict[str, str] = {}
    name: str | None = None
    quote, depth, begin = "", 0, start
    end = min(len(text), start + _LONGEST_CHARACTERS)
    position = start
    while position < end and len(found) < _MOST_PAIRS:
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character == "\n":
            break
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            if not depth:
                break
            depth -= 1
        elif not depth and character == separator and name is None:
            name, begin = _name(text[begin:position]), position + 1
        elif not depth and character == ",":
            _keep(found, name, text[begin:position])
            name, begin = None, position + 1
        position += 1
    # A quotation or bracket that never closes, or the cut of a long line, hides where its value ends.
    whole_line = position < end or end == len(text)
    if whole_line and not quote and not depth:
        _keep(found, name, text[begin:position])
    return found


def inside(raw: str | None, separator: Literal["=", ":"]) -> Mapping[str, str]:
    """The pairs of a value that is itself a call or a dictionary, also one that is printed as a string."""
    if raw is None:
        return {}
    text = raw.strip()
    if text[:1] in {"'", '"'} and text[-1:] == text[:1]:
        text = text[1:-1]
    opening = re.search(r"[({]", text)
    return {} if opening is None else read_pairs(text, opening.end(), separator)


def scalar(raw: str | None) -> Scalar:
    """The value that a text stands for; text that is none of Python's plain values stays text."""
    if raw is None:
        return None
    text = raw.strip()[:_LONGEST_VALUE]
    if text in {"None", "null", ""}:
        return None
    if text in {"True", "true"}:
        return True
    if text in {"False", "false"}:
        return False
    if text[0] in "'\"" and len(text) > 1 and text[-1] == text[0]:
        return text[1:-1]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def whole(raw: str | None, *, most: int, least: int = 1) -> int | None:
    """A whole number between two ends; None for anything else, so that no nonsense becomes a figure."""
    value = scalar(raw)
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value <= most else None


def words(raw: str | None) -> str | None:
    """A text that is not empty; None for numbers and the like."""
    value = scalar(raw)
    return value if isinstance(value, str) and value else None


def flag(raw: str | None) -> bool | None:
    """A truth value; None for anything else."""
    value = scalar(raw)
    return value if isinstance(value, bool) else None


def share(raw: str | None) -> float | None:
    """A number above 0 and at most 1."""
    value = scalar(raw)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value <= 1 else None


def _name(text: str) -> str | None:
    cleaned = text.strip().strip("'\"")
    return cleaned if len(cleaned) <= _LONGEST_NAME and _NAME.fullmatch(cleaned) else ""


def _keep(found: dict[str, str], name: str | None, value: str) -> None:
    if name:
        found.setdefault(name, value.strip())
