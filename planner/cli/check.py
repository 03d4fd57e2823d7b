"""`specplan check`: before a launch, does a saved plan still hold on this machine?"""

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from model_catalog.errors import SpecplanError, UsageError
from planner.cli.options import apply, offline_option, output_options, read_output, valued
from planner.cli.output import STDOUT, Output
from planner.cli.typed_names import complete_file, complete_folder
from planner.device_selection import visible_devices
from planner.devices import Device, DeviceSource
from planner.errors import HardwareError, NoDeviceError, NvmlMissingError
from planner.recheck.judging import recheck
from planner.recheck.records import Recheck, SavedPlan, Standing
from planner.report.files import write_file
from planner.service.exit_codes import EXIT_NO, EXIT_OK, EXIT_UNSURE, exit_code_of
from planner.service.values import SECONDS, SIZE

if TYPE_CHECKING:
    from planner.report.check_document import Checked
    from planner.report.check_files import Failed

EXIT_OF_STANDING: Final = {
    Standing.HOLDS: EXIT_OK,
    Standing.DOES_NOT_HOLD: EXIT_NO,
    Standing.CANNOT_TELL: EXIT_UNSURE,
}
#: Between two looks while waiting: waking a GPU without persistence mode takes about as long.
_PERIOD_SECONDS: Final = 1.0
_INSTEAD: Final = re.compile(r"[,;]? or plan (?:for|without) .*--gpu.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What was asked, as typed; None means: not said."""

    wait: float | None
    require_free: int | None
    prometheus: str | None
    junit: str | None
    engine_python: str | None
    target_folder: str | None
    draft_folder: str | None
    offline: bool

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "CheckOptions":
        """Out of what click read.

        Raises:
            UsageError: a file that cannot be one.
        """
        for name in ("prometheus", "junit"):
            if given[name] == STDOUT:
                raise UsageError("takes a file, not stdout", subject=f"--{name} -", hint=f"give --{name} a path")
        return cls(**{name: given[name] for name in cls.__slots__})


@click.command("check")
@click.argument("report", metavar="REPORT.json", shell_complete=complete_file)
@apply(
    valued(
        "--wait",
        value=SECONDS,
        text="Look again for so long, until it holds: after a teardown.",
    ),
    valued("--require-free", value=SIZE, text="So much must be free on every device of the plan."),
    click.option(
        "--prometheus",
        metavar="FILE",
        shell_complete=complete_file,
        help="Write gauges there for a textfile collector.",
    ),
    click.option(
        "--junit",
        metavar="FILE",
        shell_complete=complete_file,
        help="Write the findings there as JUnit XML, for CI.",
    ),
    click.option(
        "--engine-python",
        metavar="PATH",
        shell_complete=complete_file,
        help="The interpreter whose engine is compared.  [this one's]",
    ),
    click.option(
        "--target-folder",
        metavar="PATH",
        shell_complete=complete_folder,
        help="The target's folder, to compare its files.",
    ),
    click.option(
        "--draft-folder",
        metavar="PATH",
        shell_complete=complete_folder,
        help="The draft's folder, to compare its files.",
    ),
    offline_option(),
    output_options(),
)
def command(report: str, **given: object) -> int:
    """Does a plan, saved by `specplan fit TARGET --json REPORT.json`, still hold on this machine?

    The devices are read again and the plan's own lines judged against what is free now; nothing that the report
    names is opened or run. With - in the report's place it is read from stdin.

    Exit code 0: it holds. 3: it does not hold any more. 4: it cannot be told. 5: a folder that was named holds no
    model. 6: the devices cannot be read.
    """
    output, options = read_output(given), CheckOptions.of(given)
    try:
        checked = _check(report, options, output)
    except SpecplanError as error:
        from planner.report.check_files import Failed  # noqa: PLC0415 - nothing of the report's for --help

        _write_failure(
            report, Failed(code=error.code, message=error.message), options, exit_code_of(error), output
        )
        raise
    return _tell(checked, options, output)


def _check(report: str, options: CheckOptions, output: Output) -> "Checked":
    from planner.cli.check_beside import beside_differences  # noqa: PLC0415 - nothing of it for --help
    from planner.report.check_document import Checked  # noqa: PLC0415 - as above
    from planner.report.check_text import reason_of, waiting_text  # noqa: PLC0415 - as above
    from planner.report.saved_plan import read_saved_report  # noqa: PLC0415 - pydantic is slow to import

    saved = read_saved_report(_read(report), report)

    def look() -> Recheck:
        listed, visible = _devices(saved.plan)
        return recheck(saved.plan, listed, visible, require_free_bytes=options.require_free)

    with output.step("looking at the devices") as step:

        def tell(found: Recheck | None, failure: HardwareError | None, left_seconds: float) -> None:
            text = reason_of(found.differences) if found is not None else failure.message if failure else ""
            step.say(waiting_text(text))
            step.at_most(left_seconds)

        found, waited = look_until(look, options.wait or 0.0, tell)
    beside = beside_differences(
        saved,
        offline=options.offline,
        engine_python=options.engine_python,
        target_folder=options.target_folder,
        draft_folder=options.draft_folder,
        output=output,
    )
    return Checked(name=report, saved=saved, found=found, beside=beside, waited_seconds=waited)


def look_until(
    look: Callable[[], Recheck],
    wait_seconds: float,
    tell: Callable[[Recheck | None, HardwareError | None, float], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Recheck, float]:
    """Look until it holds, waiting cannot help or the time is up; the last look, and when it was.

    Raises:
        HardwareError: the last look failed.
    """
    start = clock()
    while True:
        found: Recheck | None = None
        failure: HardwareError | None = None
        try:
            found = look()
        except HardwareError as error:
            failure = error
        elapsed = clock() - start
        left = wait_seconds - elapsed
        if found is not None and (found.standing is Standing.HOLDS or not found.may_settle or left <= 0):
            return found, elapsed
        if failure is not None and (isinstance(failure, NvmlMissingError) or left <= 0):
            raise failure
        tell(found, failure, left)
        sleep(min(_PERIOD_SECONDS, left))


def _read(report: str) -> bytes:
    """The report's bytes, one more than the limit at most.

    Raises:
        UsageError: there is nothing to read.
    """
    from planner.report.saved_plan import LIMIT_BYTES  # noqa: PLC0415 - as above

    if report == STDOUT:
        return sys.stdin.buffer.read(LIMIT_BYTES + 1)
    try:
        with Path(report).open("rb") as file:
            return file.read(LIMIT_BYTES + 1)
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or cause
        hint = "write a report with: specplan fit TARGET --json report.json"
        raise UsageError(f"cannot be read: {reason}", subject=report, hint=hint) from cause


def _devices(plan: SavedPlan) -> tuple[Sequence[Device], Sequence[Device]]:
    """All devices of the kind that the plan is for, and those that are visible here.

    Raises:
        HardwareError: they cannot be read; for declared ones, a machine without a GPU is an answer.
    """
    if plan.source is DeviceSource.HOST:
        from planner.host_memory import host_device  # noqa: PLC0415 - read only where the plan is for it

        return (host_device(),), (host_device(),)
    from planner.nvml import read_devices  # noqa: PLC0415 - started late

    try:
        listed = read_devices().devices
    except HardwareError as error:
        if plan.source is DeviceSource.DECLARED and isinstance(error, NvmlMissingError | NoDeviceError):
            return (), ()
        # What helps a plan, to name a GPU instead, does not help here.
        error.hint = _INSTEAD.sub("", error.hint)
        raise
    by_uuid = plan.source is DeviceSource.NVML
    return listed, visible_devices(listed, os.environ, order_matters=not by_uuid)


def _tell(checked: "Checked", options: CheckOptions, output: Output) -> int:
    """Print and write the answer; the exit code.

    Raises:
        UsageError: a file cannot be written. The document comes last, so that there is one, of answer or failure.
    """
    from planner.report.check_document import check_mapping  # noqa: PLC0415 - as above
    from planner.report.check_text import check_text, quiet_line  # noqa: PLC0415 - as above

    exit_code = EXIT_OF_STANDING[checked.standing]
    if output.quiet:
        output.answer_line(quiet_line(checked))
    else:
        output.answer(check_text(checked))
    _write_files(checked.name, checked, options, exit_code)
    output.document(check_mapping(checked, exit_code))
    return exit_code


def _write_failure(report: str, failed: "Failed", options: CheckOptions, exit_code: int, output: Output) -> None:
    """Watchers must not go on reading the last success; the error itself is told by ``main``."""
    try:
        _write_files(report, failed, options, exit_code)
    except UsageError as error:
        output.warn("not_written", f"{error.subject}: {error.message}")


def _write_files(report: str, outcome: "Checked | Failed", options: CheckOptions, exit_code: int) -> None:
    from planner.report.check_files import junit_text, prometheus_text  # noqa: PLC0415 - as above

    texts: list[tuple[str, str, str]] = []
    if options.prometheus is not None:
        gauges = prometheus_text(report, outcome, exit_code=exit_code, now_seconds=time.time())
        texts.append(("--prometheus", options.prometheus, gauges))
    if options.junit is not None:
        texts.append(("--junit", options.junit, junit_text(report, outcome)))
    unwritten: UsageError | None = None
    for option, path, text in texts:
        try:
            write_file(text, path, option=option, what="file")
        except UsageError as error:
            unwritten = unwritten or error
    if unwritten is not None:
        raise unwritten
