"""Receipts: every line of a plan with its formula, its numbers, how it is known and where that comes from."""

import textwrap
from collections.abc import Sequence

from model_catalog.architecture import Assumption
from planner.memory.breakdown import LineItem
from planner.planning import Plan
from planner.report.plain import safe_line
from planner.report.words import GROUP_NAMES, WIDTH, need


def explain_text(plan: Plan, assumptions: Sequence[Assumption] = ()) -> str:
    """One receipt a line, rank by rank, then what the model's configuration left unsaid."""
    blocks: list[str] = []
    for rank_plan in plan.ranks:
        if len(plan.ranks) > 1:
            blocks.append(f"Rank {rank_plan.rank.index}, stage {rank_plan.rank.stage}")
        budgeted = rank_plan.verdict.budget_bytes is not None
        blocks += [_receipt(item, budgeted=budgeted) for item in rank_plan.breakdown.items]
        blocks.append(f"Total: {need(rank_plan.breakdown.total)}")
    if assumptions:
        lines = ["Unsaid in the configuration, so taken as:"]
        for assumption in assumptions:
            text = f"{safe_line(assumption.key)} = {safe_line(assumption.value)}: {safe_line(assumption.reason)}"
            lines += _wrapped(text, first="  ", rest="    ")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _receipt(item: LineItem, *, budgeted: bool) -> str:
    where = f", {_where(item)} the budget" if budgeted else ""
    size = (
        f"{item.high_bytes:,} B"
        if item.low_bytes == item.high_bytes
        else f"{item.low_bytes:,} – {item.high_bytes:,} B"
    )
    title = f"{safe_line(item.label)} [{GROUP_NAMES[item.group]}, {item.owner.value}]"
    lines = _wrapped(f"{title}: {need(item.size)}", first="", rest="    ")
    lines += _wrapped(f"{safe_line(item.formula)} = {size}", first="    ", rest="      ")
    lines += _wrapped(f"{item.basis.value}{where}; source: {safe_line(item.source)}", first="    ", rest="      ")
    return "\n".join(lines)


def _where(item: LineItem) -> str:
    if item.inside_budget:
        return "inside"
    return "taken before" if item.before_budget else "outside"


def _wrapped(text: str, *, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
