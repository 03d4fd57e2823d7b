"""The commands that a page shows: which there are, what it says they print, and which are not run, and why.

A fenced block holds commands after a ``$``, each with what it prints below it, or, in a block of the shell, bare
lines. ``$ echo $?`` tells the exit code of the command before, ``$ cat FILE`` a file that later commands read; a
line of output that is ``…`` stands for lines left out. Commands in running text are found by ``test_docs.usages``.
"""

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LOGS: Final = ROOT / "tests" / "measured" / "logs"

FENCED: Final = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_PROMPT: Final = re.compile(r"^\$ ", re.MULTILINE)
_SHELL: Final = ("console", "bash", "sh", "")
_ASSIGNMENT: Final = re.compile(r"[A-Z_]+=.*")
LEFT_OUT: Final = "…"

#: Files that a page's commands read and that no command before makes: page, name, what it is a copy of.
FILES: Final[Mapping[str, Mapping[str, Path]]] = {
    "docs/guides/calibrate.md": {"server.log": LOGS / "vllm-0.19-llama-3.1-8b-h100.log"},
    "docs/add/measurement.md": {"server.log": LOGS / "vllm-0.19-llama-3.1-8b-h100.log"},
}
#: Pages that speak to somebody with GPUs, and which the driver lists there. On all others there is none.
WITH_GPUS: Final[Mapping[str, str]] = {
    "docs/guides/pre-deployment.md": "h100-80gb:2",
    "docs/guides/run-a-trial.md": "h100-80gb:2",
    "docs/tutorial.md": "l40s-48gb:1",
}
#: Commands that are parsed, not run: a pattern of the whole line, and why.
NOT_RUN: Final[Mapping[str, str]] = {
    r"specplan trial .*": "takes a minute and weights; tests/cli/test_trial.py runs it",
    r"specplan fit .*--(trial|download).*": "takes minutes and weights; tests/cli/test_fit_trials.py runs it",
    r"specplan fit .*--ray .*": "joins a Ray cluster; tests/planner/fleet/test_ray.py starts one",
    r"specplan models --add .*": "asks the Hub; tests/cli/test_other_commands.py adds a folder",
    r"specplan .*(/opt/|/etc/|/srv/).*": "names a place of the reader's machine",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One command of a page. ``printed`` is None where the page shows no output."""

    command: str
    printed: str | None
    exit_code: int | None = None

    @property
    def pipeline(self) -> list[list[str]]:
        """The words of each program, as the shell hands them over; comments and assignments are left out."""
        words = shlex.split(self.command.replace("\\\n", " "), comments=True)
        while words and _ASSIGNMENT.fullmatch(words[0]):
            words = words[1:]
        parts: list[list[str]] = [[]]
        for word in words:
            parts[-1:] = [parts[-1], []] if word == "|" else [[*parts[-1], word]]
        return parts

    @property
    def words(self) -> list[str]:
        """Of the last program: ours, where ours is one of them."""
        return self.pipeline[-1]

    @property
    def environment(self) -> dict[str, str]:
        """Assignments before the command."""
        pairs = {}
        for word in shlex.split(self.command, comments=True):
            if not _ASSIGNMENT.fullmatch(word):
                break
            name, _, value = word.partition("=")
            pairs[name] = value
        return pairs

    @property
    def program(self) -> str:
        return Path(self.words[0]).name if self.words else ""

    @property
    def programs(self) -> set[str]:
        return {Path(words[0]).name for words in self.pipeline if words}

    @property
    def not_run(self) -> str | None:
        """Why it is only parsed."""
        if len(self.pipeline) > 1:
            return "reads what another program writes"
        line = " ".join(self.words)
        return next((why for pattern, why in NOT_RUN.items() if re.fullmatch(pattern, line)), None)


def where(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def fenced(page: Path) -> Iterator[tuple[str, str]]:
    """(language, text) of every block."""
    for _, language, text in FENCED.findall(page.read_text(encoding="utf-8")):
        yield language, textwrap.dedent(text)


def shown_commands(page: Path) -> list[Shown]:
    """All commands of a page, in order, of whatever program."""
    found: list[Shown] = []
    for language, text in fenced(page):
        if _PROMPT.search(text):
            found += _after_prompts(text)
        elif language in _SHELL:
            found += [Shown(command=line, printed=None) for line in _logical_lines(text)]
    return found


def _after_prompts(text: str) -> list[Shown]:
    found: list[Shown] = []
    for part in _PROMPT.split(text)[1:]:
        command, *rest = re.split(r"(?<!\\)\n", part, maxsplit=1)
        printed = rest[0] if rest else ""
        if command == "echo $?":
            last = found.pop()
            found.append(Shown(command=last.command, printed=last.printed, exit_code=int(printed)))
        else:
            found.append(Shown(command=command, printed=printed))
    return found


def _logical_lines(text: str) -> list[str]:
    return [line for line in re.split(r"(?<!\\)\n", text) if line.strip() and not line.startswith(("#", " "))]


def matches(printed: str, shown: str) -> bool:
    """Whether an output is what a page says, but for the lines that it leaves out."""
    parts = re.split(rf"^{LEFT_OUT}\n", printed, flags=re.MULTILINE)
    return re.fullmatch(r"(?:.*\n)+?".join(map(re.escape, parts)), shown) is not None
