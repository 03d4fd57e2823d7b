"""A trial in words, from its document: alone, or as a block of `fit`."""

from collections.abc import Mapping
from typing import Any, Final

from planner.report.plain import Style, paint, safe_line
from planner.report.tables import table
from planner.report.words import count, need_bytes, wrapped
from planner.trial.result import PairTrial
from planner.trial.verdict import ACCEPTANCE, MEMORY, SPEEDUP

_WORDS: Final[dict[str | None, tuple[str, Style]]] = {
    "helps": ("HELPS", "good"),
    "hurts": ("HURTS", "bad"),
    "unsure": ("CANNOT TELL", "unsure"),
    "assumed": ("STEP TIMES ONLY", "unsure"),
    None: ("TRIAL FAILED", "bad"),
}
_STOPPED: Final = {
    "interval": "ended early, the interval being narrow",
    "time": "ended when its time was up",
    "prompts": "all prompts run",
}
_LABEL_WIDTH: Final = 16
#: Wide enough apart that the halves of one trial cast doubt on the machine, not on the draft.
_WIDE_SPREAD: Final = 0.1


def trial_text(target: str, draft: str, trial: PairTrial, *, quiet: bool) -> str:
    """The whole answer of `trial`, or with ``quiet`` its verdict line alone."""
    if quiet:
        return verdict_line(trial)
    found = trial.document
    head = [
        ("Trial", f"{safe_line(target)} with {safe_line(draft)}"),
        ("Device", _device(found)),
    ]
    blocks = ["\n".join(_labelled([*head, *trial_rows(trial)])), "\n".join(wrapped(verdict_line(trial), indent=2))]
    if found["by_task"]:
        blocks.append(_tasks(found["by_task"]))
    return "\n\n".join(blocks)


def trials_block(trials: Mapping[str, PairTrial]) -> str:
    """What was measured, pair by pair; empty where nothing was."""
    blocks = []
    for name, trial in trials.items():
        lines = [paint(f"{trial_title(name, trial)}:", "heading")]
        rows = [(f"  {label}", text) for label, text in trial_rows(trial, brief=True)]
        lines += _labelled(rows, width=_LABEL_WIDTH + 2)
        lines += wrapped(f"  {verdict_line(trial)}", indent=4)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def trial_title(name: str, trial: PairTrial) -> str:
    """What was measured, and when where that was not just now."""
    when = f" on {str(trial.document['measured_at'])[:10]}" if trial.remembered else ""
    return f"Measured{when} with {safe_line(name)}"


def verdict_line(trial: PairTrial) -> str:
    """``HELPS: 2.10 × ...`` with the interval, and whether the plan was right."""
    word, style, said = trial_verdict(trial)
    return f"{paint(word, style)}: {said}"


def trial_verdict(trial: PairTrial) -> tuple[str, Style, str]:
    """The same in parts: the word, its style, the rest."""
    found = trial.document
    word, style = _WORDS[trial.answer]
    if trial.answer is None:
        error = found["error"]
        return word, style, f"{safe_line(error['message'])}. {safe_line(error['hint'])}"
    if found["speedup"] is None:
        said = "memory and step times of random weights; acceptance stays an assumption"
    else:
        said = f"{_interval(found['speedup'])} × of plain decoding, measured"
    return word, style, f"{said}; {_plan(trial)}"


def _plan(trial: PairTrial) -> str:
    comparisons = trial.document["comparisons"]
    wrong = [item for item in comparisons if item["agrees"] is False]
    if wrong:
        return "contradicts the plan: " + "; ".join(f"{item['name']} {safe_line(item['text'])}" for item in wrong)
    if any(item["agrees"] for item in comparisons):
        return "confirms the plan"
    return "the plan had no figure to hold it against"


def trial_rows(trial: PairTrial, *, brief: bool = False) -> list[tuple[str, str]]:
    """What was measured, label by label; ``brief`` leaves out what went as it should."""
    found = trial.document
    if trial.answer is None:
        return []
    rows = [("Prompts", _prompts(found)), ("Acceptance", _acceptance(found))]
    if found["mean_acceptance_length"] is not None:
        rows.append(("Tokens a pass", _interval(found["mean_acceptance_length"])))
    rows += [("Target alone", _alone(found)), ("With the draft", _with_draft(found))]
    if found["speedup_of_step_times"] is not None and not brief:
        rows.append(("Step times say", f"{found['speedup_of_step_times']:.2f} ×"))
    if found["lossless"]["checked"] and (not brief or found["lossless"]["diverged"]):
        rows.append(("Same output", _lossless(found)))
    rows.append(("Memory", _memory(found)))
    rows += [("Engine", f"{item['name']}: {safe_line(item['text'])}") for item in _engine_lines(found)]
    spread = found["repeats_spread"]
    if spread is not None and (not brief or spread > _WIDE_SPREAD):
        rows.append(("Steadiness", f"the halves of the trial differ by {spread:.1%}"))
    rows += [("Note", safe_line(str(note))) for note in found["notes"]]
    return [row for row in rows if row[1]]


def _engine_lines(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a serving engine said of its own memory."""
    return [item for item in found["comparisons"] if item["name"] not in {MEMORY, SPEEDUP, ACCEPTANCE}]


def _device(found: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    driver = found["device"]["driver"]
    named = f"{found['device']['name']}, driver {driver}" if driver else found["device"]["name"]
    return (
        f"{safe_line(named)}; {found['backend']} backend, {found['how']}; {found['dtype']}; {safe_line(versions)}"
    )


def _prompts(found: Mapping[str, Any]) -> str:
    batch = "one sequence at a time" if found["batch"] == 1 else f"{found['batch']} sequences at once"
    drawn = "greedy" if not found["temperature"] else f"sampled at temperature {found['temperature']:g}"
    runs = count(found["prompts"], "prompt" if found["batch"] == 1 else "run")
    failed = f"; {found['prompts_failed']} failed" if found["prompts_failed"] else ""
    stopped = _STOPPED.get(found["stopped_by"], safe_line(str(found["stopped_by"])))
    return f"{runs}, {found['tokens']:,} tokens alone, {batch}, {drawn}; {stopped}{failed}"


def _acceptance(found: Mapping[str, Any]) -> str:
    if found["acceptance_rate"] is None:
        return "" if found["speedup"] is not None else "not measured: the weights are random"
    positions = ", ".join("?" if rate is None else f"{rate:.2f}" for rate in found["acceptance_per_position"])
    return f"{found['acceptance_rate']:.2f} a token; by position {positions}"


def _alone(found: Mapping[str, Any]) -> str:
    return f"{found['baseline_tokens_per_second']:.1f} tokens/s, {_ms(found['t_target_seconds'])} a step"


def _with_draft(found: Mapping[str, Any]) -> str:
    k, rate = found["num_speculative_tokens"], found["speculative_tokens_per_second"]
    speed = f"k = {k}" if rate is None else f"{rate:.1f} tokens/s with k = {k}"
    if found["t_draft_seconds"] is None or found["t_verify_seconds"] is None:
        return speed
    return (
        f"{speed}: {_ms(found['t_draft_seconds'])} a draft step, {_ms(found['t_verify_seconds'])} a verification"
    )


def _lossless(found: Mapping[str, Any]) -> str:
    lossless = found["lossless"]
    if not lossless["diverged"]:
        return f"yes, token for token, in all {lossless['checked']}"
    gap = lossless["max_logit_gap"]
    widest = "" if gap is None else f"; the target's logits of the two tokens differ by {gap:.3f} at most"
    return f"{lossless['diverged']} of {lossless['checked']} part at some token{widest}"


def _memory(found: Mapping[str, Any]) -> str:
    memory = found["memory"]
    held = memory["allocated_peak_bytes"] or memory["tensor_bytes"]
    if held is None:
        return ""
    what = "allocated at the peak" if memory["allocated_peak_bytes"] else "of weights, caches and logits"
    text = f"{need_bytes(held)} {what}"
    compared = next((item for item in found["comparisons"] if item["name"] == "memory"), None)
    if compared is not None:
        text += f", {compared['text']} ({need_bytes(memory['predicted_bytes'])})"
    if memory["process_peak_bytes"] and not memory["allocated_peak_bytes"]:
        text += f"; {need_bytes(memory['process_peak_bytes'])} the whole process at its peak"
    if memory["device_peak_bytes"]:
        text += f"; {need_bytes(memory['device_peak_bytes'])} on the device, by the driver"
    return text


def _tasks(tasks: Mapping[str, Any]) -> str:
    rows = []
    for task, found in tasks.items():
        speedup, length = found["speedup"], found["mean_acceptance_length"]
        spread = "" if speedup["low"] is None else f"{speedup['low']:.2f} – {speedup['high']:.2f}"
        rows.append((task, str(found["prompts"]), f"{length['value']:.2f}", f"{speedup['value']:.2f} ×", spread))
    return table(rows, ["Task", "Prompts", "Tokens a pass", "Speedup", "95 %"], "lrrrl", fold=0)


def _labelled(rows: list[tuple[str, str]], width: int = _LABEL_WIDTH) -> list[str]:
    return [line for label, text in rows for line in wrapped(f"{label:<{width}}{text}", indent=width)]


def _interval(estimate: Mapping[str, float | None]) -> str:
    if estimate["low"] is None or estimate["high"] is None:
        return f"{estimate['value']:.2f} (one run: no interval)"
    return f"{estimate['value']:.2f} ({estimate['low']:.2f} – {estimate['high']:.2f})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"
