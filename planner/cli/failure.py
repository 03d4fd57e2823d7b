"""Every failure becomes an exit code, two lines on stderr and, where asked, one JSON document."""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import click

from model_catalog.errors import SpecplanError
from planner import __version__
from planner.cli.output import write_document, write_error
from planner.cli.usage_hints import click_error
from planner.errors import Terminated
from planner.report.plain import safe_line
from planner.report.schemas import REPORT_SCHEMA, SCHEMA_OF_COMMAND
from planner.service.exit_codes import EXIT_BUG, EXIT_INTERRUPTED, EXIT_USAGE, exit_code_of

_TRACKER: Final = "the project's issue tracker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is told about one failure."""

    exit_code: int
    code: str
    message: str
    subject: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a command line asks of its error output, read before (and in spite of) any parsing."""

    json_target: str | None
    debug: bool
    schema: str

    @classmethod
    def of(cls, arguments: Sequence[str]) -> "Wishes":
        """Read ``--json``, ``--debug`` and the command's name from raw arguments; after ``--`` none is ours."""
        arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
        target: str | None = None
        if "--" in arguments:  # what follows belongs to another program's command, or is no option
            arguments = arguments[: list(arguments).index("--")]
        for position, argument in enumerate(arguments):
            if argument == "--json" and position + 1 < len(arguments):
                target = arguments[position + 1]
            elif argument.startswith("--json="):
                target = argument.removeprefix("--json=")
        command = next((argument for argument in arguments if not argument.startswith("-")), "")
        schema = SCHEMA_OF_COMMAND.get(command, REPORT_SCHEMA)
        return cls(json_target=target or None, debug="--debug" in arguments, schema=schema)


def failure_of(error: BaseException) -> Failure:
    """The failure that this exception means; anything unforeseen is our bug (exit 1)."""
    if isinstance(error, SpecplanError):
        return Failure(
            exit_code=exit_code_of(error),
            code=error.code,
            message=error.message,
            subject=error.subject,
            hint=error.hint,
        )
    if isinstance(error, click.ClickException):
        return _of_click(error)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return Failure(
            exit_code=EXIT_INTERRUPTED,
            code="interrupted",
            message="stopped before an answer was found",
            subject="interrupted",
            hint="run the same command again",
        )
    if isinstance(error, Terminated):
        return Failure(
            exit_code=128 + error.number,
            code="terminated",
            message=f"told to end ({signal.Signals(error.number).name}); the trial's process was ended, too",
            subject="interrupted",
            hint="run the same command again",
        )
    if is_full(error):
        return Failure(
            exit_code=EXIT_USAGE,
            code="usage",
            message=f"the answer cannot be written: {os.strerror(errno.ENOSPC)}",
            subject="output",
            hint="make room there, or write to another place",
        )
    return Failure(
        exit_code=EXIT_BUG,
        code="bug",
        message=f"{type(error).__name__}: {error}",
        subject="bug in specplan",
        hint=f"run it again with --debug and report the traceback to {_TRACKER} (specplan {__version__})",
    )


def is_full(error: BaseException) -> bool:
    """Whether the place that our output goes to has no room left."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


def _of_click(error: click.ClickException) -> Failure:
    subject, message, hint = click_error(error)
    return Failure(exit_code=EXIT_USAGE, code="usage", message=message, subject=subject, hint=hint)


def tell(error: BaseException, wishes: Wishes) -> int:
    """Report a failure on stderr and in JSON where asked; the exit code."""
    failure = _safe(failure_of(error))
    if wishes.debug:
        write_error("".join(traceback.format_exception(error)).rstrip())
    write_error(f"error: {failure.subject}: {failure.message}\nhint: {failure.hint}")
    if wishes.json_target is not None:
        try:
            write_document(_document(failure, wishes.schema), wishes.json_target)
            sys.stdout.flush()
        except SpecplanError as unwritable:
            if unwritable.message != failure.message:
                write_error(f"error: {unwritable}")
    return failure.exit_code


def _safe(failure: Failure) -> Failure:
    """In single lines that may be shown, on stderr as well as by whoever reads the document."""
    message, subject, hint = map(safe_line, (failure.message, failure.subject, failure.hint))
    return replace(failure, message=message, subject=subject, hint=hint)


def _document(failure: Failure, schema: str) -> dict[str, Any]:
    return {
        "schema": schema,
        "exit_code": failure.exit_code,
        "error": {
            "code": failure.code,
            "message": failure.message,
            "subject": failure.subject,
            "hint": failure.hint,
        },
    }
