"""`specplan completion`: the script that makes a shell complete our commands, options and names."""

import sys
from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

_KINDS: Final[dict[str, type[ShellComplete]]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_KINDS)))
def command(shell: str) -> int:
    r"""Print the script that completes commands, options, models, GPUs and engines in SHELL.

    \b
    bash, in ~/.bashrc:  eval "$(specplan completion bash)"
    zsh, in ~/.zshrc:    eval "$(specplan completion zsh)"
    fish:  specplan completion fish > ~/.config/fish/completions/specplan.fish

    Exit code 0: it is printed.
    """
    sys.stdout.write(script(shell))
    return 0


def script(shell: str) -> str:
    """The script for this shell, as click makes it."""
    from planner.cli.main import COMPLETION_VARIABLE, group  # noqa: PLC0415 - main imports this module

    return _KINDS[shell](group, {}, "specplan", COMPLETION_VARIABLE).source().lstrip("\n")
