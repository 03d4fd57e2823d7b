"""Reads a report back as a plan that can be judged again. The file is anybody's: nothing in it is believed unseen.

Owns the limits: size, shape, numbers, and that the parts agree with each other. Opens nothing that a report names.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NoReturn

from model_catalog.bounds import Basis
from model_catalog.errors import UsageError
from planner.devices import DeviceSource
from planner.memory.breakdown import Group, LineItem, MemoryBreakdown, Owner
from planner.recheck.records import SavedDevice, SavedPlan, SavedRank
from planner.report.document import Candidate, DeviceEntry, Item, RankMemory, Report, read_report
from planner.report.plain import safe_line
from planner.report.schemas import REPORT_SCHEMA
from planner.verdict import Answer

LIMIT_BYTES: Final = 4 * 2**20
#: Beyond it a number in JSON is read differently by different readers; no memory is that large.
_LARGEST: Final = 2**53
_MOST_DEVICES: Final = 1024
_HINT: Final = "write a report with: specplan fit TARGET --json report.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A model of the plan. ``asked``: the branch, tag or commit that the user named; None for the default one."""

    repo_id: str
    revision: str | None
    asked: str | None
    fingerprint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedReport:
    """What a check needs of a report. ``draft``: the plan's draft, or its method where it has no model."""

    plan: SavedPlan
    target: SavedModel
    draft: str | None
    draft_model: SavedModel | None
    engine: str
    engine_version: str
    created_at: str
    specplan_version: str


def read_saved_report(raw: bytes, subject: str) -> SavedReport:
    """The plan in a report's bytes.

    Raises:
        UsageError: it is no report, holds what no report holds, or contradicts itself.
    """
    if len(raw) > LIMIT_BYTES:
        raise UsageError(f"is longer than {LIMIT_BYTES // 2**20} MiB: no report is", subject=subject, hint=_HINT)
    try:
        report = _parsed(raw)
        _check_numbers(report.model_dump(by_alias=True))
        return _saved(report)
    except RecursionError:
        raise UsageError("is nested too deeply to be a report", subject=subject, hint=_HINT) from None
    except ValueError as cause:
        raise UsageError(f"is not a report: {_reason(cause)}", subject=subject, hint=_HINT) from cause


def _parsed(raw: bytes) -> Report:
    document = json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_number)
    if not isinstance(document, dict):
        _refuse("it is not a JSON object")
    schema = document.get("schema")
    if schema != REPORT_SCHEMA:
        shown = "none" if schema is None else safe_line(repr(schema))[:60]
        raise ValueError(f"its schema is {shown}, not {REPORT_SCHEMA}")
    report = read_report(document)
    if not isinstance(report, Report):
        _refuse("it tells of a failure, there is no plan in it")
    return report


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key is there twice")
    return values


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _reason(cause: ValueError) -> str:
    """The first thing that is wrong, in a line."""
    errors = getattr(cause, "errors", None)
    if isinstance(cause, json.JSONDecodeError):
        if not cause.doc.strip():
            return "it is empty"
        return f"it is not JSON (line {cause.lineno}, column {cause.colno})"
    if isinstance(cause, UnicodeDecodeError):
        return "it is not text"
    if errors is None:
        return safe_line(cause)[:200]
    # Of two shapes a report may have, the failure's complaints say nothing about a plan.
    found = [error for error in errors(include_url=False, include_input=False) if error["loc"][:1] == ("Report",)]
    if not found:
        return "it holds none of a report's parts"
    place = ".".join(str(step) for step in found[0]["loc"][1:])
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return safe_line(f"{place}: {found[0]['msg']}{more}")[:200]


def _check_numbers(document: Mapping[str, Any]) -> None:
    """Every number is finite and of a size that something in a report may have."""
    waiting: list[object] = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, int | float) and not (math.isfinite(value) and abs(value) <= _LARGEST):
            raise ValueError(f"{str(value)[:30]} is beyond every figure that a report may hold")


def _saved(report: Report) -> SavedReport:
    draft = _draft(report)
    return SavedReport(
        plan=_plan(report),
        target=SavedModel(
            repo_id=report.target.repo_id,
            revision=report.target.revision,
            asked=report.request.target.partition("@")[2] or None,
            fingerprint=report.target.fingerprint,
        ),
        draft=None if draft is None else draft.repo_id or draft.method,
        draft_model=None if draft is None else _draft_model(draft, report.request.drafts),
        engine=report.engine.name,
        engine_version=report.engine.version_assumed,
        created_at=report.created_at,
        specplan_version=report.specplan_version,
    )


def _draft(report: Report) -> Candidate | None:
    """The draft in the plan's lines: the best accepted one, if the plan has one at all."""
    owners = {item.owner for rank in report.memory.per_rank for item in rank.items}
    if owners == {"target"}:
        return None
    ranked = [candidate for candidate in report.candidates if candidate.accepted and candidate.rank is not None]
    best = min(ranked, key=lambda candidate: candidate.rank or 0, default=None)
    return best if best is not None and best.memory == report.memory else None


def _draft_model(draft: Candidate, named: Iterable[str]) -> SavedModel | None:
    if draft.repo_id is None:
        return None
    asked = [name.partition("@")[2] for name in named if name.partition("@")[0] == draft.repo_id]
    return SavedModel(
        repo_id=draft.repo_id,
        revision=draft.revision,
        asked=(asked[0] if asked else None) or None,
        fingerprint=draft.fingerprint,
    )


def _plan(report: Report) -> SavedPlan:
    request, engine, verdict = report.request, report.engine, report.verdict
    fraction = engine.gpu_memory_utilization
    if fraction is not None and not 0 <= fraction <= 1:
        raise ValueError(f"engine.gpu_memory_utilization: {fraction:g} is no fraction")
    for name in ("memory_limit_bytes", "kv_cache_memory_bytes"):
        _not_negative(f"request.{name}", getattr(request, name))
    devices = tuple(_device(number, entry) for number, entry in enumerate(report.devices[: _MOST_DEVICES + 1]))
    answer = Answer(verdict.answer)
    return SavedPlan(
        devices=devices,
        ranks=tuple(_ranks(report, devices)),
        budget_base=engine.budget_base,
        fraction=fraction,
        memory_limit_bytes=request.memory_limit_bytes,
        kv_cache_memory_bytes=request.kv_cache_memory_bytes,
        answer=answer,
        headroom_bytes=verdict.headroom_bytes,
        weights_incomplete=any(reason.code == "weights_incomplete" for reason in verdict.reasons),
        settled_by_trial=answer is Answer.TIGHT and report.exit_code == 0,
        start_fraction=_start_fraction(report),
    )


def _start_fraction(report: Report) -> float | None:
    """The fraction that the engine is started with: as the plan's command says, as asked, or the engine's own."""
    command = [] if report.recommendation is None else report.recommendation.command
    told = dict(pairwise(command)).get("--gpu-memory-utilization", "")
    if re.fullmatch(r"0?\.\d{1,9}|1(?:\.0+)?", told):
        return float(told)
    if report.request.gpu_memory_utilization is not None:
        return report.request.gpu_memory_utilization
    return report.engine.default_gpu_memory_utilization


def _device(number: int, entry: DeviceEntry) -> SavedDevice:
    for name in ("total_bytes", "reserved_bytes", "free_bytes", "used_by_others_bytes"):
        _not_negative(f"devices.{number}.{name}", getattr(entry, name))
    return SavedDevice(
        position=number,
        uuid=entry.uuid,
        name=entry.name,
        total_bytes=entry.total_bytes,
        free_bytes=entry.free_bytes,
        driver_version=entry.driver_version,
        source=DeviceSource(entry.source),
    )


def _not_negative(name: str, value: int | None) -> None:
    if value is not None and value < 0:
        raise ValueError(f"{name}: {value} is below zero")


def _ranks(report: Report, devices: tuple[SavedDevice, ...]) -> Iterator[SavedRank]:
    """Each entry with every device of its stage that looks like its own: equal devices share an entry."""
    entries, request = report.memory.per_rank, report.request
    if not devices or not entries:
        raise ValueError("a plan has a device and a rank at least")
    if len(devices) > _MOST_DEVICES or len(entries) > _MOST_DEVICES:
        raise ValueError(f"more than {_MOST_DEVICES} devices or ranks")
    if len({device.source for device in devices}) > 1:
        raise ValueError("its devices are partly live, partly declared")
    uuids = [device.uuid for device in devices if device.uuid is not None]
    if len(set(uuids)) != len(uuids):
        raise ValueError("a device's UUID is there twice")
    stages = sorted({entry.stage for entry in entries})
    width, rest = divmod(request.tp * request.pp, len(stages)) if request.tp > 0 and request.pp > 0 else (0, 1)
    if rest or not width or stages != list(range(len(stages))) or width * len(stages) > len(devices):
        raise ValueError("its ranks do not match its devices")
    for entry in entries:
        if entry.rank != entry.device or entry.device not in range(entry.stage * width, (entry.stage + 1) * width):
            raise ValueError(f"memory: rank {entry.rank} is on no device of its stage")
    own = {entry.device for entry in entries}
    if len(own) != len(entries):
        raise ValueError("memory: a rank is there twice")
    alike: dict[tuple[int, str], list[int]] = {}
    for position in set(range(width * len(stages))) - own:
        alike.setdefault((position // width, _look(report.devices[position])), []).append(position)
    for entry in entries:
        # Two entries of one stage may look alike here, having differed in what a report does not hold: the
        # first of them takes the rest, whose lines are the same.
        rest_of = alike.pop((entry.stage, _look(report.devices[entry.device])), [])
        yield SavedRank(
            rank=entry.rank,
            positions=(entry.device, *sorted(rest_of)),
            breakdown=_breakdown(entry),
            pool_overshoot=entry.pool_overshoot,
        )
    if alike:
        raise ValueError("memory: a device of the plan has no rank")


def _look(entry: DeviceEntry) -> str:
    """What tells devices apart in a plan: everything but number and UUID."""
    return entry.model_dump_json(exclude={"index", "uuid"})


def _breakdown(entry: RankMemory) -> MemoryBreakdown:
    breakdown = MemoryBreakdown(items=tuple(_line(item) for item in entry.items))
    total = breakdown.total
    if (total.low_bytes, total.high_bytes) != (entry.total_low_bytes, entry.total_high_bytes):
        raise ValueError(f"memory: the lines of rank {entry.rank} do not add up to its total")
    return breakdown


def _line(item: Item) -> LineItem:
    return LineItem(
        group=Group(item.group),
        label=item.label,
        owner=Owner(item.owner),
        low_bytes=item.low_bytes,
        high_bytes=item.high_bytes,
        basis=Basis(item.basis),
        source=item.source,
        formula=item.formula,
        inside_budget=item.inside_budget,
        before_budget=item.before_budget,
    )
