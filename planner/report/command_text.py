"""What becomes of a command, in words and as a document. No value of an option that is not planned is shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from model_catalog.errors import SpecplanError
from planner.commands.base import StartCommand
from planner.commands.reading.changes import Change
from planner.commands.reading.records import Reading
from planner.planning import Plan
from planner.report.findings import Findings
from planner.report.plain import Style, paint, safe_line
from planner.report.words import wrapped
from planner.speculation.prediction import Prediction
from planner.verdict import Answer

_LONGEST: Final = 160
_WORDS: Final[dict[Answer, tuple[str, Style]]] = {
    Answer.FITS: ("STARTS", "good"),
    Answer.TIGHT: ("MAY FAIL AT START", "unsure"),
    Answer.DOES_NOT_FIT: ("FAILS AT START", "bad"),
    Answer.UNKNOWN: ("CANNOT TELL", "unsure"),
}
_EFFECTS: Final = {
    "more": "needs more",
    "less": "needs less",
    "either": "more or less",
    "slight": "hardly matters",
}
_WIDER: Final = frozenset({"--tensor-parallel-size", "--tp-size"})
#: What the engine says at the constraint that binds.
_SAID: Final = {
    "engine budget": "what loading and the context need exceeds the share that the engine takes",
    "free memory at start": "less is free than the share that the engine takes",
    "pinned KV cache": "the pinned cache does not hold one sequence of full length",
    "free memory": "less is free than it needs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Changes to the command that make it start for certain, with the plan of the changed one."""

    changes: tuple[Change, ...]
    plan: Plan

    @property
    def text(self) -> str:
        """The changes in one line."""
        told, work = ", ".join(change.text for change in self.changes), self.plan.serving.workload
        wider = any(change.option in _WIDER for change in self.changes)
        return f"{told} (on {work.tp * work.pp} such devices)" if wider else told


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """The answer. ``findings`` None: the engine refuses it. ``corrected``: the first correction's command.

    ``single``: the plan of one sequence, where several were asked for and do not fit for certain.
    """

    reading: Reading
    engine: str
    findings: Findings | None
    refused: SpecplanError | None
    prediction: Prediction | None
    corrections: tuple[Correction, ...]
    corrected: StartCommand | None
    single: Plan | None = None

    @property
    def holds_less(self) -> bool:
        """Whether it starts, and only the pool is too small for as many sequences as are to be held at once."""
        single = self.single
        return (
            self.findings is not None
            and self.answer is self.findings.answer
            and single is not None
            and single.cache is not None
            and single.verdict.answer is Answer.FITS
        )

    @property
    def answer(self) -> Answer:
        """The plan's answer, unless options that are not planned may turn it."""
        if self.findings is None:
            return Answer.DOES_NOT_FIT
        plain = self.findings.answer
        effects = {entry.effect for entry in self.reading.unplanned}
        upward, downward = effects & {"more", "either"}, effects & {"less", "either"}
        if (plain is Answer.FITS and upward) or (plain is Answer.DOES_NOT_FIT and downward):
            return Answer.UNKNOWN
        return plain


def command_line(answer: CommandAnswer) -> str:
    """The verdict in one line of any length."""
    word, style = _WORDS[answer.answer]
    if answer.holds_less:
        word = "STARTS, HOLDS TOO FEW"
    return f"{paint(word, style)}: {_why(answer)}."


def command_text(answer: CommandAnswer, body: str, *, verbose: bool) -> str:
    """The whole answer; ``body`` is the plan in words."""
    blocks = [
        "\n".join(_read_as(answer, verbose=verbose)),
        "\n".join(_verdict(answer)),
        body,
        _change_block(answer),
    ]
    return "\n\n".join(block for block in blocks if block)


def _read_as(answer: CommandAnswer, *, verbose: bool) -> list[str]:
    reading = answer.reading
    said = ", ".join(f"{name} {safe_line(value)[:_LONGEST]}" for name, value in _said(reading)) or "nothing"
    lines = wrapped(f"Command         {answer.engine}: {said}", indent=16)
    if reading.unplanned:
        names = ", ".join(f"{entry.option} ({_EFFECTS[entry.effect]})" for entry in reading.unplanned)
        lines += wrapped(f"Not planned     {names}", indent=16)
    if reading.unknown:
        names = ", ".join(entry.option for entry in reading.unknown)
        lines += wrapped(f"Not known       {names}: left out", indent=16)
    if verbose and reading.ignored:
        lines += wrapped(f"No matter       {', '.join(reading.ignored)}", indent=16)
    return lines


def _verdict(answer: CommandAnswer) -> list[str]:
    lines = wrapped(command_line(answer), indent=2)
    prediction = answer.prediction
    if prediction is not None and prediction.speedup is not None:
        span = prediction.speedup
        lines += wrapped(
            f"The draft: {span.low:.2f} to {span.high:.2f} times plain decoding, predicted.", indent=2
        )
    for remark in answer.reading.remarks:
        lines += wrapped(f"  - {safe_line(remark.text)}", indent=4)
    return lines


def _why(answer: CommandAnswer) -> str:
    if answer.refused is not None:
        return safe_line(f"{answer.engine} refuses it, {answer.refused.subject}: {answer.refused.message}")
    if answer.findings is None:
        return "nothing was planned"
    plan, plain = answer.findings.told.plan, answer.findings.answer
    if answer.holds_less and answer.single is not None:
        return f"{_room(answer.single)}, where {plan.serving.workload.batch:,} are asked for"
    turned_down = answer.findings.turned_down
    if plain is Answer.DOES_NOT_FIT and turned_down is not None and turned_down.reasons:
        first = turned_down.reasons[0]
        if first.code not in {"does_not_fit", "reading_missing"}:
            return safe_line(first.text)
    constraint = plan.ranks[plan.binding_rank].verdict.constraint
    if plain is Answer.FITS:
        text = _room(plan)
    elif plain is Answer.UNKNOWN:
        text = safe_line(plan.verdict.binding)
    else:
        text = f"{'at worst ' if plain is Answer.TIGHT else ''}{_SAID.get(constraint, constraint)}"
    if answer.answer is not plain:
        word = _WORDS[plain][0].lower()
        names = ", ".join(entry.option for entry in answer.reading.unplanned if entry.effect != "slight")
        return f"without {names} it {word}: {text}"
    return text


def _room(plan: Plan) -> str:
    cache, context = plan.cache, plan.serving.workload.context_tokens
    if cache is None:
        return f"{plan.serving.workload.batch:,} x {context:,} tokens fit"
    return (
        f"the cache holds at least {cache.tokens:,} tokens, {cache.max_concurrency:.2f} sequences of {context:,} "
        f"at once"
    )


def _change_block(answer: CommandAnswer) -> str:
    if not answer.corrections:
        return ""
    aim = "holds them" if answer.holds_less else "starts"
    lines = [paint(f"What to change so that it {aim} (each re-planned):", "heading")]
    for number, correction in enumerate(answer.corrections):
        lines += wrapped(f"  {'- ' if number else '* '}{safe_line(correction.text)}", indent=4)
    if answer.corrected is not None:
        left_out = "not planned" if answer.reading.unplanned else "that do not matter to memory"
        lines += ["", paint(f"With the first of them, without options {left_out}:", "heading")]
        lines += [f"  {line}" for line in answer.corrected.lines]
        for name, content in answer.corrected.files:
            lines += [f"  {safe_line(name)}:", *(f"    {safe_line(line)}" for line in content.splitlines())]
        for note in answer.corrected.notes:
            lines += wrapped(f"  note: {safe_line(note)}", indent=8)
    return "\n".join(lines)


def _said(reading: Reading) -> Sequence[tuple[str, object]]:
    """The settings that the command names."""
    settings, hidden = reading.settings, {"engine", "longest", "visible"}
    found = [(field.name, getattr(settings, field.name)) for field in fields(settings) if field.name not in hidden]
    plain = [(name, value) for name, value in found if value is not None and value is not False]
    return [(name, value) for name, value in plain if not (name == "async_scheduling" and value is True)]


def command_document(answer: CommandAnswer, report: Mapping[str, Any] | None) -> dict[str, Any]:
    """The document's own keys. ``report``: the plan as `fit` would write it."""
    reading, refused, corrected = answer.reading, answer.refused, answer.corrected
    settings = {field.name: getattr(reading.settings, field.name) for field in fields(reading.settings)}
    span = None if answer.prediction is None else answer.prediction.speedup
    return {
        "answer": answer.answer.value,
        "text": _why(answer),
        "command": {
            "engine": answer.engine,
            "settings": settings,
            "unplanned": [{"option": entry.option, "effect": entry.effect} for entry in reading.unplanned],
            "unknown": [
                {"option": entry.option, "near": list(entry.near), "why": entry.why or None}
                for entry in reading.unknown
            ],
            "ignored": list(reading.ignored),
            "remarks": [{"code": remark.code, "text": remark.text} for remark in reading.remarks],
        },
        "refused": None if refused is None else {"subject": refused.subject, "message": refused.message},
        "speedup": None if span is None else {"low": span.low, "high": span.high},
        "corrections": [
            [
                {"action": change.action, "option": change.option, "before": change.before, "after": change.after}
                for change in correction.changes
            ]
            for correction in answer.corrections
        ],
        "corrected_command": None
        if corrected is None
        else {"argv": list(corrected.argv), "text": corrected.text, "files": dict(corrected.files)},
        "report": report,
    }
