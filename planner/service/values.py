"""How option values are written: sizes, shares, ranges of k. A bad value is a usage error with a hint."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from model_catalog.errors import UsageError
from model_catalog.units import parse_share, parse_size

#: What a kind of value is read as.
Read_co = TypeVar("Read_co", covariant=True)
MOST_SPECULATIVE_TOKENS: Final = 16
#: 64k: engines read it as 64,000 or, with a capital, as 65,536.
_THOUSANDS: Final = re.compile(r"(\d{1,6})[kK]")
_RANGE: Final = re.compile(r"(\d{1,4})(?:\s*-\s*(\d{1,4}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRange:
    """k to choose from, both ends included; memory is planned for ``most``."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.most) if self.least == self.most else f"{self.least}-{self.most}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value(Generic[Read_co]):
    """A kind of value: its name in the help, its reader (ValueError: a sentence for people), what to type."""

    metavar: str
    read: Callable[[str], Read_co]
    hint: str

    def parse(self, text: str, subject: str) -> Read_co:
        """Read a value's text; ``subject`` is the option or the argument that it was given for.

        Raises:
            UsageError: naming it.
        """
        try:
            return self.read(text)
        except ValueError as cause:
            raise UsageError(str(cause), subject=subject, hint=self.hint) from cause


def _size(text: str) -> int:
    size = parse_size(text)
    if size <= 0:
        raise ValueError(f"{text!r} is not more than zero")
    return size


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError as cause:
        thousands = _THOUSANDS.fullmatch(text.strip())
        if thousands is not None:
            number = int(thousands[1])
            raise ValueError(f"{text!r} may mean {number * 1024} or {number * 1000}") from cause
        raise ValueError(f"{text!r} is not a whole number") from cause
    if not 1 <= count <= 10**9:
        raise ValueError(f"{text!r} must be at least 1 and below 1,000,000,000")
    return count


def _fraction(text: str) -> float:
    try:
        fraction = float(text)
    except ValueError as cause:
        raise ValueError(f"{text!r} is not a number") from cause
    if not 0 < fraction <= 1:
        raise ValueError(f"{text!r} must lie above 0 and at most at 1")
    return fraction


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError as cause:
        raise ValueError(f"{text!r} is not a number") from cause
    if not 0 <= seconds <= 86_400:
        raise ValueError(f"{text!r} must be at least 0 and at most 86,400 (a day)")
    return seconds


def read_token_range(text: str) -> TokenRange:
    """Read ``5`` or ``3-8``.

    Raises:
        ValueError: when it is neither, runs backwards, or allows no speculation at all.
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is neither a number nor a range such as 3-8")
    least = int(match[1])
    most = int(match[2]) if match[2] is not None else least
    if most < least:
        raise ValueError(f"{text!r} runs backwards")
    if most == 0:
        raise ValueError("0 speculative tokens is no speculation")
    if most > MOST_SPECULATIVE_TOKENS:
        raise ValueError(f"{text!r} is more than {MOST_SPECULATIVE_TOKENS} tokens a step")
    return TokenRange(least=least, most=most)


COUNT: Final = Value(metavar="N", read=_count, hint="give a whole number, for example 8192")
SIZE: Final = Value(metavar="SIZE", read=_size, hint="write a size with its unit, for example 24GiB or 24GB")
SHARE: Final = Value(metavar="P%", read=parse_share, hint="write a share such as 15% or 0.15")
SECONDS: Final = Value(metavar="SECONDS", read=_seconds, hint="give a number of seconds, for example 30")
FRACTION: Final = Value(
    metavar="F", read=_fraction, hint="give a fraction such as 0.9, or leave it out: specplan finds what works"
)
TOKEN_RANGE: Final = Value(
    metavar="K[-K]",
    read=read_token_range,
    hint="give 5, or a range such as 3-8; to plan without a draft use --draft none",
)
