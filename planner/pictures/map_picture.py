"""Draws the map of context and batch: where the target alone and the pair fit, are tight, do not fit."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from planner.fit_map import FitEdges, FitMap, map_fit, shortest_context
from planner.pictures.page import INK, Page, Picture, power_ticks, short_name
from planner.planning import Plan
from planner.report.findings import Findings
from planner.report.words import count, percent_up
from planner.verdict import Answer

_PANEL_INCHES: Final = 3.3
#: Light to dark, the worse the answer: told apart in greyscale.
_FITS: Final = "#d5ecd4"
_TIGHT: Final = "#f0b64a"
_NOT: Final = "#a94a48"
_UNKNOWN: Final = "#ffffff"
_BEYOND: Final = "#8c8c8c"
_SHARE_HATCH: Final = "|||||"
_TIGHT_HATCH, _UNKNOWN_HATCH, _BEYOND_HATCH = "///", "---", "xxx"
#: Marks of a row or a context that are not on the map: far outside of its axes, as these are logarithmic.
_NOWHERE: Final = 0.01

Edge = Callable[[FitEdges], int | None]


def map_picture(findings: Findings) -> Picture:
    """One panel for the target alone and, where a draft is told, one for the pair."""
    plans = [findings.alone.plan]
    if findings.told.plan.serving.draft is not None:
        plans.append(findings.told.plan)
    shortest = min(shortest_context(plan.serving) for plan in plans)
    maps = [map_fit(plan.serving, findings.devices, plan.engine, shortest_tokens=shortest) for plan in plans]
    work = plans[0].serving.workload
    page = Page(
        title="Context and batch: what fits",
        subtitle=f"{short_name(plans[0].serving.target.snapshot.repo_id)} on {_devices(findings)}, "
        f"{plans[0].engine.name} {plans[0].engine.version}. Every sequence at full context; all else as asked.",
        legend=_legend(maps, plans),
        legend_columns=3,
    )
    figure, panels = page.lay_out(
        _PANEL_INCHES, left_inches=0.85, right_inches=0.3 if len(plans) > 1 else 3.5, columns=len(plans)
    )
    limits = _limits(maps, work.context_tokens, work.batch)
    for axes, fit_map, plan in zip(panels, maps, plans, strict=True):
        _draw_regions(axes, fit_map, plan, limits)
        axes.plot(
            [work.context_tokens], [work.batch], marker="*", markersize=13, color="white", markeredgecolor=INK,
            markeredgewidth=1.2, zorder=5, linestyle="", clip_on=False,
        )  # fmt: skip
        _set_up_axes(axes, limits)
        axes.set_title(_panel_title(findings, plan), loc="left")
    panels[0].set_ylabel("Batch (sequences)")
    for axes in panels[1:]:
        axes.tick_params(labelleft=False)
    return Picture(name="fit-map", title=page.title, alt=_alt(maps, plans), figure=figure)


def _devices(findings: Findings) -> str:
    names = dict.fromkeys(short_name(device.name) for device in findings.devices)
    return f"{count(len(findings.devices), 'device')}: {', '.join(names)}"


def _panel_title(findings: Findings, plan: Plan) -> str:
    draft = findings.shown
    if plan.serving.draft is None or draft is None:
        return "Target alone"
    return f"With {short_name(draft.name, 34)}"


def _limits(maps: Sequence[FitMap], context: int, batch: int) -> tuple[float, float, float, float]:
    """The axes: all edges, the point asked for, and what the models allow where that is not far beyond."""
    edges = [row.possible_tokens or 1 for fit_map in maps for row in fit_map.rows[:1]]
    longest = [fit_map.longest_tokens for fit_map in maps if fit_map.longest_tokens is not None]
    right = 2.0 * max(context, *edges)
    if longest and min(longest) <= right:
        right = 1.5 * max(longest)
    if not longest:
        right = min(right, *(fit_map.searched_tokens for fit_map in maps))
    tops = [fit_map.rows[-1].batch for fit_map in maps if not fit_map.unknown or _may_not_fit(fit_map)]
    return maps[0].shortest_tokens, right, 0.75, max(*tops, 2 * batch, 64 if not tops else 4)


def _draw_regions(axes: Axes, fit_map: FitMap, plan: Plan, limits: tuple[float, float, float, float]) -> None:
    left, right, bottom, top = limits
    rows = fit_map.rows
    axes.set_facecolor(_NOT)
    if rows:
        # A row stands for its whole batch: the first and the last reach half a sequence beyond.
        batches = [bottom, *(row.batch for row in rows), rows[-1].batch + 0.5]

        def reach(edge: Edge) -> list[float]:
            found = [float(edge(row) or _NOWHERE) for row in rows]
            return [found[0], *found, found[-1]]

        possible, fits = reach(lambda row: row.possible_tokens), reach(lambda row: row.fits_tokens)
        share = reach(lambda row: row.share_tokens)
        color, hatch = (_UNKNOWN, _UNKNOWN_HATCH) if fit_map.unknown else (_TIGHT, _TIGHT_HATCH)
        axes.fill_betweenx(batches, left, possible, facecolor=color, hatch=hatch, edgecolor=INK, linewidth=0)
        if not fit_map.unknown:
            axes.fill_betweenx(batches, left, fits, facecolor=_FITS, edgecolor=INK, linewidth=0)
            axes.plot(fits, batches, color=INK, linewidth=1.4)
        axes.plot(possible, batches, color=INK, linewidth=1.2, linestyle="--")
        if plan.serving.draft is not None and _over_share(fit_map):
            axes.fill_betweenx(
                batches, share, [max(s, p) for s, p in zip(share, possible, strict=True)],
                facecolor="none", edgecolor=INK, linewidth=0, hatch=_SHARE_HATCH,
            )  # fmt: skip
            axes.plot(share, batches, color=INK, linewidth=1.2, linestyle=":")
    beyond: dict[str, Any] = {"facecolor": _BEYOND, "edgecolor": INK, "hatch": _BEYOND_HATCH}
    if fit_map.most_batch is not None:
        axes.axhspan(fit_map.most_batch + 0.5, top, linewidth=0, **beyond)
    if fit_map.longest_tokens is not None and fit_map.longest_tokens < right:
        axes.axvspan(fit_map.longest_tokens, right, linewidth=0, **beyond)


def _may_not_fit(fit_map: FitMap) -> bool:
    return any((row.possible_tokens or 0) < fit_map.searched_tokens for row in fit_map.rows)


def _over_share(fit_map: FitMap) -> bool:
    """Whether the draft is over its share somewhere where the pair is not impossible."""
    return any((row.share_tokens or 0) < (row.possible_tokens or 0) for row in fit_map.rows)


def _set_up_axes(axes: Axes, limits: tuple[float, float, float, float]) -> None:
    left, right, bottom, top = limits
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.xaxis.set_major_locator(FixedLocator(power_ticks(left, right, 6)))
    axes.yaxis.set_major_locator(FixedLocator(power_ticks(1, top, 9)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:,.0f}"))
    axes.set_xlabel("Context (tokens a sequence)")


def _legend(maps: Sequence[FitMap], plans: Sequence[Plan]) -> tuple[tuple[Any, str], ...]:
    work = plans[0].serving.workload

    def patch(color: str, hatch: str = "") -> Patch:
        return Patch(facecolor=color, edgecolor=INK, linewidth=0.5, hatch=hatch)

    handles: list[tuple[Any, str]] = []
    if not all(fit_map.unknown for fit_map in maps):
        handles += [(patch(_FITS), "fits"), (patch(_TIGHT, _TIGHT_HATCH), "tight: it may fit")]
    if any(fit_map.unknown for fit_map in maps):
        handles.append((patch(_UNKNOWN, _UNKNOWN_HATCH), "cannot tell: a figure is missing"))
    if any(_may_not_fit(fit_map) for fit_map in maps):
        handles.append((patch(_NOT), "does not fit"))
    if any(_over_share(fit_map) for fit_map in maps):
        share = percent_up(plans[0].serving.workload.draft_budget_share)
        handles.append((patch("white", _SHARE_HATCH), f"the draft takes more than {share} of a device"))
    if any(fit_map.longest_tokens is not None or fit_map.most_batch is not None for fit_map in maps):
        handles.append((patch(_BEYOND, _BEYOND_HATCH), "more than the models or the engine allow"))
    star = Line2D([], [], marker="*", markersize=11, color="white", markeredgecolor=INK, linestyle="")
    handles.append((star, f"asked for: {count(work.batch, 'sequence')} of {count(work.context_tokens, 'token')}"))
    return tuple(handles)


def _alt(maps: Sequence[FitMap], plans: Sequence[Plan]) -> str:
    told = []
    for fit_map, plan in zip(maps, plans, strict=True):
        who = "the target alone" if plan.serving.draft is None else "the pair"
        batch = plan.serving.workload.batch
        row = next((row for row in fit_map.rows if row.batch == batch), None)
        told.append(f"{who} {_reach(row, plan, unknown=fit_map.unknown)}")
    work = plans[0].serving.workload
    asked = f"asked for were {work.context_tokens:,} tokens a sequence"
    return f"At {count(work.batch, 'sequence')} {', '.join(told)}; {asked}."


def _reach(row: FitEdges | None, plan: Plan, *, unknown: bool) -> str:
    if unknown or row is None or plan.verdict.answer is Answer.UNKNOWN:
        return "cannot be told to fit"
    if row.possible_tokens is None:
        return "does not fit at any context"
    fits = "fits for certain at none" if row.fits_tokens is None else f"fits up to {row.fits_tokens:,} tokens"
    return fits if row.possible_tokens == row.fits_tokens else f"{fits} and may fit up to {row.possible_tokens:,}"
