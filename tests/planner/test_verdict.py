import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog.bounds import Basis, ByteRange
from model_catalog.units import GIB
from planner.devices import Device, DeviceSource
from planner.memory.breakdown import Group, LineItem, MemoryBreakdown, Owner
from planner.verdict import (
    Answer,
    RankRoom,
    Window,
    choose_fraction,
    judge_fraction,
    judge_free,
    judge_pinned,
    room_of,
    windows,
    worst,
)


def breakdown(inside: tuple[int, int], outside: tuple[int, int]) -> MemoryBreakdown:
    def item(label: str, size: tuple[int, int], within: bool) -> LineItem:
        return LineItem(
            group=Group.KV_CACHE if within else Group.RUNTIME_OVERHEAD,
            label=label,
            owner=Owner.TARGET,
            low_bytes=size[0],
            high_bytes=size[1],
            basis=Basis.DERIVED,
            source="this test",
            formula="given",
            inside_budget=within,
        )

    return MemoryBreakdown(items=(item("in", inside, True), item("out", outside, False)))


def room(total: int, free: int | None) -> RankRoom:
    return RankRoom(engine_total=ByteRange.point(total), free_bytes=free)


@pytest.mark.parametrize(
    ("inside", "outside", "fraction", "free", "answer"),
    [
        ((80, 90), (5, 5), 0.9, 100, Answer.FITS),
        ((80, 91), (5, 5), 0.9, 100, Answer.TIGHT),
        ((91, 95), (5, 5), 0.9, 100, Answer.DOES_NOT_FIT),
        # The second check of the engine: its request must be free at start, however little it will use.
        ((10, 10), (5, 5), 0.9, 94, Answer.DOES_NOT_FIT),
        ((10, 10), (3, 5), 0.9, 94, Answer.TIGHT),
        ((10, 10), (4, 4), 0.9, 94, Answer.FITS),
    ],
)
def test_both_checks_make_fits(
    inside: tuple[int, int], outside: tuple[int, int], fraction: float, free: int, answer: Answer
) -> None:
    verdict = judge_fraction(breakdown(inside, outside), room(100, free), fraction)
    assert verdict.answer is answer


def test_a_fraction_of_our_own_choice_is_no_reason_for_a_no() -> None:
    lines = breakdown((10, 200), (5, 5))
    assert judge_fraction(lines, room(100, 94), 0.92).answer is Answer.DOES_NOT_FIT
    assert judge_fraction(lines, room(100, 94), 0.92, chosen_by_us=True).answer is Answer.TIGHT
    assert judge_fraction(breakdown((90, 90), (5, 5)), room(100, 94), 0.92, chosen_by_us=True).answer is (
        Answer.DOES_NOT_FIT
    )


def test_a_missing_reading_is_unknown_not_zero() -> None:
    lines = breakdown((1, 1), (0, 0))
    assert judge_fraction(lines, room(100, None), 0.9).answer is Answer.UNKNOWN
    assert judge_fraction(lines, RankRoom(engine_total=None, free_bytes=100), 0.9).answer is Answer.UNKNOWN
    assert judge_free(lines, RankRoom(engine_total=None, free_bytes=None)).answer is Answer.UNKNOWN
    assert windows(lines, RankRoom(engine_total=None, free_bytes=5)) is None


def test_the_budget_is_the_engines_rounding() -> None:
    # ceil(total x fraction): vLLM 0.33.0 request_memory.
    verdict = judge_fraction(breakdown((0, 0), (0, 0)), room(85_031_714_816, 85_031_714_816), 0.92)
    assert verdict.budget_bytes == 78_229_177_631  # 85,031,714,816 x 0.92 = 78,229,177,630.72


def test_headroom_is_the_budgets_while_the_start_succeeds() -> None:
    verdict = judge_fraction(breakdown((50, 60), (2, 3)), room(100, 95), 0.9)
    assert verdict.headroom_bytes == 90 - 60
    assert verdict.constraint == "free memory at start"
    missing = judge_fraction(breakdown((50, 60), (2, 7)), room(100, 95), 0.9)
    assert missing.headroom_bytes == 95 - 7 - 90
    assert verdict.largest_line == "in"


def test_the_window_has_a_bottom_and_a_top() -> None:
    pair = windows(breakdown((500, 600), (30, 50)), room(1000, 950))
    assert pair is not None
    certain, possible = pair
    assert (certain.low, certain.high) == (0.6, 0.9)
    assert (possible.low, possible.high) == (0.5, 0.92)


def test_an_empty_window_keeps_both_ends() -> None:
    # sglang#4330 in kind: one value is too low and the next too high.
    pair = windows(breakdown((850, 850), (160, 160)), room(1000, 1000))
    assert pair is not None
    assert pair[0].empty
    assert (pair[0].low, pair[0].high) == (0.85, 0.84)


@pytest.mark.parametrize(
    ("certain", "possible", "chosen"),
    [
        ((0.5, 0.95), (0.4, 0.97), 0.92),
        ((0.5, 0.9), (0.4, 0.91), 0.9),
        ((0.93, 0.96), (0.92, 0.97), 0.96),
        ((0.95, 0.9), (0.91, 0.94), 0.92),
        ((0.99, 0.8), (0.98, 0.85), 0.8),  # nothing works: the shortage is told for what is free at worst
        ((1.4, 0.95), (1.3, 0.96), 0.92),
        ((1.4, -0.1), (1.3, 0.0), 0.92),
    ],
)
def test_default_if_it_works_else_the_top(
    certain: tuple[float, float], possible: tuple[float, float], chosen: float
) -> None:
    fraction = choose_fraction(
        Window(low=certain[0], high=certain[1]), Window(low=possible[0], high=possible[1]), 0.92
    )
    assert fraction == chosen


def test_a_pinned_pool_must_hold_the_need_and_fit() -> None:
    lines = MemoryBreakdown(items=(*breakdown((40, 50), (10, 10)).items,))
    need = ByteRange(low_bytes=40, high_bytes=50)
    assert judge_pinned(lines, room(100, 100), need, 90).answer is Answer.FITS
    assert judge_pinned(lines, room(100, 100), need, 91).answer is Answer.DOES_NOT_FIT
    assert judge_pinned(lines, room(100, 100), need, 45).answer is Answer.TIGHT
    assert judge_pinned(lines, room(100, 100), need, 39).answer is Answer.DOES_NOT_FIT


def test_a_memory_limit_lowers_free_memory_only() -> None:
    device = Device(
        index=0,
        name="a",
        source=DeviceSource.NVML,
        total_bytes=10 * GIB,
        engine_total_bytes=ByteRange.point(9 * GIB),
        free_bytes=8 * GIB,
    )
    limited = room_of(device, 3 * GIB)
    assert limited.free_bytes == 3 * GIB
    assert limited.engine_total == ByteRange.point(9 * GIB)


def test_what_is_free_on_a_declared_device_is_known_as_well_as_its_total() -> None:
    declared = Device(
        index=0,
        name="20 GiB",
        source=DeviceSource.DECLARED,
        total_bytes=20 * GIB,
        engine_total_bytes=ByteRange(low_bytes=19 * GIB, high_bytes=20 * GIB),
        free_bytes=19 * GIB,
    )
    between = breakdown((19 * GIB, 21 * GIB), (GIB // 2, GIB))
    room = room_of(declared, None)
    certain, possible = windows(between, room) or (None, None)
    assert certain is not None and certain.empty
    assert possible is not None and not possible.empty
    assert judge_fraction(between, room, 0.97, chosen_by_us=True).answer is Answer.TIGHT
    assert room_of(declared, 3 * GIB).best_free_bytes == 3 * GIB


def test_what_no_total_makes_room_for_has_an_empty_window() -> None:
    # 19 GiB of 18.9 free: a total of 20 would make 0.95 enough, and one of 19 would make 0.99 free. Not both.
    live = RankRoom(engine_total=ByteRange(low_bytes=19 * GIB, high_bytes=20 * GIB), free_bytes=19 * GIB)
    needs = breakdown((19 * GIB, 19 * GIB), (GIB // 10, GIB // 10))
    pair = windows(needs, live)
    assert pair is not None and pair[1].empty
    assert judge_fraction(needs, live, 0.97, chosen_by_us=True).answer is Answer.DOES_NOT_FIT


def test_one_rank_that_cannot_decides() -> None:
    assert worst([Answer.FITS, Answer.DOES_NOT_FIT, Answer.UNKNOWN]) is Answer.DOES_NOT_FIT
    assert worst([Answer.FITS, Answer.TIGHT, Answer.UNKNOWN]) is Answer.UNKNOWN
    assert worst([Answer.FITS, Answer.TIGHT]) is Answer.TIGHT


SIZES = st.integers(min_value=0, max_value=10**12)


@given(inside=SIZES, spread=SIZES, outside=SIZES, total=st.integers(10**9, 10**12), more=SIZES)
def test_more_room_never_worsens_a_verdict(inside: int, spread: int, outside: int, total: int, more: int) -> None:
    order = [Answer.DOES_NOT_FIT, Answer.TIGHT, Answer.FITS]
    lines = breakdown((inside, inside + spread), (outside, outside))
    small = judge_free(lines, room(total, total)).answer
    large = judge_free(lines, room(total + more, total + more)).answer
    assert order.index(large) >= order.index(small)


@given(inside=SIZES, spread=SIZES, outside=SIZES, total=st.integers(10**9, 10**12))
def test_a_fraction_from_the_certain_window_fits(inside: int, spread: int, outside: int, total: int) -> None:
    lines = breakdown((inside, inside + spread), (outside, outside))
    pair = windows(lines, room(total, total))
    assert pair is not None
    certain, _ = pair
    if not certain.empty and certain.high > 0:
        for fraction in (certain.low, certain.high):
            if 0 < fraction <= 1:
                assert judge_fraction(lines, room(total, total), fraction).answer is Answer.FITS
