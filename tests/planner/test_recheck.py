"""A saved plan judged again: hand-made plans (see saved_reports), and devices that changed since."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from linear_engine import LinearEngine, made_device
from saved_reports import GIB, card, read, report_of

from planner.cli.check import look_until
from planner.devices import Device, DeviceProcess, DeviceSource
from planner.errors import DeviceLostError, NvmlMissingError
from planner.recheck.judging import recheck
from planner.recheck.records import Code, Recheck, Standing
from planner.verdict import Answer
from planner.workload import Workload

HOLDS, BROKEN, UNSURE = Standing.HOLDS, Standing.DOES_NOT_HOLD, Standing.CANNOT_TELL


def again(planned: Sequence[Device], now: Sequence[Device], **options: int) -> Recheck:
    """The plan for ``planned``, saved, read back and judged on ``now``."""
    return recheck(read(report_of(planned)).plan, now, now, **options)


def codes(found: Recheck) -> list[Code]:
    return [difference.code for difference in found.differences]


@pytest.mark.parametrize(
    ("free_gib", "standing", "headroom_gib"),
    [
        (40, HOLDS, 12),  # 36 - (16 + 8)
        (37, HOLDS, 12),  # just enough for the start: 36 + 1
        (36, BROKEN, -1),
        (10, BROKEN, -27),
    ],
)
def test_the_fraction_stays_the_plans(free_gib: int, standing: Standing, headroom_gib: int) -> None:
    found = again([card(0)], [card(0, free_gib=free_gib)])
    assert found.standing is standing
    assert [now.headroom_bytes for now in found.ranks] == [headroom_gib * GIB]


def test_another_fraction_that_would_do_is_named() -> None:
    # 24 GiB of lines are 0.6 of 40; 30 GiB free less 1 of context are 0.725.
    found = again([card(0)], [card(0, free_gib=30)])
    assert found.window is not None
    assert (found.window.low, found.window.high) == (0.6, 0.725)
    other = next(difference for difference in found.differences if difference.code is Code.OTHER_FRACTION)
    assert "0.600 to 0.725 instead of 0.9" in other.text
    assert Code.OTHER_FRACTION not in codes(again([card(0)], [card(0, free_gib=20)]))  # none would


def test_who_took_the_memory_is_named_the_largest_first() -> None:
    holders = (
        DeviceProcess(pid=7, name=None, used_bytes=None),
        DeviceProcess(pid=8, name="small", used_bytes=GIB),
        DeviceProcess(pid=9, name="large", used_bytes=19 * GIB),
    )
    found = again([card(0)], [card(0, free_gib=20, processes=holders)])
    taken = next(difference for difference in found.differences if difference.code is Code.MEMORY_TAKEN)
    assert taken.text.startswith(
        "20.00 GiB less free than when planned; large (pid 9) holds 19.00 GiB, small (pid 8)"
    )
    assert "(pid 7) holds an untold amount" in taken.text
    assert taken.subject == "40 GiB card (GPU-0)"


def test_equal_devices_share_an_entry_and_each_is_judged() -> None:
    planned = [card(0), card(1)]
    document = report_of(planned)
    assert len(document["memory"]["per_rank"]) == 1
    found = recheck(read(document).plan, [card(0), card(1, free_gib=36)], [card(0), card(1, free_gib=36)])
    assert [(now.rank, now.answer) for now in found.ranks] == [(0, Answer.FITS), (1, Answer.DOES_NOT_FIT)]
    assert found.tightest is found.ranks[1]


def test_devices_that_differ_have_entries_of_their_own() -> None:
    planned = [card(0), card(1, free_gib=39)]
    document = report_of(planned)
    assert len(document["memory"]["per_rank"]) == 2
    assert recheck(read(document).plan, planned, planned).standing is HOLDS


def test_stages_have_devices_of_their_own() -> None:
    planned = [card(number) for number in range(4)]
    document = report_of(planned, workload=Workload(tp=2, pp=2))
    found = recheck(read(document).plan, planned, planned)
    assert [(now.rank, now.saved.uuid) for now in found.ranks] == [(n, f"GPU-{n}") for n in range(4)]


def test_devices_are_matched_by_uuid_and_not_by_place() -> None:
    found = again([card(0), card(1, free_gib=38)], [card(1, free_gib=38), card(0)])
    assert (found.standing, codes(found)) == (HOLDS, [])


def test_a_device_that_is_gone_breaks_the_plan() -> None:
    found = again([card(0), card(1)], [card(0)])
    assert (found.standing, codes(found)) == (BROKEN, [Code.DEVICE_GONE])
    assert found.may_settle  # a driver that restarts lists it again


def test_a_device_without_uuid_may_be_the_one_that_is_missing() -> None:
    lost = replace(card(1), uuid=None, free_bytes=None, name="GPU 1 (lost)", notes=("GPU 1: lost",))
    found = again([card(0), card(1)], [card(0), lost])
    assert (found.standing, codes(found)) == (UNSURE, [Code.DEVICE_UNREADABLE])


def test_a_hidden_device_breaks_the_plan_and_waiting_does_not_help() -> None:
    both = [card(0), card(1)]
    found = recheck(read(report_of(both)).plan, both, both[:1])
    assert (found.standing, codes(found), found.may_settle) == (BROKEN, [Code.DEVICE_HIDDEN], False)
    noted = [replace(device, notes=("unlike GPUs: guessed",)) for device in both]  # as choosing may do
    assert recheck(read(report_of(both)).plan, both, noted).standing is HOLDS


def test_a_missing_reading_is_never_a_yes() -> None:
    found = again([card(0)], [card(0, free_bytes=None, notes=("GPU 0: memory not readable",))])
    assert (found.standing, codes(found)) == (UNSURE, [Code.READING_MISSING])
    assert found.ranks[0].headroom_bytes is None
    assert "memory not readable" in found.differences[0].text


def test_driver_and_total_are_told_and_the_reading_decides() -> None:
    found = again([card(0)], [card(0, driver_version="590.2", total_bytes=39 * GIB)])
    assert (found.standing, codes(found)) == (HOLDS, [Code.DRIVER_CHANGED, Code.TOTAL_CHANGED])
    assert "driver 580.1 when planned, 590.2 now" in found.differences[0].text


@pytest.mark.parametrize(("required_gib", "standing"), [(40, HOLDS), (41, BROKEN)])
def test_required_memory_is_asked_of_every_device(required_gib: int, standing: Standing) -> None:
    found = again([card(0), card(1)], [card(0), card(1)], require_free_bytes=required_gib * GIB)
    assert found.standing is standing
    assert codes(found) == [Code.FREE_BELOW_REQUIRED] * (2 if standing is BROKEN else 0)


def test_a_declared_plan_is_matched_by_name_and_size() -> None:
    declared = made_device(40)
    assert declared.source is DeviceSource.DECLARED
    found = again([declared], [replace(card(0), name="another"), card(1)])
    assert (found.standing, found.ranks[0].device) == (HOLDS, card(1))
    assert codes(found) == [Code.MATCHED_BY_NAME]
    for others in ([], [replace(card(0), name="another")], [card(0, total_bytes=24 * GIB)]):
        found = again([declared], others)
        assert (found.standing, codes(found), found.may_settle) == (UNSURE, [Code.NO_SUCH_GPU], False)


def test_two_declared_devices_are_two_live_ones() -> None:
    declared = [made_device(40), made_device(40, index=1)]
    assert again(declared, [card(0), card(1)]).standing is HOLDS
    found = again(declared, [card(0)])
    assert (found.standing, found.ranks[1].device) == (UNSURE, None)


def test_a_size_alone_is_matched_by_size() -> None:
    declared = replace(made_device(40), name="40.00 GiB device")
    assert again([declared], [card(0)]).standing is HOLDS


def test_what_fits_by_now_is_told() -> None:
    document = report_of([card(0, free_gib=10)], workload=Workload(gpu_memory_utilization=0.9))
    assert document["verdict"]["answer"] == "does_not_fit"
    found = recheck(read(document).plan, [card(0)], [card(0)])
    assert found.standing is HOLDS
    assert codes(found) == [Code.MEMORY_FREED, Code.FITS_NOW]


def test_a_pinned_pool_is_judged_as_pinned() -> None:
    # 16 of weights, 10 pinned, 1 of context: 27 GiB.
    document = report_of([card(0)], workload=Workload(kv_cache_memory_bytes=10 * GIB))
    plan = read(document).plan
    assert recheck(plan, [card(0, free_gib=36)], [card(0)]).standing is HOLDS
    assert recheck(plan, [card(0, free_gib=26)], [card(0)]).standing is BROKEN
    # Enough for the plan, but vLLM looks for its fraction first: 0.9 of 40 is 36.
    found = recheck(plan, [card(0, free_gib=35)], [card(0)])
    assert (found.standing, codes(found)) == (UNSURE, [Code.MEMORY_TAKEN, Code.START_REFUSED])
    lower = replace(plan, start_fraction=0.675)  # 27 of 40
    assert recheck(lower, [card(0, free_gib=27)], [card(0)]).standing is HOLDS


def test_a_memory_limit_is_kept() -> None:
    document = report_of([card(0)], workload=Workload(memory_limit_bytes=30 * GIB, gpu_memory_utilization=0.7))
    plan = read(document).plan
    # 0.7 of 40 is 28, with the context 29, below the limit of 30.
    assert recheck(plan, [card(0)], [card(0)]).standing is HOLDS
    assert recheck(plan, [card(0, free_gib=28)], [card(0)]).standing is BROKEN


def test_a_tight_plan_stays_untold_unless_a_trial_settled_it() -> None:
    # 24 to 39 GiB of lines in 36: tight by 3 at the engine's own fraction.
    document = report_of(
        [card(0)],
        engine=LinearEngine(target_gib=16, unsure_gib=15),
        workload=Workload(gpu_memory_utilization=0.9),
    )
    assert document["verdict"]["answer"] == "tight"
    settled = read(document).plan
    assert settled.settled_by_trial  # the report's exit code is 0
    open_ = read({**document, "exit_code": 4}).plan
    assert recheck(settled, [card(0)], [card(0)]).standing is HOLDS
    assert recheck(open_, [card(0)], [card(0)]).standing is UNSURE
    worse = [card(0, free_gib=32)]
    assert recheck(settled, worse, worse).standing is BROKEN


def test_lines_that_are_a_lower_bound_are_never_a_yes() -> None:
    document = report_of([card(0)])
    document["verdict"]["reasons"] = [{"code": "weights_incomplete", "text": "a part is unknown"}]
    document["verdict"]["answer"] = "unknown"
    plan = read(document).plan
    assert recheck(plan, [card(0)], [card(0)]).standing is UNSURE
    small = [card(0, free_gib=10)]
    assert recheck(plan, small, small).standing is BROKEN


# --- waiting -------------------------------------------------------------------------------------------------


class Clock:
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def waiting(looks: list[Recheck | Exception], seconds: float) -> tuple[Recheck, float]:
    clock = Clock()

    def look() -> Recheck:
        found = looks.pop(0) if len(looks) > 1 else looks[0]
        if isinstance(found, Exception):
            raise found
        return found

    return look_until(look, seconds, lambda *_: None, clock=clock, sleep=clock.sleep)


def short() -> Recheck:
    return again([card(0)], [card(0, free_gib=10)])


def test_it_waits_until_it_holds() -> None:
    held = again([card(0)], [card(0)])
    assert waiting([short(), short(), held], 30) == (held, 2.0)
    assert waiting([DeviceLostError("lost", subject="GPU", hint="wait"), held], 30) == (held, 1.0)


def test_it_waits_no_longer_than_told() -> None:
    found, seconds = waiting([short()], 2.5)
    assert (found.standing, seconds) == (BROKEN, 2.5)
    assert waiting([short()], 0.0)[1] == 0.0


def test_it_does_not_wait_for_what_will_not_come() -> None:
    nothing = again([made_device(40)], [])
    assert waiting([nothing], 30) == (nothing, 0.0)
    with pytest.raises(NvmlMissingError):
        waiting([NvmlMissingError("none", subject="NVML", hint="install")], 30)
    with pytest.raises(DeviceLostError):
        waiting([DeviceLostError("lost", subject="GPU", hint="wait")], 3)
