"""`specplan explain-log`: what an engine's start-up log says, beside the plan of the same start."""

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from model_catalog.errors import UsageError
from model_catalog.snapshot import expanded
from planner.calibration import Calibration, calibration_key
from planner.calibration_store import CalibrationStore
from planner.cli.log_options import log_options, with_options
from planner.cli.log_plan import LogPlan, plan_log
from planner.cli.options import read_output
from planner.cli.output import Output
from planner.cli.text_bytes import decoded
from planner.cli.typed_names import complete_file
from planner.logs.calibrate import measured_lines
from planner.logs.compare import compare_log
from planner.logs.readings import MOST_BYTES, StartLog, read_log
from planner.report.log_text import LogAnswer, log_document, log_line, log_text
from planner.report.plain import safe_line
from planner.report.schemas import document_head
from planner.service.exit_codes import EXIT_NO, EXIT_OK, EXIT_UNSURE

_STDIN: Final = "-"
_LONGEST_NAME: Final = 120
#: A difference in these says that something else was started than was planned.
_PROOFS: Final = ("weights", "kv_cache_tokens")


@click.command("explain-log")
@click.argument("file", shell_complete=complete_file)
@log_options()
def command(file: str, **given: object) -> int:
    """What the start-up log FILE of vLLM (or SGLang) says, line by line beside a plan of the same start.

    FILE is a path, or - for stdin. Model, limits and draft are read from the log; options add what it does not
    say. With --save later plans of exactly this set-up use the overheads that were measured.

    Exit code 0: all lines agree. 3: a line lies outside the planned bounds. 4: the log says too little. 5: its
    model is not known, or cannot be read. 8: the Hub cannot be asked.
    """
    output = read_output(given)
    log = read_log(_read(file, output))
    log = replace(log, settings=with_options(log.settings, given))
    with output.step("planning the same start"):
        planned = plan_log(log, log.settings, dict(given), output)
    answer = _compared(log, planned)
    if given["save"]:
        answer = _save(answer, planned, file)
    exit_code = _exit_code(answer)
    if output.quiet:
        output.answer_line(log_line(answer))
    else:
        output.answer(log_text(answer))
    output.document(
        {
            **document_head("explain-log", exit_code),
            **log_document(answer),
            "warnings": [{"code": remark.code, "text": remark.text} for remark in output.remarks],
        }
    )
    return exit_code


def _compared(log: StartLog, planned: LogPlan | None) -> LogAnswer:
    told = _told(log)
    if planned is None:
        return LogAnswer(log=told, plan=None, lines=(), why_not="the log names no model: --model TARGET")
    if planned.plan is None:
        return LogAnswer(log=told, plan=None, lines=(), why_not=planned.why_not)
    lines = compare_log(planned.plan, log, unknown=planned.unknown)
    return LogAnswer(log=told, plan=planned.plan, lines=lines)


def _read(file: str, output: Output) -> str:
    """The log's text, or as much of it as is read.

    Raises:
        UsageError: there is no such file, or it cannot be read.
    """
    try:
        if file == _STDIN:
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with expanded(file).open("rb") as stream:
                content = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or "not a path"
        raise UsageError(
            f"the log cannot be read: {reason}",
            subject=safe_line(file)[:_LONGEST_NAME],
            hint="give the path of a start-up log, or - and the log on stdin",
        ) from cause
    if len(content) > MOST_BYTES:
        output.note("log_cut", f"only the first {MOST_BYTES >> 20} MiB of the log are read")
    return decoded(content[:MOST_BYTES])


def _told(log: StartLog) -> StartLog:
    """Without the error of a server that started all the same, unless memory was the reason."""
    failure = log.failure
    started = log.readings.kv_cache_tokens is not None
    return replace(log, failure=None) if failure and started and failure.code != "out_of_memory" else log


def _exit_code(answer: LogAnswer) -> int:
    if answer.off:
        return EXIT_NO
    return EXIT_OK if answer.compared and answer.not_saved is None else EXIT_UNSURE


def _save(answer: LogAnswer, planned: LogPlan | None, file: str) -> LogAnswer:
    """Keep the overheads, unless it is not certain what they are the overheads of."""
    if planned is None or planned.plan is None:
        return replace(answer, not_saved=answer.why_not)
    obstacle = _obstacle(answer, planned)
    lines = {} if obstacle else measured_lines(planned.plan, answer.log)
    if obstacle is None and not lines:
        obstacle = "the log prints none of the overheads (activation peak, memory outside torch, CUDA graphs)"
    if obstacle is not None:
        return replace(answer, not_saved=obstacle)
    plan = planned.plan
    key = calibration_key(
        plan.serving, plan.ranks[0].rank.device, plan.engine, plan.defaults, planned.where.driver
    )
    name = safe_line("stdin" if file == _STDIN else Path(file).name)[:_LONGEST_NAME]
    date = datetime.now(tz=UTC).date().isoformat()
    try:
        CalibrationStore().put(Calibration(key=key, lines=lines, date=date, log=name))
    except OSError as error:
        return replace(answer, not_saved=f"the calibrations' folder: {error.strerror or error}")
    return replace(answer, saved=tuple(sorted(lines)))


def _obstacle(answer: LogAnswer, planned: LogPlan) -> str | None:
    """Why these figures cannot be kept: whatever leaves open which set-up they belong to."""
    settings, where = answer.log.settings, planned.where
    off = {line.code: line for line in answer.off}
    reasons: list[tuple[Any, str]] = [
        (settings.engine != "vllm", "only vLLM's overheads are planned line by line"),
        (not planned.exact_version, "the log is not of a release of vLLM that is planned as such"),
        (not where.named, "the log does not name the card: --gpu NAME"),
        (not where.matches, "the card is not the one of the log"),
        ((settings.pp or 1) > 1, "with pipeline stages the printed figures are of one stage"),
        (settings.unplanned, f"the log sets {', '.join(settings.unplanned)}, which is not planned"),
        (planned.unknown, f"nobody says {', '.join(sorted(planned.unknown))}"),
        (any(code in off for code in _PROOFS), "weights or cache are off: it is not the set-up that was planned"),
    ]
    return next((text for found, text in reasons if found), None)
