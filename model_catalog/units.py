"""Bytes, tokens and seconds: their types, how people write them, how they are printed.

Owns every conversion between bytes and GiB/GB. Does not decide what is printed where.
GiB (2**30) and GB (10**9) are different things here; a bare ``G`` is refused because the field uses it for both.
"""

import math
import re
from typing import Final, Literal, NewType

Bytes = NewType("Bytes", int)
Tokens = NewType("Tokens", int)
Seconds = NewType("Seconds", float)

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
GB: Final = 10**9

_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": GB,
    "tb": 10**12,
}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_LARGEST_SIZE_BYTES: Final = 2**60

Rounding = Literal["up", "down", "nearest"]


def parse_size(text: str) -> Bytes:
    """Read a size such as ``24GiB``, ``24 GB``, ``512MiB`` or ``1024`` (bytes).

    Raises:
        ValueError: for an unknown or ambiguous unit (``24G``), a negative or an absurdly large size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write for example 24GiB, 24GB or a number of bytes")
    number, unit = match.groups()
    factor = _UNITS.get(unit.lower())
    if factor is None:
        if unit.lower() in {"k", "m", "g", "t"}:
            letter = unit.upper()
            raise ValueError(f"{text!r} is ambiguous: write {number}{letter}iB (2^) or {number}{letter}B (10^)")
        raise ValueError(f"{text!r} has an unknown unit {unit!r}; use B, KiB, MiB, GiB, TiB, kB, MB, GB or TB")
    if "." not in number:
        size = int(number) * factor
    else:
        whole, fraction = number.split(".")
        size = int(whole) * factor + int(fraction) * factor // 10 ** len(fraction)
    if size > _LARGEST_SIZE_BYTES:
        raise ValueError(f"{text!r} is larger than any device")
    return Bytes(size)


def parse_share(text: str) -> float:
    """Read a share such as ``15%`` or ``0.15``; the answer lies in (0, 1].

    Raises:
        ValueError: when it is not a number or lies outside (0, 1].
    """
    body = text.strip()
    try:
        share = float(body.removesuffix("%")) / (100 if body.endswith("%") else 1)
    except ValueError as cause:
        raise ValueError(f"{text!r} is not a share; write for example 15% or 0.15") from cause
    if not 0 < share <= 1:
        raise ValueError(f"{text!r} is outside the range above 0% up to 100%")
    return share


def to_gib(size_bytes: int, rounding: Rounding = "nearest", digits: int = 2) -> str:
    """Print bytes as a number of GiB, rounded as asked: needs go up, room goes down."""
    scale = 10**digits
    if rounding == "up":
        hundredths = -(-size_bytes * scale // GIB)
    elif rounding == "down":
        hundredths = size_bytes * scale // GIB
    else:
        hundredths = (size_bytes * scale * 2 + GIB) // (2 * GIB)
    sign = "-" if hundredths < 0 else ""
    whole, fraction = divmod(abs(hundredths), scale)
    return f"{sign}{whole:,}.{fraction:0{digits}d}" if digits else f"{sign}{whole:,}"


def ceil_div(numerator: int, denominator: int) -> int:
    """Smallest integer not below ``numerator / denominator``; both are non-negative integers."""
    return -(-numerator // denominator)


def ceil_bits(bits: int) -> int:
    """Bytes that hold this many bits."""
    return ceil_div(bits, 8)


def floor_share(share: float, digits: int = 3) -> float:
    """Round a fraction down to ``digits`` decimals."""
    return math.floor(share * 10.0**digits) / 10.0**digits


def ceil_share(share: float, digits: int = 3) -> float:
    """Round a fraction up to ``digits`` decimals."""
    return math.ceil(share * 10.0**digits) / 10.0**digits
