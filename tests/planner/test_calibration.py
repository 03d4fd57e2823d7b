"""Calibrations: what the key holds apart, what a file must say to be believed."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog.bounds import ByteRange
from planner.calibration import CALIBRATED_LINES, Calibration, CalibrationKey
from planner.calibration_store import CalibrationStore

KEY = CalibrationKey(
    device="NVIDIA L4",
    mig=False,
    driver="550.54.15",
    engine="vllm",
    version="0.32.0",
    tp=1,
    pp=1,
    expert_parallel=False,
    model="org/name 4096x32x128256",
    draft="",
    element_bytes=2,
    quantization=None,
    kv_cache_dtype="auto",
    draft_kv_cache_dtype="auto",
    max_num_batched_tokens=2048,
    max_num_seqs=256,
    block_size=16,
    enforce_eager=False,
    async_scheduling=True,
    context_tokens=None,
)
KEPT = Calibration(
    key=KEY,
    lines={"activation_peak": ByteRange(low_bytes=10, high_bytes=20)},
    date="2026-11-30",
    log="server.log",
)


@pytest.fixture
def store(tmp_path: Path) -> CalibrationStore:
    return CalibrationStore(tmp_path / "calibrations")


def test_what_is_put_is_found(store: CalibrationStore) -> None:
    assert store.all() == {}
    store.put(KEPT)
    assert store.all() == {KEY: KEPT}


def test_a_later_one_of_the_same_key_takes_its_place(store: CalibrationStore) -> None:
    store.put(KEPT)
    later = replace(KEPT, date="2026-12-01")
    place = store.put(later)
    assert store.all() == {KEY: later}
    assert len(list(place.parent.iterdir())) == 1


@pytest.mark.parametrize("field", [field.name for field in fields(CalibrationKey)])
def test_keys_that_differ_in_anything_are_kept_apart(field: str, store: CalibrationStore) -> None:
    value = getattr(KEY, field)
    other: Any = not value if isinstance(value, bool) else 7 if isinstance(value, int) else "other"
    if field == "context_tokens":
        other = 8192
    store.put(KEPT)
    store.put(replace(KEPT, key=replace(KEY, **{field: other}), log="other.log"))
    assert len(store.all()) == 2
    assert store.all()[KEY].log == "server.log"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), "specplan.calibration/2"),
        (("key", "tp"), "1"),
        (("key", "tp"), True),
        (("key", "mig"), 0),
        (("key", "device"), None),
        (("key", "driver"), "550.1"),
        (("key", "more"), 1),
        (("lines",), {}),
        (("lines",), []),
        (("lines", "target_attention"), {"low_bytes": 1, "high_bytes": 2}),
        (("lines", "activation_peak"), {"low_bytes": 3, "high_bytes": 2}),
        (("lines", "activation_peak"), {"low_bytes": -1, "high_bytes": 2}),
        (("lines", "activation_peak"), {"low_bytes": 1, "high_bytes": 2.5}),
        (("lines", "activation_peak"), {"low_bytes": 1, "high_bytes": 2**60}),
        (("lines", "activation_peak"), {"low_bytes": True, "high_bytes": 2}),
        (("log",), "x\x1b[2J"),
        (("date",), None),
    ],
)
def test_a_file_that_was_changed_is_as_if_not_there(
    path: tuple[str, ...], value: object, store: CalibrationStore
) -> None:
    place = store.put(KEPT)
    document = json.loads(place.read_text(encoding="utf-8"))
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    place.write_text(json.dumps(document), encoding="utf-8")
    assert store.all() == {}


@given(st.binary(max_size=200))
def test_no_content_makes_it_fail(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "x.json").write_bytes(content)
        (folder / "deep.json").write_bytes(b"[" * 100_000)
        (folder / "folder.json").mkdir()
        assert CalibrationStore(folder).all() == {}


def test_a_file_under_another_name_is_not_believed(store: CalibrationStore) -> None:
    place = store.put(KEPT)
    place.rename(place.with_name("0" * 32 + ".json"))
    assert store.all() == {}


def test_only_overheads_are_ever_replaced() -> None:
    assert not any("weights" in label or "kv_cache" in label for label in CALIBRATED_LINES)
