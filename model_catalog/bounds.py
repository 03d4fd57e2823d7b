"""How sure a figure is: its basis, and a low and a high bound in bytes."""

from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """Where a figure comes from, best first."""

    EXACT = "exact"  #: summed from tensor offsets or read from a device
    DERIVED = "derived"  #: a formula over the configuration
    CALIBRATED = "calibrated"  #: fitted to measurements, which the source names
    ASSUMED = "assumed"  #: neither measured nor derivable


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """A closed range of bytes. ``low_bytes <= high_bytes``; both are non-negative integers."""

    low_bytes: int
    high_bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.low_bytes <= self.high_bytes:
            raise ValueError(f"not a byte range: {self.low_bytes} to {self.high_bytes}")

    @classmethod
    def point(cls, size_bytes: int) -> "ByteRange":
        """A range of one value."""
        return cls(low_bytes=size_bytes, high_bytes=size_bytes)

    def __add__(self, other: "ByteRange") -> "ByteRange":
        return ByteRange(low_bytes=self.low_bytes + other.low_bytes, high_bytes=self.high_bytes + other.high_bytes)

    def times(self, count: int) -> "ByteRange":
        """The range of ``count`` such things."""
        return ByteRange(low_bytes=self.low_bytes * count, high_bytes=self.high_bytes * count)
