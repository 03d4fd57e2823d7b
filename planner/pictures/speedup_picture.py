"""Draws the decode speed against k: the predicted range at each k, and what trials measured."""

from dataclasses import dataclass
from typing import Any, Final

from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator

from planner.pictures.page import FAINT, INK, Page, Picture, lighter, short_name
from planner.report.findings import Findings, JudgedDraft
from planner.speculation.mean_length import mean_acceptance_length
from planner.speculation.ranges import Range

_PANEL_INCHES: Final = 2.7
_RANGE: Final = "#21918c"
_CHOSEN: Final = "#440154"
_MARKERS: Final = ("D", "s", "^", "v", "P", "X")
#: More trials than markers would not be told apart.
_MOST_TRIALS: Final = len(_MARKERS)


def speedup_picture(findings: Findings) -> Picture | None:
    """The told draft's prediction and the trials of all drafts; None where neither has a figure."""
    shown = findings.shown
    predicted, measured = predicted_speedups(shown), measured_speedups(findings)
    if shown is None or not (predicted or measured):
        return None
    k = shown.draft.num_speculative_tokens
    named = {*predicted, *(point.k for point in measured), k}
    ks = list(range(max(1, min(named)), max(named) + 1))
    page = Page(
        title="Decode speed against tokens drafted a step",
        subtitle=_subtitle(findings, shown),
        legend=_legend(shown, predicted, measured),
        legend_columns=2,
        notes=_notes(shown, measured),
    )
    figure, (axes,) = page.lay_out(_PANEL_INCHES, left_inches=0.85)
    for at, span in predicted.items():
        color = _CHOSEN if at == k else _RANGE
        planned = at == k
        axes.bar(
            at,
            span.high - span.low,
            bottom=span.low,
            width=0.56,
            facecolor=lighter(color, 0.55 if planned else 0.7),
            edgecolor=color,
            linewidth=2 if planned else 1,
            hatch="" if planned else "///",
            hatchcolor=color,
            zorder=2,
        )
    lengths = most_speedups(shown, ks)
    axes.plot(list(lengths), list(lengths.values()), color=INK, linestyle=":", linewidth=1.2, marker=".", zorder=3)
    for number, point in enumerate(measured):
        interval = point.interval
        error = None if interval is None else [[point.value - interval.low], [interval.high - point.value]]
        axes.errorbar(
            point.k,
            point.value,
            yerr=error,
            marker=_MARKERS[number],
            markersize=6,
            color=INK,
            markerfacecolor="white",
            capsize=3,
            linestyle="",
            zorder=4,
        )
    axes.axhline(1.0, color=INK, linewidth=1.4, linestyle="--", zorder=1)
    axes.set_xlim(min(ks) - 0.6, max(ks) + 0.6)
    # An interval of few prompts may reach anywhere: the axis follows the values, the legend tells the interval.
    tops = [
        *(span.high for span in predicted.values()),
        *lengths.values(),
        *(point.value for point in measured),
        1.5,
    ]
    axes.set_ylim(0, 1.12 * max(tops))
    axes.xaxis.set_major_locator(FixedLocator(ks))
    axes.set_xlabel("Tokens drafted a step, num_speculative_tokens (k)")
    axes.set_ylabel("× plain decoding")
    axes.yaxis.grid(visible=True, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    return Picture(name="speedup", title=page.title, alt=_alt(shown, k, predicted, measured), figure=figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A trial's speedup; ``interval`` (95 %) is None where one prompt was measured."""

    name: str
    k: int
    value: float
    interval: Range | None
    source: str

    @property
    def text(self) -> str:
        """``2.17 (1.66 – 2.84) ×``."""
        span = self.interval
        return f"{self.value:.2f} ×" if span is None else f"{self.value:.2f} ({span.low:.2f} – {span.high:.2f}) ×"


def predicted_speedups(draft: JudgedDraft | None) -> dict[int, Range]:
    """The predicted range by k, without k = 0; empty where nothing was predicted, or was replaced by a trial."""
    if draft is None or draft.offer.prediction is None or draft.offer.prediction.measured:
        return {}
    return {k: span for k, span in draft.offer.prediction.by_num_speculative_tokens if k > 0}


def most_speedups(draft: JudgedDraft, ks: list[int]) -> dict[int, float]:
    """L at the high end of the acceptance, by k: reached only if drafting and verifying were free."""
    if draft.offer.prediction is None:
        return {}
    rates = draft.offer.prediction.acceptance
    return {k: mean_acceptance_length(rates, k).high for k in ks}


def measured_speedups(findings: Findings) -> list[Measured]:
    """The trials that have a speedup, of the best drafts first."""
    found: list[Measured] = []
    for draft in findings.drafts:
        trial = draft.trial
        if trial is None or trial.speedup is None or trial.num_speculative_tokens is None:
            continue
        figures = trial.document["speedup"]
        known = figures["low"] is not None and figures["high"] is not None
        found.append(
            Measured(
                name=short_name(draft.name, 34),
                k=trial.num_speculative_tokens,
                value=float(figures["value"]),
                interval=trial.speedup if known else None,
                source=trial.source,
            )
        )
    return found[:_MOST_TRIALS]


def _notes(shown: JudgedDraft, measured: list[Measured]) -> tuple[str, ...]:
    notes = [] if shown.offer.prediction is None else list(shown.offer.prediction.notes)
    notes += dict.fromkeys(point.source for point in measured)
    return tuple(f"{note[0].upper()}{note[1:]}." for note in notes)


def _subtitle(findings: Findings, shown: JudgedDraft) -> str:
    work = findings.alone.plan.serving.workload
    target = short_name(findings.alone.plan.serving.target.snapshot.repo_id)
    text = f"{target} with {short_name(shown.name)}, {work.batch:,} at once, context {work.context_tokens:,}."
    prediction = shown.offer.prediction
    if prediction is None:
        return text
    rate = prediction.acceptance.rate
    return f"{text} Acceptance {rate.low:.2f} – {rate.high:.2f} a token ({prediction.acceptance.source})."


def _legend(
    shown: JudgedDraft, predicted: dict[int, Range], measured: list[Measured]
) -> tuple[tuple[Any, str], ...]:
    handles: list[tuple[Any, str]] = []
    k = shown.draft.num_speculative_tokens
    if predicted:
        patch = Patch(facecolor=lighter(_RANGE), edgecolor=_RANGE, hatch="///", hatchcolor=_RANGE)
        handles.append((patch, "predicted, low to high"))
    if k in predicted:
        patch = Patch(facecolor=lighter(_CHOSEN, 0.55), edgecolor=_CHOSEN, linewidth=2)
        handles.append((patch, f"the same at the planned k = {k}"))
    handles.append((Line2D([], [], color=INK, linewidth=1.4, linestyle="--"), "1 ×: plain decoding, breaks even"))
    if shown.offer.prediction is not None:
        line = Line2D([], [], color=INK, linestyle=":", linewidth=1.2, marker=".")
        handles.append((line, "L, tokens a pass at most: the speed if drafts were free"))
    for number, point in enumerate(measured):
        marker = Line2D([], [], color=INK, marker=_MARKERS[number], markerfacecolor="white", linestyle="")
        handles.append((marker, f"measured: {point.text} with {point.name}"))
    return tuple(handles)


def _alt(shown: JudgedDraft, k: int, predicted: dict[int, Range], measured: list[Measured]) -> str:
    told = []
    if k in predicted:
        told.append(f"{predicted[k].low:.2f} to {predicted[k].high:.2f} × plain decoding predicted at k = {k}")
    elif predicted:
        told.append(f"predictions for k = {min(predicted)} to {max(predicted)}, none for the planned {k}")
    told += [f"{point.text} measured at k = {point.k} with {point.name}" for point in measured]
    return f"Decode speed with {short_name(shown.name)}: {'; '.join(told)}."
