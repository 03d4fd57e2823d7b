"""What is said of the drafts, row by row: candidates, what keeps them off, prediction, worth, known problems.

Owns the words that the terminal and the page share; whoever shows them owns the layout.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from model_catalog.drafts import DraftMethod
from planner.commands.base import StartCommand
from planner.report.findings import Findings, JudgedDraft
from planner.report.plain import Style, safe_line
from planner.report.words import count, percent_up
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
WORTH: Final[dict[str, tuple[str, Style]]] = {
    "yes": ("YES", "good"),
    "no": ("NO", "bad"),
    "depends": ("IT DEPENDS", "unsure"),
}
#: Of a target step, as costs are rounded.
_LEAST_SHOWN: Final = 0.01
#: Problems whose evidence stands elsewhere in the answer.
_TOLD_ELSEWHERE: Final = frozenset(
    {
        *("reading_missing", "out_of_memory_at_start", "utilization_window_empty", "fraction_not_free"),
        *("no_cache_blocks", "pool_below_batch", "draft_over_budget", "vocabulary_refused", "tokens_differ"),
        *("pair_unknown", "low_acceptance", "slower_than_baseline", "stops_paying_under_load"),
        "fraction_leaves_too_little",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRow:
    """A candidate. ``rank`` is its number among the accepted, None of one that will not do.

    ``said``: what the engine warns of, or why the draft will not do. ``ways_out``: what would help a draft that
    the user wanted.
    """

    rank: int | None
    name: str
    method: str
    k: str
    speed: str
    share: str
    fits: str
    said: tuple[str, ...] = ()
    ways_out: tuple[str, ...] = ()


def draft_rows(findings: Findings) -> list[DraftRow]:
    """The drafts that were planned: the accepted ones by rank, then those that will not do."""
    accepted = [draft for draft in findings.drafts if draft.accepted]
    rows = [_row(draft, number, _warnings(draft)) for number, draft in enumerate(accepted, 1)]
    return rows + [
        _row(
            draft,
            None,
            tuple(safe_line(reason.text) for reason in draft.reasons),
            _ways_out(draft) if findings.named else (),
        )
        for draft in findings.drafts
        if not draft.accepted
    ]


def left_out_rows(findings: Findings) -> list[tuple[str, str]]:
    """Candidates that could not be sized, each with the reason."""
    return [(safe_line(left.candidate.name), safe_line(left.text)) for left in findings.discarded]


def prediction_rows(prediction: Prediction | None, method: DraftMethod | None = None) -> list[tuple[str, str]]:
    """The prediction of the chosen draft, which drafts by ``method``, as labelled rows."""
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
        ("Draft's cost", _cost(prediction, method)),
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


def _cost(prediction: Prediction, method: DraftMethod | None) -> str:
    """What a drafted token costs; a cost that rounds to nothing is said in words."""
    cost = prediction.cost_ratio
    if cost.high < _LEAST_SHOWN / 2:
        if method is DraftMethod.NGRAM:
            return "next to nothing: no model runs, the tokens are looked up in the prompt"
        return f"below {_LEAST_SHOWN} of a target step ({safe_line(prediction.cost_source)})"
    return f"{cost.low:.2f} – {cost.high:.2f} of a target step ({safe_line(prediction.cost_source)})"


def command_notes(command: StartCommand, chosen: JudgedDraft | None) -> list[str]:
    """What to know about a command; what the table says of the chosen draft is not said again."""
    compatibility = None if chosen is None else chosen.offer.compatibility
    said = {check.text for check in compatibility.checks} if compatibility is not None else set()
    return [safe_line(note) for note in command.notes if note not in said]


def shown_problems(problems: Sequence[Problem], *, verbose: bool) -> list[Problem]:
    """Known problems worth telling: what other parts of the answer say already is left to ``verbose``."""
    return [problem for problem in problems if verbose or problem.code not in _TOLD_ELSEWHERE]


def _row(judged: JudgedDraft, rank: int | None, said: tuple[str, ...], ways_out: tuple[str, ...] = ()) -> DraftRow:
    plan, prediction = judged.plan, judged.offer.prediction
    budget = None if plan is None else plan.draft_budget
    return DraftRow(
        rank=rank,
        name=safe_line(judged.name),
        method=_SHORT_METHODS[judged.draft.method],
        k=str(judged.draft.num_speculative_tokens),
        speed=_times(prediction) if prediction is not None else "",
        share="" if budget is None or budget.share is None else percent_up(budget.share),
        fits="" if plan is None else _FITS[plan.verdict.answer],
        said=said,
        ways_out=ways_out,
    )


def _times(prediction: Prediction) -> str:
    if prediction.speedup is None:
        return "cannot be told"
    return f"{prediction.speedup.low:.2f} – {prediction.speedup.high:.2f} ×"


def _warnings(judged: JudgedDraft) -> tuple[str, ...]:
    compatibility = judged.offer.compatibility
    if compatibility is None or compatibility.verdict is CompatibilityVerdict.ACCEPTED:
        return ()
    return tuple(safe_line(check.text) for check in compatibility.failed)


def _ways_out(judged: JudgedDraft) -> tuple[str, ...]:
    """By the checks that it failed."""
    remedies = [check.remedy for check in judged.offer.checks if check.passed is False and check.refuses]
    return tuple(safe_line(remedy) for remedy in remedies if remedy)
