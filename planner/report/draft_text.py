"""The drafts in words: a table of candidates, why some will not do, whether it pays, and what to run."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from model_catalog.drafts import DraftMethod
from planner.commands.base import StartCommand
from planner.report.advice import Elsewhere
from planner.report.findings import Findings, JudgedDraft
from planner.report.plain import Style, paint, safe_line
from planner.report.tables import table
from planner.report.words import count, device_line, percent_up, wrapped
from planner.speculation.compatibility import CompatibilityVerdict
from planner.speculation.diagnosis import Problem
from planner.speculation.prediction import Prediction
from planner.verdict import Answer

METHOD_NAMES: Final = {
    DraftMethod.DRAFT_MODEL: "draft model",
    DraftMethod.EAGLE: "EAGLE head",
    DraftMethod.EAGLE3: "EAGLE-3 head",
    DraftMethod.MTP: "the target's own MTP layers",
    DraftMethod.NGRAM: "n-gram lookup",
    DraftMethod.DFLASH: "DFlash head",
    DraftMethod.DSPARK: "DSpark head",
}
_SHORT_METHODS: Final = {
    DraftMethod.DRAFT_MODEL: "model",
    DraftMethod.EAGLE: "EAGLE",
    DraftMethod.EAGLE3: "EAGLE-3",
    DraftMethod.MTP: "MTP",
    DraftMethod.NGRAM: "n-gram",
    DraftMethod.DFLASH: "DFlash",
    DraftMethod.DSPARK: "DSpark",
}
_FITS: Final = {
    Answer.FITS: "fits",
    Answer.TIGHT: "tight",
    Answer.DOES_NOT_FIT: "no",
    Answer.UNKNOWN: "?",
}
_WORTH: Final[dict[str, tuple[str, Style]]] = {
    "yes": ("YES", "good"),
    "no": ("NO", "bad"),
    "depends": ("IT DEPENDS", "unsure"),
}
#: Problems whose evidence stands elsewhere in the answer.
_TOLD_ELSEWHERE: Final = frozenset(
    {
        *("reading_missing", "out_of_memory_at_start", "utilization_window_empty", "fraction_not_free"),
        *("no_cache_blocks", "pool_below_batch", "draft_over_budget", "vocabulary_refused", "tokens_differ"),
        *("pair_unknown", "low_acceptance", "slower_than_baseline", "stops_paying_under_load"),
        "fraction_leaves_too_little",
    }
)
#: Leaves 80 columns for the whole row.
_NAME_WIDTH: Final = 31


def drafts_header(findings: Findings) -> str:
    """For whom the drafts are: target, load, engine and devices, in at most two lines."""
    plan = findings.alone.plan
    work, engine = plan.serving.workload, plan.engine
    widths = f"tp {work.tp}" + (f", pp {work.pp}" if work.pp > 1 else "")
    text = (
        f"Drafts for {safe_line(plan.serving.target.snapshot.repo_id)}: "
        f"{count(work.batch, 'sequence')} of {work.context_tokens:,} tokens, {engine.name} {engine.version}, "
        f"{widths}, {safe_line(device_line(findings.devices))}"
    )
    return "\n".join(wrapped(text, indent=2))


def drafts_block(findings: Findings) -> str:
    """The table of all candidates and the reasons of those that will not do; empty where none was considered."""
    if not findings.drafts and not findings.discarded:
        return ""
    accepted = [draft for draft in findings.drafts if draft.accepted]
    rows = [_row(draft, str(number)) for number, draft in enumerate(accepted, 1)]
    rows += [_row(draft, "-") for draft in findings.drafts if not draft.accepted]
    blocks = []
    if rows:
        blocks.append(table(rows, ["", "Draft", "By", "k", "Decode speed", "Share", "Fits"], "rllrlrl"))
    reasons = [*_warnings(accepted), *_refusals(findings)]
    if reasons:
        blocks.append("\n".join(reasons))
    return "\n".join(blocks)


def worth_block(findings: Findings) -> str:
    """Whether speculation pays here, with its reasons; empty where nobody asked."""
    worth = findings.worth
    if worth is None:
        return ""
    word, style = _WORTH[worth.answer]
    lines = [f"Worth it?       {paint(word, style)}"]
    for reason in worth.reasons:
        lines += wrapped(f"  - {safe_line(reason.text)}", indent=4)
    return "\n".join(lines)


def prediction_rows(prediction: Prediction | None) -> list[tuple[str, str]]:
    """The prediction of the chosen draft as labelled rows."""
    if prediction is None:
        return []
    rate, length = prediction.acceptance.rate, prediction.mean_acceptance_length
    told = prediction.speedup is not None
    how = "measured" if prediction.measured else "predicted"
    rows = [
        ("Decode speed", f"{_times(prediction)} " + (f"of plain decoding, {how}" if told else "for this load")),
        (
            "Acceptance",
            f"{rate.low:.2f} – {rate.high:.2f} a token ({safe_line(prediction.acceptance.source)}): "
            f"{length.low:.1f} – {length.high:.1f} tokens a pass",
        ),
        (
            "Draft's cost",
            f"{prediction.cost_ratio.low:.2f} – {prediction.cost_ratio.high:.2f} of a target step "
            f"({safe_line(prediction.cost_source)})",
        ),
    ]
    if prediction.end_to_end_speedup is not None:
        whole = prediction.end_to_end_speedup
        rows.append(("Whole request", f"{whole.low:.2f} – {whole.high:.2f} ×, prompt included"))
    if prediction.break_even_acceptance is not None:
        text = f"at an acceptance of {prediction.break_even_acceptance:.2f}"
        if prediction.stops_paying_at_batch is not None and prediction.stops_paying_at_batch > 1:
            text += f"; no longer from about {count(prediction.stops_paying_at_batch, 'sequence')} at once"
        rows.append(("Breaks even", text))
    rows.append(("Ceiling", f"{prediction.ceiling_speedup:.1f} ×, 1/(1 - acceptance): never reached"))
    return rows


def command_block(command: StartCommand | None, chosen: JudgedDraft | None = None) -> str:
    """What to run; empty without a recommendation. What the table says of the chosen draft is not said again."""
    if command is None:
        return ""
    lines = [paint("Run it:", "heading"), *(f"  {line}" for line in command.lines)]
    for name, content in command.files:
        lines += [f"  {safe_line(name)}:", *(f"    {safe_line(line)}" for line in content.splitlines())]
    compatibility = None if chosen is None else chosen.offer.compatibility
    said = {check.text for check in compatibility.checks} if compatibility is not None else set()
    for note in command.notes:
        if note in said:
            continue
        lines += wrapped(f"  note: {safe_line(note)}", indent=8)
    return "\n".join(lines)


def problems_block(problems: Sequence[Problem], *, verbose: bool) -> str:
    """Known problems that the plan shows, each with what helps; empty where there are none.

    What the verdict, the remedies or the table of drafts say already is left to ``verbose``.
    """
    problems = [problem for problem in problems if verbose or problem.code not in _TOLD_ELSEWHERE]
    if not problems:
        return ""
    lines = [paint("Watch out:", "heading")]
    for problem in problems:
        lines += wrapped(f"  {safe_line(problem.title)}: {safe_line(problem.evidence)}", indent=4)
        for remedy in problem.remedies[:2]:
            lines += wrapped(f"    - {safe_line(remedy)}", indent=6)
    return "\n".join(lines)


def elsewhere_block(elsewhere: Sequence[Elsewhere]) -> str:
    """What other engines make of the pair, each with its command; empty where nobody asked."""
    blocks = []
    for found in elsewhere:
        said = "" if found.compatibility is None else f": {found.compatibility.verdict.value.replace('_', ' ')}"
        lines = [paint(f"Under {found.engine} {found.version}{said}", "heading")]
        if found.why_not is not None:
            lines += wrapped(f"  no command: {safe_line(found.why_not)}", indent=4)
        if found.command is not None:
            lines += [f"  {line}" for line in found.command.lines]
            for name, content in found.command.files:
                lines += [f"  {safe_line(name)}:", *(f"    {safe_line(line)}" for line in content.splitlines())]
            for note in found.command.notes:
                lines += wrapped(f"  note: {safe_line(note)}", indent=8)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _row(judged: JudgedDraft, rank: str) -> tuple[str, ...]:
    plan, prediction = judged.plan, judged.offer.prediction
    budget = None if plan is None else plan.draft_budget
    name = safe_line(judged.name)
    return (
        rank,
        _folded(name),
        _SHORT_METHODS[judged.draft.method],
        str(judged.draft.num_speculative_tokens),
        _times(prediction) if prediction is not None else "",
        "" if budget is None or budget.share is None else percent_up(budget.share),
        "" if plan is None else _FITS[plan.verdict.answer],
    )


def _folded(name: str) -> str:
    """A repo id that is too long for its column: the organisation on a line of its own, then the name."""
    if len(name) <= _NAME_WIDTH:
        return name
    organisation, slash, rest = name.rpartition("/")
    lines = [organisation + slash] if slash else []
    return "\n".join([*lines, *wrap(rest, _NAME_WIDTH - 1, initial_indent=" ", subsequent_indent=" ")])


def _times(prediction: Prediction) -> str:
    if prediction.speedup is None:
        return "cannot be told"
    return f"{prediction.speedup.low:.2f} – {prediction.speedup.high:.2f} ×"


def _warnings(accepted: list[JudgedDraft]) -> list[str]:
    lines: list[str] = []
    for judged in accepted:
        compatibility = judged.offer.compatibility
        if compatibility is None or compatibility.verdict is CompatibilityVerdict.ACCEPTED:
            continue
        for check in compatibility.failed:
            lines += wrapped(f"{safe_line(judged.name)}: {safe_line(check.text)}", indent=2)
    return lines


def _refusals(findings: Findings) -> list[str]:
    lines: list[str] = []
    for judged in findings.drafts:
        if not judged.accepted:
            why = "; ".join(safe_line(reason.text) for reason in judged.reasons)
            lines += wrapped(f"{safe_line(judged.name)} will not do: {why}", indent=2)
            if findings.named:
                lines += _ways_out(judged)
    for discarded in findings.discarded:
        text = f"{safe_line(discarded.candidate.name)} left out: {safe_line(discarded.text)}"
        lines += wrapped(text, indent=2)
    return lines


def _ways_out(judged: JudgedDraft) -> list[str]:
    """What would help a draft that the user wanted, by the checks that it failed."""
    remedies = [check.remedy for check in judged.offer.checks if check.passed is False and check.refuses]
    return [line for remedy in remedies if remedy for line in wrapped(f"  - {safe_line(remedy)}", indent=4)]
