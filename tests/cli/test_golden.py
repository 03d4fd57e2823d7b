"""What people see: command, exit code, stdout and stderr together, from the real program in a process of its own.

Reviewed by hand against arithmetic that is not ours: Llama 3.1 8B has 8,030,261,248 parameters of 2 bytes
(14.957 GiB) and keeps 32 layers x 8 heads x 128 x 2 x 2 B = 131,072 B per token (1 GiB per 8,192 tokens).
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

CASES = {
    "help": "--help",
    "fit_pair": "fit ./llama-8b --draft ./llama-1b --gpu h100-80gb:2 --batch 8 --offline",
    "fit_pair_verbose": "fit ./llama-8b --draft ./llama-1b --gpu l40s --pp 2 --verbose --offline",
    "fit_not": "fit ./llama-8b --draft none --gpu l4 --batch 16 --offline",
    "fit_draft_refused": "fit ./llama-8b --draft ./llama-1b --gpu rtx-4090 --draft-budget 5% --offline",
    "fit_explain": "fit ./llama-8b --draft none --gpu a100-80gb --engine transformers --explain --offline",
    "fit_quiet": "fit ./llama-8b --draft ngram --gpu h100-80gb --quiet --offline",
    "error_size": "fit ./llama-8b --memory-limit 24G",
    "error_json": "fit ./broken --gpu l4 --json - --offline",
}


@pytest.mark.parametrize("name", CASES)
def test_golden(
    name: str,
    tmp_path: Path,
    clean_environment: Mapping[str, str],
    model_folder: Callable[[str, Mapping[str, Any]], Path],
    llama_8b: Mapping[str, Any],
    llama_1b: Mapping[str, Any],
    golden: Callable[[str, str], None],
) -> None:
    model_folder("llama-8b", llama_8b)
    model_folder("llama-1b", llama_1b)
    model_folder("broken", {**llama_8b, "num_hidden_layers": "many"})
    done = subprocess.run(
        [sys.executable, "-m", "planner.cli.main", *CASES[name].split()],
        cwd=tmp_path,
        env={**clean_environment, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "--quiet" not in CASES[name] and "--json" not in CASES[name]:
        told = done.stdout.partition("Run it:")[0]  # a command is pasted whole, however long
        assert max(map(len, told.splitlines()), default=0) <= 80
    golden(
        f"{name}.txt",
        f"$ specplan {CASES[name]}\nexit code {done.returncode}\n"
        f"--- stdout\n{done.stdout}--- stderr\n{done.stderr}".replace(str(tmp_path), "FOLDER"),
    )
