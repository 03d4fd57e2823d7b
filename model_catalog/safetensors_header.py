"""The header of a safetensors file: which tensors it holds, of which type and shape, in which bytes.

Owns the reading of one untrusted header. Knows neither tensor names' meaning nor where the bytes came from.

Format: 8 bytes of little-endian length, that many bytes of JSON, then the data; the JSON maps each name to
``{"dtype", "shape", "data_offsets"}`` and the offsets tile the data without gap or overlap
(https://github.com/huggingface/safetensors, "Format" and its validation rules).
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from model_catalog.dtypes import find_dtype
from model_catalog.errors import WeightsError

#: The format's own cap (``MAX_HEADER_SIZE`` of the reference implementation): 100 MB, decimal.
HEADER_LIMIT_BYTES: Final = 100_000_000
LENGTH_BYTES: Final = 8
#: Ours: the largest published files hold some ten thousand tensors.
MAX_TENSORS: Final = 250_000
MAX_DIMENSIONS: Final = 16
MAX_NAME_CHARACTERS: Final = 1024
_MAX_OFFSET: Final = 2**63 - 1
_METADATA_KEY: Final = "__metadata__"
_HINT: Final = "download the file again; if it stays so, the repo's file is damaged or is not safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a file. ``dtype`` is the header's spelling; ``start`` and ``end`` count from the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def elements(self) -> int:
        """Stored elements: a packed word is one element."""
        product = 1
        for extent in self.shape:
            product *= extent
        return product

    @property
    def stored_bytes(self) -> int:
        """Bytes in the file, from the offsets."""
        return self.end - self.start


def header_length(first8: bytes, *, subject: str, file: str) -> int:
    """Bytes of JSON that follow the first eight bytes.

    Raises:
        WeightsError: when there are fewer than eight bytes, or the length is zero or above the format's cap.
    """
    reader = _Reader(subject, file)
    if len(first8) < LENGTH_BYTES:
        reader.fail(f"is {len(first8)} bytes long; a safetensors file starts with an 8-byte length")
    length = int(struct.unpack("<Q", first8[:LENGTH_BYTES])[0])
    if length < len("{}"):
        reader.fail(f"declares a header of {length} bytes")
    if length > HEADER_LIMIT_BYTES:
        reader.fail(f"declares a header of {length} bytes; the format allows {HEADER_LIMIT_BYTES}")
    return length


def parse_header(raw: bytes, *, subject: str, file: str, file_size_bytes: int | None) -> tuple[StoredTensor, ...]:
    """The tensors of one file, in the order of their bytes.

    ``raw`` is the JSON part. A type that we do not know is kept under its own spelling and counted by its
    offsets; for a known one, shape times element size must equal the byte range.

    Raises:
        WeightsError: for anything that the format forbids, or that contradicts ``file_size_bytes``.
    """
    reader = _Reader(subject, file)
    if file_size_bytes is not None and LENGTH_BYTES + len(raw) > file_size_bytes:
        reader.fail(f"declares a header of {len(raw)} bytes in a file of {file_size_bytes} bytes")
    entries = reader.entries(raw)
    tensors = [reader.tensor(name, entry) for name, entry in entries.items() if name != _METADATA_KEY]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.end))
    position = 0
    for tensor in tensors:
        if tensor.start != position:
            kind = "overlaps the tensor before it" if tensor.start < position else "leaves a gap before it"
            reader.fail(f"tensor {_shown(tensor.name)} {kind} (starts at byte {tensor.start}, not {position})")
        position = tensor.end
    if file_size_bytes is not None and LENGTH_BYTES + len(raw) + position != file_size_bytes:
        expected = LENGTH_BYTES + len(raw) + position
        reader.fail(f"is {file_size_bytes} bytes long, but its header describes {expected}")
    return tuple(tensors)


class _Reader:
    """Checks of one file; every failure names it."""

    def __init__(self, subject: str, file: str) -> None:
        self._subject = subject
        self._file = file

    def fail(self, message: str) -> NoReturn:
        raise WeightsError(f"{self._file}: {message}", subject=self._subject, hint=_HINT)

    def entries(self, raw: bytes) -> Mapping[str, Any]:
        """The JSON object, checked for size before it is built and for duplicate keys while it is."""
        if len(raw) > HEADER_LIMIT_BYTES:
            self.fail(f"has a header of {len(raw)} bytes; the format allows {HEADER_LIMIT_BYTES}")
        # Brackets bound what the JSON reader can allocate: a tensor has one object and two short lists.
        most = {b"{": MAX_TENSORS + 2, b"[": 2 * MAX_TENSORS + 2, b",": 8 * MAX_TENSORS}
        if any(raw.count(sign) > count for sign, count in most.items()):
            self.fail(f"has a header with more than {MAX_TENSORS} tensors")
        try:
            header = json.loads(
                raw.decode("utf-8"), object_pairs_hook=self._unique, parse_constant=self._not_a_number
            )
        except RecursionError:
            self.fail("has a header nested too deeply")
        except ValueError as cause:
            self.fail(f"has a header that is not JSON ({_shown(str(cause))})")
        if not isinstance(header, dict):
            self.fail("has a header that is not a JSON object")
        if not isinstance(header.get(_METADATA_KEY), dict | None):
            self.fail(f"has {_METADATA_KEY} that is not an object")
        return header

    def tensor(self, name: str, entry: object) -> StoredTensor:
        if len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
            self.fail(f"has a tensor name that is too long or not printable: {_shown(name)}")
        if not isinstance(entry, dict):
            self._refuse(name, "is not described by an object")
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not isinstance(dtype, str) or not 0 < len(dtype) <= 32 or not dtype.isprintable():
            self._refuse(name, "has no readable dtype")
        if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(map(_is_extent, shape)):
            self._refuse(name, "has a shape that is not a short list of sizes")
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_extent, offsets)):
            self._refuse(name, "has data_offsets that are not two byte positions")
        start, end = offsets
        if end < start:
            self._refuse(name, f"ends at byte {end}, before its start {start}")
        known, elements = find_dtype(dtype), math.prod(shape)
        # No type has less than a bit an element, of tomorrow's neither.
        wrong = elements > (end - start) * 8 if known is None else elements * known.bits != (end - start) * 8
        if wrong:
            self._refuse(name, f"of type {dtype} and shape {shape} cannot fill its {end - start} bytes")
        return StoredTensor(name=name, dtype=dtype, shape=tuple(shape), start=start, end=end)

    def _refuse(self, name: str, message: str) -> NoReturn:
        self.fail(f"tensor {_shown(name)} {message}")

    def _unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) != len(pairs):
            self.fail("has a header with a duplicate key")
        return values

    def _not_a_number(self, constant: str) -> NoReturn:
        self.fail(f"has a header with {constant}, which is not JSON")


def _is_extent(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_OFFSET


def _shown(text: str) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
