"""A safetensors header is untrusted: the good is read exactly, everything else is refused in words."""

import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog.errors import WeightsError
from model_catalog.safetensors_header import (
    HEADER_LIMIT_BYTES,
    MAX_TENSORS,
    StoredTensor,
    header_length,
    parse_header,
)


def parse(header: object, size_bytes: int | None = None) -> tuple[StoredTensor, ...]:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return parse_header(raw, subject="org/model", file="model.safetensors", file_size_bytes=size_bytes)


def tensor(
    start: object = 0, end: object = 12, dtype: object = "BF16", shape: Sequence[object] = (2, 3)
) -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def test_tensors_come_in_the_order_of_their_bytes() -> None:
    header = {"b": tensor(12, 16, "F32", ()), "__metadata__": {"format": "pt"}, "a": tensor()}
    first, second = parse(header)
    assert (first.name, first.dtype, first.shape, first.stored_bytes) == ("a", "BF16", (2, 3), 12)
    assert (second.name, second.elements, second.stored_bytes) == ("b", 1, 4)


@pytest.mark.parametrize(
    ("dtype", "shape", "size_bytes"),
    [
        ("F4", (3, 4), 6),  # two elements a byte
        ("F6_E2M3", (4,), 3),
        ("F8_E8M0", (5,), 5),
        ("BOOL", (7,), 7),
        ("I64", (2,), 16),
        ("BF16", (0, 9), 0),
        ("X7_NEW", (3,), 11),  # a type of the future is counted by its offsets
    ],
)
def test_element_sizes(dtype: str, shape: tuple[int, ...], size_bytes: int) -> None:
    (found,) = parse({"a": tensor(0, size_bytes, dtype, shape)})
    assert (found.dtype, found.stored_bytes) == (dtype, size_bytes)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"\xff\xfe{\x00}\x00", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": {}, "a": {}}', "duplicate key"),
        (b'{"a": {"dtype": "BF16", "dtype": "F32"}}', "duplicate key"),
        (b'{"a":' * 60_000 + b"1" + b"}" * 60_000, "too deeply"),
        (b'{"__metadata__": ' + b"[" * 60_000 + b"]" * 60_000 + b"}", "too deeply"),
        (b'{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1' + b"0" * 5000 + b"]}}", "not JSON"),
        ({"__metadata__": 3}, "__metadata__"),
        ({"a": 3}, "not described by an object"),
        ({"a": {}}, "no readable dtype"),
        ({"a": tensor(dtype=5)}, "no readable dtype"),
        ({"a": tensor(dtype="B" * 40)}, "no readable dtype"),
        ({"a": {"dtype": "U8", "data_offsets": [0, 1]}}, "shape"),
        ({"a": tensor(shape=[2, True])}, "shape"),
        ({"a": tensor(shape=[2.0, 3])}, "shape"),
        ({"a": tensor(shape=[-2, -3])}, "shape"),
        ({"a": tensor(shape=[1] * 17)}, "shape"),
        ({"a": tensor(shape=[2**64])}, "shape"),
        ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0]}}, "data_offsets"),
        ({"a": {"dtype": "U8", "shape": [1], "data_offsets": {"0": 1}}}, "data_offsets"),
        ({"a": tensor(False, 12)}, "data_offsets"),
        ({"a": tensor(0, 12.0)}, "data_offsets"),
        ({"a": tensor(0, "12")}, "data_offsets"),
        ({"a": tensor(12, 0)}, "before its start"),
        ({"a": tensor(0, 10)}, "cannot fill"),
        ({"a": tensor(0, 1, "F4", (3,))}, "cannot fill"),
        ({"a": tensor(shape=[2**62, 2**62])}, "cannot fill"),
        ({"a": tensor(), "b": tensor(6, 18)}, "overlaps"),
        ({"a": tensor(), "b": tensor()}, "overlaps"),
        ({"a": tensor(), "b": tensor(14, 26)}, "leaves a gap"),
        ({"a": tensor(2, 14)}, "leaves a gap"),
        ({"a\x1b[2J": tensor()}, "not printable"),
        ({"\ud800": tensor()}, "not printable"),
        ({"a" * 2000: tensor()}, "too long"),
        (b'{"a":' + b"[0" + b",0" * (8 * MAX_TENSORS + 1) + b"]}", "more than 250000 tensors"),
        (b'{"a":[' + b"{}," * MAX_TENSORS + b"{},{},{}]}", "more than 250000 tensors"),
    ],
)
def test_what_is_refused(header: object, says: str) -> None:
    with pytest.raises(WeightsError) as caught:
        parse(header)
    assert says in caught.value.message
    assert caught.value.message.startswith("model.safetensors: ")
    assert (caught.value.subject, caught.value.hint[:8]) == ("org/model", "download")
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_metadata_of_nothing(metadata: object) -> None:
    """The reference implementation takes null for none, and such files are published."""
    assert len(parse({"__metadata__": metadata, "a": tensor()})) == 1


def test_the_file_must_be_as_long_as_the_header_says() -> None:
    header = {"a": tensor()}
    length = 8 + len(json.dumps(header)) + 12
    assert len(parse(header, length)) == 1
    for size_bytes in (length - 1, length + 1, 10):
        with pytest.raises(WeightsError, match=str(size_bytes)):
            parse(header, size_bytes)


@pytest.mark.parametrize(
    "first8",
    [
        b"",
        b"\x02\0\0\0\0\0\0",
        bytes(8),
        struct.pack("<Q", 1),
        struct.pack("<Q", HEADER_LIMIT_BYTES + 1),
        b"\xff" * 8,
    ],
)
def test_lengths_refused(first8: bytes) -> None:
    with pytest.raises(WeightsError):
        header_length(first8, subject="org/model", file="model.safetensors")


def test_length_is_little_endian() -> None:
    assert header_length(b"\x10\x27\0\0\0\0\0\0{", subject="org/model", file="f") == 10_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["BF16", "F4", "U8", "NEW"]) | JSON,
        "shape": st.lists(st.integers(-1, 4), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(-1, 40), min_size=1, max_size=3) | JSON,
    },
)


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_arbitrary_bytes_raise_nothing_but_weights_errors(raw: bytes) -> None:
    try:
        assert all(found.stored_bytes >= 0 for found in parse(raw))
    except WeightsError as error:
        assert error.message


@given(st.dictionaries(st.text(max_size=6), ENTRY, max_size=3), st.none() | st.integers(0, 300))
def test_accepted_headers_tile_the_data(entries: dict[str, Any], size_bytes: int | None) -> None:
    try:
        tensors = parse(entries, size_bytes)
    except WeightsError:
        return
    position = 0
    for found in tensors:
        assert found.start == position
        position = found.end
    assert size_bytes is None or size_bytes == 8 + len(json.dumps(entries)) + position


@given(st.binary(max_size=12))
def test_any_length_is_bounded(first8: bytes) -> None:
    try:
        assert 2 <= header_length(first8, subject="s", file="f") <= HEADER_LIMIT_BYTES
    except WeightsError as error:
        assert error.message
