"""The page: the terminal's words, all of them escaped, in one file that asks for nothing."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from linear_engine import LinearEngine, made_device, made_model
from made_models import llama
from trial_children import runs

from model_catalog.drafts import Candidate, CandidateOrigin, Discarded, DraftMethod
from planner.commands.base import StartCommand
from planner.devices import Device
from planner.engines.base import Draft, Serving
from planner.page.content import page_content
from planner.page.drawing import draw_page
from planner.pictures import draw
from planner.report.advice import Advice, Elsewhere, advise
from planner.report.facts import target_facts
from planner.report.findings import Findings, find
from planner.report.plain import without_color
from planner.report.text import fit_text
from planner.speculation.diagnosis import Problem
from planner.speculation.selection import Offer
from planner.trial.protocol import TrialRequest
from planner.trial.result import PairTrial
from planner.trial.runner import Outcome
from planner.trial.summary import summarize, trial_mapping
from planner.workload import Workload

#: Ends every context that a text of the page stands in, shows itself where it runs, and turns the writing around.
HOSTILE = (
    "</p></style></title>--><script>alert(1)</script><img src=x onerror=alert(2)>\"'>{{ 7 * 7 }}\u202e\x1b[2J"
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Outline(HTMLParser):
    """Counts elements, keeps attributes and what a reader sees."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self._text: list[str] = []
        self._unseen = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._unseen += tag == "style"
        if tag in {"td", "th", "dt", "dd"}:
            self._text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag == "style"

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._text.append(data)

    @property
    def words(self) -> str:
        """All that is said, with single blanks."""
        return " ".join("".join(self._text).split())


def trial_of(draft: str, word: str) -> PairTrial:
    found = Outcome(
        runs=tuple(runs(1.5)),
        num_speculative_tokens=2,
        stopped_by=word,
        failures=(),
        device=word,
        versions={word: word},
        memory={"tensor_bytes": 100, "longest_tokens": 64},
    )
    made = trial_mapping(summarize(TrialRequest(target_folder="big", draft_folder=draft), found))
    return PairTrial(document={**made, "notes": [word]}, remembered=True)


def findings_of(word: str, *, gib: int = 40) -> Findings:
    """A target with two drafts, a trial and a draft that was left out; ``word`` wherever others give the text."""
    device = replace(made_device(gib), name=word, notes=(word,), driver_version=word)
    serving = Serving(
        target=made_model(f"me/{word}", llama(architectures=["LlamaForCausalLM"], num_hidden_layers=2)),
        draft=None,
        workload=Workload(),
    )
    heads = [
        Offer(draft=Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=3, model=model))
        for model in (made_model(f"me/a{word}", llama()), made_model(f"me/b{word}", llama()))
    ]
    left_out = Candidate(method=DraftMethod.EAGLE3, origin=CandidateOrigin.HUB, source=word, repo_id=f"me/c{word}")
    return find(
        serving,
        heads,
        (device,),
        LinearEngine(target_gib=16, draft_gib=2, version=word),
        discarded=[Discarded(candidate=left_out, code="kind", text=word)],
        trials={f"me/a{word}": trial_of("a", word)},
    )


def page_of(
    findings: Findings, word: str = "plain", advice: Advice | None = None, *, with_pictures: bool = True
) -> str:
    told = advise(findings) if advice is None else advice
    serving = findings.alone.plan.serving
    facts = target_facts(serving.target, serving.workload)
    # Parts of a report document; the command line's own are tested with the command line.
    document: Mapping[str, Any] = {
        "created_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).isoformat(),
        "specplan_version": "9.8.7",
        "exit_code": 0,
        "warnings": [{"code": "note", "text": word}],
        "request": {"target": word, "gpu": word, "drafts": [word]},
        "engine": {"name": word, "version_assumed": word},
        "candidates": [{"repo_id": word, "revision": word, "origin": word, "fingerprint": word}],
    }
    return draw_page(
        page_content(
            findings,
            facts,
            told,
            document,
            typed=[f"specplan fit {word}"],
            pictures=draw(findings) if with_pictures else (),
            no_pictures=[word],
        )
    )


def advice_of(word: str) -> Advice:
    """A command with all that may come with one, another engine's, and a problem."""
    command = StartCommand(
        engine=word, argv=("run", word, f"--{word}"), python=f"run(\n{word})", files=((word, word),), notes=(word,)
    )
    refused = Elsewhere(engine=word, version=word, compatibility=None, command=None, why_not=word)
    return Advice(
        command=command,
        problems=(Problem(code=word, title=word, symptom=word, evidence=word, remedies=(word,)),),
        elsewhere=(refused, replace(refused, command=command, why_not=None)),
    )


def test_a_hostile_text_adds_no_element_and_no_attribute() -> None:
    tame, wild = (
        Outline(page_of(findings_of(word), word, advice_of(word), with_pictures=False))
        for word in ("tame", HOSTILE)
    )
    assert wild.elements == tame.elements
    assert [item[:2] for item in wild.attributes] == [item[:2] for item in tame.attributes]
    assert "script" not in wild.elements
    assert wild.words.count("<script>alert(1)</script>") >= 20  # it is there, as text
    assert "{{ 7 * 7 }}" in wild.words
    assert "\u202e" not in wild.words
    assert "\x1b" not in wild.words


def test_a_hostile_text_is_drawn_as_text() -> None:
    """A long name takes more lines of a picture, never another kind of element."""
    tame, wild = (page_of(findings_of(word), word) for word in ("tame", HOSTILE))
    assert Outline(tame).elements["svg"] == Outline(wild).elements["svg"] == 4
    assert set(Outline(wild).elements) == set(Outline(tame).elements)
    assert {name for _, name, _ in Outline(wild).attributes} == {name for _, name, _ in Outline(tame).attributes}
    assert "\u202e" not in wild


def test_what_looks_like_a_token_is_blotted_out() -> None:
    word = "hf_abcdefghijklmnopqrstuvwxyz01234567"
    page = page_of(findings_of(word), word, advice_of(word))
    assert word not in page
    assert "hf_***" in page


def test_the_page_asks_for_nothing() -> None:
    outline = Outline(page_of(findings_of("tame")))
    assert ("meta", "content", POLICY) in outline.attributes
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(outline.elements)
    asking = {"src", "srcset", "data", "action", "poster", "background"}
    assert [item for item in outline.attributes if item[1] in asking or item[1].startswith("on")] == []
    page = page_of(findings_of("tame"))
    assert re.search(r"@import|url\((?!#)", page) is None


def test_all_that_the_terminal_tells_stands_on_the_page() -> None:
    """Word for word: each cell and each sentence of the terminal's tables."""
    findings = findings_of("tame")
    serving = findings.alone.plan.serving
    advice = advice_of("tame")
    told = without_color(fit_text(findings, target_facts(serving.target, serving.workload), advice=advice))
    said = Outline(page_of(findings, advice=advice)).words
    cells = {
        re.sub(r" (will not do|left out)$", "", cell).removeprefix("- ").rstrip(":")
        for line in told.splitlines()
        for cell in re.split(r"\s{2,}|: ", line.strip())  # a label and its text may stand in elements of their own
        if re.search(r"\w", cell)
    }
    assert len(cells) > 40
    assert {cell for cell in cells if cell not in said} == {"note", "no command"}  # lists and sentences say so


@pytest.mark.parametrize(
    ("device", "sign", "word", "style"),
    [
        pytest.param(made_device(40), "✓", "FITS", "good", id="fits"),
        pytest.param(made_device(16), "✗", "DOES NOT FIT", "bad", id="not"),
        pytest.param(replace(made_device(40), free_bytes=None), "?", "CANNOT TELL", "unsure", id="unread"),
    ],
)
def test_the_answer_comes_first_with_a_word_and_a_sign(device: Device, sign: str, word: str, style: str) -> None:
    page = page_of(find(findings_of("tame").alone.plan.serving, (), (device,), LinearEngine(target_gib=16)))
    first = re.search(r"<h2[^>]*>(.*?)</h2>", page, re.DOTALL)
    assert first is not None
    assert Outline(first[1]).words == f"{sign} {word}"
    assert f'class="answer {style}"' in page


def test_what_was_not_read_is_unknown_and_no_number() -> None:
    unread = replace(
        made_device(40), total_bytes=None, engine_total_bytes=None, free_bytes=None, notes=("unread",)
    )
    page = page_of(find(findings_of("tame").alone.plan.serving, (), (unread,), LinearEngine(target_gib=16)))
    said = Outline(page).words
    assert "Free on the device unknown could not be read" in said
    assert "0 40 GiB card unknown unknown declared unread" in said  # the row of the devices


def test_every_line_has_its_receipt() -> None:
    findings = findings_of("tame")
    said = Outline(page_of(findings)).words
    for rank in findings.told.plan.ranks:
        for item in rank.breakdown.items:
            assert f"{item.formula} = " in said
            assert f"{item.high_bytes:,} B" in said
            assert f"source: {item.source}" in said
