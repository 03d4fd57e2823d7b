"""What a check found, put together, and as the document ``specplan.check/1``. Judges nothing but the worst."""

from dataclasses import dataclass

from planner.recheck.records import Difference, RankNow, Recheck, Standing, standing_of
from planner.report.saved_plan import SavedReport
from planner.report.schemas import document_head


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A plan, what the devices say to it, and what models and engine say (``beside``).

    ``name``: the report as the user named it. ``waited_seconds``: until the answer stood.
    """

    name: str
    saved: SavedReport
    found: Recheck
    beside: tuple[Difference, ...] = ()
    waited_seconds: float = 0.0

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All of them."""
        return (*self.found.differences, *self.beside)

    @property
    def standing(self) -> Standing:
        """The answer."""
        return standing_of(self.differences)


def check_mapping(checked: Checked, exit_code: int) -> dict[str, object]:
    """The document; null is what is not known."""
    saved, window = checked.saved, checked.found.window
    return {
        **document_head("check", exit_code),
        "report": checked.name,
        "answer": checked.standing.value,
        "planned": {
            "target": saved.target.repo_id,
            "draft": saved.draft,
            "engine": saved.engine,
            "engine_version": saved.engine_version,
            "created_at": saved.created_at,
            "specplan_version": saved.specplan_version,
            "answer": saved.plan.answer.value,
            "headroom_bytes": saved.plan.headroom_bytes,
            "gpu_memory_utilization": saved.plan.fraction,
        },
        "waited_seconds": round(checked.waited_seconds, 3),
        "utilization_window": None if window is None or window.empty else [window.low, window.high],
        "ranks": [_rank(now) for now in checked.found.ranks],
        "differences": [
            {
                "code": difference.code.value,
                "level": difference.level.value,
                "subject": difference.subject,
                "text": difference.text,
            }
            for difference in checked.differences
        ],
    }


def _rank(now: RankNow) -> dict[str, object]:
    device, verdict = now.device, now.verdict
    return {
        "rank": now.rank,
        "answer": now.answer.value,
        "headroom_bytes": now.headroom_bytes,
        "budget_bytes": None if verdict is None else verdict.budget_bytes,
        "constraint": None if verdict is None else verdict.constraint,
        "device": {
            "uuid": now.saved.uuid if device is None else device.uuid,
            "name": now.saved.name if device is None else device.name,
            "present": device is not None,
            "driver_version": None if device is None else device.driver_version,
            "total_bytes": None if device is None else device.total_bytes,
            "free_bytes": None if device is None else device.free_bytes,
            "planned_total_bytes": now.saved.total_bytes,
            "planned_free_bytes": now.saved.free_bytes,
            "processes": []
            if device is None
            else [
                {"pid": process.pid, "name": process.name, "used_bytes": process.used_bytes}
                for process in device.processes
            ],
        },
    }
