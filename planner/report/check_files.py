"""A check's result for machines that watch: Prometheus' textfile format, and JUnit's XML. Text only, no files.

Sources: the text format of prometheus.io/docs/instrumenting/exposition_formats (label values escape backslash,
double quote and line feed); XML 1.0, which has no place for most control characters, escaped or not.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree

from planner.recheck.records import Level, Standing
from planner.report.check_document import Checked
from planner.report.plain import redact, safe_line
from planner.verdict import Answer

Labels = Mapping[str, str]
_HELP: Final = {
    "specplan_check_ok": "Whether the saved plan still holds: 1 yes, 0 no, or it could not be told.",
    "specplan_check_exit_code": "The exit code of specplan check.",
    "specplan_check_timestamp_seconds": "When the check ended, in seconds since 1970.",
    "specplan_check_info": "What the plan serves; always 1.",
    "specplan_check_headroom_bytes": "Memory that a rank's lines could still take; below zero: what is missing.",
    "specplan_check_free_bytes": "Free memory of a rank's device.",
}
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SUITE: Final = "specplan check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A check that came to no answer."""

    code: str
    message: str


def prometheus_text(report: str, outcome: Checked | Failed, *, exit_code: int, now_seconds: float) -> str:
    """One file of gauges. What is not known has no sample: unknown is no number.

    ``report``, the plan's name, is a label of each, so that several plans of a machine can be told apart.
    """
    base = {"report": report}
    ok = int(isinstance(outcome, Checked) and outcome.standing is Standing.HOLDS)
    samples: dict[str, list[tuple[Labels, str]]] = {
        "specplan_check_ok": [(base, str(ok))],
        "specplan_check_exit_code": [(base, str(exit_code))],
        "specplan_check_timestamp_seconds": [(base, f"{now_seconds:.3f}")],
    }
    if isinstance(outcome, Checked):
        saved = outcome.saved
        about = {"target": saved.target.repo_id, "draft": saved.draft or "", "engine": saved.engine}
        samples["specplan_check_info"] = [({**base, **about}, "1")]
        for now in outcome.found.ranks:
            uuid = now.saved.uuid if now.device is None else now.device.uuid
            labels = {**base, "rank": str(now.rank), "device": uuid or "", "name": now.saved.name}
            free = None if now.device is None else now.device.free_bytes
            for metric, value in (("headroom", now.headroom_bytes), ("free", free)):
                if value is not None:
                    samples.setdefault(f"specplan_check_{metric}_bytes", []).append((labels, str(value)))
    return "".join(line for name, found in samples.items() for line in _metric(name, found))


def _metric(name: str, samples: Iterable[tuple[Labels, str]]) -> Iterator[str]:
    yield f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n"
    for labels, value in samples:
        inner = ",".join(f'{label}="{_label(text)}"' for label, text in labels.items())
        yield f"{name}{{{inner}}} {value}\n"


def _label(text: str) -> str:
    # Unprintable characters become escapes with a backslash, which is then escaped like any other.
    return safe_line(text)[:200].replace("\\", "\\\\").replace('"', '\\"')


def junit_text(report: str, outcome: Checked | Failed) -> str:
    """One suite: a case for each rank that fits and each difference; what breaks fails, a doubt is an error."""
    suite = ElementTree.Element("testsuite", name=_SUITE)
    if isinstance(outcome, Failed):
        error = _case(suite, report, "the check itself", "error", outcome.message)
        error.set("type", outcome.code)
    else:
        _cases(suite, report, outcome)
    for kind in ("failure", "error"):
        suite.set(f"{kind}s", str(len(suite.findall(f"testcase/{kind}"))))
    suite.set("tests", str(len(suite)))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _cases(suite: ElementTree.Element, report: str, checked: Checked) -> None:
    suite.set("time", f"{checked.waited_seconds:.3f}")
    for now in checked.found.ranks:
        if now.answer is Answer.FITS:
            _case(suite, report, f"rank {now.rank} fits on {now.saved.label}", None, "")
    kinds = {Level.BREAKS: "failure", Level.DOUBT: "error", Level.NOTE: None}
    for found in checked.differences:
        name = f"{found.code.value}: {found.subject}"
        told = _case(suite, report, name, kinds[found.level], found.text)
        if found.level is not Level.NOTE:
            told.set("type", found.code.value)


def _case(suite: ElementTree.Element, report: str, name: str, kind: str | None, text: str) -> ElementTree.Element:
    """A test case, and what is said in it."""
    case = ElementTree.SubElement(suite, "testcase", classname=_xml(report), name=_xml(name))
    if not text:
        return case
    told = ElementTree.SubElement(case, kind or "system-out")
    told.text = _xml(text)
    if kind is not None:
        told.set("message", _xml(text))
    return told


def _xml(text: str) -> str:
    return _NOT_XML.sub("", redact(text))[:2000]
