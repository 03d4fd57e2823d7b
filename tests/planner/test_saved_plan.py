"""A report read back is anybody's file: what is no report, or contradicts itself, is a usage error."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saved_reports import GIB, card, read, report_of

from model_catalog.errors import UsageError
from planner.recheck.judging import recheck
from planner.recheck.records import Standing
from planner.report.saved_plan import LIMIT_BYTES, SavedReport, read_saved_report
from planner.verdict import Answer

REPORT = report_of([card(0), card(1)])


def refused(raw: bytes) -> str:
    with pytest.raises(UsageError) as caught:
        read_saved_report(raw, "report.json")
    assert caught.value.subject == "report.json"
    assert "--json report.json" in caught.value.hint
    assert "\n" not in caught.value.message
    assert caught.value.message.isprintable()
    return caught.value.message


def changed(path: str, value: object) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(REPORT))
    place: Any = copy
    *steps, last = path.split(".")
    for step in steps:
        place = place[int(step)] if step.isdigit() else place[step]
    place[int(last) if last.isdigit() else last] = value
    return copy


def test_a_report_comes_back_as_its_plan() -> None:
    saved = read(REPORT)
    assert (saved.target.repo_id, saved.draft, saved.engine) == ("org/target", None, "linear")
    assert [device.uuid for device in saved.plan.devices] == ["GPU-0", "GPU-1"]
    assert [rank.positions for rank in saved.plan.ranks] == [(0, 1)]
    # 16 GiB of weights and 8 of cache over two ranks, and the context.
    assert saved.plan.ranks[0].breakdown.total.high_bytes == 13 * GIB
    assert saved.plan.fraction == 0.9


def test_a_report_of_before_these_fields_is_read() -> None:
    old = json.loads(json.dumps(REPORT))
    for device in old["devices"]:
        del device["driver_version"]
    del old["target"]["fingerprint"]
    del old["engine"]["default_gpu_memory_utilization"]
    for rank in old["memory"]["per_rank"]:
        del rank["pool_overshoot"]
        for item in rank["items"]:
            del item["before_budget"]
    assert read(old).plan.ranks == read(REPORT).plan.ranks


@pytest.mark.parametrize(
    ("command", "fraction"),
    [
        (["vllm", "serve", "x", "--gpu-memory-utilization", "0.71"], 0.71),
        (["vllm", "serve", "x"], 0.9),  # the engine's own
        (["vllm", "serve", "x", "--gpu-memory-utilization"], 0.9),
        (["vllm", "serve", "x", "--gpu-memory-utilization", "nan"], 0.9),
        (["vllm", "serve", "x", "--gpu-memory-utilization", "7"], 0.9),
    ],
)
def test_the_fraction_at_the_start_is_the_commands(command: list[str], fraction: float) -> None:
    recommendation = {
        "draft": "d",
        "method": "ngram",
        "num_speculative_tokens": 3,
        "command": command,
        "command_text": " ".join(command),
        "python": None,
    }
    assert read(changed("recommendation", recommendation)).plan.start_fraction == fraction


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is not a report"),
        (b"{", "is not a report"),
        (b"\xff\xfe\x00", "is not a report"),
        (b"[]", "not a JSON object"),
        (b"3", "not a JSON object"),
        (b"{}", "its schema is none"),
        (b'{"schema": "specplan.devices/1"}', "'specplan.devices/1', not specplan.report/1"),
        (b'{"schema": "\\u001b[31m"}', "schema is"),
        (b'{"schema": ["' + b"x" * 1000 + b'"]}', "schema is"),
        (b'{"schema": "specplan.report/1", "schema": "specplan.report/1"}', "a key is there twice"),
        (b'{"schema": "specplan.report/1"}', "Field required, and"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b" " * (LIMIT_BYTES + 1), "longer than 4 MiB"),
        (b'{"schema": ' + b"9" * 5000 + b"}", "is not a report"),
        (
            b'{"schema": "specplan.report/1", "exit_code": 5, "error":'
            b' {"code": "a", "message": "b", "subject": "c", "hint": "d"}}',
            "tells of a failure",
        ),
    ],
)
def test_what_is_no_report(raw: bytes, says: str) -> None:
    assert says in refused(raw)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("surprise", 1, "surprise"),
        ("devices.0.surprise", 1, "surprise"),
        ("devices.0.free_bytes", -1, "below zero"),
        ("devices.0.total_bytes", 10**18, "beyond every figure"),
        ("devices.0.total_bytes", "1000000000000000000", "beyond every figure"),
        ("devices.0.free_bytes", 1e18, "beyond every figure"),
        ("devices.0.free_bytes", 1.5, "devices.0.free_bytes"),
        ("devices.1.uuid", "GPU-0", "UUID is there twice"),
        ("devices.1.source", "declared", "partly live, partly declared"),
        ("devices", [], "a device and a rank at least"),
        ("memory.per_rank", [], "a device and a rank at least"),
        ("memory.per_rank.0.items.0.low_bytes", 10**15, "not a byte range"),
        ("memory.per_rank.0.items.0.high_bytes", 9 * GIB, "do not add up"),
        ("memory.per_rank.0.total_high_bytes", 1, "do not add up"),
        ("memory.per_rank.0.items", [], "do not add up"),
        ("memory.per_rank.0.device", 1, "on no device of its stage"),
        ("memory.per_rank.0.device", 7, "on no device of its stage"),
        ("memory.per_rank.0.rank", -1, "on no device of its stage"),
        ("memory.per_rank.0.stage", 3, "ranks do not match"),
        ("memory.per_rank.0.pool_overshoot", -1, "pool_overshoot"),
        ("memory.per_rank.0.items.0.inside_budget", "perhaps", "inside_budget"),
        ("request.tp", 0, "ranks do not match"),
        ("request.tp", 3, "ranks do not match"),
        ("request.pp", -1, "ranks do not match"),
        ("request.memory_limit_bytes", -1, "below zero"),
        ("request.kv_cache_memory_bytes", -1, "below zero"),
        ("engine.gpu_memory_utilization", 1.01, "is no fraction"),
        ("engine.gpu_memory_utilization", -0.1, "is no fraction"),
        ("engine.budget_base", "none", "budget_base"),
        ("verdict.headroom_bytes", -(10**18), "beyond every figure"),
        ("verdict.answer", "perhaps", "answer"),
    ],
)
def test_one_wrong_value(path: str, value: object, says: str) -> None:
    assert says in refused(json.dumps(changed(path, value)).encode())


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none(number: str) -> None:
    raw = json.dumps(changed("engine.gpu_memory_utilization", 0.123456789)).replace("0.123456789", number)
    assert "gpu_memory_utilization" in refused(raw.encode()) or "is no number" in refused(raw.encode())


def test_entries_that_are_there_twice() -> None:
    entry = REPORT["memory"]["per_rank"][0]
    assert "a rank is there twice" in refused(json.dumps(changed("memory.per_rank", [entry, entry])).encode())


def test_a_device_without_a_rank() -> None:
    other = {**REPORT["devices"][1], "name": "another card"}
    assert "has no rank" in refused(json.dumps(changed("devices.1", other)).encode())


def test_many_devices_and_ranks_are_refused_soon() -> None:
    device = {**REPORT["devices"][0], "uuid": None, "notes": []}
    assert "more than 1024" in refused(json.dumps(changed("devices", [device] * 5000)).encode())


# --- anything at all -----------------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 3),
    st.sampled_from([2**53, 2**53 + 1, -(2**63), 10**18, 40 * GIB]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["\x1b[31m", "\ud800", "\u202e", "../../etc/passwd", "fits", "declared", "host", "nvml", "specplan"]
    ),
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def paths(value: object, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*before, step)
        yield from paths(inner, (*before, step))


PATHS = list(paths(REPORT))


def read_or_refused(raw: bytes) -> SavedReport | None:
    try:
        return read_saved_report(raw, "report.json")
    except UsageError as error:
        assert error.message.isprintable()
        return None


@given(ANYTHING)
def test_any_json(value: object) -> None:
    assert read_or_refused(json.dumps(value).encode()) is None


@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    assert read_or_refused(raw) is None


@given(st.lists(st.tuples(st.sampled_from(PATHS), ANYTHING), min_size=1, max_size=3))
def test_any_change_of_a_report_is_refused_or_judged(changes: list[tuple[tuple[str | int, ...], Any]]) -> None:
    document: Any = json.loads(json.dumps(REPORT))
    for path, value in changes:
        place = document
        try:
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
        except (LookupError, TypeError):
            continue  # an earlier change took the place away
    saved = read_or_refused(json.dumps(document).encode())
    if saved is None:
        return
    for devices in ([card(0), card(1)], [card(0)], []):
        found = recheck(saved.plan, devices, devices, require_free_bytes=GIB)
        assert len(found.ranks) == sum(len(rank.positions) for rank in saved.plan.ranks)
        if found.standing is Standing.HOLDS:  # a yes has a judged rank behind it, each of them
            assert {now.answer for now in found.ranks} <= {Answer.FITS, Answer.TIGHT}
