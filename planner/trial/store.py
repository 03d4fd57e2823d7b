"""Trials measured on this machine, kept for later plans: ``$XDG_DATA_HOME/specplan/measured``, one file a key.

The key names all that a figure depends on: backend, devices, driver, library versions, both models at their
commits, dtype, batch, temperature, weights. Results that differ in any of these never meet. A store that cannot be
read or written never fails a plan.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from model_catalog.snapshot_store import user_folder, write_atomically
from planner.trial.result import is_trial_document

_SCHEMA: Final = "specplan.measured/1"
_LIMIT_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialKey:
    """All that a measured figure depends on; models are named with commit or fingerprint."""

    backend: str
    devices: tuple[str, ...]
    driver: str | None
    versions: tuple[tuple[str, str], ...]
    target: str
    draft: str
    dtype: str
    batch: int
    temperature: float
    weights: str
    settings: str = ""  #: what a serving engine was started with

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, in one order."""
        return {
            "backend": self.backend,
            "devices": list(self.devices),
            "driver": self.driver,
            "versions": dict(self.versions),
            "target": self.target,
            "draft": self.draft,
            "dtype": self.dtype,
            "batch": self.batch,
            "temperature": self.temperature,
            "weights": self.weights,
            "settings": self.settings,
        }


class TrialStore:
    """The trials in one folder; by default the user's."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = user_folder().parent / "measured" if folder is None else folder

    def get(self, key: TrialKey) -> Mapping[str, Any] | None:
        """The trial's document, or None where nothing was measured under this key, or the file is damaged."""
        try:
            place = self._place(key)
            if place.stat().st_size > _LIMIT_BYTES:
                return None
            held = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(held, dict) or held.get("schema") != _SCHEMA or held.get("key") != key.to_json():
            return None
        document = held.get("trial")
        return document if isinstance(document, dict) and is_trial_document(document) else None

    def put(self, key: TrialKey, document: Mapping[str, Any]) -> str | None:
        """Keep a trial; the reason in words where it cannot be kept."""
        try:
            place = self._place(key)
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, {"schema": _SCHEMA, "key": key.to_json(), "trial": dict(document)})
        except OSError as error:
            return f"the measured figures cannot be kept for later plans: {error.strerror or error}"
        return None

    def _place(self, key: TrialKey) -> Path:
        text = json.dumps(key.to_json(), sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
