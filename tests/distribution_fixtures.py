"""One sdist and one wheel for all tests of the distribution, built from the checkout."""

import subprocess
import sys
from pathlib import Path

import pytest
from interpreters import ROOT, bare_environment


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both; the wheel is built from the sdist, as ``make dist`` does it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
        timeout=120,
        env=bare_environment({}),
    )
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    """The wheel."""
    [path] = built.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def sdist(built: Path) -> Path:
    """The sdist."""
    [path] = built.glob("*.tar.gz")
    return path
