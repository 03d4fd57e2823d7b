"""The wheel and the sdist: complete, lean, and described as they are."""

import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path, PurePosixPath

import pytest
from interpreters import ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import planner

PACKAGES = ("planner", "model_catalog")
USERS_EXTRAS = ("docs", "html", "plot", "ray", "trial")


def files_of(folder: str) -> set[str]:
    """What the checkout holds there, but for what Python leaves behind."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def in_wheel(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


@pytest.fixture(scope="module")
def in_sdist(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        names = [PurePosixPath(member.name) for member in archive.getmembers() if member.isfile()]
    return {PurePosixPath(*name.parts[1:]).as_posix() for name in names}


@pytest.fixture(scope="module")
def metadata(in_wheel: dict[str, bytes]) -> Message:
    [name] = [name for name in in_wheel if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(in_wheel[name].decode())


def requirements(metadata: Message, extra: str | None) -> list[Requirement]:
    """What is required with that extra, or without any."""
    every = [Requirement(text) for text in metadata.get_all("Requires-Dist") or []]
    if extra is None:
        return [required for required in every if required.marker is None]
    return [
        required
        for required in every
        if required.marker is not None and required.marker.evaluate({"extra": extra})
    ]


def test_the_wheel_is_both_packages_and_nothing_else(in_wheel: dict[str, bytes]) -> None:
    """Data, ``py.typed`` and all. It is built from the sdist, so this shows that one complete, too."""
    described = {name for name in in_wheel if ".dist-info/" in name}
    assert set(in_wheel) - described == files_of("planner") | files_of("model_catalog")
    for package in PACKAGES:
        assert f"{package}/py.typed" in in_wheel
        assert any(name.startswith(f"{package}/data/") for name in in_wheel)


def test_the_sdist_can_be_tested_and_holds_no_leavings(in_sdist: set[str]) -> None:
    assert files_of("tests") | files_of("docs") | files_of("benchmarks") | files_of("deploy") <= in_sdist
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "constraints.txt"} <= in_sdist
    tops = {name.partition("/")[0] for name in in_sdist}
    known = {path.name for path in ROOT.iterdir()} | {"PKG-INFO"}
    assert tops <= known - {".venv", ".git", ".ci", "dist", "build", "shared"}
    assert [name for name in in_sdist if name.endswith(".pyc")] == []
    assert not {top for top in tops if top.startswith(".")} - {".gitignore"}


def test_the_index_would_take_both(wheel: Path, sdist: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", wheel, sdist],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_description_is_true(metadata: Message, in_wheel: dict[str, bytes]) -> None:
    assert metadata["Name"] == "specplan"
    assert metadata["Version"] == planner.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert SpecifierSet(metadata["Requires-Python"]) == SpecifierSet(">=3.11")
    [license_file] = [name for name in in_wheel if name.endswith("/licenses/LICENSE")]
    text = in_wheel[license_file].decode()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert set(metadata.get_all("Provides-Extra") or []) == {*USERS_EXTRAS, "dev"}


def test_a_plan_needs_none_of_the_extras(metadata: Message) -> None:
    core = {required.name for required in requirements(metadata, None)}
    extras = {required.name for extra in USERS_EXTRAS for required in requirements(metadata, extra)}
    assert core
    assert extras
    assert core & extras == set()


def test_the_extras_are_together_here(metadata: Message) -> None:
    """The tests run with all of them in one environment, none with a version that it does not take."""
    for extra in USERS_EXTRAS:
        for required in requirements(metadata, extra):
            assert required.specifier.contains(version(required.name), prereleases=True), required
