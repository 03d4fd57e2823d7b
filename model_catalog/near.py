"""Names like the one that was typed: for "did you mean" in hints."""

import difflib
from collections.abc import Iterable

_ALIKE = 0.6


def closest(typed: str, names: Iterable[str], *, most: int = 2) -> tuple[str, ...]:
    """The names that resemble what was typed, the nearest first, in any case; those that it begins come first."""
    wanted, known = typed.strip().lower(), {name.lower(): name for name in names}
    begun = [name for lower, name in known.items() if wanted and lower.startswith(wanted)]
    alike = difflib.get_close_matches(wanted, list(known), n=most, cutoff=_ALIKE)
    return tuple(dict.fromkeys([*begun, *(known[lower] for lower in alike)]))[:most]


def did_you_mean(typed: str, names: Iterable[str], rest: str) -> str:
    """The hint ``rest``, led by ``did you mean fit?`` where a name is like what was typed."""
    near = closest(typed, names)
    return f"did you mean {' or '.join(near)}? {rest[:1].upper()}{rest[1:]}" if near else rest
