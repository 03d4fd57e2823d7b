"""The embedded pairs, made by code from a seed: a small target, a draft that helps it, and one that hurts.

The trick: the draft is a random decoder of one layer; the target is that layer and others whose output projections
are scaled down, so that they change the residual stream little. The scale sets how often both agree. Nothing is
trained and nothing is downloaded, yet every forward costs what a model of that shape costs.
"""

from pathlib import Path
from typing import Final

TINY_TARGET: Final = "specplan/tiny-target"
TINY_DRAFT: Final = "specplan/tiny-draft"
TINY_DRAFT_BAD: Final = "specplan/tiny-draft-bad"
EMBEDDED: Final = (TINY_TARGET, TINY_DRAFT, TINY_DRAFT_BAD)
#: Part of the folder's name: a change of the recipe makes new folders.
_RECIPE: Final = "1"


def embedded_folder(root: Path, name: str) -> Path:
    """Where the named model lies below ``root`` once it is made."""
    return root / f"embedded-{_RECIPE}" / name.rpartition("/")[2]


def is_made(root: Path) -> bool:
    """Whether all three are there."""
    return all((embedded_folder(root, name) / "made").exists() for name in EMBEDDED)
