"""What stands on the page: the terminal's words and figures, part by part, and what it takes to repeat the plan.

Pure. Owns the order and the choice; the words are those of ``planner.report``, the layout is the template's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from planner.commands.base import StartCommand
from planner.devices import Device
from planner.memory.breakdown import Group
from planner.pictures import Picture
from planner.planning import Plan, RankPlan
from planner.report.advice import Advice, Elsewhere
from planner.report.draft_rows import (
    WORTH,
    DraftRow,
    command_notes,
    draft_rows,
    left_out_rows,
    shown_problems,
)
from planner.report.explain import Receipt, assumption_text, receipt_of
from planner.report.facts import TargetFacts
from planner.report.findings import Findings, JudgedDraft
from planner.report.plain import Style, safe_line
from planner.report.remedies import Remedy
from planner.report.rows import (
    MemoryRow,
    Sentence,
    answer_sentence,
    detail_rows,
    header_rows,
    memory_rows,
    rank_title,
    verdict_sentences,
)
from planner.report.trial_text import trial_rows, trial_title, trial_verdict
from planner.report.words import GROUP_NAMES, need, room
from planner.speculation.diagnosis import Problem
from planner.trial.result import PairTrial
from planner.verdict import Answer

Labelled = tuple[str, str]
_NOT_SAID: Final = "not said"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One of the five terms on a rank, with the receipts of its lines."""

    name: str
    memory: str
    receipts: tuple[Receipt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPart:
    """The memory of one rank, or of every device where all carry the same."""

    title: str
    total: str
    binds: bool
    rows: tuple[MemoryRow, ...]
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A word, its style and what it rests on: whether speculation is worth it, or what a trial measured."""

    title: str
    word: str
    style: Style
    text: str = ""
    reasons: tuple[str, ...] = ()
    rows: tuple[Labelled, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPart:
    """A command to copy, with the files it needs; ``why_not`` where none can be written.

    ``elsewhere``: of an engine that was not planned.
    """

    title: str
    lines: tuple[str, ...] = ()
    python: str | None = None
    files: tuple[Labelled, ...] = ()
    notes: tuple[str, ...] = ()
    why_not: str | None = None
    elsewhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A device as it was read or declared."""

    index: int
    name: str
    total: str
    free: str
    driver: str
    source: str
    notes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What it takes to repeat the plan. ``typed``: the lines of the command, without where its answers went.

    ``request`` has the names of the report document.
    """

    typed: tuple[str, ...]
    request: tuple[Labelled, ...]
    models: tuple[Labelled, ...]
    devices: tuple[DeviceRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContent:
    """All that is told on the page; empty parts are left out. ``pictures`` by their names."""

    target: str
    draft: str | None
    made_at: str
    version: str
    engine: str
    exit_code: int
    answer: Sentence
    verdict: tuple[Sentence, ...]
    header: tuple[Labelled, ...]
    warnings: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    commands: tuple[CommandPart, ...]
    ranks: tuple[RankPart, ...]
    details: tuple[Labelled, ...]
    accepted: tuple[DraftRow, ...]
    rejected: tuple[DraftRow, ...]
    left_out: tuple[Labelled, ...]
    worth: Judgement | None
    trials: tuple[Judgement, ...]
    problems: tuple[Problem, ...]
    pictures: Mapping[str, Picture]
    no_pictures: tuple[str, ...]
    assumptions: tuple[str, ...]
    inputs: Inputs


def page_content(
    findings: Findings,
    facts: TargetFacts,
    advice: Advice,
    document: Mapping[str, Any],
    *,
    typed: Sequence[str],
    pictures: Sequence[Picture] = (),
    no_pictures: Sequence[str] = (),
) -> PageContent:
    """What the page tells of one `fit`; ``document`` is the report of the same findings."""
    shown, told = findings.shown, findings.told
    rows = draft_rows(findings)
    trials = {draft.name: draft.trial for draft in findings.drafts if draft.trial is not None}
    answer = _headline(findings)
    return PageContent(
        target=facts.repo_id,
        draft=None if shown is None else shown.name,
        made_at=document["created_at"],
        version=document["specplan_version"],
        engine=f"{told.plan.engine.name} {told.plan.engine.version}",
        exit_code=document["exit_code"],
        answer=answer,
        verdict=tuple(sentence for sentence in verdict_sentences(findings) if sentence != answer),
        header=tuple(header_rows(findings, facts)),
        warnings=tuple(warning["text"] for warning in document["warnings"]),
        remedies=told.remedies,
        commands=tuple(_commands(advice, findings.chosen)),
        ranks=tuple(_rank(told.plan, number, rank) for number, rank in enumerate(told.plan.ranks)),
        details=tuple(detail_rows(findings, facts)),
        accepted=tuple(row for row in rows if row.rank is not None),
        rejected=tuple(row for row in rows if row.rank is None),
        left_out=tuple(left_out_rows(findings)),
        worth=_worth(findings),
        trials=tuple(_trial(name, trial) for name, trial in trials.items()),
        problems=tuple(shown_problems(advice.problems, verbose=False)),
        pictures={picture.name: picture for picture in pictures},
        no_pictures=tuple(no_pictures),
        assumptions=tuple(assumption_text(assumption) for assumption in facts.assumptions),
        inputs=_inputs(findings, facts, document, typed),
    )


def _headline(findings: Findings) -> Sentence:
    """The answer; that no draft will do says less than that not even the target fits."""
    if findings.shown is None and findings.alone.plan.verdict.answer not in {Answer.FITS, Answer.TIGHT}:
        return verdict_sentences(findings)[0]
    return answer_sentence(findings)


def _rank(plan: Plan, number: int, rank_plan: RankPlan) -> RankPart:
    breakdown, budgeted = rank_plan.breakdown, rank_plan.verdict.budget_bytes is not None
    terms = [
        Term(
            name=GROUP_NAMES[group],
            memory=need(breakdown.of_group(group)),
            receipts=tuple(receipt_of(item, budgeted=budgeted) for item in breakdown.items if item.group is group),
        )
        for group in Group
    ]
    return RankPart(
        title="On the device" if (title := rank_title(plan, number)) == "Term" else title,
        total=need(breakdown.total),
        binds=number == plan.binding_rank,
        rows=tuple(memory_rows(rank_plan, plan, lines=False)),
        terms=tuple(term for term in terms if term.receipts),
    )


def _worth(findings: Findings) -> Judgement | None:
    worth = findings.worth
    if worth is None:
        return None
    word, style = WORTH[worth.answer]
    return Judgement(
        title="Worth it?",
        word=word,
        style=style,
        reasons=tuple(safe_line(reason.text) for reason in worth.reasons),
    )


def _trial(name: str, trial: PairTrial) -> Judgement:
    word, style, text = trial_verdict(trial)
    return Judgement(
        title=trial_title(name, trial), word=word, style=style, text=text, rows=tuple(trial_rows(trial))
    )


def _commands(advice: Advice, chosen: JudgedDraft | None) -> Sequence[CommandPart]:
    parts = []
    if advice.command is not None:
        parts.append(_command("Run it", advice.command, tuple(command_notes(advice.command, chosen))))
    elif advice.why_not is not None:
        parts.append(CommandPart(title="Run it", why_not=advice.why_not))
    return [*parts, *(_elsewhere(found) for found in advice.elsewhere)]


def _elsewhere(found: Elsewhere) -> CommandPart:
    said = "" if found.compatibility is None else f": {found.compatibility.verdict.value.replace('_', ' ')}"
    title = f"Under {found.engine} {found.version}{said}"
    if found.command is None:
        return CommandPart(title=title, why_not=found.why_not, elsewhere=True)
    return replace(_command(title, found.command, found.command.notes), elsewhere=True)


def _command(title: str, command: StartCommand, notes: tuple[str, ...]) -> CommandPart:
    said = {content for _, content in command.files}
    python = None if command.python in said else command.python
    return CommandPart(title=title, lines=command.lines, python=python, files=command.files, notes=notes)


def _inputs(findings: Findings, facts: TargetFacts, document: Mapping[str, Any], typed: Sequence[str]) -> Inputs:
    engine = document["engine"]
    asked = {name: value for name, value in document["request"].items() if name != "target"}
    request = [(name, _value(name, value)) for name, value in asked.items()]
    models = [("Target", _model(facts.repo_id, facts.revision, facts.source.value, facts.fingerprint))]
    models += [
        ("Draft", _model(draft["repo_id"], draft["revision"], draft["origin"], draft["fingerprint"]))
        for draft in document["candidates"]
        if draft["repo_id"] is not None
    ]
    models += [
        ("Engine, assumed", f"{engine['name']} {engine['version_assumed']}"),
        ("specplan", document["specplan_version"]),
    ]
    return Inputs(
        typed=tuple(typed),
        request=tuple(request),
        models=tuple(models),
        devices=tuple(_device(device) for device in findings.devices),
    )


def _model(repo_id: str, revision: str | None, source: str | None, fingerprint: str | None) -> str:
    known = [revision and f"revision {revision}", fingerprint and f"fingerprint {fingerprint}", source]
    return f"{repo_id} ({', '.join(part for part in known if part)})"


def _device(device: Device) -> DeviceRow:
    return DeviceRow(
        index=device.index,
        name=device.name,
        total="unknown" if device.total_bytes is None else room(device.total_bytes),
        free="unknown" if device.free_bytes is None else room(device.free_bytes),
        driver=device.driver_version or "",
        source=device.source.value,
        notes="; ".join(device.notes),
    )


def _value(name: str, value: object) -> str:
    if value is None or value == []:
        return _NOT_SAID
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, int):
        return f"{value:,} bytes" if name.endswith("_bytes") else f"{value:,}"
    return str(value)
