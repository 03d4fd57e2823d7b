"""The entry point: finds the command, runs it, turns what it raises into an exit code.

A command's module is imported when the command is asked for, so that ``specplan --help`` stays light.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click
from click.shell_completion import CompletionItem

from planner import __version__
from planner.cli.failure import Wishes, is_full, tell
from planner.cli.usage_hints import no_such_command
from planner.service.exit_codes import EXIT_BROKEN_PIPE, EXIT_BUG, EXIT_OK

#: Name, module, one line of help: the help text must not need the module.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "fit": ("planner.cli.fit", "Does a model fit, with which draft, and what would make it fit?"),
    "drafts": (
        "planner.cli.draft_list",
        "Which drafts could serve a model, how much faster, and why not others?",
    ),
    "trial": ("planner.cli.trial", "Run one pair for a minute and measure whether the draft helps."),
    "explain-log": (
        "planner.cli.explain_log",
        "An engine's start-up log beside the plan: which lines agree, which not, why.",
    ),
    "check-command": (
        "planner.cli.check_command",
        "An engine's command that you have: will it start, and what to change?",
    ),
    "check": ("planner.cli.check", "Before a launch: does a saved plan still hold on this machine?"),
    "gpus": ("planner.cli.gpus", "The declared GPUs; with a model, how many of each would hold it."),
    "devices": ("planner.cli.devices", "What this machine's devices report, and what could not be read."),
    "models": ("planner.cli.models", "The embedded model catalogue: list, show, add."),
    "schema": ("planner.cli.schema", "The JSON Schema of the report."),
    "completion": ("planner.cli.completion", "The script that completes commands and names in bash, zsh or fish."),
    "doctor": ("planner.cli.doctor", "What works on this machine, what does not, and what to do."),
}
#: Where click finds what a shell's completion script asks; it derives the name from the program's.
COMPLETION_VARIABLE: Final = "_SPECPLAN_COMPLETE"
_EPILOG: Final = """Exit codes: 0 it fits, 3 it does not, 4 cannot tell (tight, or a reading is
missing), 2 usage, 5 model, 6 hardware, 7 trial failed or worse than planned,
8 network, 1 a bug, 130 interrupted.

\b
Start with:  specplan fit Qwen/Qwen3-8B --gpu l4
"""


class LazyGroup(click.Group):
    """A group that knows its commands' names and imports one only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names in the order of use, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import the command's module and take the function of the same name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command = module.command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but a name that is no command is told with those like it."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise no_such_command(args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """As click does it, but a usage error always knows its command."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand
            command = None if error.ctx is not None or name is None else self.get_command(ctx, name)
            if command is not None:
                error.ctx = click.Context(command, info_name=name, parent=ctx)
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names that begin so, without importing the commands; and our own options."""
        found = [
            CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="specplan")
def group() -> None:
    """Plan GPU memory for LLM serving with speculative decoding.

    TARGET is a Hub repo id (org/name or org/name@revision), a local folder, or a name from `specplan models`.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code. Never raises."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if _is_shut(given):
        return EXIT_BROKEN_PIPE
    stdout = sys.stdout
    try:
        try:
            result = group.main(args=given or ["--help"], prog_name="specplan", standalone_mode=False)
            code = result if isinstance(result, int) else EXIT_OK
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except SystemExit as exit_:
            # click's own exits: shell completion is done or, with stdout replaced, a pipe broke.
            if sys.stdout is not stdout:
                raise BrokenPipeError from exit_
            code = exit_.code if isinstance(exit_.code, int) else EXIT_OK
        except OSError as error:
            if is_full(error):
                _discard_output()
            code = tell(error, Wishes.of(given))
        except BaseException as error:
            if COMPLETION_VARIABLE in os.environ:
                return EXIT_BUG  # somebody pressed TAB: no message into the line that is being typed
            code = tell(error, Wishes.of(given))
    except BrokenPipeError:
        _discard_output()
        return EXIT_BROKEN_PIPE
    return code


def _is_shut(given: Sequence[str]) -> bool:
    """Whether stdout was closed before we began (``>&-``) and the answer was to go there.

    A stream that is closed but not needed goes nowhere: the next file that is opened must not take its place.
    """
    shut = sys.stdout is None
    if shut:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    return shut and Wishes.of(given).json_target in {None, "-"}


def _discard_output() -> None:
    """What Python still flushes at exit has to go nowhere: who read it left, or there is no room for it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run() -> NoReturn:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    run()
