"""The drafts in words: a table of candidates, why some will not do, whether it pays, and what to run."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from planner.commands.base import StartCommand
from planner.report.advice import Elsewhere
from planner.report.draft_rows import (
    WORTH,
    DraftRow,
    command_notes,
    draft_rows,
    left_out_rows,
    shown_problems,
)
from planner.report.findings import Findings, JudgedDraft
from planner.report.plain import paint, safe_line
from planner.report.rows import answer_sentence
from planner.report.tables import table
from planner.report.words import WIDEST, count, device_line, page_width, wrapped
from planner.speculation.diagnosis import Problem

#: Leaves 80 columns for the whole row.
_NAME_WIDTH: Final = 31


def drafts_header(findings: Findings) -> str:
    """For whom the drafts are: target, load, engine and devices, in at most two lines."""
    plan = findings.alone.plan
    work, engine = plan.serving.workload, plan.engine
    widths = f"tp {work.tp}" + (f", pp {work.pp}" if work.pp > 1 else "")
    text = (
        f"Drafts for {safe_line(plan.serving.target.snapshot.repo_id)}: "
        f"{count(work.batch, 'sequence')} of {work.context_tokens:,} tokens, {engine.name} {engine.version}, "
        f"{widths}, {safe_line(device_line(findings.devices))}"
    )
    return "\n".join(wrapped(text, indent=2))


def drafts_line(findings: Findings) -> str:
    """The best draft and how many will do, in one line; or why none does."""
    accepted = [row for row in draft_rows(findings) if row.rank is not None]
    if not accepted:
        return answer_sentence(findings).line
    best, others = accepted[0], len(accepted) - 1
    more = f"; {others} more will do" if others else ""
    return (
        f"{paint('BEST', 'good')}: {best.name} ({best.method}, {best.k} a step), {best.speed}, {best.fits}{more}."
    )


def drafts_block(findings: Findings) -> str:
    """The table of all candidates and the reasons of those that will not do; empty where none was considered."""
    rows = draft_rows(findings)
    blocks = []
    if rows:
        blocks.append(_wide(rows) if page_width() == WIDEST else _narrow(rows))
    reasons = [*_reasons(rows), *_left_out(findings)]
    if reasons:
        blocks.append("\n".join(reasons))
    return "\n".join(blocks)


def worth_block(findings: Findings) -> str:
    """Whether speculation pays here, with its reasons; empty where nobody asked."""
    worth = findings.worth
    if worth is None:
        return ""
    word, style = WORTH[worth.answer]
    lines = [f"Worth it?       {paint(word, style)}"]
    for reason in worth.reasons:
        lines += wrapped(f"  - {safe_line(reason.text)}", indent=4)
    return "\n".join(lines)


def command_block(command: StartCommand | None, chosen: JudgedDraft | None = None) -> str:
    """What to run; empty without a recommendation. What the table says of the chosen draft is not said again."""
    if command is None:
        return ""
    lines = [paint("Run it:", "heading"), *(f"  {line}" for line in command.lines)]
    for name, content in command.files:
        lines += [f"  {safe_line(name)}:", *(f"    {safe_line(line)}" for line in content.splitlines())]
    for note in command_notes(command, chosen):
        lines += wrapped(f"  note: {note}", indent=8)
    return "\n".join(lines)


def problems_block(problems: Sequence[Problem], *, verbose: bool) -> str:
    """Known problems that the plan shows, each with what helps; empty where there are none.

    What the verdict, the remedies or the table of drafts say already is left to ``verbose``.
    """
    shown = shown_problems(problems, verbose=verbose)
    if not shown:
        return ""
    lines = [paint("Watch out:", "heading")]
    for problem in shown:
        lines += wrapped(f"  {safe_line(problem.title)}: {safe_line(problem.evidence)}", indent=4)
        for remedy in problem.remedies[:2]:
            lines += wrapped(f"    - {safe_line(remedy)}", indent=6)
    return "\n".join(lines)


def elsewhere_block(elsewhere: Sequence[Elsewhere]) -> str:
    """What other engines make of the pair, each with its command; empty where nobody asked."""
    blocks = []
    for found in elsewhere:
        said = "" if found.compatibility is None else f": {found.compatibility.verdict.value.replace('_', ' ')}"
        lines = [paint(f"Under {found.engine} {found.version}{said}", "heading")]
        if found.why_not is not None:
            lines += wrapped(f"  no command: {safe_line(found.why_not)}", indent=4)
        if found.command is not None:
            lines += [f"  {line}" for line in found.command.lines]
            for name, content in found.command.files:
                lines += [f"  {safe_line(name)}:", *(f"    {safe_line(line)}" for line in content.splitlines())]
            for note in found.command.notes:
                lines += wrapped(f"  note: {safe_line(note)}", indent=8)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _wide(rows: Sequence[DraftRow]) -> str:
    cells = [(_rank(row), _folded(row.name), row.method, row.k, row.speed, row.share, row.fits) for row in rows]
    return table(cells, ["", "Draft", "By", "k", "Decode speed", "Share", "Fits"], "rllrlrl")


def _narrow(rows: Sequence[DraftRow]) -> str:
    """Each name on a line of its own, above the figures."""
    cells = [("", row.method, row.k, row.speed, row.share, row.fits) for row in rows]
    lines = table(cells, ["  ", "Draft, by", "k", "Decode speed", "Share", "Fits"], "llrlrl").splitlines()
    told = [line for row, figures in zip(rows, lines[2:], strict=True) for line in (_named(row), figures)]
    return "\n".join([*lines[:2], *told])


def _named(row: DraftRow) -> str:
    return f"{_rank(row):>2}    {row.name}"


def _rank(row: DraftRow) -> str:
    return "-" if row.rank is None else str(row.rank)


def _folded(name: str) -> str:
    """A repo id that is too long for its column: the organisation on a line of its own, then the name."""
    if len(name) <= _NAME_WIDTH:
        return name
    organisation, slash, rest = name.rpartition("/")
    lines = [organisation + slash] if slash else []
    return "\n".join([*lines, *wrap(rest, _NAME_WIDTH - 1, initial_indent=" ", subsequent_indent=" ")])


def _reasons(rows: Sequence[DraftRow]) -> list[str]:
    lines: list[str] = []
    for row in rows:
        if row.rank is None:
            lines += wrapped(f"{row.name} will not do: {'; '.join(row.said)}", indent=2)
            lines += [line for way in row.ways_out for line in wrapped(f"  - {way}", indent=4)]
        else:
            lines += [line for text in row.said for line in wrapped(f"{row.name}: {text}", indent=2)]
    return lines


def _left_out(findings: Findings) -> list[str]:
    return [line for name, why in left_out_rows(findings) for line in wrapped(f"{name} left out: {why}", indent=2)]
