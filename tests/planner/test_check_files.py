"""What a check writes for machines: read back by a small reader of Prometheus' text format, and by ElementTree."""

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saved_reports import GIB, card, read, report_of

from planner.devices import Device, DeviceProcess
from planner.recheck.judging import recheck
from planner.report.check_document import Checked, check_mapping
from planner.report.check_files import Failed, junit_text, prometheus_text
from planner.report.check_text import check_text, verdict_line
from planner.report.plain import without_color

_SAMPLE = re.compile(r"([a-z_]+)\{((?:[a-z]+=\"(?:[^\"\\\n]|\\[\\\"n])*\",?)*)\} (\S+)")
_LABEL = re.compile(r"([a-z]+)=\"((?:[^\"\\\n]|\\[\\\"n])*)\"")


def checked(planned: list[Device], now: list[Device], *, name: str = "report.json", **changes: object) -> Checked:
    document: dict[str, Any] = report_of(planned)
    document["target"] |= changes
    saved = read(document)
    return Checked(name=name, saved=saved, found=recheck(saved.plan, now, now), waited_seconds=1.5)


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples by metric; fails where the text breaks the format's rules."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    seen: set[tuple[str, str]] = set()
    assert text.endswith("\n")
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# "):
            kind, name, rest = line.removeprefix("# ").split(" ", 2)
            assert (kind == "TYPE" and rest == "gauge") or (kind == "HELP" and rest)
            assert (kind, name) not in seen, "HELP and TYPE once a metric"
            seen.add((kind, name))
            continue
        match = _SAMPLE.fullmatch(line)
        assert match is not None, line
        assert {("HELP", match[1]), ("TYPE", match[1])} <= seen, "before the metric's samples"
        labels = {
            key: re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], value)
            for key, value in _LABEL.findall(match[2])
        }
        found.setdefault(match[1], []).append((labels, float(match[3])))
    for rows in found.values():
        keys = [tuple(sorted(labels.items())) for labels, _ in rows]
        assert len(set(keys)) == len(keys), "no two samples of one metric with the same labels"
    return found


def test_gauges_of_a_plan_that_holds_in_part() -> None:
    result = checked([card(0), card(1)], [card(0), card(1, free_gib=36)])
    found = samples(prometheus_text("plan.json", result, exit_code=3, now_seconds=1_700_000_000.25))
    assert found["specplan_check_ok"] == [({"report": "plan.json"}, 0.0)]
    assert found["specplan_check_exit_code"] == [({"report": "plan.json"}, 3.0)]
    assert found["specplan_check_timestamp_seconds"] == [({"report": "plan.json"}, 1_700_000_000.25)]
    labels = [
        {"report": "plan.json", "rank": str(rank), "device": f"GPU-{rank}", "name": "40 GiB card"}
        for rank in (0, 1)
    ]
    # 36 of budget less half of 16 and of 8; short by 1 at the start.
    assert found["specplan_check_headroom_bytes"] == [(labels[0], 24 * GIB), (labels[1], -1 * GIB)]
    assert found["specplan_check_free_bytes"] == [(labels[0], 40 * GIB), (labels[1], 36 * GIB)]
    assert found["specplan_check_info"][0][0]["target"] == "org/target"


def test_what_is_not_known_has_no_sample() -> None:
    unread = card(1, free_bytes=None)
    found = samples(
        prometheus_text("r", checked([card(0), card(1)], [card(0), unread]), exit_code=4, now_seconds=1)
    )
    for metric in ("headroom", "free"):
        assert [labels["rank"] for labels, _ in found[f"specplan_check_{metric}_bytes"]] == ["0"]
    gone = samples(prometheus_text("r", checked([card(0)], []), exit_code=3, now_seconds=1))
    assert "specplan_check_free_bytes" not in gone


def test_a_failure_is_a_gauge_too() -> None:
    failed = Failed(code="driver_hang", message="no answer")
    found = samples(prometheus_text("r", failed, exit_code=6, now_seconds=1))
    assert {name: rows[0][1] for name, rows in found.items()} == {
        "specplan_check_ok": 0.0,
        "specplan_check_exit_code": 6.0,
        "specplan_check_timestamp_seconds": 1.0,
    }


def test_label_values_are_escaped_and_come_back() -> None:
    result = checked([card(0)], [card(0)], repo_id='a"b\\c')
    found = samples(prometheus_text('my "plan"\\.json', result, exit_code=0, now_seconds=1))
    assert found["specplan_check_info"][0][0]["target"] == 'a"b\\c'
    assert found["specplan_check_ok"][0][0]["report"] == 'my "plan"\\.json'


def test_junit_tells_ranks_failures_and_doubts_apart() -> None:
    holder = DeviceProcess(pid=9, name="py<&>thon", used_bytes=4 * GIB)
    now = [card(0), card(1, free_gib=36, processes=(holder,)), card(2, free_bytes=None)]
    root = ElementTree.fromstring(junit_text("r.json", checked([card(0), card(1), card(2)], now)))  # noqa: S314
    suite = root.find("testsuite")
    assert suite is not None
    # One rank that fits; less free, what does not fit, what was not read.
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "1")
    cases = {str(case.get("name")): case for case in suite.findall("testcase")}
    failure = cases["does_not_fit: 40 GiB card (GPU-1)"].find("failure")
    assert failure is not None
    assert failure.get("type") == "does_not_fit"
    assert cases["reading_missing: 40 GiB card (GPU-2)"].find("error") is not None
    assert list(cases["rank 0 fits on 40 GiB card (GPU-0)"]) == []
    told = cases["memory_taken: 40 GiB card (GPU-1)"].find("system-out")
    assert told is not None
    assert "py<&>thon (pid 9)" in str(told.text)


def test_junit_of_a_failure() -> None:
    root = ElementTree.fromstring(junit_text("r", Failed(code="usage", message="is <not> a report")))  # noqa: S314
    error = root.find("testsuite/testcase/error")
    assert error is not None
    assert (error.get("type"), error.text) == ("usage", "is <not> a report")


TEXT = st.text(max_size=30) | st.sampled_from(["\x1b[31m\x00\x07", "a\nb\r\n", "\u202e\ufffe", 'x"} 1\nup{a="'])


@given(TEXT, TEXT, TEXT, TEXT)
def test_no_name_breaks_a_format_or_reaches_a_terminal(repo: str, device: str, process: str, path: str) -> None:
    holder = DeviceProcess(pid=1, name=process, used_bytes=GIB)
    planned, now = card(0, name=device), card(0, name=device, free_gib=10, processes=(holder,))
    result = checked([planned], [now], name=path, repo_id=repo)
    samples(prometheus_text(path, result, exit_code=3, now_seconds=1))
    root = ElementTree.fromstring(junit_text(path, result))  # noqa: S314
    assert len(root.findall("testsuite/testcase")) == len(result.differences)
    for text in (check_text(result), verdict_line(result)):
        assert without_color(text).replace("\n", "").isprintable()
    assert "\n" not in verdict_line(result)
    json.dumps(check_mapping(result, 3), allow_nan=False)


@pytest.mark.parametrize("free_gib", [40, 36])
def test_the_words_fit_into_80_columns(free_gib: int) -> None:
    long_name = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
    uuid = "GPU-12345678-1234-1234-1234-123456789012"
    planned = [card(0, name=long_name, uuid=uuid)]
    result = checked(planned, [card(0, name=long_name, uuid=uuid, free_gib=free_gib)])
    assert max(len(line) for line in without_color(check_text(result)).splitlines()) <= 80


def test_the_verdict_line_names_who_is_in_the_way() -> None:
    holder = DeviceProcess(pid=4242, name="python3", used_bytes=19 * GIB)
    line = without_color(verdict_line(checked([card(0)], [card(0, free_gib=20, processes=(holder,))])))
    assert line == (
        "DOES NOT HOLD: 40 GiB card (GPU-0): rank 0: 17.00 GiB short at worst (free memory at start); "
        "20.00 GiB less free than when planned; python3 (pid 4242) holds 19.00 GiB"
    )
