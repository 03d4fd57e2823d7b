"""Errors of typing: which word is wrong, what was meant, and what to type next. Knows click's classes of them."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from model_catalog.errors import UsageError
from model_catalog.near import did_you_mean

#: A command line of each command that takes arguments: what somebody types who has forgotten how.
EXAMPLES: Final = {
    "fit": "specplan fit Qwen/Qwen3-8B --gpu l4",
    "drafts": "specplan drafts Qwen/Qwen3-32B --gpu h100-80gb:2",
    "trial": "specplan trial specplan/tiny-target specplan/tiny-draft --devices cpu",
    "check": "specplan check report.json",
    "check-command": "specplan check-command --gpu l4 -- vllm serve Qwen/Qwen3-8B",
    "explain-log": "specplan explain-log start.log",
    "completion": "specplan completion bash",
}
_NO_CHOICE: Final = re.compile(r"'(.*)' is not one of .*", re.DOTALL)
_NO_NUMBER: Final = re.compile(r"'(.*)' is not a valid (?:integer|float)(?: range)?", re.DOTALL)
_OUT_OF_RANGE: Final = re.compile(r"(.*) is not in the range .*", re.DOTALL)
_EXTRA: Final = re.compile(r"got unexpected extra arguments? \((.*)\)", re.IGNORECASE | re.DOTALL)
#: Options with one dash that people try, and what they mean here.
_SHORT: Final = {"-v": "--verbose", "-V": "--version", "-q": "--quiet", "-o": "--json", "-d": "--draft"}


def no_such_command(typed: str, commands: Iterable[str]) -> UsageError:
    """The error for a first word that is no command: near names, or what a model or ``help`` would have meant."""
    hint = "`specplan --help` lists the commands"
    if "/" in typed or Path(typed).is_dir():
        hint = f"to plan a model: specplan fit {shlex.quote(typed)}; {hint}"
    elif typed.lower() != "help":
        hint = did_you_mean(typed, commands, hint)
    return UsageError(f"no such command {typed!r}", subject="specplan", hint=hint)


def click_error(error: click.ClickException) -> tuple[str, str, str]:
    """(subject, message, hint) of an error that click found in the command line."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = "specplan" if context is None else context.command_path
    usage = f"`{path} --help` lists what it takes"
    if isinstance(error, click.MissingParameter):
        return path, _message(error).partition(". Choose from")[0], _example(context, usage)
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Option | click.Argument):
        return _bad_value(error, error.param, usage)
    if isinstance(error, click.BadOptionUsage) and context is not None:
        return _no_value(error, context, usage)
    if isinstance(error, click.NoSuchOption):
        return path, _message(error), _meant(error, usage)
    extra = _EXTRA.fullmatch(_message(error))
    if extra is not None:
        return path, f"{extra[1]!r} is one word too many", _too_many(context, extra[1], usage)
    return path, _message(error), usage


def _message(error: click.ClickException) -> str:
    """Click's sentence, without its own "did you mean" and its full stop."""
    text = re.split(r" \(?Did you mean", error.format_message())[0].rstrip(".")
    return text[:1].lower() + text[1:]


def _example(context: click.Context | None, usage: str) -> str:
    name = None if context is None else context.info_name
    example = EXAMPLES.get(name or "")
    return usage if example is None else f"for example: {example}; {usage}"


def _bad_value(error: click.BadParameter, parameter: click.Parameter, usage: str) -> tuple[str, str, str]:
    said, kind = error.message.rstrip("."), parameter.type
    subject = (
        parameter.opts[0] if isinstance(parameter, click.Option) else parameter.make_metavar(_any_context(error))
    )
    if isinstance(kind, click.Choice):
        names = [str(choice) for choice in kind.choices]
        match = _NO_CHOICE.fullmatch(said)
        typed = match[1] if match else ""
        return (
            subject,
            f"{typed!r} is none of its values",
            did_you_mean(typed, names, f"use one of {', '.join(names)}"),
        )
    if isinstance(kind, click.IntRange | click.FloatRange):
        whole = "a whole number" if isinstance(kind, click.IntRange) else "a number"
        number, outside = _NO_NUMBER.fullmatch(said), _OUT_OF_RANGE.fullmatch(said)
        span = f"give {whole} from {kind.min} to {kind.max}"
        if number is not None:
            return subject, f"{number[1]!r} is not {whole}", span
        if outside is not None:
            return subject, f"{outside[1]} is out of range", span
    return subject, said, usage


def _any_context(error: click.BadParameter) -> click.Context:
    return error.ctx if error.ctx is not None else click.Context(click.Command("specplan"))


def _no_value(error: click.BadOptionUsage, context: click.Context, usage: str) -> tuple[str, str, str]:
    """An option without its value, or a flag with one."""
    option = next(
        (found for found in context.command.params if error.option_name in {*found.opts, *found.secondary_opts}),
        None,
    )
    if not isinstance(option, click.Option):
        return context.command_path, _message(error), usage
    if option.is_flag:
        return error.option_name, "takes no value", f"write {error.option_name} alone"
    shown = option.make_metavar(context)
    if isinstance(option.type, click.Choice):
        shown = "|".join(map(str, option.type.choices))
    return error.option_name, "its value is missing", f"write {error.option_name} {shown}; {usage}"


def _meant(error: click.NoSuchOption, usage: str) -> str:
    known = _SHORT.get(error.option_name)
    taken = set() if error.ctx is None else {name for found in error.ctx.command.params for name in found.opts}
    if known in taken:
        return f"did you mean {known}? {usage}"
    possible = error.possibilities
    return f"did you mean {' or '.join(list(possible)[:3])}? {usage}" if possible else usage


def _too_many(context: click.Context | None, extra: str, usage: str) -> str:
    if context is not None and context.info_name in {"fit", "drafts", "gpus"}:
        first = extra.split(maxsplit=1)[0]
        return f"name one TARGET; a draft is named with --draft {shlex.quote(first)}. {usage}"
    return f"leave it out, or quote words that belong together; {usage}"
