"""The planned side of ``gpu_check``: models of the catalogue, their bytes and step times as specplan sees them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from model_catalog.bounds import Basis, ByteRange
from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from planner.devices import Device
from planner.engines.base import Draft, Serving
from planner.engines.registry import engine_profile
from planner.memory.breakdown import Group
from planner.planning import make_plan
from planner.speculation.prediction import Demand, StepTimes
from planner.speculation.ranges import Range
from planner.speculation.speedup import predict
from planner.speculation.step_times import model_step_times
from planner.workload import Workload

K: Final = 4
DTYPE: Final = "bfloat16"
_TINY: Final[Mapping[str, Any]] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_window_layers": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A target and a draft of the catalogue; ``fp8``: the target's layers are stored so."""

    name: str
    target: str
    draft: str
    fp8: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the check runs. ``device`` is what is planned for; ``context``: tokens a sequence before each step."""

    device_kind: str
    device: Device
    tiny: bool
    batches: tuple[int, ...]
    context: int
    seconds_a_step: float
    trial_seconds: float
    folder: Path


def models_of(pair: Pair, settings: Settings) -> tuple[Model, Model, Path, Path]:
    """Target and draft as the planner sees them, and a folder with each one's config.json."""
    models, folders = [], []
    for role, name in (("target", pair.target), ("draft", pair.draft)):
        snapshot = find_row(name)
        if snapshot is None:
            raise LookupError(f"the catalogue has no {name}")
        config = dict(snapshot.config)
        if settings.tiny:
            config |= {**_TINY, "num_hidden_layers": 4 if role == "target" else 1}
            snapshot = replace(snapshot, config=config, published_parameters=None, published_bytes=None)
        folder = settings.folder / pair.name / role
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        on_the_fly = "fp8" if pair.fp8 and role == "target" else None
        models.append(describe(snapshot, dtype=DTYPE, on_the_fly=on_the_fly))
        folders.append(folder)
    return models[0], models[1], folders[0], folders[1]


def planned(model: Model, settings: Settings, batch: int, tokens: int) -> dict[str, ByteRange]:
    """Bytes of one model alone, by group, with ``tokens`` a sequence."""
    serving = Serving(target=model, draft=None, workload=Workload(context_tokens=tokens, batch=batch, dtype=DTYPE))
    breakdown = (
        make_plan(serving, (settings.device,), engine_profile("transformers"), with_pool=False).ranks[0].breakdown
    )
    return {group.value: breakdown.of_group(group) for group in Group}


def needed_bytes(target: Model, draft: Model, settings: Settings) -> int:
    """What a pair may take at the largest batch."""
    batch, tokens = max(settings.batches), settings.context + K + 1
    return sum(
        part.high_bytes for model in (target, draft) for part in planned(model, settings, batch, tokens).values()
    )


def bytes_rows(
    target: Model, draft: Model, settings: Settings, raw: Mapping[str, Any], row: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Planned against measured at one batch. Cache: at the tokens held; peak: the target's, the draft loaded."""
    batch = row["batch"]
    held = [planned(model, settings, batch, settings.context + 1) for model in (target, draft)]
    most = planned(target, settings, batch, settings.context + K + 1)
    weights, cache = Group.TARGET_WEIGHTS.value, Group.KV_CACHE.value
    running = (held[0][weights], held[1][weights], most[cache], most[Group.TEMPORARY_BUFFERS.value])
    used, before = row.get("driver_used_bytes"), raw.get("driver_used_before_bytes")
    told: list[tuple[str, Sequence[ByteRange], int | None]] = [
        ("peak, allocated", running, row.get("allocated_peak_bytes")),
        ("peak, reserved", running, row.get("reserved_peak_bytes")),
        (
            "device, by the driver",
            (*running, most[Group.RUNTIME_OVERHEAD.value]),
            None if used is None or before is None else used - before,
        ),
    ]
    for number, role in enumerate(("target", "draft")):
        told.append((f"{role} weights", (held[number][weights],), raw["weights_bytes"][role]))
        told.append((f"{role} KV cache", (held[number][cache],), row.get("cache_bytes", {}).get(role)))
    for what, parts, measured in told:
        low, high = sum(part.low_bytes for part in parts), sum(part.high_bytes for part in parts)
        yield {"batch": batch, "what": what, "low_bytes": low, "high_bytes": high, "measured_bytes": measured}


def step_row(
    target: Model, draft: Model, settings: Settings, batch: int, way: str, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """Measured and modelled step times, and the speedup that published acceptance and each of them give."""
    drafting = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=K, model=draft)
    workload = Workload(context_tokens=settings.context, batch=batch, dtype=DTYPE, enforce_eager=way == "eager")
    demand = Demand(batch=batch, context_tokens=settings.context, prompt_tokens=settings.context, output_tokens=1)
    measured = StepTimes(
        target_seconds=Range.point(seconds["target"]),
        draft_seconds=Range.point(seconds["draft"]),
        verify_seconds=Range.point(seconds["verify"]),
        overhead_seconds=Range.point(0.0),
        source="measured by gpu_check",
        basis=Basis.CALIBRATED,
    )
    modelled = model_step_times(target, drafting, settings.device, workload, K)
    both = [
        predict(
            *(target, drafting, settings.device, workload, demand),
            k_range=(K, K),
            step_times=None if times is None else (lambda k, times=times: times if k == K else None),
        )
        for times in (measured, modelled)
    ]
    return {
        "batch": batch,
        "way": way,
        "measured_seconds": dict(seconds),
        "modelled_seconds": None
        if modelled is None
        else {
            "target": asdict(modelled.target_seconds),
            "draft": asdict(modelled.draft_seconds),
            "verify": asdict(modelled.verify_seconds),
        },
        "cycle_ratio": (K * seconds["draft"] + seconds["verify"]) / seconds["target"],
        "mean_acceptance_length": asdict(both[0].mean_acceptance_length),
        "speedup_of_measured_steps": _maybe(both[0].speedup),
        "speedup_of_modelled_steps": None if modelled is None else _maybe(both[1].speedup),
    }


def _maybe(given: Range | None) -> dict[str, float] | None:
    return None if given is None else asdict(given)
