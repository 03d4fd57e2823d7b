"""A closed range of a real number: predictions are never a single figure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """``low <= high``, both finite."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"not a range: {self.low} to {self.high}")

    @classmethod
    def point(cls, value: float) -> "Range":
        """A range of one value."""
        return cls(low=value, high=value)

    @property
    def middle(self) -> float:
        """The arithmetic middle; for ordering only, never shown alone."""
        return (self.low + self.high) / 2
