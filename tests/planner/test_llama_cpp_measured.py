"""llama.cpp's profile against what the engine printed: files, caches, states, compute buffers, whole cards."""

from typing import Any

import pytest
from llama_cpp_rows import GIB, MIB, ROWS, holds, host, known, lines, named, plan_of, rows

from model_catalog.architecture import Component
from model_catalog.drafts import DraftMethod
from planner.declared_gpus import parse_gpu_option
from planner.memory.breakdown import Group, Owner
from planner.planning import Plan


def test_every_row_is_replayed_or_says_why_not() -> None:
    for row in ROWS:
        assert row["source"] and row["unit_note"], row["id"]
        if row["kind"] == "report":
            assert row["replay"] or row["not_replayed"], row["id"]


@pytest.mark.parametrize("row", rows("file_type_sizes"), ids=named)
def test_a_file_has_the_size_that_the_quantiser_gives_it(row: dict[str, Any]) -> None:
    """To the last printed digit, but for the types that an importance matrix moves."""
    for kind, size in row["measured"]["model_mib"].items():
        resident = known(row["model"], kind).weights.resident_bytes()
        low, high = resident.low_bytes / MIB, resident.high_bytes / MIB
        assert low - 0.006 <= size <= high + 0.006, kind
        exact = kind not in {"q4_0", "q5_0", "iq4_nl", "iq4_xs"}
        assert high - low < (0.006 if exact else 0.012 * size), kind


def start_plan(row: dict[str, Any]) -> Plan:
    target = known(row["model"], "f16", row["layers"])
    draft = row["draft"] or {}
    model = known(draft["model"], "f16", draft["layers"]) if "model" in draft else None
    return plan_of(
        target,
        devices=(host(),),
        method=DraftMethod(draft["method"]) if draft else None,
        draft=model,
        k=draft.get("num_speculative_tokens", 1),
        context_tokens=row["context_tokens"],
        batch=row["slots"],
        kv_cache_dtype=row["cache_type"],
        max_num_batched_tokens=None if row["ubatch"] == 512 else row["ubatch"],
    )


@pytest.mark.parametrize("row", rows("start"), ids=named)
def test_a_start_holds_what_it_printed(row: dict[str, Any]) -> None:
    """Caches and states to the byte (as printed), files within 0.02 MiB, compute buffers within their bounds."""
    plan, told = start_plan(row), row["measured"]
    found = lines(plan)
    caches = [found[f"{owner.value}_kv_cache"] for owner in (Owner.TARGET, Owner.DRAFT) if row["draft"]] or [
        found["target_kv_cache"]
    ]
    assert all(line.low_bytes == line.high_bytes for line in caches)
    assert sum(line.low_bytes for line in caches) / MIB == pytest.approx(sum(told["kv_mib"]), abs=0.006)
    if "state_mib" in told:
        assert found["target_recurrent_state"].low_bytes / MIB == pytest.approx(told["state_mib"][0], abs=0.006)
    owners = ("target", "draft")
    for owner, size in zip(owners, told["compute_mib"], strict=False):
        assert holds(found[f"{owner}_compute_buffer"], size), owner
    for group, size in zip((Group.TARGET_WEIGHTS, Group.DRAFT_WEIGHTS), told.get("model_mib", ()), strict=False):
        weights = plan.ranks[0].breakdown.of_group(group)
        if row["draft"] and row["draft"]["method"] == "mtp":
            weights = plan.serving.target.weights.resident_bytes(with_mtp=True)  # one file holds both
        assert weights.low_bytes / MIB == pytest.approx(size, abs=0.02), group


def report_plan(row: dict[str, Any], *, drafting: bool = False) -> Plan:
    return plan_of(
        known(row["stand_in"], row.get("file_type", "f16")),
        devices=parse_gpu_option(f"b200-180gb:{row.get('devices', 1)}"),
        method=DraftMethod.MTP if drafting else None,
        k=row.get("k", 1),
        context_tokens=row["context_tokens"],
        batch=row["slots"],
        kv_cache_dtype=row["cache_type"],
        max_num_batched_tokens=row.get("ubatch"),
    )


@pytest.mark.parametrize("row", rows("report", "kv_cache"), ids=named)
def test_reported_caches_are_met_to_the_byte(row: dict[str, Any]) -> None:
    plan = report_plan(row)
    items = [item for rank in plan.ranks for item in rank.breakdown.items if item.label == "target_kv_cache"]
    told = row["measured"]["available_kv_gib"] * GIB + row["measured"].get("swa_kv_mib", 0) * MIB
    assert sum(item.low_bytes for item in items) == sum(item.high_bytes for item in items) == told


@pytest.mark.parametrize("row", rows("report", "recurrent_state"), ids=named)
def test_reported_states_are_met_to_the_byte(row: dict[str, Any]) -> None:
    line = lines(report_plan(row))["target_recurrent_state"]
    assert line.low_bytes == line.high_bytes == row["measured"]["recurrent_state_mib"] * MIB


@pytest.mark.parametrize("row", rows("report", "compute"), ids=named)
def test_reported_compute_buffers_lie_within_bounds(row: dict[str, Any]) -> None:
    plan, told = report_plan(row), row["measured"]["compute_buffer_mib"]
    sizes = told if isinstance(told, list) else [told]
    for rank, size in enumerate(sizes):
        assert holds(lines(plan, rank)["target_compute_buffer"], size)


@pytest.mark.parametrize("row", rows("report", "draft_context"), ids=named)
def test_a_drafting_context_of_the_targets_own_layers(row: dict[str, Any]) -> None:
    """The report's figure holds the context's cache and its compute buffer."""
    found = lines(report_plan(row, drafting=True))
    cache, compute = found["draft_kv_cache"], found["draft_compute_buffer"]
    low, high = cache.low_bytes + compute.low_bytes, cache.high_bytes + compute.high_bytes
    assert low <= row["measured"]["mtp_context_mib"] * MIB <= high


def test_the_context_costs_what_two_reports_differ_by() -> None:
    """24,576 tokens more: 1,632 MiB in all, of which 96 MiB in the drafting context."""
    short, long = (row for row in ROWS if row["id"] in {"llamacpp-hr-318", "llamacpp-hr-391"})
    before, after = (lines(report_plan(row, drafting=True)) for row in (short, long))
    grown = {
        owner: after[f"{owner}_kv_cache"].low_bytes - before[f"{owner}_kv_cache"].low_bytes
        for owner in ("target", "draft")
    }
    told = [long["measured"][key] - short["measured"][key] for key in ("projected_total_mib", "mtp_context_mib")]
    assert [grown["target"] + grown["draft"], grown["draft"]] == [size * MIB for size in told]


@pytest.mark.parametrize("row", rows("report", "used_total"), ids=named)
def test_a_whole_card_lies_within_bounds(row: dict[str, Any]) -> None:
    """Weights, caches, buffers, context and kernels together; the sum alone and with the layers that draft."""
    told = row["measured"]
    for drafting, key in ((False, "used_without_spec_gib"), (True, "used_with_spec_gib")):
        total = report_plan(row, drafting=drafting).ranks[0].breakdown.total
        assert total.low_bytes / GIB <= told[key] <= total.high_bytes / GIB, key
        assert total.high_bytes < 1.2 * total.low_bytes
    alone, pair = (report_plan(row, drafting=drafting).ranks[0].breakdown.total for drafting in (False, True))
    cost = (pair.low_bytes - alone.low_bytes) / GIB, (pair.high_bytes - alone.high_bytes) / GIB
    assert cost[0] <= told["spec_cost_gib"] <= cost[1]


def test_stand_ins_have_the_shape_of_what_was_reported() -> None:
    """17 layers cached at 4,096 B a token: 16 of the decoder, one that drafts (HilbertraumAI/HilbertRaum#391)."""
    layers = known("Qwen/Qwen3.6-27B", "q6_k").architecture.layers
    cached = [layer.component for layer in layers if any(hasattr(rule, "kv_heads") for rule in layer.caches)]
    assert cached.count(Component.TEXT) == 16
    assert cached.count(Component.MTP) == 1
