"""Reports of earlier releases are read by this one: nothing in them was renamed, dropped or given another shape.

``saved_documents`` holds what each release wrote, never written again: a change that this test refuses is a new
major number of the schema (docs/versioning.md).
"""

import json
from pathlib import Path

import pytest

from planner.report.document import FailureReport, Report, read_report, report_mapping
from planner.report.saved_plan import read_saved_report

DOCUMENTS = sorted((Path(__file__).parent / "saved_documents").glob("*.json"))
REPORTS = [path for path in DOCUMENTS if "failure" not in path.name]


def lost(old: object, new: object, path: str = "") -> list[str]:
    """Where the new document has not what the old one has."""
    if isinstance(old, dict) and isinstance(new, dict):
        gone = [f"{path}.{key}" for key in old if key not in new]
        return gone + [place for key in old if key in new for place in lost(old[key], new[key], f"{path}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [place for position, (was, now) in pairs for place in lost(was, now, f"{path}[{position}]")]
    return [] if old == new else [path]


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_nothing_of_an_older_report_is_lost(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    report = read_report(document)
    assert isinstance(report, Report)
    assert lost(document, json.loads(json.dumps(report_mapping(report)))) == []


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_an_older_report_can_be_checked(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    saved = read_saved_report(path.read_bytes(), path.name)
    assert saved.specplan_version == path.name.partition("_")[0] == document["specplan_version"]
    assert saved.target.repo_id == document["target"]["repo_id"]
    assert len(saved.plan.ranks) == len(document["memory"]["per_rank"])


def test_an_older_failure_is_read() -> None:
    path = next(path for path in DOCUMENTS if "failure" in path.name)
    failure = read_report(json.loads(path.read_text(encoding="utf-8")))
    assert isinstance(failure, FailureReport)
    assert (failure.exit_code, failure.error.code) == (2, "unknown_gpu")


def test_the_releases_are_all_here() -> None:
    """The changelog's releases, each with what it wrote."""
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = [line.split()[1] for line in text.splitlines() if line.startswith("## ")]
    assert releases
    assert {path.name.partition("_")[0] for path in REPORTS} == set(releases)


def test_a_loss_would_be_seen() -> None:
    assert lost({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 3}]}) == [".a[0].c", ".a[0].b"]
