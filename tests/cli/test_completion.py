"""What a shell is told when somebody presses TAB: the program in a process of its own, asked as scripts ask."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from model_catalog.catalogue import catalogue_names
from planner.cli.completion import script
from planner.cli.typed_names import DRAFT_WORDS, ENGINES
from planner.declared_gpus import declared_gpus
from planner.engines.registry import engine_profile
from planner.service.drafts import BUILT_IN_DRAFTS, NO_DRAFT

ROOT = Path(__file__).resolve().parents[2]
#: What completing may not load: it has to come at once.
HEAVY = (
    "planner.engines",
    "planner.service.fitting",
    "torch",
    "huggingface_hub",
    "pynvml",
    "pydantic",
    "tabulate",
)
ASKED = """
import sys
from planner.cli.main import main
code = main([])
print("LOADED", *sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""


def pressed(environment: Mapping[str, str], line: str) -> tuple[list[str], set[str]]:
    """The answers of TAB at the end of a line (types and words), and the modules that were loaded for it."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        env={
            **environment,
            "PYTHONPATH": str(ROOT),
            "_SPECPLAN_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    told, _, loaded = done.stderr.partition("LOADED")
    assert told == ""
    return done.stdout.splitlines(), set(loaded.split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("specplan dr", ["plain,drafts"], id="a command"),
        pytest.param("specplan fit --ta", ["plain,--task"], id="an option"),
        pytest.param("specplan fit x --task m", ["plain,math", "plain,mixed"], id="a choice"),
        pytest.param("specplan fit x --engine t", ["plain,tensorrt-llm", "plain,transformers"], id="an engine"),
        pytest.param("specplan fit x --also-for S", ["plain,sglang"], id="an engine in capitals"),
        pytest.param("specplan drafts x --draft ngr", ["plain,ngram"], id="a word for a draft"),
        pytest.param("specplan fit x --devices c", ["plain,cpu"], id="the host"),
        pytest.param("specplan fit ./mod", ["dir,./mod"], id="a folder"),
        pytest.param("specplan check rep", ["file,rep"], id="a file"),
        pytest.param("specplan fit x --json rep", ["file,rep"], id="a file to write"),
        pytest.param("specplan completion f", ["plain,fish"], id="a shell"),
        pytest.param("specplan fit x --nothing-like-it", [""], id="nothing"),
    ],
)
def test_what_is_completed(line: str, expected: list[str], clean_environment: Mapping[str, str]) -> None:
    assert pressed(clean_environment, line)[0] == expected


@pytest.mark.parametrize("before", ["fit", "drafts", "gpus", "models", "trial", "fit x --draft"])
def test_models_are_those_of_the_catalogue(before: str, clean_environment: Mapping[str, str]) -> None:
    expected = {f"plain,{name}" for name in catalogue_names() if name.startswith("Qwen/Qwen3-0")}
    assert len(expected) > 1
    assert set(pressed(clean_environment, f"specplan {before} qwen/qwen3-0")[0]) == expected
    # Without the organisation, too: nothing else begins like that.
    assert set(pressed(clean_environment, f"specplan {before} Qwen3-0")[0]) == expected


def test_gpus_are_those_that_are_declared(clean_environment: Mapping[str, str]) -> None:
    told, _ = pressed(clean_environment, "specplan fit x --gpu h")
    assert told == [f"plain,{gpu.key}" for gpu in declared_gpus() if gpu.key.startswith("h")]
    assert "plain,h100-80gb" in told


def test_names_that_are_written_down_twice_are_the_same() -> None:
    assert {engine_profile(name).name for name in ENGINES} == set(ENGINES)
    with pytest.raises(Exception, match="is known") as error:
        engine_profile("none-of-these")
    assert all(name in error.value.hint for name in ENGINES)  # type: ignore[attr-defined]
    assert set(DRAFT_WORDS) == {NO_DRAFT, *BUILT_IN_DRAFTS}


@pytest.mark.parametrize(
    "line", ["specplan f", "specplan fit --g", "specplan fit Qwen/Qwen3-3", "specplan fit x --gpu l"]
)
def test_completing_loads_nothing_heavy(line: str, clean_environment: Mapping[str, str]) -> None:
    _, loaded = pressed(clean_environment, line)
    assert "click" in loaded
    assert {name for name in loaded if name.startswith(HEAVY)} == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_in_its_shells_language(shell: str, tmp_path: Path) -> None:
    written = script(shell)
    assert f"_SPECPLAN_COMPLETE={shell}_complete" in written
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine: the script's syntax is not checked")
    place = tmp_path / "script"
    place.write_text(written, encoding="utf-8")
    subprocess.run([shell, "-n", str(place)], check=True, timeout=60)
