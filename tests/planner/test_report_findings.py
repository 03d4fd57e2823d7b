"""What a fit finds, on an engine that can be planned by hand: drafts judged, answers, savings, remedies."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from linear_engine import GIB, LinearEngine, made_device, made_model

from model_catalog.drafts import DraftMethod
from planner.engines.base import Draft, Serving
from planner.report.findings import Findings, find
from planner.speculation.selection import Offer
from planner.verdict import Answer
from planner.workload import Workload


@pytest.fixture
def alone(llama_8b: Mapping[str, Any]) -> Serving:
    """8,192 tokens at 1 MiB each: 8 GiB of cache a sequence."""
    return Serving(target=made_model("target", llama_8b), draft=None, workload=Workload())


@pytest.fixture
def draft(llama_1b: Mapping[str, Any]) -> Draft:
    return Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=5, model=made_model("draft", llama_1b))


def typed(findings: Findings) -> list[str]:
    return [remedy.typed for remedy in findings.told.remedies]


# A card of 40 GiB has a budget of 36 GiB at 0.9; 1 GiB lies outside it.


def test_a_target_that_fits(alone: Serving) -> None:
    findings = find(alone, (), (made_device(40),), LinearEngine(target_gib=16))
    assert findings.answer is Answer.FITS
    assert findings.recommended is findings.alone
    # Up to 39 of 40 GiB can be the budget (0.975), which leaves 23 GiB of cache: 2.875 sequences of 8 GiB.
    assert findings.alone.max_batch == 2
    assert findings.alone.max_context_tokens == 23 * 1024
    assert findings.alone.remedies == ()


def test_a_draft_that_fits_is_chosen(alone: Serving, draft: Draft) -> None:
    findings = find(alone, (Offer(draft=draft),), (made_device(40),), LinearEngine(target_gib=16, draft_gib=4))
    assert findings.answer is Answer.FITS
    assert findings.chosen is findings.drafts[0]
    assert findings.drafts[0].reasons == ()
    assert findings.recommended.plan.serving.num_speculative_tokens == 5
    assert findings.recommended.plan.serving.num_speculative_tokens == 5


@pytest.mark.parametrize(("draft_gib", "accepted"), [(6, True), (7, False)])
def test_the_draft_may_take_fifteen_percent_of_the_device(
    alone: Serving, draft: Draft, draft_gib: int, accepted: bool
) -> None:
    # 15 % of 40 GiB are 6 GiB.
    findings = find(
        alone, (Offer(draft=draft),), (made_device(40),), LinearEngine(target_gib=8, draft_gib=draft_gib)
    )
    assert findings.drafts[0].accepted is accepted
    assert [reason.code for reason in findings.drafts[0].reasons] == ([] if accepted else ["over_draft_budget"])
    assert findings.answer is (Answer.FITS if accepted else Answer.DOES_NOT_FIT)
    assert findings.recommended.plan.serving.draft is (draft if accepted else None)
    assert ("--draft-budget 18%" in typed(findings)) is not accepted  # 7 of 40 GiB are 17.5 %


def test_a_pair_that_does_not_fit_is_a_no_though_the_target_fits(alone: Serving, draft: Draft) -> None:
    findings = find(alone, (Offer(draft=draft),), (made_device(40),), LinearEngine(target_gib=28, draft_gib=5))
    assert findings.alone.plan.verdict.answer is Answer.FITS
    assert [reason.code for reason in findings.drafts[0].reasons] == ["does_not_fit"]
    assert findings.answer is Answer.DOES_NOT_FIT
    assert findings.chosen is None
    assert "--draft none" in typed(findings)


def test_the_first_draft_that_will_do_is_chosen(alone: Serving, draft: Draft) -> None:
    ngram = Draft(method=DraftMethod.NGRAM, num_speculative_tokens=5)
    findings = find(
        alone,
        (Offer(draft=ngram), Offer(draft=draft)),
        (made_device(40),),
        LinearEngine(target_gib=16, draft_gib=4),
    )
    assert [judged.name for judged in findings.drafts] == ["ngram", "draft"]
    assert findings.chosen is findings.drafts[0]


def test_a_missing_reading_is_unknown_never_a_yes(alone: Serving, draft: Draft) -> None:
    unread = replace(made_device(40), free_bytes=None, notes=("no reading",))
    engine = LinearEngine(target_gib=16, draft_gib=4)
    for offers in ((), (Offer(draft=draft),)):
        findings = find(alone, offers, (unread,), engine)
        assert findings.answer is Answer.UNKNOWN
        assert findings.chosen is None
        assert findings.alone.max_context_tokens is None


def test_what_sequence_slots_cost(alone: Serving) -> None:
    engine = LinearEngine(target_gib=16, slot_bytes=2**20)
    saving = find(alone, (), (made_device(40),), engine).alone.sequence_saving
    assert saving is not None
    assert (saving.max_num_seqs, saving.lowered_to, saving.saved_bytes) == (256, 1, 255 * 2**20)
    assert find(alone, (), (made_device(40),), LinearEngine(target_gib=16)).alone.sequence_saving is None


def test_remedies_that_hold(alone: Serving) -> None:
    # 30 GiB of weights and 16 GiB of cache on 40 GiB: at most 39 GiB are there, so 9 GiB of cache fit.
    serving = replace(alone, workload=replace(alone.workload, batch=2))
    findings = find(serving, (), (made_device(40),), LinearEngine(target_gib=30))
    assert findings.answer is Answer.DOES_NOT_FIT
    assert typed(findings) == [
        "--kv-cache-dtype fp8",  # 8 GiB
        "--context 4608",  # 9 GiB / 2 sequences = 4.5 GiB = 4,608 tokens
        "--batch 1",  # 8 GiB
        "--tp 2",  # 15 + 8 GiB on each of two
    ]


def test_two_changes_where_one_will_not_do(alone: Serving) -> None:
    # 220 GiB of weights on cards of 40 GiB: 27.5 GiB each on eight, of which at most 39 GiB are to be had. That
    # leaves 11.5 GiB; 12 sequences need 96 / 8 = 12 GiB of cache, in fp8 6 GiB.
    serving = replace(alone, workload=replace(alone.workload, batch=12))
    findings = find(serving, (), (made_device(40),), LinearEngine(target_gib=220))
    assert findings.answer is Answer.DOES_NOT_FIT
    assert typed(findings) == ["--kv-cache-dtype fp8 --tp 8"]


def test_nothing_is_offered_where_nothing_helps(alone: Serving) -> None:
    assert typed(find(alone, (), (made_device(40),), LinearEngine(target_gib=400))) == []


def test_a_fraction_that_was_given_may_be_left_out(alone: Serving) -> None:
    serving = replace(alone, workload=replace(alone.workload, gpu_memory_utilization=0.5))
    findings = find(serving, (), (made_device(40),), LinearEngine(target_gib=16))
    assert findings.answer is Answer.DOES_NOT_FIT
    assert typed(findings)[0] == "without --gpu-memory-utilization"


def test_tight_when_only_the_worst_case_is_too_much(alone: Serving) -> None:
    findings = find(alone, (), (made_device(40),), LinearEngine(target_gib=24, unsure_gib=10))
    assert findings.answer is Answer.TIGHT
    assert findings.alone.plan.verdict.headroom_bytes is not None
    assert findings.alone.plan.verdict.headroom_bytes < 0
    assert findings.alone.plan.ranks[0].breakdown.total.high_bytes == (24 + 8 + 10 + 1) * GIB
