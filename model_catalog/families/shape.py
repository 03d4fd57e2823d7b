"""The seven extents that almost every decoder's config.json gives, read and checked against each other.

Families with other spellings pass their own keys; families whose config class supplies values pass defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from model_catalog.config_view import MAX_LAYERS, ConfigView
from model_catalog.errors import UnsupportedConfigError
from model_catalog.families.common import Reading

#: More heads or experts than any published model, few enough that nothing built per head or expert grows large.
MAX_HEADS: Final = 2**16
MAX_EXPERTS: Final = 2**16

_NO_DEFAULTS: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeKeys:
    """How a family spells each extent, best spelling first."""

    hidden: tuple[str, ...] = ("hidden_size",)
    layers: tuple[str, ...] = ("num_hidden_layers",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    head_dim: tuple[str, ...] = ("head_dim",)
    intermediate: tuple[str, ...] = ("intermediate_size",)
    vocabulary: tuple[str, ...] = ("vocab_size",)


STANDARD_KEYS: Final = ShapeKeys()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Extents of a decoder. ``kv_heads`` divides ``heads``."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int


@dataclass(frozen=True, slots=True)
class _Extents:
    reading: Reading
    defaults: Mapping[str, int]
    used: dict[str, int] = field(default_factory=dict)

    def __call__(self, keys: tuple[str, ...], name: str, maximum: int | None = None) -> int:
        view = self.reading.text
        value = view.optional_integer(*keys) if maximum is None else view.optional_integer(*keys, maximum=maximum)
        if value is not None:
            return value
        if name not in self.defaults or self.reading.text is self.reading.top:
            raise view.fail(keys[0], "missing")
        self.reading.assume(keys[0], self.defaults[name], "the config class's default")
        return self.defaults[name]


def read_shape(
    reading: Reading, *, keys: ShapeKeys = STANDARD_KEYS, defaults: Mapping[str, int] = _NO_DEFAULTS
) -> Shape:
    """Read a decoder's extents from ``reading.text``.

    ``defaults`` maps the field names of Shape to what the family's config class supplies: for ``kv_heads`` and
    ``head_dim`` in any config, for the others only in the decoder's section of a multimodal one, as such sections
    are published sparse. Beyond these, ``kv_heads`` is ``heads``, and ``head_dim`` is ``hidden / heads``.
    ``intermediate`` is four times ``hidden`` for keys that name none.

    Raises:
        ConfigError: an extent is missing or impossible, KV heads do not divide the heads, or heads do not divide
            the hidden size where no head dimension is given.
    """
    extent = _Extents(reading, defaults)
    hidden = extent(keys.hidden, "hidden")
    layers = extent(keys.layers, "layers", MAX_LAYERS)
    heads = extent(keys.heads, "heads", MAX_HEADS)
    intermediate = extent(keys.intermediate, "intermediate") if keys.intermediate else 4 * hidden
    return Shape(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=read_kv_heads(reading, keys.kv_heads, heads, defaults.get("kv_heads")),
        head_dim=read_head_dim(reading, keys, hidden, heads, defaults.get("head_dim")),
        intermediate=intermediate,
        vocabulary=extent(keys.vocabulary, "vocabulary"),
    )


def read_kv_heads(reading: Reading, keys: tuple[str, ...], heads: int, default: int | None = None) -> int:
    """KV heads; as many as attention heads where the config and the family are silent."""
    kv_heads = reading.text.optional_integer(*keys, maximum=MAX_HEADS) if keys else heads
    if kv_heads is None:
        kv_heads = heads if default is None else default
        reading.assume(keys[0], kv_heads, "the config class's default")
    if heads % kv_heads:
        key = next((key for key in keys if reading.text.has(key)), keys[0])
        raise reading.text.fail(key, f"{kv_heads} KV heads do not divide {heads} attention heads")
    return kv_heads


def read_head_dim(reading: Reading, keys: ShapeKeys, hidden: int, heads: int, default: int | None = None) -> int:
    """The head dimension; ``hidden / heads`` where the config and the family are silent."""
    head_dim = reading.text.optional_integer(*keys.head_dim) if keys.head_dim else None
    if head_dim is not None:
        return head_dim
    if default is not None:
        reading.assume(keys.head_dim[0], default, "the config class's default")
        return default
    if hidden % heads:
        raise reading.text.fail(keys.heads[0], f"{heads} heads do not divide the hidden size {hidden}")
    return hidden // heads


def unsupported(view: ConfigView, key: str, message: str) -> UnsupportedConfigError:
    """An error about a well-formed key whose effect on memory is not known, to be raised by the caller."""
    return UnsupportedConfigError(
        f"config.json: {view.key_path(key)}: {message}",
        subject=view.subject,
        hint="this model's structure is not known here; plan one of a known family, or update specplan",
        key_path=view.key_path(key),
    )
