"""The answer in words, on an engine that can be planned by hand."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from linear_engine import LinearEngine, made_device, made_model

from model_catalog.architecture import Assumption
from model_catalog.drafts import DraftMethod
from planner.devices import Device
from planner.engines.base import Draft, Serving
from planner.report.explain import explain_text
from planner.report.facts import target_facts
from planner.report.findings import find
from planner.report.plain import without_color
from planner.report.text import answer_line, fit_text
from planner.speculation.selection import Offer
from planner.workload import Workload


@pytest.fixture
def alone(llama_8b: Mapping[str, Any]) -> Serving:
    return Serving(target=made_model("me/target", llama_8b), draft=None, workload=Workload())


def told(
    serving: Serving, devices: tuple[Device, ...], engine: LinearEngine, *drafts: Draft, verbose: bool = False
) -> str:
    findings = find(serving, [Offer(draft=draft) for draft in drafts], devices, engine)
    return without_color(fit_text(findings, target_facts(serving.target, serving.workload), verbose=verbose))


def test_the_terms_their_sum_and_the_room(alone: Serving) -> None:
    text = told(alone, (made_device(40),), LinearEngine(target_gib=16, unsure_gib=1))
    rows = {" ".join(line.split()) for line in text.splitlines()}
    assert {
        "Target weights 16.00 GiB derived",
        "KV cache 8.00 GiB derived",
        "Runtime overhead 1.00 GiB derived",
        "Temporary buffers 0.00 – 1.00 GiB derived",
        "Total 25.00 – 26.00 GiB",
        "inside the engine's budget 24.00 – 25.00 GiB",
        "outside it 1.00 GiB",
        "Engine's budget 36.00 GiB 0.9 of 40.00 GiB",
        "Free on the device 40.00 GiB declared",
        "Utilisation 0.9; anything from 0.625 to 0.975 works",
        "Fits up to context 22,528 at batch 1; batch 2 at context 8,192",  # 39 - 17 GiB of 1 MiB a token
        "While loading at most 17.00 GiB on a device, 4.00 GiB on the host",
    } <= rows
    assert "Draft" not in text


def test_fits_names_the_room_inside_and_beside(alone: Serving) -> None:
    findings = find(alone, (), (made_device(40),), LinearEngine(target_gib=16))
    assert without_color(answer_line(findings)).startswith(
        "FITS: 12.00 GiB to spare inside the engine's budget, 3.00 GiB beside it ("
    )


def test_does_not_fit_names_the_shortage_rounded_up(alone: Serving) -> None:
    # 34 + 8 of 36 GiB at 0.9: 6 GiB short; one slot's byte more rounds up.
    findings = find(alone, (), (made_device(40),), LinearEngine(target_gib=34, slot_bytes=1))
    assert without_color(answer_line(findings)).startswith(
        "DOES NOT FIT: at worst 6.01 GiB is missing (engine budget"
    )


def test_cannot_tell_names_the_missing_reading(alone: Serving) -> None:
    unread = replace(made_device(40), free_bytes=None, notes=("the driver does not say",))
    text = told(alone, (unread,), LinearEngine(target_gib=16))
    assert "CANNOT TELL: a device reading is missing" in text
    assert "40 GiB card: the driver does not say" in text
    assert "Free on the device" in text
    assert "unknown" in text
    assert "Fits up to" not in text


def test_a_refused_draft_is_told_beside_the_target_alone(alone: Serving) -> None:
    draft = Draft(method=DraftMethod.NGRAM, num_speculative_tokens=5)
    text = told(alone, (made_device(40),), LinearEngine(target_gib=16, draft_gib=8), draft)
    assert "DRAFT REFUSED: the draft takes 20.0% of the device, more than 15.0%." in text
    assert "The target alone: FITS" in text
    assert "20 % of the device, over the limit of 15 %: 8.00 GiB in all" in " ".join(text.split())


def test_ranks_that_differ_show_the_one_that_binds(alone: Serving) -> None:
    serving = replace(alone, workload=replace(alone.workload, tp=2))
    devices = (made_device(40), made_device(30, index=1))
    text = told(serving, devices, LinearEngine(target_gib=16))
    assert "Rank 1 (stage 0), 30 GiB card, which binds:" in text
    assert "Rank 0 (stage 0), 40 GiB card: 13.00 GiB; --verbose shows its lines." in text
    whole = told(serving, devices, LinearEngine(target_gib=16), verbose=True)
    assert whole.count("target_kv_cache") == 2


@pytest.mark.parametrize("name", ["a" * 96 + "/" + "b" * 96, "org/\x1b[31mred\u202e"])
def test_foreign_names_cannot_break_the_table(llama_8b: Mapping[str, Any], name: str) -> None:
    serving = Serving(target=made_model(name, llama_8b), draft=None, workload=Workload())
    device = replace(made_device(40), name="card\nwith\tcontrol\x07")
    findings = find(serving, (), (device,), LinearEngine(target_gib=16))
    facts = target_facts(serving.target, serving.workload)
    text = without_color(fit_text(findings, facts) + explain_text(findings.alone.plan, facts.assumptions))
    assert all(character.isprintable() or character == "\n" for character in text)


def test_receipts_hold_formula_numbers_basis_and_source(alone: Serving) -> None:
    findings = find(alone, (), (made_device(40),), LinearEngine(target_gib=16, unsure_gib=1))
    text = explain_text(findings.alone.plan, (Assumption(key="rope", value="none", reason="unsaid"),))
    assert "target_kv_cache [KV cache, target]: 8.00 GiB\n    as asked = 8,589,934,592 B" in text
    assert "as asked = 0 – 1,073,741,824 B\n    derived, inside the budget; source: made for tests" in text
    assert "context [Runtime overhead, both]: 1.00 GiB" in text
    assert "derived, outside the budget; source: made for tests" in text
    assert "Total: 25.00 – 26.00 GiB" in text
    assert "rope = none: unsaid" in text
