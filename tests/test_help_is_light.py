"""`specplan --help` answers at once: a fresh interpreter loads no heavy or foreign library for it."""

import subprocess
import sys

import pytest

HEAVY = (
    *("torch", "transformers", "accelerate", "huggingface_hub", "pynvml", "pydantic", "tabulate", "numpy"),
    "matplotlib",
)
PROBE = """
import sys
from planner.cli.main import main
code = main(sys.argv[1:])
print(code, *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        pytest.param(["--help"], (), id="root"),
        pytest.param(["--version"], (), id="version"),
        pytest.param([], (), id="no-arguments"),
        pytest.param(["fit", "--help"], (), id="fit"),
        pytest.param(["schema", "--help"], (), id="schema"),
        pytest.param(["gpus", "--help"], ("tabulate",), id="gpus"),
        pytest.param(["fit", "x", "--batch", "none"], (), id="usage-error"),
    ],
)
def test_nothing_heavy_is_loaded(arguments: list[str], allowed: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stderr.splitlines()[-1].split()[1:])
    assert "click" in loaded
    assert loaded & set(HEAVY) - set(allowed) == set()
