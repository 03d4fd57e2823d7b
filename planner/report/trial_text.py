"""A trial in words."""

from typing import Final

from planner.report.plain import Style, paint, safe_line
from planner.report.tables import table
from planner.report.words import need_bytes, wrapped
from planner.trial.statistics import Estimate
from planner.trial.summary import Summary, by_task

_WORDS: Final[dict[str, tuple[str, Style]]] = {
    "helps": ("HELPS", "good"),
    "hurts": ("HURTS", "bad"),
    "unsure": ("CANNOT TELL", "unsure"),
}
_STOPPED: Final = {
    "interval": "ended early, the interval being narrow",
    "time": "ended when its time was up",
    "prompts": "all prompts run",
}
_LABEL_WIDTH: Final = 16


def trial_text(target: str, draft: str, summary: Summary, *, quiet: bool) -> str:
    """The whole answer, or with ``quiet`` its verdict line alone."""
    if quiet:
        return verdict_line(summary)
    found, outcome = summary.measured, summary.outcome
    positions = ", ".join("?" if rate is None else f"{rate:.2f}" for rate in found.acceptance_per_position)
    rate = "unknown" if found.acceptance_rate is None else f"{found.acceptance_rate:.2f}"
    versions = ", ".join(f"{name} {number}" for name, number in outcome.versions.items())
    rows = [
        ("Trial", f"{safe_line(target)} with {safe_line(draft)}"),
        ("Device", f"{safe_line(outcome.device)}; {summary.request.dtype}; {safe_line(versions)}"),
        (
            "Prompts",
            f"{found.prompts} prompts, {found.tokens:,} tokens each way, one sequence at a time, greedy; "
            + _STOPPED.get(outcome.stopped_by, safe_line(outcome.stopped_by))
            + (f"; {len(outcome.failures)} failed" if outcome.failures else ""),
        ),
        ("", ""),
        ("Acceptance", f"{rate} a token; by position {positions}"),
        ("Tokens a pass", _interval(found.mean_acceptance_length)),
        (
            "Target alone",
            f"{found.baseline_tokens_per_second:.1f} tokens/s, {_ms(found.target_step_seconds)} a step",
        ),
        (
            "With the draft",
            f"{found.speculative_tokens_per_second:.1f} tokens/s with k = {found.num_speculative_tokens}"
            + _steps(found.draft_step_seconds, found.verify_step_seconds),
        ),
        ("Step times say", "not told" if found.predicted_speedup is None else f"{found.predicted_speedup:.2f} ×"),
        ("Same output", _lossless(summary)),
        ("Memory", _memory(summary)),
    ]
    lines = [
        line for label, text in rows for line in wrapped(f"{label:<{_LABEL_WIDTH}}{text}", indent=_LABEL_WIDTH)
    ]
    return "\n".join([*lines, "", *wrapped(verdict_line(summary), indent=2), "", _tasks(summary)])


def verdict_line(summary: Summary) -> str:
    """``HELPS: 2.10 × ...`` with the interval."""
    word, style = _WORDS[summary.answer]
    speedup = summary.measured.speedup
    return f"{paint(word, style)}: {_interval(speedup)} × of plain decoding, measured"


def _tasks(summary: Summary) -> str:
    rows = []
    for task, found in by_task(summary).items():
        speedup = found["speedup"]
        spread = "" if speedup["low"] is None else f"{speedup['low']:.2f} – {speedup['high']:.2f}"
        length = found["mean_acceptance_length"]["value"]
        rows.append((task, str(found["prompts"]), f"{length:.2f}", f"{speedup['value']:.2f} ×", spread))
    return table(rows, ["Task", "Prompts", "Tokens a pass", "Speedup", "95 %"], "lrrrl")


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f} (one prompt: no interval)"
    return f"{estimate.value:.2f} ({estimate.low:.2f} – {estimate.high:.2f})"


def _steps(draft: float | None, verify: float | None) -> str:
    if draft is None or verify is None:
        return ""
    return f": {_ms(draft)} a draft step, {_ms(verify)} a verification"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _lossless(summary: Summary) -> str:
    found = summary.measured
    if not found.diverged:
        return f"yes, token for token, on all {found.prompts} prompts"
    gap = (
        ""
        if found.max_logit_gap is None
        else f"; the target's logits of the two tokens differ by {found.max_logit_gap:.3f} at most"
    )
    return f"{found.diverged} of {found.prompts} prompts part at some token{gap}"


def _memory(summary: Summary) -> str:
    held, planned = summary.tensor_bytes, summary.planned_bytes
    if held is None:
        return "not known"
    text = f"{need_bytes(held)} of weights, caches and logits"
    if planned:
        text += f"; weights and caches were planned at {need_bytes(planned)} ({held / planned - 1:+.1%})"
    return text
