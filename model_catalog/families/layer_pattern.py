"""Which layers attend to every token and which to a window: ``layer_types`` and the patterns in its place."""

from collections.abc import Collection, Sequence
from typing import Final

from model_catalog.families.common import Reading
from model_catalog.families.shape import unsupported

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
CHUNKED: Final = "chunked_attention"

Windows = tuple[int | None, ...]


def layer_types(
    reading: Reading, layers: int, allowed: Collection[str] = (FULL, SLIDING)
) -> tuple[str, ...] | None:
    """The config's ``layer_types``, one entry a decoder layer, or None where it has none.

    Raises:
        ConfigError: not a list of strings, or fewer entries than layers.
        UnsupportedConfigError: an entry is not among ``allowed``, or entries beyond the last layer.
    """
    kinds = reading.text.texts("layer_types")
    if kinds is None:
        return None
    if len(kinds) != layers:
        raise reading.text.fail("layer_types", f"has {len(kinds)} entries for {layers} layers")
    for position, kind in enumerate(kinds):
        if kind not in allowed:
            key = f"layer_types[{position}]"
            raise unsupported(reading.text, key, f"a kind of layer not known in this family: {ascii(kind)[:80]}")
    return kinds


def every_nth_full(layers: int, pattern: int) -> tuple[str, ...]:
    """``pattern - 1`` sliding layers, then a full one, again and again; all full for a pattern of 0 or 1."""
    if pattern <= 1:
        return (FULL,) * layers
    return tuple(SLIDING if (number + 1) % pattern else FULL for number in range(layers))


def windows_of(kinds: Sequence[str], window: int | None) -> Windows:
    """The window of each layer; None (everything) for full layers, or for all of them where there is no window."""
    return tuple(window if kind == SLIDING else None for kind in kinds)


def window_size(reading: Reading, *, default: int | None = None) -> int | None:
    """``sliding_window`` in tokens; None where the config says null, ``default`` where it has no such key."""
    window = reading.text.optional_integer("sliding_window", minimum=0)
    if window is None and default is not None and not reading.text.present("sliding_window"):
        reading.assume("sliding_window", default, "the config class's default")
        return default
    return window or None


def stated_windows(reading: Reading, layers: int) -> Windows | None:
    """Windows for families that have none of their own: only where ``layer_types`` asks for them.

    Raises:
        ConfigError: ``layer_types`` names sliding layers but ``sliding_window`` gives no size.
    """
    kinds = layer_types(reading, layers)
    if kinds is None or SLIDING not in kinds:
        return None
    return windows_of(kinds, reading.text.integer("sliding_window"))
