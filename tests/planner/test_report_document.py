"""The report document: the promised names, a round trip, and that it says what the plan says."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from linear_engine import GIB, LinearEngine, made_device, made_model

from model_catalog.drafts import DraftMethod
from planner.engines.base import Draft, Serving
from planner.report.build import build_report
from planner.report.document import FailureReport, Report, Request, read_report, report_json_schema, report_mapping
from planner.report.facts import target_facts
from planner.report.findings import Findings, find
from planner.speculation.selection import Offer
from planner.verdict import Reason
from planner.workload import Workload

#: Names promised to scripts under specplan.report/1; nothing of this list may ever be taken out.
PROMISED = {
    "": "schema specplan_version created_at request exit_code warnings engine devices target memory engine_cache"
    " verdict candidates worthwhile recommendation problems elsewhere fleet",
    "engine": "name version_assumed budget_base gpu_memory_utilization utilization_window",
    "devices.0": "index uuid name total_bytes reserved_bytes engine_total_bytes free_bytes used_by_others_bytes"
    " unified mig source notes",
    "devices.0.engine_total_bytes": "low high",
    "target": "repo_id revision source architecture parameters stored_bytes resident_bytes download_bytes"
    " load_peak_bytes host_memory_bytes kv_bytes_per_token state_bytes_per_sequence cache_bytes assumptions",
    "target.kv_bytes_per_token": "low high",
    "memory.per_rank.0": "device items total_low_bytes total_high_bytes budget_bytes",
    "memory.per_rank.0.items.0": "group label owner low_bytes high_bytes basis source inside_budget",
    "engine_cache": "available_bytes block_size bytes_per_block blocks tokens max_concurrency groups",
    "verdict": "answer headroom_bytes binding max_context_tokens max_batch reasons",
    "candidates.0": "repo_id revision method accepted reasons rank compatibility budget memory engine_cache"
    " verdict prediction trial",
    "candidates.0.budget": "limit_share share weights_share footprint_bytes",
}

REQUEST = Request(
    target="target",
    drafts=["draft"],
    context_tokens=8192,
    batch=1,
    num_speculative_tokens=5,
    draft_budget_share=0.15,
    gpu=None,
    devices=None,
    tp=1,
    pp=1,
    enable_expert_parallel=False,
    memory_limit_bytes=None,
    engine="linear",
    dtype="auto",
    quantization=None,
    kv_cache_dtype="auto",
    draft_kv_cache_dtype="auto",
    gpu_memory_utilization=None,
    max_num_batched_tokens=None,
    max_num_seqs=None,
    block_size=None,
    enforce_eager=False,
    async_scheduling=True,
    kv_cache_memory_bytes=None,
    offline=True,
)


@pytest.fixture
def report_of(llama_8b: Mapping[str, Any], llama_1b: Mapping[str, Any]) -> Callable[[LinearEngine], Report]:
    """The report of a target and a draft on one card of 40 GiB."""
    target = made_model("target", llama_8b)
    alone = Serving(target=target, draft=None, workload=Workload())
    draft = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=5, model=made_model("draft", llama_1b))

    def make(engine: LinearEngine) -> Report:
        findings: Findings = find(alone, (Offer(draft=draft),), (made_device(40),), engine)
        facts = target_facts(target, alone.workload)
        warnings = (Reason(code="made", text="for a test"),)
        return build_report(findings, facts, REQUEST, exit_code=0, warnings=warnings)

    return make


def at(document: Any, path: str) -> Any:  # noqa: ANN401 - parsed JSON is anything
    for step in filter(None, path.split(".")):
        document = document[int(step)] if step.isdigit() else document[step]
    return document


@pytest.mark.parametrize("path", PROMISED)
def test_promised_names_are_there(report_of: Callable[[LinearEngine], Report], path: str) -> None:
    document = report_mapping(report_of(LinearEngine(target_gib=16, draft_gib=4)))
    assert set(PROMISED[path].split()) <= set(at(document, path))


@pytest.mark.parametrize("engine", [LinearEngine(target_gib=16, draft_gib=4), LinearEngine(target_gib=99)])
def test_round_trip(report_of: Callable[[LinearEngine], Report], engine: LinearEngine) -> None:
    report = report_of(engine)
    text = json.dumps(report_mapping(report), allow_nan=False)
    assert read_report(json.loads(text)) == report


def test_it_says_what_the_plan_says(report_of: Callable[[LinearEngine], Report]) -> None:
    document = report_mapping(report_of(LinearEngine(target_gib=16, draft_gib=4)))
    rank = document["memory"]["per_rank"][0]
    # 16 + 4 of weights, 8 of cache (8,192 tokens of 1 MiB) inside the budget, 1 of context outside it.
    assert rank["total_high_bytes"] == (16 + 4 + 8 + 1) * GIB
    assert sum(item["high_bytes"] for item in rank["items"]) == rank["total_high_bytes"]
    assert sum(item["low_bytes"] for item in rank["items"]) == rank["total_low_bytes"]
    assert rank["budget_bytes"] == 36 * GIB  # 0.9 of 40
    assert document["verdict"]["answer"] == "fits"
    assert document["verdict"]["headroom_bytes"] == 8 * GIB  # 36 - (16 + 4 + 8)
    assert document["engine_cache"]["available_bytes"] == {"low": 16 * GIB, "high": 16 * GIB}
    assert document["engine_cache"]["tokens"] == 16 * 1024
    assert document["engine_cache"]["max_concurrency"] == 2.0
    assert document["engine"]["utilization_window"] == [0.7, 0.975]  # 28 / 40 and 39 / 40
    candidate = document["candidates"][0]
    assert (candidate["accepted"], candidate["rank"], candidate["reasons"]) == (True, 1, [])
    assert candidate["budget"]["share"] == 0.1  # 4 of 40
    assert document["target"]["parameters"] == 8_030_261_248  # Hub parameter count of Llama 3.1 8B
    assert document["target"]["kv_bytes_per_token"] == {"low": 131_072, "high": 131_072}
    assert document["target"]["load_peak_bytes"] == (16 + 4 + 1) * GIB
    assert document["warnings"] == [{"code": "made", "text": "for a test"}]


def test_without_an_accepted_draft_it_describes_the_target_alone(
    report_of: Callable[[LinearEngine], Report],
) -> None:
    document = report_mapping(report_of(LinearEngine(target_gib=16, draft_gib=7)))
    groups = {item["group"] for item in document["memory"]["per_rank"][0]["items"]}
    assert "draft_weights" not in groups
    assert document["verdict"]["answer"] == "fits"
    assert document["candidates"][0]["rank"] is None
    assert document["candidates"][0]["reasons"][0]["code"] == "over_draft_budget"
    candidate_groups = {item["group"] for item in document["candidates"][0]["memory"]["per_rank"][0]["items"]}
    assert "draft_weights" in candidate_groups


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema", "specplan.report/2"),
        ("exit_code", "zero"),
        ("surprise", 1),
        ("verdict.answer", "perhaps"),
        ("verdict.surprise", 1),
        ("memory.per_rank.0.items.0.low_bytes", -1),
        ("memory.per_rank.0.items.0.group", "misc"),
        ("devices.0.engine_total_bytes.low", None),
        ("engine_cache.max_concurrency", float("nan")),
    ],
)
def test_what_is_no_report_is_refused(
    report_of: Callable[[LinearEngine], Report], path: str, value: object
) -> None:
    document = report_mapping(report_of(LinearEngine(target_gib=16, draft_gib=4)))
    parent, _, name = path.rpartition(".")
    at(document, parent)[name] = value
    with pytest.raises(ValueError, match=r"\d+ validation error"):
        read_report(document)


def test_unknown_readings_stay_null(llama_8b: Mapping[str, Any]) -> None:
    target = made_model("target", llama_8b)
    unread = replace(made_device(40), total_bytes=None, engine_total_bytes=None, free_bytes=None)
    findings = find(
        Serving(target=target, draft=None, workload=Workload()), (), (unread,), LinearEngine(target_gib=16)
    )
    report = build_report(findings, target_facts(target, Workload()), REQUEST, exit_code=4)
    document = report_mapping(report)
    assert document["verdict"]["answer"] == "unknown"
    for path in ("devices.0.total_bytes", "devices.0.free_bytes", "devices.0.engine_total_bytes", "engine_cache"):
        assert at(document, path) is None
    assert at(document, "memory.per_rank.0.budget_bytes") is None
    assert at(document, "verdict.max_batch") is None


def test_the_failure_document() -> None:
    document = {
        "schema": "specplan.report/1",
        "exit_code": 5,
        "error": {"code": "config", "message": "m", "subject": "s", "hint": "h"},
    }
    assert isinstance(read_report(document), FailureReport)


def test_the_schema_covers_both_documents_and_forbids_strangers() -> None:
    schema = report_json_schema()
    names = {variant["$ref"].rpartition("/")[2] for variant in schema["anyOf"]}
    assert names == {"Report", "FailureReport"}
    definitions = schema["$defs"]
    assert set(PROMISED[""].split()) == set(definitions["Report"]["properties"])
    assert all(part["additionalProperties"] is False for part in definitions.values())
    json.dumps(schema, allow_nan=False)
