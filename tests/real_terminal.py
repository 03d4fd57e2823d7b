"""A real terminal for tests: tmux with bash in it, and what its screen shows, colours and all."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
_PROMPT: Final = "READY>"
_PATIENCE_SECONDS: Final = 60.0
_SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")
#: Programs of the shell and of ours: a wrapper, so that the tests need no installed console script.
_WRAPPER: Final = '#!/bin/sh\nPYTHONPATH="{root}" exec "{python}" -m planner.cli.main "$@"\n'


class Terminal:
    """A pane of so many columns; use it in a ``with`` block. ``environment`` is all that the shell has."""

    def __init__(self, folder: Path, columns: int, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._columns = columns
        self._given = dict(environment or {})
        # The path of a socket may have 107 characters; a test's own folder is often longer.
        self._place = Path(tempfile.mkdtemp(prefix="terminal-"))

    def __enter__(self) -> "Terminal":
        programs = self._folder / "programs"
        programs.mkdir(exist_ok=True)
        wrapper = programs / "specplan"
        wrapper.write_text(_WRAPPER.format(root=ROOT, python=sys.executable), encoding="utf-8")
        wrapper.chmod(0o755)
        home = self._folder / "home"
        home.mkdir(exist_ok=True)
        variables = {
            "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "TERM": "screen-256color",
            "LC_ALL": "C.UTF-8",
            "PS1": f"{_PROMPT} ",
            "HF_HUB_OFFLINE": "1",
            **self._given,
        }
        shell = ["env", "-i", *(f"{name}={value}" for name, value in variables.items() if value)]
        size = ["-x", str(self._columns), "-y", "80"]
        self._tmux(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            *size,
            "-c",
            str(self._folder),
            *shell,
            *("bash", "--norc", "-i"),
        )
        self.wait_for(lambda screen: _PROMPT in screen)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tmux("kill-server")
        shutil.rmtree(self._place, ignore_errors=True)

    def keys(self, *keys: str) -> None:
        """Type keys by tmux's names (Enter, Tab), or text."""
        self._tmux("send-keys", *keys)

    def run(self, command: str, *, colored: bool = False) -> str:
        """Run a command on an empty screen and wait for the prompt: what the screen shows then."""
        self.begin(command)
        return self.finished(colored=colored)

    def begin(self, command: str) -> None:
        """Start a command on an empty screen."""
        self._tmux("send-keys", "-l", f"clear; {command}")
        self._tmux("send-keys", "Enter")

    def finished(self, *, colored: bool = False) -> str:
        """The screen once the command has ended and the prompt is back."""
        self.wait_for(lambda screen: screen.rstrip().endswith(_PROMPT) and "clear; " not in screen)
        return self.screen(colored=colored).rstrip().removesuffix(_PROMPT).rstrip("\n") + "\n"

    def wait_for(self, holds: Callable[[str], bool]) -> str:
        """The first screen of which this holds.

        Raises:
            AssertionError: none did in time; it shows the last one.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            screen = self.screen()
            if holds(screen):
                return screen
            assert time.monotonic() < end, f"it did not come:\n{screen}"
            time.sleep(0.03)

    def screen(self, *, colored: bool = False) -> str:
        """What is to be seen; with ``colored`` each change of colour as one escape sequence."""
        shown = self._tmux("capture-pane", "-p", *(["-e"] if colored else []))
        shown = _plain_colors(shown) if colored else shown
        return "\n".join(line.rstrip() for line in shown.splitlines()) + "\n"

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", str(self._place / "socket"), *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE_SECONDS,
        )
        return done.stdout


def _plain_colors(screen: str) -> str:
    """Releases of tmux write the same colours in different ways: here a change is one sequence, within a line."""
    lines, wanted = [], frozenset[int]()
    for line in screen.splitlines():
        shown, told = "", frozenset[int]()
        for position, piece in enumerate(_SGR.split(line)):
            if position % 2:
                for code in map(int, filter(None, piece.split(";") if piece else ["0"])):
                    wanted = _with(wanted, code)
            elif piece:
                if wanted != told:
                    shown += f"\x1b[{';'.join(map(str, sorted(wanted))) or '0'}m"
                    told = wanted
                shown += piece
        lines.append(f"{shown}\x1b[0m" if told else shown)
    return "\n".join(lines)


def _with(state: frozenset[int], code: int) -> frozenset[int]:
    """Of the codes that we use: bold, colours of the text, and what ends them. Backgrounds are nobody's."""
    if code == 0 or 40 <= code <= 49:
        return state if code else frozenset()
    if code == 22:
        return state - {1}
    kept = state - set(range(30, 38)) if 30 <= code <= 39 else state
    return kept if code == 39 else kept | {code}
