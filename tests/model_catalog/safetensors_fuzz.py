"""Safetensors headers, valid ones and mutations of them, drawn from a seed; a hundred thousand take seconds."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: Types of the format and their bits an element (``Dtype`` of the reference implementation).
BITS: Final = {
    **{"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16},
    **{"I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64},
}
_NAMES: Final = ("lm_head.weight", "model.layers.0.mlp.up_proj.weight", "a", "\u00fc", "x" * 90, "model.norm", "")
_ODD: Final[Sequence[Any]] = (
    *(None, True, False, -1, 0, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 1.0, 0.5, 1e300),
    *("", "8", "BF16", "bf16", "F4", "NEW9", "\x1b[2J", [], [0], [0, 0], [[0, 0]], {}, {"a": 1}),
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One input. ``tensors``: name, type, shape and bytes of the data, where the header was left valid."""

    raw: bytes
    size_bytes: int | None
    tensors: frozenset[tuple[str, str, tuple[int, ...], int]] | None
    how: str


def samples(count: int, seed: int) -> Iterator[Sample]:
    """Every fourth one valid, the rest mutated once or twice."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    for number in range(count):
        header, tensors, data_bytes = _valid(chance)
        if number % 4 == 0:
            raw = _written(header, chance)
            size = 8 + len(raw) + data_bytes if chance.random() < 0.7 else None
            yield Sample(raw=raw, size_bytes=size, tensors=frozenset(tensors), how="valid")
            continue
        honest = 8 + len(_written(header, random.Random(0))) + data_bytes  # noqa: S311 - as above
        names = []
        for _ in range(chance.choice((1, 1, 2))):
            change = chance.choice(STRUCTURAL)
            names.append(change.__name__)
            change(header, chance)
        raw = _written(header, chance)
        if chance.random() < 0.4:
            spoil = chance.choice(TEXTUAL)
            names.append(spoil.__name__)
            raw = spoil(raw, chance)
        size = chance.choice((None, honest, 8 + len(raw) + data_bytes, chance.randrange(0, 4096)))
        yield Sample(raw=raw, size_bytes=size, tensors=None, how="+".join(names))


def _valid(chance: random.Random) -> tuple[dict[str, Any], list[tuple[str, str, tuple[int, ...], int]], int]:
    header: dict[str, Any] = {}
    tensors = []
    position = 0
    for number in range(chance.randrange(0, 5)):
        name = f"{chance.choice(_NAMES)}{number}"
        kind = chance.choice(tuple(BITS))
        shape = tuple(chance.choice((0, 1, 1, 2, 3, 5)) for _ in range(chance.randrange(0, 4)))
        elements = 1
        for extent in shape:
            elements *= extent
        size = elements * BITS[kind] // 8
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [position, position + size]}
        tensors.append((name, kind, shape, size))
        position += size
    entries = list(header.items())
    chance.shuffle(entries)  # the order in the file means nothing
    if chance.random() < 0.3:
        entries.append(("__metadata__", {"format": "pt"}))
    return dict(entries), tensors, position


def _written(header: dict[str, Any], chance: random.Random) -> bytes:
    text = json.dumps(header, ensure_ascii=chance.random() < 0.5)
    return text.encode("utf-8", "surrogatepass") + b" " * chance.choice((0, 0, 7))


def _entry(header: dict[str, Any], chance: random.Random) -> Any:  # noqa: ANN401 - a mutation leaves anything there
    names = [name for name in header if name != "__metadata__"]
    return header[chance.choice(names)] if names else {}


def _moved(by: int) -> Callable[[dict[str, Any], random.Random], None]:
    def move(header: dict[str, Any], chance: random.Random) -> None:
        entry = _entry(header, chance)
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        if isinstance(offsets, list) and len(offsets) == 2 and all(isinstance(value, int) for value in offsets):
            offsets[chance.randrange(2)] += by

    return move


def overlap_or_gap(header: dict[str, Any], chance: random.Random) -> None:
    _moved(chance.choice((-8, -1, 1, 8, 2**40)))(header, chance)


def overflow(header: dict[str, Any], chance: random.Random) -> None:
    _moved(chance.choice((2**62, 2**63, 2**64, -(2**63))))(header, chance)


def whole_tensor_moved(header: dict[str, Any], chance: random.Random) -> None:
    entry = _entry(header, chance)
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if isinstance(offsets, list) and all(isinstance(value, int) for value in offsets):
        by = chance.choice((-4, 4, 2**32))
        entry["data_offsets"] = [value + by for value in offsets]


def wrong_type(header: dict[str, Any], chance: random.Random) -> None:
    entry = _entry(header, chance)
    if isinstance(entry, dict):
        entry["dtype"] = chance.choice((*BITS, "F4", "F6_E2M3", "F8_E8M0", "C64", "bf16", "NEW9", "", "X" * 40))


def wrong_shape(header: dict[str, Any], chance: random.Random) -> None:
    entry = _entry(header, chance)
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if isinstance(shape, list):
        shape.insert(
            chance.randrange(len(shape) + 1), chance.choice((0, 1, 2, -1, 2**62, 2**64, 1.0, True, "2", None))
        )


def odd_value(header: dict[str, Any], chance: random.Random) -> None:
    entry = _entry(header, chance)
    if isinstance(entry, dict):
        entry[chance.choice(("dtype", "shape", "data_offsets", "more"))] = chance.choice(_ODD)


def odd_entry(header: dict[str, Any], chance: random.Random) -> None:
    header[chance.choice((*header, "new", "__metadata__", "\ud800", "a\x1b[2J"))] = chance.choice(_ODD)


def lacks_a_key(header: dict[str, Any], chance: random.Random) -> None:
    entry = _entry(header, chance)
    if isinstance(entry, dict) and entry:
        del entry[chance.choice(tuple(entry))]


def lacks_a_tensor(header: dict[str, Any], chance: random.Random) -> None:
    if header:
        del header[chance.choice(tuple(header))]


STRUCTURAL: Final[Sequence[Callable[[dict[str, Any], random.Random], None]]] = (
    overlap_or_gap,
    overflow,
    whole_tensor_moved,
    wrong_type,
    wrong_shape,
    odd_value,
    odd_entry,
    lacks_a_key,
    lacks_a_tensor,
)


def truncated(raw: bytes, chance: random.Random) -> bytes:
    return raw[: chance.randrange(len(raw) + 1)]


def one_byte_other(raw: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(raw))
    return raw[:place] + bytes([chance.randrange(256)]) + raw[place + 1 :]


def a_part_twice(raw: bytes, chance: random.Random) -> bytes:
    start, end = sorted(chance.randrange(len(raw) + 1) for _ in range(2))
    return raw[:end] + raw[start:end] + raw[end:]


def a_part_gone(raw: bytes, chance: random.Random) -> bytes:
    start, end = sorted(chance.randrange(len(raw) + 1) for _ in range(2))
    return raw[:start] + raw[end:]


def something_after(raw: bytes, chance: random.Random) -> bytes:
    return raw + chance.choice((b"\0", b"{}", b"\n", b"\xff", b"NaN"))


def a_key_twice(raw: bytes, chance: random.Random) -> bytes:
    return raw.replace(b'"dtype":', chance.choice((b'"dtype": "U8", "dtype":', b'"shape": [], "dtype":')), 1)


TEXTUAL: Final[Sequence[Callable[[bytes, random.Random], bytes]]] = (
    truncated,
    one_byte_other,
    a_part_twice,
    a_part_gone,
    something_after,
    a_key_twice,
)
