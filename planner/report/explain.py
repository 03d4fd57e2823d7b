"""Receipts: every line of a plan with its formula, its numbers, how it is known and where that comes from."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from model_catalog.architecture import Assumption
from planner.memory.breakdown import LineItem
from planner.planning import Plan
from planner.report.plain import safe_line
from planner.report.words import GROUP_NAMES, need, page_width


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
            lines += _wrapped(assumption_text(assumption), first="  ", rest="    ")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A line of the plan with all that is known of it. ``formula`` ends in the exact bytes."""

    title: str
    memory: str
    formula: str
    known: str
    source: str


def receipt_of(item: LineItem, *, budgeted: bool) -> Receipt:
    """The receipt of one line; ``budgeted``: its engine has a budget, which the line is inside of or not."""
    size = (
        f"{item.high_bytes:,} B"
        if item.low_bytes == item.high_bytes
        else f"{item.low_bytes:,} – {item.high_bytes:,} B"
    )
    return Receipt(
        title=f"{safe_line(item.label)} [{GROUP_NAMES[item.group]}, {item.owner.value}]",
        memory=need(item.size),
        formula=f"{safe_line(item.formula)} = {size}",
        known=f"{item.basis.value}, {_where(item)} the budget" if budgeted else item.basis.value,
        source=safe_line(item.source),
    )


def assumption_text(assumption: Assumption) -> str:
    """``key = value: reason`` of what a configuration leaves unsaid."""
    return f"{safe_line(assumption.key)} = {safe_line(assumption.value)}: {safe_line(assumption.reason)}"


def _receipt(item: LineItem, *, budgeted: bool) -> str:
    receipt = receipt_of(item, budgeted=budgeted)
    lines = _wrapped(f"{receipt.title}: {receipt.memory}", first="", rest="    ")
    lines += _wrapped(receipt.formula, first="    ", rest="      ")
    lines += _wrapped(f"{receipt.known}; source: {receipt.source}", first="    ", rest="      ")
    return "\n".join(lines)


def _where(item: LineItem) -> str:
    if item.inside_budget:
        return "inside"
    return "taken before" if item.before_budget else "outside"


def _wrapped(text: str, *, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, page_width(), initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
