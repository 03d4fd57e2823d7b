"""Line items and their sum: the five terms of the memory plan on one rank."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from model_catalog.bounds import Basis, ByteRange


class Group(StrEnum):
    """The five terms of the memory sum."""

    TARGET_WEIGHTS = "target_weights"
    DRAFT_WEIGHTS = "draft_weights"
    KV_CACHE = "kv_cache"
    RUNTIME_OVERHEAD = "runtime_overhead"
    TEMPORARY_BUFFERS = "temporary_buffers"


class Owner(StrEnum):
    TARGET = "target"
    DRAFT = "draft"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineItem:
    """One line: bytes between two bounds, how they are known, and the formula with its numbers filled in.

    ``inside_budget`` says whether the engine counts it against its own budget; what lies outside is checked
    against free memory. ``before_budget``, for engines whose budget is a fraction of free memory: it is taken
    already when the engine reads what is free.
    """

    group: Group
    label: str
    owner: Owner
    low_bytes: int
    high_bytes: int
    basis: Basis
    source: str
    formula: str
    inside_budget: bool = True
    before_budget: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.low_bytes <= self.high_bytes:
            raise ValueError(f"{self.label}: not a byte range: {self.low_bytes} to {self.high_bytes}")
        if self.inside_budget and self.before_budget:
            raise ValueError(f"{self.label}: either inside the budget or taken before it")

    @classmethod
    def of_size(
        cls,
        size: ByteRange,
        *,
        group: Group,
        label: str,
        owner: Owner,
        basis: Basis,
        source: str,
        formula: str,
        inside_budget: bool = True,
        before_budget: bool = False,
    ) -> "LineItem":
        """A line whose two bounds are those of ``size``."""
        return cls(
            group=group,
            label=label,
            owner=owner,
            low_bytes=size.low_bytes,
            high_bytes=size.high_bytes,
            basis=basis,
            source=source,
            formula=formula,
            inside_budget=inside_budget,
            before_budget=before_budget,
        )

    @property
    def size(self) -> ByteRange:
        """Both bounds."""
        return ByteRange(low_bytes=self.low_bytes, high_bytes=self.high_bytes)


def sum_items(items: Iterable[LineItem]) -> ByteRange:
    """The sum of the lows and the sum of the highs: no correlation between lines is assumed."""
    total = ByteRange.point(0)
    for item in items:
        total += item.size
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBreakdown:
    """All lines of one rank."""

    items: tuple[LineItem, ...]

    @property
    def total(self) -> ByteRange:
        """Everything, inside the budget and outside."""
        return sum_items(self.items)

    @property
    def inside_budget(self) -> ByteRange:
        """What the engine charges to its own budget."""
        return sum_items(item for item in self.items if item.inside_budget)

    @property
    def outside_budget(self) -> ByteRange:
        """What must fit beside the budget."""
        return sum_items(item for item in self.items if not item.inside_budget)

    @property
    def before_budget(self) -> ByteRange:
        """What is taken before an engine reads the free memory that its fraction refers to."""
        return sum_items(item for item in self.items if item.before_budget)

    @property
    def after_budget(self) -> ByteRange:
        """What must fit into the part of that free memory that the fraction leaves."""
        return sum_items(item for item in self.items if not (item.inside_budget or item.before_budget))

    def of_group(self, group: Group) -> ByteRange:
        """One of the five terms."""
        return sum_items(item for item in self.items if item.group is group)

    def of_owner(self, owner: Owner) -> ByteRange:
        """All that one model causes."""
        return sum_items(item for item in self.items if item.owner is owner)
