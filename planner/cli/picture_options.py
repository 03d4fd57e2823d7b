"""The options that draw what a `fit` found, in pictures or as a page, and what they need before any work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from model_catalog.errors import UsageError
from planner.cli.options import apply
from planner.cli.output import Output
from planner.cli.page_options import check_page, page_option, write_page
from planner.cli.typed_names import complete_file
from planner.service.pictures import require_pictures

if TYPE_CHECKING:
    from planner.service.result import FitResult

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
#: Said here too, because ``planner.pictures`` is slow to import; a test holds both to be the same.
PLOT_ENDINGS: Final = (".png", ".svg", ".pdf")


def _plot_file(_context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    ending = PurePath(given).suffix.lower() if given is not None else PLOT_ENDINGS[0]
    if ending not in PLOT_ENDINGS:
        raise UsageError(
            f"no picture is written as {ending}" if ending else f"{given!r} has no ending",
            subject=parameter.opts[0],
            hint=f"end the name in {', '.join(PLOT_ENDINGS[:-1])} or {PLOT_ENDINGS[-1]}",
        )
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureOptions:
    """Where pictures and page go; None: nowhere."""

    plot: str | None = None
    html: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "PictureOptions":
        """Out of what click read."""
        return cls(plot=given["plot"], html=given["html"])

    def prepare(self) -> None:
        """Find out at once whether pictures can be drawn at all, and a page can be written.

        Raises:
            UsageError: a library is not installed, or does not load; a file's place will not do.
        """
        if self.html is not None:
            check_page(self.html)
        if self.plot is None:
            return
        require_pictures("--plot")
        if not Path(self.plot).parent.is_dir():
            raise UsageError(
                "the picture cannot be written: there is no such folder",
                subject=self.plot,
                hint="give --plot a path in a folder that exists and may be written",
            )

    def write(self, result: "FitResult", output: Output) -> None:
        """Draw what was found, once, into the files that were asked for.

        Raises:
            UsageError: a file cannot be written.
        """
        if self.plot is None and self.html is None:
            return
        from planner.pictures import draw, left_out, write_pictures  # noqa: PLC0415 - as above

        with output.step("drawing"):
            missing, pictures = left_out(result.findings), draw(result.findings)
        if self.plot is not None:
            for why in missing:
                output.note("no_picture", why)
            write_pictures(pictures, self.plot)
        if self.html is not None:
            write_page(result, self.html, pictures, missing)


NO_PICTURES: Final = PictureOptions()


def picture_options() -> Callable[[Decorated], Decorated]:
    """What is drawn, and where it goes."""
    return apply(
        click.option(
            "--plot",
            metavar="FILE",
            callback=_plot_file,
            shell_complete=complete_file,
            help="Draw memory, what fits, speed and KV tokens: .png, .svg or .pdf.",
        ),
        page_option(),
    )
