"""Draws the memory of each rank: the five terms between their bounds, beside the room for them."""

from typing import Final

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from model_catalog.units import GIB
from planner.memory.breakdown import Group
from planner.pictures.memory_bars import BUDGET, FREE, LIMIT, PINNED, Bar, Segment, memory_bars
from planner.pictures.page import (
    DRAFT_HATCH,
    FAINT,
    INK,
    MARGIN_INCHES,
    MAYBE_HATCH,
    TERM_COLORS,
    WIDTH_INCHES,
    Page,
    Picture,
    hatch_ink,
    lighter,
    short_name,
)
from planner.planning import Plan
from planner.report.findings import Findings
from planner.report.rows import rank_title, verdict_sentences
from planner.report.words import GROUP_NAMES, count, need, room

_BAR_INCHES: Final = 0.36
_LABEL_INCHES, _FIGURE_INCHES = 1.85, 2.1
_TITLE_INCHES: Final = 0.3
_EDGE_STYLES: Final = {BUDGET: "-", PINNED: "-", FREE: "--", LIMIT: ":"}
#: Pieces below this part of the axis carry no figure of their own.
_LABELLED_PART: Final = 0.06


def memory_picture(findings: Findings) -> Picture:
    """The memory of the set-up that is told in full."""
    plan = findings.told.plan
    ranks = [memory_bars(plan, rank) for rank in plan.ranks]
    bars = [bar for rank in ranks for bar in rank]
    page = Page(
        title="Memory on each device" if len(plan.ranks) > 1 else f"Memory: {_place(plan)}",
        subtitle=_subtitle(findings, plan),
        legend=_legend(bars),
        notes=tuple(_notes(plan)),
    )
    height = len(bars) * _BAR_INCHES + (len(ranks) * _TITLE_INCHES if len(ranks) > 1 else 0)
    figure, (axes,) = page.lay_out(height, left_inches=_LABEL_INCHES, right_inches=_FIGURE_INCHES)
    ends = [max((bar.edge_bytes or 0), bar.start_bytes + bar.need.high_bytes) for bar in bars]
    widest = max(*ends, 1)
    axes.set_xlim(0, widest * 1.02 / GIB)
    axes.set_ylim(height, 0)
    here, ticks = 0.0, []
    for position, rank in enumerate(ranks):
        if len(ranks) > 1:
            beside = axes.get_yaxis_transform()
            left = (MARGIN_INCHES - _LABEL_INCHES) / (WIDTH_INCHES - _LABEL_INCHES - _FIGURE_INCHES)
            axes.text(left, here + 0.22, _rank_name(plan, position), transform=beside, weight="bold")
            here += _TITLE_INCHES
        for bar in rank:
            middle = here + _BAR_INCHES / 2
            _draw_bar(axes, bar, middle, widest)
            ticks.append((middle, bar.label))
            here += _BAR_INCHES
    axes.set_yticks([middle for middle, _ in ticks], [label for _, label in ticks])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(len(ranks) == 1)  # it would cut through the ranks' names
    axes.set_xlabel("Memory (GiB)")
    axes.xaxis.grid(visible=True, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    return Picture(name="memory", title=page.title, alt=_alt(plan), figure=figure)


def _draw_bar(axes: Axes, bar: Bar, middle: float, widest: int) -> None:
    for segment in bar.segments:
        _draw_segment(axes, segment, middle, widest)
    if bar.edge is not None and bar.edge_bytes is not None:
        at = bar.edge_bytes / GIB
        reach = _BAR_INCHES * 0.46
        ends = [middle - reach, middle + reach]
        axes.plot([at, at], ends, color=INK, linewidth=2, linestyle=_EDGE_STYLES[bar.edge])
    axes.text(
        1.02, middle, _figures(bar), transform=axes.get_yaxis_transform(), va="center", ha="left", fontsize=8
    )


def _draw_segment(axes: Axes, segment: Segment, middle: float, widest: int) -> None:
    color = TERM_COLORS[segment.group]
    start, size = segment.start_bytes / GIB, segment.size_bytes / GIB
    axes.barh(
        middle,
        size,
        left=start,
        height=_BAR_INCHES * 0.66,
        facecolor=color if segment.certain else lighter(color),
        edgecolor=INK,
        linewidth=0.5,
        hatch=_hatch(segment),
        hatchcolor=hatch_ink(color) if segment.certain else INK,
    )
    if segment.certain and not segment.of_draft and segment.size_bytes > widest * _LABELLED_PART:
        ink = hatch_ink(color)
        axes.text(start + size / 2, middle, f"{size:,.1f}", ha="center", va="center", fontsize=7.5, color=ink)


def _hatch(segment: Segment) -> str:
    return ("" if segment.certain else MAYBE_HATCH) + (DRAFT_HATCH if segment.of_draft else "")


def _figures(bar: Bar) -> str:
    """``55.93 – 61.44 of 72.63 GiB``: the need, rounded up, and the room, rounded down."""
    if bar.room_bytes is None:
        return need(bar.need)
    if bar.room_bytes < 0:
        return f"{need(bar.need)}, no room"
    return f"{need(bar.need).removesuffix(' GiB')} of {room(bar.room_bytes)}"


def _legend(bars: list[Bar]) -> tuple[tuple[Patch | Line2D, str], ...]:
    segments = [segment for bar in bars for segment in bar.segments]
    present = {segment.group for segment in segments}
    handles: list[tuple[Patch | Line2D, str]] = [
        (Patch(facecolor=TERM_COLORS[group], edgecolor=INK, linewidth=0.5), GROUP_NAMES[group])
        for group in Group
        if group in present
    ]
    if any(segment.of_draft for segment in segments):
        handles.append((Patch(facecolor="white", edgecolor=INK, linewidth=0.5, hatch=DRAFT_HATCH), "the draft's"))
    if any(not segment.certain for segment in segments):
        handles.append(
            (Patch(facecolor="white", edgecolor=INK, linewidth=0.5, hatch=MAYBE_HATCH), "from low to high bound")
        )
    edges = {bar.edge for bar in bars if bar.edge_bytes is not None}
    handles += [
        (Line2D([], [], color=INK, linewidth=2, linestyle=style), name)
        for name, style in _EDGE_STYLES.items()
        if name in edges
    ]
    return tuple(handles)


def _place(plan: Plan) -> str:
    title = rank_title(plan, 0)
    name = short_name(plan.ranks[0].rank.device.name)
    return name if title == "Term" else f"{title[0].lower()}{title[1:]}, {name}"


def _rank_name(plan: Plan, position: int) -> str:
    binds = ", which binds" if position == plan.binding_rank else ""
    return short_name(rank_title(plan, position), 90) + binds


def _subtitle(findings: Findings, plan: Plan) -> str:
    work, draft = plan.serving.workload, findings.shown
    target = short_name(plan.serving.target.snapshot.repo_id)
    what = f"{target} alone"
    if plan.serving.draft is not None and draft is not None:
        what = f"{target} with {short_name(draft.name)}"
    told = [f"{said.lead}{said.word}: {said.text}" for said in verdict_sentences(findings) if said.word]
    asked = f"{count(work.batch, 'sequence')} of {count(work.context_tokens, 'token')}"
    return f"{what}, {asked}, {plan.engine.name} {plan.engine.version}. {' '.join(told)}"


def _notes(plan: Plan) -> list[str]:
    notes = []
    unread = [rank for rank in plan.ranks if rank.rank.device.free_bytes is None]
    if unread:
        names = ", ".join(dict.fromkeys(short_name(rank.rank.device.name) for rank in unread))
        notes.append(f"Free memory is unknown on {names}: it could not be read, so no room is drawn.")
    if any(reason.code == "weights_incomplete" for reason in plan.verdict.reasons):
        notes.append("A part of the weights has no known size: the bars are a lower bound.")
    return notes


def _alt(plan: Plan) -> str:
    rank = plan.ranks[plan.binding_rank]
    terms = [
        f"{GROUP_NAMES[group]} {need(rank.breakdown.of_group(group))}"
        for group in Group
        if rank.breakdown.of_group(group).high_bytes
    ]
    bars = "; ".join(f"{bar.label} {_figures(bar)}" for bar in memory_bars(plan, rank))
    where = rank_title(plan, plan.binding_rank)
    where = "On the device" if where == "Term" else where
    return f"{where}: {', '.join(terms)}, in all {need(rank.breakdown.total)}; {bars}."
