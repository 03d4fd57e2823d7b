"""Calibrations kept for later plans: ``$XDG_DATA_HOME/specplan/calibrations``, one JSON file a key.

A file is taken for what it says only if it says all of it: another schema, an unknown line or a bound that is none
makes it as if it were not there. A store that cannot be read never fails a plan.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, get_args

from model_catalog.bounds import ByteRange
from model_catalog.snapshot_store import user_folder, write_atomically
from planner.calibration import CALIBRATED_LINES, Calibration, CalibrationKey

_SCHEMA: Final = "specplan.calibration/1"
_LIMIT_BYTES: Final = 100_000
_MOST_FILES: Final = 1000
_MOST_BYTES: Final = 2**50
_LONGEST_TEXT: Final = 400


class CalibrationStore:
    """The calibrations in one folder; by default the user's."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = user_folder().parent / "calibrations" if folder is None else folder

    def all(self) -> Mapping[CalibrationKey, Calibration]:
        """Every calibration that can be read, by its key; the newest thousand files."""
        try:
            places = sorted(self._folder.glob("*.json"), key=lambda place: place.stat().st_mtime, reverse=True)
        except OSError:
            return {}
        read = (self._read(place) for place in places[:_MOST_FILES])
        return {found.key: found for found in read if found is not None}

    def put(self, calibration: Calibration) -> Path:
        """Keep a calibration in place of an earlier one of the same key; its file.

        Raises:
            OSError: it cannot be written.
        """
        place = self._folder / f"{_digest(calibration.key)}.json"
        lines = {
            label: {"low_bytes": size.low_bytes, "high_bytes": size.high_bytes}
            for label, size in calibration.lines.items()
        }
        document = {
            "schema": _SCHEMA,
            "key": calibration.key.to_json(),
            "lines": lines,
            "date": calibration.date,
            "log": calibration.log,
        }
        write_atomically(place, document)
        return place

    def _read(self, place: Path) -> Calibration | None:
        try:
            if place.stat().st_size > _LIMIT_BYTES:
                return None
            held = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        found = _calibration(held)
        # A file that was renamed or edited does not lie under its own key any more.
        return found if found is not None and place.stem == _digest(found.key) else None


def _digest(key: CalibrationKey) -> str:
    return hashlib.sha256(json.dumps(key.to_json(), sort_keys=True).encode()).hexdigest()[:32]


def _calibration(held: object) -> Calibration | None:
    if not isinstance(held, dict) or held.get("schema") != _SCHEMA:
        return None
    key, lines = _key(held.get("key")), _lines(held.get("lines"))
    date, log = held.get("date"), held.get("log")
    if key is None or lines is None or not _is_text(date) or not _is_text(log):
        return None
    return Calibration(key=key, lines=lines, date=str(date), log=str(log))


def _key(held: object) -> CalibrationKey | None:
    names = {field.name for field in fields(CalibrationKey)}
    if not isinstance(held, dict) or set(held) != names:
        return None
    values: dict[str, Any] = held
    # A truth value is a number to Python, and must not pass for one here.
    if any(
        type(values[field.name]) not in (get_args(field.type) or (field.type,)) for field in fields(CalibrationKey)
    ):
        return None
    return CalibrationKey(**values)


def _lines(held: object) -> Mapping[str, ByteRange] | None:
    if not isinstance(held, dict) or not held or not set(held) <= set(CALIBRATED_LINES):
        return None
    found = {}
    for label, bounds in held.items():
        low = bounds.get("low_bytes") if isinstance(bounds, dict) else None
        high = bounds.get("high_bytes") if isinstance(bounds, dict) else None
        if type(low) is not int or type(high) is not int or not 0 <= low <= high <= _MOST_BYTES:
            return None
        found[label] = ByteRange(low_bytes=low, high_bytes=high)
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_TEXT and value.isprintable()
