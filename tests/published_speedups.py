"""Published speedups of single pairs, and what the predictor says of each: the material of ``docs/accuracy.md``.

``measured/published_pairs.jsonl`` holds one measurement a row with its source; ``part`` says whether constants
were chosen on it (``train``) or not (``held_out``). Models come from the embedded catalogue, a few from
``measured/published_models.jsonl`` (structures as published, under the name of the model).
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from model_catalog.bounds import Basis
from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from model_catalog.snapshot import ModelSnapshot, RepoKind, SnapshotSource
from model_catalog.units import GB
from planner.declared_gpus import find_gpu
from planner.devices import Device, DeviceSource
from planner.engines.base import Draft
from planner.speculation.acceptance import acceptance_for
from planner.speculation.mean_length import DECAY_PER_POSITION, rate_from_length
from planner.speculation.prediction import Acceptance, Demand, Prediction, Task
from planner.speculation.ranges import Range
from planner.speculation.speedup import DEFAULT_K_RANGE, predict
from planner.workload import Workload

MEASURED = Path(__file__).parent / "measured"
#: What a stated length may differ by: it was often read from another run than the speedup.
LENGTH_MARGIN = 0.10
#: k of a row that states none but a length: the usual one of its kind of engine.
USUAL_K = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSpeedup:
    """One row."""

    row: dict[str, Any]

    @property
    def measured(self) -> float:
        return float(self.row["speedup"])

    @property
    def held_out(self) -> bool:
        return bool(self.row["part"] == "held_out")

    @property
    def demand(self) -> Demand:
        prompt, output = self.row.get("prompt", 512), self.row.get("output", 512)
        return Demand(
            task=Task(self.row.get("task", "mixed")),
            batch=self.row.get("batch", 1),
            context_tokens=prompt + output,
            prompt_tokens=prompt,
            output_tokens=output,
            temperature=self.row.get("temperature"),
        )

    @property
    def target(self) -> Model:
        return model(self.row["target"], self.row.get("quantization"))

    @property
    def draft(self) -> Draft:
        name = self.row.get("draft")
        return Draft(
            method=DraftMethod(self.row["method"]),
            num_speculative_tokens=self.row.get("k") or USUAL_K,
            model=None if name is None else model(name, self.row.get("draft_quantization")),
        )

    @property
    def device(self) -> Device | None:
        """The declared GPU, or one of a bandwidth alone; None where the source names none."""
        if "gpu" in self.row:
            return find_gpu(self.row["gpu"]).device()
        if "bandwidth_gb_per_second" not in self.row:
            return None
        return Device(
            index=0,
            name=self.row["note"],
            source=DeviceSource.DECLARED,
            total_bytes=None,
            engine_total_bytes=None,
            free_bytes=None,
            bandwidth_bytes_per_second=self.row["bandwidth_gb_per_second"] * GB,
        )

    def acceptance(self) -> Acceptance:
        """The family prior: what the predictor knows of a pair that nobody measured."""
        return acceptance_for(self.target, self.draft, self.demand, published=())

    def known_acceptance(self) -> Acceptance | None:
        """The row's own published length as a rate; None where the row states none."""
        length = self.row.get("length")
        if length is None:
            return None
        k = self.row.get("k") or USUAL_K
        rates = [
            rate_from_length(min(max(length * f, 1.0), k + 1.0), k) for f in (1 - LENGTH_MARGIN, 1 + LENGTH_MARGIN)
        ]
        return Acceptance(
            rate=Range(low=rates[0], high=rates[1]),
            source=self.row["source"],
            basis=Basis.DERIVED,
            decay_per_position=DECAY_PER_POSITION,
        )

    def predict(self, acceptance: Acceptance) -> Prediction:
        k = self.row.get("k")
        return predict(
            self.target,
            self.draft,
            self.device,
            Workload(tp=self.row.get("tp", 1), enforce_eager=self.row.get("eager", False)),
            self.demand,
            k_range=DEFAULT_K_RANGE if k is None else (k, k),
            acceptance=acceptance,
        )


@cache
def model(name: str, on_the_fly: str | None) -> Model:
    snapshot = find_row(name) or _inline().get(name)
    assert snapshot is not None, f"{name} is in neither the catalogue nor the file"
    return describe(snapshot, on_the_fly=on_the_fly)


@cache
def published_speedups() -> tuple[PublishedSpeedup, ...]:
    lines = (MEASURED / "published_pairs.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(PublishedSpeedup(row=json.loads(line)) for line in lines)


@cache
def _inline() -> dict[str, ModelSnapshot]:
    lines = (MEASURED / "published_models.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return {
        row["repo_id"]: ModelSnapshot(
            repo_id=row["repo_id"],
            revision=None,
            commit=None,
            source=SnapshotSource.LOCAL,
            kind=RepoKind.MODEL,
            config=row["config"],
        )
        for row in rows
    }
