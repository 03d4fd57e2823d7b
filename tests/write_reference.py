"""Writes ``docs/reference/``: command line, exit codes and faults, and what its siblings make of code and data.

Run from the repository's root: ``make reference``. ``test_reference`` holds the pages to the code.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
from injected.child import CHILD_CASES
from injected.config import CONFIG_CASES, SHAPES, VALUES
from injected.devices import DEVICE_CASES
from injected.hub import HUB_CASES
from injected.record import Fault
from injected.text import TEXT_CASES
from injected.trial import WORKER_CASES
from reference_data import engines_page, gpus_page, models_page
from reference_report import report_page
from reference_reported import fault_cases_page
from reference_text import MADE, escaped, listed, page_text, table

from model_catalog.errors import SpecplanError
from planner.cli.main import COMMANDS, group
from planner.errors import TRIAL_INTERRUPTED, TrialError
from planner.report.schemas import REPORT_SCHEMA, SCHEMA_OF_COMMAND
from planner.service.exit_codes import EXIT_INTERRUPTED, EXIT_OF_ERROR, EXITS_OF_ALL, MEANING_OF_EXIT, exit_code_of
from planner.trial.failures import MEANINGS

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "reference"
_EXIT_CODES: Final = re.compile(r"^Exit code (?=\d+: )(.*?)$", re.MULTILINE | re.DOTALL)
_ONE_CODE: Final = re.compile(r"(\d+): (.*?)\.(?=\s+\d+: |\s*$)", re.DOTALL)
#: The convention of our help texts: what stands for a default that depends on something.
_DEFAULT: Final = re.compile(r"  \[([^\]]+)\]$")
#: Error codes of what is no branch of the error tree, with exit code and meaning.
OTHER_CODES: Final = (
    ("interrupted", 130, "The user stopped the command before an answer was found."),
    ("terminated", 143, "SIGTERM (or, with 129, SIGHUP) came while a trial ran; its process was ended, too."),
    ("bug", 1, "Something that nobody foresaw; `--debug` shows the traceback to report."),
)
#: What the suite injects, by kind.
FAULTS: Final[Mapping[str, Sequence[Fault]]] = {
    "The Hub, the network and what a repository holds": HUB_CASES,
    "Drivers and devices": DEVICE_CASES,
    "Configurations": CONFIG_CASES,
    "Text from elsewhere": TEXT_CASES,
    "A trial: the model's folder, libraries, memory, the device": WORKER_CASES,
    "A trial: its child process": CHILD_CASES,
}


def command_of(name: str) -> click.Command:
    command = importlib.import_module(COMMANDS[name][0]).command
    assert isinstance(command, click.Command)
    return command


def paragraphs(command: click.Command) -> list[str]:
    """The help text's paragraphs, a line each; the one of the exit codes comes last."""
    text = (command.help or "").replace("\b\n", "")
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def exit_codes(name: str) -> Mapping[int, str]:
    """A command's own exit codes and what each says there, from its help text."""
    (told,) = [text for text in paragraphs(command_of(name)) if _EXIT_CODES.match(text)]
    found = {int(code): meaning for code, meaning in _ONE_CODE.findall(told)}
    assert found, f"{name} does not say its exit codes"
    return found


def documented_exits(name: str) -> frozenset[int]:
    """Every exit code that a command may give by what is written."""
    return frozenset({*exit_codes(name), *EXITS_OF_ALL})


def errors(branch: type[SpecplanError]) -> Iterator[type[SpecplanError]]:
    yield branch
    for below in branch.__subclasses__():
        yield from errors(below)


def error_rows() -> Iterator[tuple[str, int, str]]:
    """Error code, exit code and meaning, branch by branch; the trial's causes instead of its one class."""
    for branch, exit_code in EXIT_OF_ERROR:
        if branch is TrialError:
            yield from (_trial_row(f"trial_{code}", exit_code, text) for code, text in MEANINGS.items())
            continue
        for kind in errors(branch):
            if "tests" in kind.__module__ or kind.__module__.startswith("test_"):
                continue
            assert kind.__doc__, f"{kind.__name__} does not say what it means"
            yield kind.code, exit_code_of(kind("", subject="", hint="")), kind.__doc__.splitlines()[0]
    yield from OTHER_CODES


def _trial_row(code: str, exit_code: int, text: str) -> tuple[str, int, str]:
    return code, EXIT_INTERRUPTED if code == TRIAL_INTERRUPTED else exit_code, f"{text[0].upper()}{text[1:]}."


def exit_codes_page() -> str:
    lines = [
        "# Exit codes, error codes, schemas",
        "",
        MADE,
        "",
        "Answers go to stdout, everything else to stderr. A failure is two lines there, `error:` and `hint:`.",
        "With `--json -` stdout holds exactly one JSON document, of a failure too; with `--json PATH` the",
        "document is written there as a whole or not at all.",
        "",
        "## Exit codes",
        "",
        *table(["exit", "meaning"], [(str(code), text) for code, text in MEANING_OF_EXIT.items()]),
        "",
        f"Every command may end with {listed(EXITS_OF_ALL)}. What the others mean depends on the command:",
        "",
    ]
    rows = [(f"`{name}`", str(code), text) for name in COMMANDS for code, text in exit_codes(name).items()]
    lines += table(["command", "exit", "there it means"], rows)
    lines += [
        "",
        "## Documents",
        "",
        "Every document begins with its schema's name and the exit code. A failure holds beside them only",
        "`error`, with `code`, `message`, `subject` and `hint`. The number in a name changes when readers would",
        "break.",
        "",
    ]
    schemas = [(f"`{name}`", f"`{SCHEMA_OF_COMMAND.get(name, REPORT_SCHEMA)}`") for name in COMMANDS]
    lines += table(["command", "schema"], schemas)
    lines += ["", "## Error codes", "", "`error.code` in a document, for scripts.", ""]
    codes = [(f"`{code}`", str(exit_code), text) for code, exit_code, text in error_rows()]
    lines += table(["code", "exit", "meaning"], codes)
    lines += [
        "",
        "A trial that the user ended leaves the plan's answer in its report, with exit code 130. A code",
        "`trial_...` in a report of `fit` is the reason why a pair was not measured.",
        "",
        "[Which faults are injected in the tests, and what comes of them](faults.md).",
    ]
    return page_text(lines)


def command_line_page() -> str:
    context = click.Context(group, info_name="specplan", terminal_width=80, **group.context_settings)
    lines = ["# The command line", "", MADE, "", "```text", group.get_help(context), "```"]
    for name in COMMANDS:
        command = command_of(name)
        inner = click.Context(command, info_name=name, parent=context)
        lines += ["", f"## {name}", "", "```text", command.get_usage(inner), "```", ""]
        for paragraph in paragraphs(command):
            lines += [escaped(paragraph), ""]
        rows = [_option_row(option, inner) for option in command.params if isinstance(option, click.Option)]
        lines += table(["option", "default", "what it says"], rows) if rows else ["It takes no options."]
    return page_text(lines)


def _option_row(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    told = option.help or ""
    conditional = _DEFAULT.search(told)
    told = told[: conditional.start()] if conditional else told
    if not option.is_flag:
        names = f"{names} `{_metavar(option, context)}`"
        told = f"{told.rstrip('.')}. {_limits(option)}".strip()
    if conditional is not None:
        return names, conditional[1], told
    default = option.get_default(context)
    plain = not option.is_flag and isinstance(default, str | int | float)  # click marks "none" in several ways
    return names, f"`{default}`" if plain else "", told


def _metavar(option: click.Option, context: click.Context) -> str:
    if option.metavar is None and isinstance(option.type, click.Choice):
        return "WORD"
    if option.metavar is None and isinstance(option.type, click.IntRange | click.FloatRange):
        return "N" if isinstance(option.type, click.IntRange) else "X"
    return option.make_metavar(context)


def _limits(option: click.Option) -> str:
    kind = option.type
    if isinstance(kind, click.Choice) and option.metavar is None:
        return f"One of {', '.join(f'`{choice}`' for choice in kind.choices)}."
    return f"From {kind.min} to {kind.max}." if isinstance(kind, click.IntRange | click.FloatRange) else ""


def faults_page() -> str:
    lines = [
        "# Faults, and what comes of them",
        "",
        "This page is made (`make reference`) from the lists of faults that the tests inject, in",
        "`tests/injected/`. Each of them is done, and its outcome held to what stands here. The words are a part",
        "of what is told. Where there is no code an answer comes all the same.",
    ]
    lines += ["[What users of other planners reported](fault-cases.md) is answered on a page of its own."]
    for title, cases in FAULTS.items():
        rows = [
            (fault.what, str(fault.exit_code), f"`{fault.code}`" if fault.code else "", fault.says)
            for fault in cases
        ]
        lines += ["", f"## {title}", "", *table(["fault", "exit", "code", "it is told"], rows)]
    lines += [
        "",
        "## Swept, not listed",
        "",
        f"- Every field of {len(SHAPES)} configurations of unlike kinds ({', '.join(SHAPES)}) holding",
        f"  {', '.join(VALUES)}: refused with the field's name, or the same plan as without it.",
        "- 100,000 safetensors headers, valid ones and such with overlaps, gaps, overflows, wrong types and",
        "  shapes, cut and changed bytes: exactly the bytes of the header, or an error; what is read agrees with",
        "  the reference implementation.",
        "- Ctrl-C at thirty moments of a plan, a reading from a slow Hub and a trial; SIGTERM and SIGHUP in a",
        "  trial: no traceback, no half of a file, no process left.",
        "- Every command on a full disk and in a folder that takes no files; with stdout or stderr closed; in an",
        "  ASCII locale; without a terminal.",
    ]
    return page_text(lines)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "exit-codes.md": exit_codes_page,
    "command-line.md": command_line_page,
    "faults.md": faults_page,
    "fault-cases.md": fault_cases_page,
    "report.md": report_page,
    "engines.md": engines_page,
    "gpus.md": gpus_page,
    "models.md": models_page,
}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for page, made in PAGES.items():
        (FOLDER / page).write_text(made(), encoding="utf-8")
