"""Pythons of this machine that can take an installation: really started, not only found."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
OLDEST: Final = (3, 11)
_PROBE: Final = (
    "import ensurepip, sys, venv; print(*sys.version_info[:2], sys.version_info.releaselevel == 'final',"
    " sys.base_prefix)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """An interpreter and its release."""

    path: Path
    release: tuple[int, int]


def _candidates() -> Iterator[Path]:
    yield Path(sys.executable)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield from Path(folder or ".").glob("python3.[0-9][0-9]")
    root = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    yield from root.glob("versions/*/bin/python3.[0-9][0-9]")


@cache
def pythons() -> tuple[Python, ...]:
    """One interpreter a release, oldest first; a shim that starts nothing is not one."""
    found: dict[tuple[int, int], Python] = {}
    for path in dict.fromkeys(_candidates()):
        try:
            done = subprocess.run(
                [path, "-c", _PROBE],
                capture_output=True,
                text=True,
                check=True,
                timeout=30,
                env=bare_environment({}),
            )
        except (OSError, subprocess.SubprocessError):
            continue
        major, minor, final, _ = done.stdout.split(maxsplit=3)
        release = (int(major), int(minor))
        if final == "True" and release >= OLDEST:
            found.setdefault(release, Python(path=path, release=release))
    return tuple(found[release] for release in sorted(found))


def bare_environment(more: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without what leads Python, the Hub's client or specplan elsewhere."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGING", "XDG_", "CUDA_", "PYTHON", "SPECPLAN", "VIRTUAL_ENV", "PIPX"))
    }
    return {**kept, "LC_ALL": "C.UTF-8", "COLUMNS": "80", **more}


def pip(target: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run this environment's pip on another one, with the versions that the tests ran with."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(target), *arguments),
            *("--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt")),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=bare_environment({}),
    )
