"""A hundred thousand safetensors headers: exact bytes, or an error in words, and nothing else."""

import time
from collections import Counter

import pytest
from safetensors_fuzz import STRUCTURAL, TEXTUAL, Sample, samples

from model_catalog.errors import WeightsError
from model_catalog.safetensors_header import StoredTensor, parse_header

INPUTS = 100_000
SECONDS = 60.0
SEED = 20_260_101
#: For the reference implementation a file has to be made.
LARGEST_DATA_BYTES = 4096


def parsed(sample: Sample) -> tuple[StoredTensor, ...] | WeightsError:
    try:
        return parse_header(
            sample.raw, subject="org/model", file="f.safetensors", file_size_bytes=sample.size_bytes
        )
    except WeightsError as error:
        return error


def facts(tensors: tuple[StoredTensor, ...]) -> frozenset[tuple[str, str, tuple[int, ...], int]]:
    return frozenset((found.name, found.dtype, found.shape, found.stored_bytes) for found in tensors)


def test_a_hundred_thousand_headers() -> None:
    outcomes: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    started = time.monotonic()
    for sample in samples(INPUTS, SEED):
        found = parsed(sample)
        tried.update(sample.how.split("+"))
        if isinstance(found, WeightsError):
            assert sample.tensors is None, f"{found}: {sample}"
            assert found.message.startswith("f.safetensors: ")
            assert found.message.isprintable()
            assert len(found.message) < 400
            outcomes["refused"] += 1
            continue
        outcomes["read"] += 1
        if sample.tensors is not None:
            assert facts(found) == sample.tensors
        position = 0
        for tensor in found:
            assert tensor.start == position
            position = tensor.end
        assert sample.size_bytes in {None, 8 + len(sample.raw) + position}
    seconds = time.monotonic() - started
    print(f"{INPUTS} headers in {seconds:.1f} s: {dict(outcomes)}")
    assert seconds < SECONDS
    assert outcomes.total() == INPUTS
    assert min(outcomes.values()) > INPUTS // 5
    assert set(tried) == {"valid", *(change.__name__ for change in (*STRUCTURAL, *TEXTUAL))}
    assert min(tried.values()) > INPUTS // 50


def test_against_the_reference_implementation() -> None:
    """What both read is the same, and where only one reads it is known why."""
    reference = pytest.importorskip("safetensors", reason="no safetensors here: pip install 'specplan[trial]'")
    both = 0
    for sample in samples(INPUTS // 5, SEED + 1):
        ours = parsed(Sample(raw=sample.raw, size_bytes=None, tensors=None, how=""))
        end = 0 if isinstance(ours, WeightsError) else sum(tensor.stored_bytes for tensor in ours)
        if end > LARGEST_DATA_BYTES:
            continue
        if isinstance(ours, WeightsError) and sample.size_bytes is not None:
            end = min(max(sample.size_bytes - 8 - len(sample.raw), 0), LARGEST_DATA_BYTES)
        whole = len(sample.raw).to_bytes(8, "little") + sample.raw + bytes(end)
        try:
            theirs = reference.deserialize(whole)
        except reference.SafetensorError as refused:
            # A type of tomorrow is counted by its offsets, and what the file says of itself is not looked at.
            known = any(word in str(refused) for word in ("unknown variant", "expected a string"))
            assert isinstance(ours, WeightsError) or known, f"{refused}: {sample}"
            continue
        if isinstance(ours, WeightsError):
            stricter = ("duplicate key", "not printable", "too long", "__metadata__")
            assert any(reason in ours.message for reason in stricter), f"{ours}: {sample}"
            continue
        both += 1
        assert facts(ours) == {
            (name, told["dtype"], tuple(told["shape"]), len(told["data"])) for name, told in theirs
        }
    assert both > INPUTS // 25
