"""Installed from the wheel into a fresh environment, specplan answers as it does here.

Needs an index that pip can reach; without one these tests are skipped.
"""

import json
import subprocess
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from interpreters import ROOT, Python, bare_environment, pip, pythons

from planner import plan

#: All but plot, which is really installed below.
EXTRAS = ("html", "ray", "trial", "docs")
ASKED = {"drafts": "Qwen/Qwen3-0.6B", "gpu": "h100-80gb:2", "batch": 16, "offline": True}
PAIR = [
    "fit",
    "Qwen/Qwen3-32B",
    "--draft",
    "Qwen/Qwen3-0.6B",
    "--gpu",
    "h100-80gb:2",
    "--batch",
    "16",
    "--offline",
]
FROM_PYTHON = f"""
import planner
assert "site-packages" in planner.__file__, planner.__file__
print(planner.plan("Qwen/Qwen3-32B", **{ASKED!r}).to_json())
"""
#: What asks for an extra that is not there: the options, the exit code, the extra.
WITHOUT = [
    pytest.param(
        "fit specplan/tiny-target --devices cpu --engine transformers --context 1024 --trial --offline",
        7,
        "trial",
        id="trial",
    ),
    pytest.param("fit Qwen/Qwen3-8B --draft none --gpu l40s --offline --plot plan.png", 2, "plot", id="plot"),
    pytest.param("fit Qwen/Qwen3-8B --draft none --gpu l40s --offline --html plan.html", 2, "html", id="html"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment with specplan in it, and a folder elsewhere to run it from."""

    python: Python
    folder: Path
    elsewhere: Path

    @property
    def interpreter(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"

    def run(self, *arguments: str, program: str = "specplan") -> "subprocess.CompletedProcess[str]":
        """Run one of its programs; anything of the checkout is out of reach."""
        return subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=self.elsewhere,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=bare_environment({"HOME": str(self.elsewhere), "HF_HUB_OFFLINE": "1"}),
        )


def environment(place: Path, python: Python) -> Installed:
    """A fresh environment of that Python with nothing in it."""
    subprocess.run([python.path, "-m", "venv", "--without-pip", place / "venv"], check=True, timeout=60)
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    return Installed(python=python, folder=place / "venv", elsewhere=elsewhere)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An index that answers."""
    folder = tmp_path_factory.mktemp("index")
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    got = pip(python, "install", "--dry-run", "--no-deps", "--retries", "0", "--timeout", "20", "click")
    if got.returncode != 0:
        pytest.skip(f"pip finds no packages: {got.stderr.strip().splitlines()[-1]}")


def releases() -> list[object]:
    """The oldest Python that we promise, and the newest that this machine has."""
    found = pythons()
    if len(found) < 2:
        reason = "no second Python that starts: python3.12 or newer, on PATH or under PYENV_ROOT"
        return [*found, pytest.param(None, marks=pytest.mark.skip(reason=reason), id="newest")]
    return [found[0], found[-1]]


@pytest.fixture(scope="module", params=releases(), ids=lambda python: ".".join(map(str, python.release)))
def installed(
    request: pytest.FixtureRequest, index: None, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """The wheel alone, in a fresh environment of that Python."""
    place = environment(tmp_path_factory.mktemp("installed"), request.param)
    done = pip(place.interpreter, "install", str(wheel))
    assert done.returncode == 0, done.stderr
    yield place


def undated(document: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(document).items() if key != "created_at"}


def test_a_plan_is_the_same_as_here(installed: Installed) -> None:
    """From the command line and from Python, in another folder, with another Python."""
    here = plan("Qwen/Qwen3-32B", drafts="Qwen/Qwen3-0.6B", gpu="h100-80gb:2", batch=16, offline=True)
    typed = installed.run(*PAIR, "--json", "-")
    assert (typed.returncode, typed.stderr) == (0, "")
    assert undated(typed.stdout) == undated(here.to_json())
    called = installed.run("-c", FROM_PYTHON, program="python")
    assert (called.returncode, called.stderr) == (0, "")
    assert undated(called.stdout) == undated(here.to_json())
    told = installed.run(*PAIR)
    assert told.stdout == here.text() + "\n"


def test_the_commands_answer(installed: Installed) -> None:
    release = ".".join(map(str, installed.python.release))
    for arguments, sign in (
        (["--help"], "Exit codes:"),
        (["doctor", "--offline"], f"on Python {release}."),
        (["gpus"], "h100-80gb"),
        (["models"], "Qwen/Qwen3-32B"),
        (["schema"], "specplan.report/1"),
    ):
        done = installed.run(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert sign in done.stdout
    assert installed.run("-m", "planner.cli.main", "--version", program="python").stdout.startswith("specplan, ")


@pytest.mark.parametrize(("typed", "exit_code", "extra"), WITHOUT)
def test_what_an_extra_is_missing_for_says_so(
    installed: Installed, typed: str, exit_code: int, extra: str
) -> None:
    done = installed.run(*typed.split())
    assert done.returncode == exit_code, done.stderr
    assert f"pip install 'specplan[{extra}]'" in " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in done.stderr


def test_every_extra_can_be_had_alone(installed: Installed, wheel: Path) -> None:
    if installed.python != pythons()[0]:
        pytest.skip("asked of the oldest Python alone: the constraints name what it takes")
    for extra in EXTRAS:
        done = pip(installed.interpreter, "install", "--dry-run", f"{wheel}[{extra}]")
        assert done.returncode == 0, f"{extra}: {done.stderr}"


def test_a_picture_with_its_extra_alone_and_a_page_with_both(
    index: None, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = environment(tmp_path_factory.mktemp("pictures"), pythons()[-1])
    done = pip(place.interpreter, "install", f"{wheel}[plot]")
    assert done.returncode == 0, done.stderr
    drawn = place.run(*PAIR, "--quiet", "--plot", "plan.png")
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert (place.elsewhere / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert place.run(*PAIR, "--html", "plan.html").returncode == 2
    done = pip(place.interpreter, "install", f"{wheel}[html]")
    assert done.returncode == 0, done.stderr
    written = place.run(*PAIR, "--quiet", "--html", "plan.html")
    assert (written.returncode, written.stderr) == (0, "")
    page = (place.elsewhere / "plan.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "Qwen/Qwen3-0.6B" in page


def test_pipx_runs_the_wheel(index: None, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is kept: pipx makes an environment for this one command."""
    place = environment(tmp_path_factory.mktemp("pipx"), pythons()[0])
    done = pip(place.interpreter, "install", "pipx")
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(
        [place.folder / "bin" / "pipx", "run", "--spec", wheel, "specplan", *PAIR, "--quiet"],
        cwd=place.elsewhere,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=bare_environment(
            {
                "PIPX_HOME": str(place.elsewhere / "home"),
                "PIPX_BIN_DIR": str(place.elsewhere / "bin"),
                "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
            }
        ),
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("FITS: ")
