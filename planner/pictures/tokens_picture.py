"""Draws the tokens of the engine's own pool, without and with the draft: what is lost to it."""

from typing import Final

from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from planner.memory.breakdown import Group
from planner.pictures.page import FAINT, INK, MAYBE_HATCH, TERM_COLORS, Page, Picture, lighter, short_name
from planner.report.findings import Findings
from planner.speculation.ranges import Range

_ROW_INCHES: Final = 0.42
_ALONE, _PAIR = TERM_COLORS[Group.TARGET_WEIGHTS], TERM_COLORS[Group.KV_CACHE]


def tokens_picture(findings: Findings) -> Picture | None:
    """KV tokens for the target alone and with the told draft; None where the engine has no pool, or no room."""
    shown = findings.shown
    cost = None if shown is None else shown.cost
    if shown is None or cost is None or cost.kv_tokens_alone is None or cost.kv_tokens_pair is None:
        return None
    alone, pair = cost.kv_tokens_alone, cost.kv_tokens_pair
    plan = findings.told.plan
    rows = (("Target alone", alone, _ALONE), (f"With {short_name(shown.name, 20)}", pair, _PAIR))
    page = Page(
        title="KV tokens that the draft costs",
        subtitle=f"Tokens in the pool of {plan.engine.name} {plan.engine.version} at the same memory fraction. "
        + (f"{cost.text[0].upper()}{cost.text[1:]}." if cost.text else "The pool has no room without a draft."),
        legend=(
            (Patch(facecolor=INK, edgecolor=INK), "at least"),
            (Patch(facecolor="white", edgecolor=INK, hatch=MAYBE_HATCH, linewidth=0.5), "from low to high bound"),
        ),
    )
    figure, (axes,) = page.lay_out(_ROW_INCHES * 2, left_inches=1.85, right_inches=2.1)
    for position, (_, span, color) in enumerate(rows):
        axes.barh(position, span.low, height=0.62, facecolor=color, edgecolor=INK, linewidth=0.5)
        axes.barh(
            position, span.high - span.low, left=span.low, height=0.62, facecolor=lighter(color), edgecolor=INK,
            linewidth=0.5, hatch=MAYBE_HATCH, hatchcolor=INK,
        )  # fmt: skip
        axes.text(1.02, position, _figures(span), transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    axes.set_xlim(0, max(alone.high, pair.high, 1) * 1.02)
    axes.set_ylim(1.5, -0.5)
    axes.set_yticks([0, 1], [label for label, _, _ in rows])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:,.0f}"))
    axes.set_xlabel("KV cache (tokens)")
    axes.xaxis.grid(visible=True, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    without = f"{_figures(alone)} tokens for the target alone"
    alt = f"The engine's pool holds {without} and {_figures(pair)} with the draft."
    return Picture(name="kv-tokens", title=page.title, alt=alt, figure=figure)


def _figures(span: Range) -> str:
    low, high = int(span.low), int(span.high)
    return f"{low:,}" if low == high else f"{low:,} – {high:,}"
