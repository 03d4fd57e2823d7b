"""Typed, bounded reading of an untrusted config.json mapping; every error carries the key's path.

A view remembers which keys were read, so that the reader can tell memory-relevant keys that nobody understood.
It knows no family and no default.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any, Final

from model_catalog.dtypes import DType, find_dtype
from model_catalog.errors import ConfigError

#: No published model comes near these; they keep a hostile config from costing time or memory.
MAX_EXTENT: Final = 2**34
MAX_LAYERS: Final = 4096
MAX_LIST: Final = 65_536
_LARGEST: Final = sys.float_info.max


class ConfigView:
    """One mapping of the configuration, at ``path`` (``""`` for the top, ``text_config`` below it)."""

    def __init__(self, values: Mapping[str, Any], *, subject: str, path: str = "") -> None:
        self._values = values
        self._used: set[str] = set()
        self.subject = subject
        self.path = path

    def key_path(self, key: str) -> str:
        """The key as seen from the top of the file."""
        return f"{self.path}.{key}" if self.path else key

    def fail(self, key: str, message: str) -> ConfigError:
        """An error about one key, to be raised by the caller."""
        return ConfigError(
            f"config.json: {self.key_path(key)}: {message}",
            subject=self.subject,
            hint="check the repo's config.json; a known-good copy can be planned from a local folder",
            key_path=self.key_path(key),
        )

    def has(self, *keys: str) -> bool:
        """Whether any of these keys is present with a value other than null; marks them as read."""
        present = [key for key in keys if self._raw(key) is not None]
        return bool(present)

    def present(self, key: str) -> bool:
        """Whether the key is there at all, null included; marks it as read."""
        self._used.add(key)
        return key in self._values

    def mark(self, *keys: str) -> None:
        """Declare keys as understood although their value is not needed."""
        self._used.update(keys)

    def unread_keys(self) -> tuple[str, ...]:
        """Keys present with a value other than null that nothing has asked for."""
        return tuple(key for key, value in self._values.items() if key not in self._used and value is not None)

    def integer(self, *keys: str, default: int | None = None, minimum: int = 1, maximum: int = MAX_EXTENT) -> int:
        """The first present key as an integer, else ``default``.

        Raises:
            ConfigError: when missing without default, not an integer, or out of bounds.
        """
        value = self.optional_integer(*keys, minimum=minimum, maximum=maximum)
        if value is not None:
            return value
        if default is None:
            raise self.fail(keys[0], "missing")
        return default

    def optional_integer(self, *keys: str, minimum: int = 1, maximum: int = MAX_EXTENT) -> int | None:
        """The first present key as an integer within bounds, else None.

        Raises:
            ConfigError: when present but not an integer or out of bounds.
        """
        for key in keys:
            value = self._raw(key)
            if value is not None:
                return self._checked_integer(key, value, minimum, maximum)
        return None

    def boolean(self, key: str, *, default: bool) -> bool:
        """A true or false; ``default`` where absent or null."""
        value = self._raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, f"must be true or false, not {_shown(value)}")
        return value

    def number(self, key: str, *, default: float | None = None) -> float:
        """A finite number.

        Raises:
            ConfigError: when missing without default, or not a finite number.
        """
        value = self._raw(key)
        if value is None:
            if default is None:
                raise self.fail(key, "missing")
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST < value < _LARGEST:
            raise self.fail(key, f"must be a finite number, not {_shown(value)}")
        return float(value)

    def text(self, key: str, *, default: str | None = None) -> str:
        """A string; ``default`` where absent or null."""
        value = self._raw(key)
        if value is None:
            if default is None:
                raise self.fail(key, "missing")
            return default
        if not isinstance(value, str) or len(value) > 4096:
            raise self.fail(key, f"must be a string, not {_shown(value)}")
        return value

    def is_text(self, key: str) -> bool:
        """Whether the key holds a string: some keys are a number or a word such as ``auto``."""
        return isinstance(self._raw(key), str)

    def is_list(self, key: str) -> bool:
        """Whether the key holds a list: some keys are one number or one a layer."""
        return isinstance(self._raw(key), list | tuple)

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of strings, or None where absent."""
        items = self._list(key)
        if items is None:
            return None
        for position, item in enumerate(items):
            if not isinstance(item, str):
                raise self.fail(f"{key}[{position}]", f"must be a string, not {_shown(item)}")
        return tuple(str(item) for item in items)

    def integers(self, key: str, *, minimum: int = 0, maximum: int = MAX_EXTENT) -> tuple[int, ...] | None:
        """A list of bounded integers, or None where absent."""
        items = self._list(key)
        if items is None:
            return None
        return tuple(
            self._checked_integer(f"{key}[{position}]", item, minimum, maximum)
            for position, item in enumerate(items)
        )

    def sections(self, key: str) -> "tuple[ConfigView, ...] | None":
        """A list of mappings, or None where absent."""
        items = self._list(key)
        if items is None:
            return None
        views = []
        for position, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise self.fail(f"{key}[{position}]", f"must be an object, not {_shown(item)}")
            views.append(ConfigView(item, subject=self.subject, path=self.key_path(f"{key}[{position}]")))
        return tuple(views)

    def section(self, key: str) -> "ConfigView | None":
        """A nested mapping, or None where absent."""
        value = self._raw(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.fail(key, f"must be an object, not {_shown(value)}")
        return ConfigView(value, subject=self.subject, path=self.key_path(key))

    def dtype(self, *keys: str) -> DType | None:
        """A floating storage type by name, or None where absent (or ``auto``)."""
        for key in keys:
            value = self._raw(key)
            if value is None or value == "auto":
                continue
            found = find_dtype(value) if isinstance(value, str) else None
            if found is None or not found.floating:
                raise self.fail(key, f"is not a floating-point type: {_shown(value)}")
            return found
        return None

    def _raw(self, key: str) -> object:
        self._used.add(key)
        return self._values.get(key)

    def _list(self, key: str) -> list[object] | None:
        value = self._raw(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise self.fail(key, f"must be a list, not {_shown(value)}")
        if len(value) > MAX_LIST:
            raise self.fail(key, f"has {len(value)} entries; at most {MAX_LIST} are read")
        return list(value)

    def _checked_integer(self, key: str, value: object, minimum: int, maximum: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(key, f"must be an integer, not {_shown(value)}")
        if isinstance(value, float):
            if not math.isfinite(value) or value != int(value):
                raise self.fail(key, f"must be an integer, not {_shown(value)}")
            value = int(value)
        if not minimum <= value <= maximum:
            raise self.fail(key, f"must lie between {minimum} and {maximum}, not {_shown(value)}")
        return value


def _shown(value: object) -> str:
    try:
        text = ascii(value)
    except ValueError:  # an integer of more digits than Python prints
        return "a very long number"
    return text if len(text) <= 40 else f"{text[:37]}..."
