"""A plan in words and tables, 80 columns wide. Every line says one thing that a reader may act on."""

from typing import Final

from planner.planning import Plan, RankPlan
from planner.report.advice import NO_ADVICE, Advice
from planner.report.draft_text import (
    command_block,
    drafts_block,
    elsewhere_block,
    problems_block,
    worth_block,
)
from planner.report.facts import TargetFacts
from planner.report.findings import Findings, SetUp
from planner.report.plain import paint
from planner.report.rows import (
    answer_sentence,
    detail_rows,
    header_rows,
    memory_rows,
    rank_title,
    verdict_sentence,
    verdict_sentences,
)
from planner.report.tables import table
from planner.report.trial_text import trials_block
from planner.report.words import need, wrapped

_LABEL_LENGTH: Final = 28


def fit_text(findings: Findings, facts: TargetFacts, *, verbose: bool = False, advice: Advice = NO_ADVICE) -> str:
    """The whole answer of `fit`."""
    set_up = findings.told
    blocks = [
        "\n".join(_labelled(header_rows(findings, facts))),
        *_rank_blocks(set_up.plan, verbose=verbose),
        "\n".join(verdict_lines(findings)),
        "\n".join(_labelled(detail_rows(findings, facts))),
    ]
    if len(findings.drafts) > 1 or findings.worth is not None:
        blocks.append(drafts_block(findings))
    blocks.append(worth_block(findings))
    blocks.append(trials_block({draft.name: draft.trial for draft in findings.drafts if draft.trial is not None}))
    if set_up.remedies:
        blocks.append(_remedies(set_up))
    blocks.append(problems_block(advice.problems, verbose=verbose))
    blocks.append(command_block(advice.command, findings.chosen))
    blocks.append(elsewhere_block(advice.elsewhere))
    return "\n\n".join(block for block in blocks if block)


def verdict_lines(findings: Findings) -> list[str]:
    """The answer in one line, then why."""
    return [
        line
        for sentence in verdict_sentences(findings)
        for line in wrapped(sentence.line if sentence.word else f"  {sentence.line}", indent=2)
    ]


def answer_line(findings: Findings) -> str:
    """The answer in one line of any length."""
    return answer_sentence(findings).line


def verdict_line(plan: Plan) -> str:
    """``FITS: ...`` with the room or the shortage, and what binds."""
    return verdict_sentence(plan).line


def _labelled(rows: list[tuple[str, str]]) -> list[str]:
    return [line for label, text in rows for line in wrapped(f"{label:<16}{text}", indent=16)]


def _rank_blocks(plan: Plan, *, verbose: bool) -> list[str]:
    if len(plan.ranks) == 1:
        return [_rank_block(plan.ranks[0], plan, rank_title(plan, 0), verbose=verbose)]
    blocks = []
    for position, rank_plan in enumerate(plan.ranks):
        title = rank_title(plan, position)
        binds = position == plan.binding_rank
        if binds or verbose:
            lines = _rank_block(rank_plan, plan, "Term", verbose=verbose)
            blocks.append(f"{title}{', which binds' if binds else ''}:\n{lines}")
        else:
            text = f"{title}: {need(rank_plan.breakdown.total)}; --verbose shows its lines."
            blocks.append("\n".join(wrapped(text, indent=2)))
    return blocks


def _rank_block(rank_plan: RankPlan, plan: Plan, title: str, *, verbose: bool) -> str:
    shown = []
    for row in memory_rows(rank_plan, plan, lines=verbose):
        label = row.label[:_LABEL_LENGTH] if row.kind == "line" else row.label
        if row.kind in {"line", "part"}:
            label = f"  {label}"
        shown.append((paint(label, "heading") if row.kind == "total" else label, row.memory, row.known))
    return table(shown, [title, "Memory", "Known"], "lrl", fold=2)


def _remedies(set_up: SetUp) -> str:
    lines = [paint("What would make it fit (each re-planned):", "heading")]
    width = max(len(remedy.typed) for remedy in set_up.remedies)
    for remedy in set_up.remedies:
        lines += wrapped(f"  {remedy.typed:<{width}}  {remedy.text}", indent=width + 4)
    return "\n".join(lines)
