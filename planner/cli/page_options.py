"""``--html``: the report as a page. Checks before any work that it can be written, and writes it."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from model_catalog.errors import UsageError
from planner.cli.output import STDOUT
from planner.cli.typed_names import complete_file
from planner.commands.base import StartCommand
from planner.report.files import write_file

if TYPE_CHECKING:
    from planner.pictures import Picture
    from planner.service.result import FitResult

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
_TYPED: Final = "specplan.typed"
_INSTALL: Final = "pip install 'specplan[html]'"
#: Options that say where an answer goes: who repeats a plan has other files.
_OUTPUTS: Final = frozenset({"--json", "--html", "--plot"})
_SILENCE: Final = frozenset({"--quiet", "--no-progress"})


class RecordedCommand(click.Command):
    """Keeps what was typed, so that a page can say how to repeat it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments, then read them."""
        ctx.meta[_TYPED] = tuple(args)
        return super().parse_args(ctx, args)


def page_option() -> Callable[[Decorated], Decorated]:
    """Where the page goes."""
    return click.option(
        "--html",
        metavar="FILE",
        shell_complete=complete_file,
        help="Write the answer as one page to pass on, with pictures and every receipt.",
    )


def check_page(target: str) -> None:
    """Refuse a page that cannot be written, before any work.

    Raises:
        UsageError: a library is missing or does not load, or the place will not do.
    """
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise UsageError(f"a page needs {' and '.join(missing)}", subject="--html", hint=_INSTALL)
    try:
        import planner.page.drawing  # noqa: F401, PLC0415 - its libraries are an extra, and slow to import
    except ImportError as cause:
        raise UsageError(f"a page cannot be drawn here: {cause}", subject="--html", hint=_INSTALL) from cause
    if target == STDOUT:
        raise UsageError("a page is a file", subject="--html -", hint="name a file: --html report.html")
    if not Path(target).parent.is_dir():
        raise UsageError(
            "the page cannot be written: there is no such folder",
            subject=target,
            hint="give --html a path in a folder that exists and may be written",
        )


def write_page(
    result: "FitResult", target: str, pictures: Sequence["Picture"], no_pictures: Sequence[str]
) -> None:
    """Write the page, as a whole or not at all. ``no_pictures``: which are missing, and why.

    Raises:
        UsageError: the path cannot be written.
    """
    from planner.page.content import page_content  # noqa: PLC0415 - only a page needs its libraries
    from planner.page.drawing import draw_page  # noqa: PLC0415 - as above

    content = page_content(
        result.findings,
        result.facts,
        result.advice,
        result.report(),
        typed=repeatable(click.get_current_context().meta[_TYPED]),
        pictures=pictures,
        no_pictures=no_pictures,
    )
    write_file(draw_page(content), target, option="--html", what="page")


def repeatable(arguments: Sequence[str]) -> tuple[str, ...]:
    """The lines of the command that was typed, quoted for a shell, without the files that its answers went to."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            kept += [word, *words]
        elif word in _OUTPUTS:
            next(words, None)
        elif word.partition("=")[0] not in _OUTPUTS | _SILENCE:
            kept.append(word)
    return StartCommand(engine="specplan", argv=("specplan", "fit", *kept)).lines
