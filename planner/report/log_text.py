"""A start-up log beside its plan, in words and as a document. All that the log said is made safe to show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from model_catalog.units import GIB
from planner.logs.compare import LogLine, Side
from planner.logs.meanings import meaning
from planner.logs.readings import StartLog
from planner.planning import Plan
from planner.report.plain import Style, paint, safe_line
from planner.report.tables import table
from planner.report.words import need_bytes, wrapped
from planner.verdict import Answer

_LONGEST_VALUE: Final = 120
_LONGEST_ERROR: Final = 300
LINE_NAMES: Final = {
    "weights": "Weights",
    "draft_weights": "Draft weights",
    "non_torch": "Outside torch",
    "consumed": "Held after loading",
    "activation_peak": "Activation peak",
    "cuda_graph_estimate": "CUDA graphs, estimated",
    "cuda_graphs": "CUDA graphs, captured",
    "before_loading": "In use before loading",
    "kv_cache_memory": "KV cache memory",
    "kv_cache_tokens": "KV cache tokens",
    "kv_bytes_per_token": "KV cache per token",
    "max_concurrency": "Sequences at once",
}
_SETTING_NAMES: Final = {
    "engine": "engine",
    "version": "release",
    "model": "model",
    "context_tokens": "max_model_len",
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "draft_method": "draft's method",
    "draft_model": "draft",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAnswer:
    """The answer. ``why_not``: why there is no plan. ``saved``, ``not_saved``: what became of ``--save``."""

    log: StartLog
    plan: Plan | None
    lines: tuple[LogLine, ...]
    why_not: str = ""
    saved: tuple[str, ...] = ()
    not_saved: str | None = None

    @property
    def compared(self) -> tuple[LogLine, ...]:
        """The lines that were judged."""
        return tuple(line for line in self.lines if line.side is not Side.NOT_COMPARED)

    @property
    def off(self) -> tuple[LogLine, ...]:
        """The lines outside the planned bounds."""
        return tuple(line for line in self.compared if line.side is not Side.INSIDE)


def log_text(answer: LogAnswer) -> str:
    """The whole answer of `explain-log`."""
    blocks = ["\n".join(_settings(answer.log))]
    if answer.lines:
        blocks.append(_table(answer.lines))
    blocks.append("\n".join(_verdict(answer)))
    return "\n\n".join(blocks)


def log_line(answer: LogAnswer) -> str:
    """The answer in one line of any length."""
    word, style, text = _answer(answer)
    return f"{paint(word, style)}: {text}."


def _settings(log: StartLog) -> list[str]:
    named = [
        f"{_SETTING_NAMES.get(name, name)} {safe_line(value)[:_LONGEST_VALUE]}"
        for name, value in log.settings.named
    ]
    said = ", ".join(named) or "nothing that is known of an engine's start"
    lines = wrapped(f"The log says    {said}", indent=16)
    if log.settings.unplanned:
        names = ", ".join(log.settings.unplanned)
        lines += wrapped(f"Not planned     {names}: lines that they move may be off", indent=16)
    if log.starts > 1:
        lines += wrapped(f"Starts          {log.starts} in this log: the last is told", indent=16)
    if log.ignored_lines:
        lines += wrapped(f"Left out        {log.ignored_lines} odd lines", indent=16)
    return lines


def _table(lines: Sequence[LogLine]) -> str:
    rows = [(LINE_NAMES[line.code], _planned(line), _figure(line, line.measured), _where(line)) for line in lines]
    return table(rows, ["Line", "Planned", "The log", "It lies"], "lrrl", fold=3)


def _planned(line: LogLine) -> str:
    if line.low is None or line.high is None:
        return ""
    low, high = _figure(line, line.low), _figure(line, line.high)
    return high if low == high else f"{low.removesuffix(' GiB')} – {high}"


def _figure(line: LogLine, value: float | None) -> str:
    if value is None:
        return ""
    if line.code == "kv_bytes_per_token":
        return f"{value:,.0f} B"
    if line.unit == "bytes":
        return f"{value / GIB:,.2f} GiB"
    return f"{value:,.0f}" if line.unit == "tokens" else f"{value:,.2f}"


def _where(line: LogLine) -> str:
    if line.side is Side.NOT_COMPARED:
        return "not compared"
    return "inside" if line.side is Side.INSIDE else f"{_figure(line, line.off_by)} {line.side.value}"


def _answer(answer: LogAnswer) -> tuple[str, Style, str]:
    number, off = len(answer.compared), len(answer.off)
    if answer.plan is None:
        return "CANNOT TELL", "unsure", safe_line(answer.why_not)
    if not number:
        return "CANNOT TELL", "unsure", "the log prints no figure that can be set beside the plan"
    if off:
        names = ", ".join(LINE_NAMES[line.code] for line in answer.off)
        return "DIFFERS", "bad", f"{off} of {number} lines outside the planned bounds: {names}"
    return "AGREES", "good", f"{number} of {number} lines inside the planned bounds"


def _verdict(answer: LogAnswer) -> list[str]:
    lines = wrapped(log_line(answer), indent=2)
    if answer.plan is not None:
        for line in answer.off:
            lines += wrapped(f"  - {LINE_NAMES[line.code]}: {meaning(line, answer.plan)}", indent=4)
    for line in answer.lines:
        if line.why is not None:
            lines += wrapped(f"  - {LINE_NAMES[line.code]} not compared: {line.why}", indent=4)
    lines += _failed(answer)
    if answer.saved:
        labels = ", ".join(answer.saved)
        lines += wrapped(f"Saved: {labels}. `specplan fit` uses them for exactly this set-up.", indent=2)
    if answer.not_saved is not None:
        lines += wrapped(f"Not saved: {answer.not_saved}.", indent=2)
    return lines


def _failed(answer: LogAnswer) -> list[str]:
    failure = answer.log.failure
    if failure is None:
        return []
    text = safe_line(f"{failure.kind}: {failure.text}")[:_LONGEST_ERROR]
    if failure.code != "out_of_memory":
        return wrapped(f"The start ended with an error: {text}", indent=2)
    lines = wrapped(f"{paint('OUT OF MEMORY', 'bad')}: the log ends with {text}", indent=2)
    if answer.plan is not None:
        lines += wrapped(f"  The plan of these settings: {_plan_says(answer.plan)}", indent=2)
    return lines


def _plan_says(plan: Plan) -> str:
    verdict = plan.verdict
    if verdict.answer is Answer.UNKNOWN or verdict.headroom_bytes is None:
        return "it cannot be told whether they fit"
    if verdict.answer is Answer.DOES_NOT_FIT:
        return f"they do not fit: {need_bytes(abs(verdict.headroom_bytes))} are missing"
    binding = safe_line(verdict.binding)
    return (
        f"they {'fit' if verdict.answer is Answer.FITS else 'may fit, and may not'} on an empty device; {binding}"
    )


def log_document(answer: LogAnswer) -> Mapping[str, Any]:
    """The document's own keys. Figures are the log's; null is what was not said."""
    failure, plan = answer.log.failure, answer.plan
    word, _, text = _answer(answer)
    return {
        "answer": {"CANNOT TELL": "unknown", "DIFFERS": "differs", "AGREES": "agrees"}[word],
        "text": text,
        "settings": dict(answer.log.settings.named),
        "unplanned": list(answer.log.settings.unplanned),
        "starts": answer.log.starts,
        "ignored_lines": answer.log.ignored_lines,
        "failure": None
        if failure is None
        else {"code": failure.code, "kind": safe_line(failure.kind), "text": safe_line(failure.text)},
        "plan": None if plan is None else _plan_entry(plan),
        "lines": [_entry(line, plan) for line in answer.lines],
        "saved": list(answer.saved),
        "not_saved": answer.not_saved,
    }


def _plan_entry(plan: Plan) -> dict[str, Any]:
    work, draft = plan.serving.workload, plan.serving.draft
    return {
        "target": plan.serving.target.snapshot.repo_id,
        "draft": draft.model.snapshot.repo_id if draft and draft.model else None,
        "method": draft.method.value if draft else None,
        "num_speculative_tokens": draft.num_speculative_tokens if draft else None,
        "engine": plan.engine.name,
        "version_assumed": plan.engine.version,
        "device": plan.ranks[0].rank.device.name,
        "tp": work.tp,
        "pp": work.pp,
        "context_tokens": work.context_tokens,
        "gpu_memory_utilization": plan.gpu_memory_utilization,
        "max_num_batched_tokens": plan.defaults.max_num_batched_tokens,
        "max_num_seqs": plan.defaults.max_num_seqs,
        "verdict": plan.verdict.answer.value,
    }


def _entry(line: LogLine, plan: Plan | None) -> dict[str, Any]:
    return {
        "code": line.code,
        "unit": line.unit,
        "measured": line.measured,
        "low": line.low,
        "high": line.high,
        "side": line.side.value,
        "off_by": line.off_by,
        "meaning": None if plan is None else meaning(line, plan),
        "why_not": line.why,
    }
