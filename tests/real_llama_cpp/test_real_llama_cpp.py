"""A real ``llama-server`` runs our trial, takes the options of our command, and refuses what we say it refuses.

Set SPECPLAN_LLAMA_SERVER to the path of a llama-server of 2026 (checked with b10434). The models are the embedded
ones, made by code (needs the extra ``trial``) and rewritten as GGUF in float32. Takes about two minutes.
"""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from gguf_writer import convert

from planner.errors import TrialError
from planner.trial.backends import BUILTIN, LLAMA_CPP, Backend
from planner.trial.embedded import TINY_DRAFT, TINY_DRAFT_BAD, TINY_TARGET, embedded_folder, make_embedded
from planner.trial.protocol import TrialRequest
from planner.trial.runner import Outcome, run_trial
from planner.trial.serving.llama_cpp import SERVER_VARIABLE
from planner.trial.statistics import measure
from planner.trial.worker.llama_cpp.options import Help
from planner.trial.worker.llama_cpp.server import ask

SERVER: Final = os.environ.get(SERVER_VARIABLE, "")
pytestmark = [
    pytest.mark.skipif(
        not SERVER or shutil.which(SERVER) is None, reason=f"{SERVER_VARIABLE} does not name a llama-server"
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("transformers") is None, reason="the embedded models need the extra trial"
    ),
]
#: A token that text uses, in the draft's vocabulary under another name: ids 5 and up must have equal texts.
OTHER_TOKEN: Final = {100: "another"}
#: The cache in float32, as the built-in backend has it: then both see the same numbers but for rounding.
EXACT: Final = {"arguments": ["--cache-type-k", "f32", "--cache-type-v", "f32"]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders by name: the embedded ones as they are, and each with its GGUF file."""
    root = tmp_path_factory.mktemp("models")
    make_embedded(root)
    found = {}
    for name in (TINY_TARGET, TINY_DRAFT, TINY_DRAFT_BAD):
        short = name.rpartition("/")[2]
        found[f"{short} safetensors"] = embedded_folder(root, name)
        found[short] = root / "gguf" / short
        found[short].mkdir(parents=True)
        convert(embedded_folder(root, name), found[short] / f"{short}-F32.gguf")
    found["other vocabulary"] = root / "gguf" / "other"
    found["other vocabulary"].mkdir()
    convert(embedded_folder(root, TINY_DRAFT), found["other vocabulary"] / "other.gguf", renamed=OTHER_TOKEN)
    return found


def run(
    backend: Backend,
    target: Path,
    draft: Path,
    *,
    seconds: float = 20.0,
    engine_options: Mapping[str, object] | None = None,
) -> Outcome:
    request = TrialRequest(
        target_folder=str(target),
        draft_folder=str(draft),
        num_speculative_tokens=4,
        new_tokens=64,
        seconds=seconds,
        engine_options=engine_options or {},
    )
    return run_trial(
        request,
        command=backend.command(),
        environment=backend.environment(request),
        deadlines=backend.deadlines(request),
    )


def test_the_pair_runs_and_accepts_as_often_as_in_the_built_in_backend(folders: dict[str, Path]) -> None:
    outcome = run(LLAMA_CPP, folders["tiny-target"], folders["tiny-draft"], engine_options=EXACT)
    assert outcome.failures == ()
    assert all(each.same_tokens for each in outcome.runs)
    assert outcome.versions["llama.cpp"]
    # Acceptance by position is counted, not fitted, by this release.
    assert not any("fit" in note for note in outcome.notes)
    ours = measure(outcome.runs)
    builtin = run(BUILTIN, folders["tiny-target safetensors"], folders["tiny-draft safetensors"])
    theirs = measure(builtin.runs)
    # The same models, prompts and greedy choice: what differs is how many prompts there was time for, and the last
    # rounds of each, which llama.cpp cuts short.
    assert ours.mean_acceptance_length.value == pytest.approx(theirs.mean_acceptance_length.value, rel=0.12)
    assert ours.acceptance_rate == pytest.approx(theirs.acceptance_rate, abs=0.08)


def test_buffers_are_those_of_the_files(folders: dict[str, Path]) -> None:
    outcome = run(LLAMA_CPP, folders["tiny-target"], folders["tiny-draft"], seconds=1.0)
    files = [next(folders[name].glob("*.gguf")).stat().st_size for name in ("tiny-target", "tiny-draft")]
    # Without the file's head, and in MiB of two decimals.
    assert outcome.engine["baseline"]["weights_bytes"] == pytest.approx(files[0], rel=0.01)
    assert outcome.engine["speculative"]["weights_bytes"] == pytest.approx(sum(files), rel=0.01)


def test_a_draft_that_is_never_right_is_measured_as_such(folders: dict[str, Path]) -> None:
    outcome = run(LLAMA_CPP, folders["tiny-target"], folders["tiny-draft-bad"], seconds=10.0)
    measured = measure(outcome.runs)
    assert measured.accepted_per_drafted < 0.05
    assert measured.speedup.value < 1


def test_another_vocabulary_is_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(TrialError) as raised:
        run(LLAMA_CPP, folders["tiny-target"], folders["other vocabulary"], seconds=1.0)
    assert raised.value.code == "trial_engine_refused"
    assert "vocab" in raised.value.message


def test_a_file_that_is_no_model_is_told(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "pointer.gguf").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(TrialError) as raised:
        run(LLAMA_CPP, tmp_path, folders["tiny-draft"], seconds=1.0)
    assert raised.value.code == "trial_weights"
    assert "magic" in raised.value.message


def test_a_cache_beyond_the_memory_is_told(folders: dict[str, Path], tmp_path: Path) -> None:
    """12 KiB a token: 24 GB, where the process may have 8."""
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -v 8000000\nexec {shutil.which(SERVER)} "$@"\n')
    limited.chmod(0o755)
    options = {"server": str(limited), "arguments": ["--ctx-size", "2000000"]}
    with pytest.raises(TrialError) as raised:
        run(LLAMA_CPP, folders["tiny-target"], folders["tiny-draft"], seconds=1.0, engine_options=options)
    assert raised.value.code == "trial_out_of_memory"


def test_an_unknown_argument_is_told(folders: dict[str, Path]) -> None:
    options = {"arguments": ["--no-such-option"]}
    with pytest.raises(TrialError) as raised:
        run(LLAMA_CPP, folders["tiny-target"], folders["tiny-draft"], seconds=1.0, engine_options=options)
    assert raised.value.code == "trial_engine_options"


def test_the_options_of_our_command_exist() -> None:
    """Those that ``planner.commands.llama_cpp`` writes."""
    known = Help.of(ask(SERVER, "--help"))
    words = {
        *("--model", "--parallel", "--ctx-size", "--n-gpu-layers", "--cache-type-k", "--cache-type-v", "--fit"),
        *("--spec-type", "--spec-draft-model", "--spec-draft-ngl", "--spec-draft-type-k", "--spec-draft-type-v"),
        *("--spec-draft-n-max", "--spec-ngram-simple-size-m"),
    }
    assert words <= known.names
    for kind in ("draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark", "ngram-simple"):
        assert kind in known.text
    assert not {"--draft-max", "--draft", "--draft-min"} & known.names
