"""Builds the stand-in libnvidia-ml.so.1 and writes its scenarios, so that tests run behind the real pynvml.

The library has to be in place before Python starts, so a scenario is used in a subprocess::

    library = build_library(folder)                      # None where there is no C compiler
    environment = {**os.environ, **scenario_environment(folder, "gpu uuid=GPU-1 name=NVIDIA~L4 total=24152899584")}
    subprocess.run([sys.executable, "-m", "planner.cli.main", "devices"], env=environment)

The language of a scenario is described at the top of ``fake_nvml.c``.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY_NAME = "libnvidia-ml.so.1"


def find_compiler() -> str | None:
    """The system's C compiler, or None."""
    return next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)


def build_library(folder: Path, *, without: Sequence[str] = ()) -> Path | None:
    """Compile the library into ``folder``; ``without`` names functions that it shall not export.

    Answers None where there is no compiler. Raises CalledProcessError where the source does not compile.
    """
    compiler = find_compiler()
    if compiler is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / LIBRARY_NAME
    renamed = [f"-D{name}=left_out_{name}" for name in without]
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", *renamed, "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


def break_library(folder: Path) -> Path:
    """Put a file in the library's place that no loader takes: hides a real driver of the machine, too."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / LIBRARY_NAME
    library.write_bytes(b"not a shared library\n" * 64)
    return library


def scenario_environment(folder: Path, text: str) -> dict[str, str]:
    """Write the scenario beside the library in ``folder``; add the answer to a process's environment."""
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    scenario = folder / f"scenario-{name}.txt"
    scenario.write_text(text, encoding="utf-8")
    inherited = os.environ.get("LD_LIBRARY_PATH")
    search_path = f"{folder}{os.pathsep}{inherited}" if inherited else str(folder)
    return {"LD_LIBRARY_PATH": search_path, "SPECPLAN_FAKE_NVML": str(scenario)}
