"""`specplan trial` end to end on the embedded pairs: real models, a real child."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from planner import nvml
from planner.cli.main import main
from planner.errors import NvmlMissingError
from planner.trial.embedded import TINY_DRAFT, TINY_DRAFT_BAD, TINY_TARGET

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "accelerate")),
    reason="the trial's libraries are not installed: pip install 'specplan[trial]'",
)
TINY_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 2048,
    "torch_dtype": "float32",
}
SHORT = ["--trial-seconds", "15", "--new-tokens", "40"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(cache / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def no_driver() -> object:
        raise NvmlMissingError("no NVIDIA library", subject="NVML", hint="install the driver")

    monkeypatch.setattr(nvml, "read_devices", no_driver)


def trial(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    exit_code = main(["trial", *arguments, "--json", "-"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == exit_code
    return exit_code, document


@needs_torch
def test_the_embedded_draft_helps_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, document = trial(capsys, TINY_TARGET, TINY_DRAFT, "--num-speculative-tokens", "4", *SHORT)
    found = document["trial"]
    assert (exit_code, document["answer"]) == (0, "helps")
    assert found["speedup"]["low"] > 1
    assert found["lossless"] == {"checked": found["prompts"], "diverged": 0, "max_logit_gap": None}
    assert len(found["acceptance_per_position"]) == found["num_speculative_tokens"] == 4
    # Planned from the configs, held by the child's tensors: weights and caches of both.
    memory = found["memory"]
    assert memory["tensor_bytes"] == pytest.approx(memory["predicted_bytes"], rel=0.1)


@needs_torch
def test_a_draft_that_hurts_is_told_and_stops_a_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", TINY_TARGET, TINY_DRAFT_BAD, "--num-speculative-tokens", "3", *SHORT]) == 3
    shown = capsys.readouterr().out
    assert "HURTS: 0." in shown
    assert "yes, token for token" in shown


@needs_torch
def test_a_draft_of_another_vocabulary_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cache: Path
) -> None:
    config = {**TINY_LLAMA, "vocab_size": 999}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["trial", TINY_TARGET, str(tmp_path)]) == 2
    assert "vocabulary of 999" in capsys.readouterr().err


@needs_torch
def test_configurations_alone_tell_memory_and_step_times(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, layers in (("big", 4), ("small", 1)):
        (tmp_path / name).mkdir()
        config = {**TINY_LLAMA, "num_hidden_layers": layers}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    exit_code, document = trial(capsys, str(tmp_path / "big"), str(tmp_path / "small"), "--batch", "2", *SHORT)
    found = document["trial"]
    assert (exit_code, document["answer"]) == (4, "assumed")
    assert (found["weights"], found["batch"], found["speedup"], found["acceptance_rate"]) == (
        "dummy",
        2,
        None,
        None,
    )
    assert 0 < found["t_draft_seconds"] < found["t_target_seconds"]
    assert found["outcome"] == "confirms"
    assert found["memory"]["tensor_bytes"] == pytest.approx(found["memory"]["predicted_bytes"], rel=0.1)


@needs_torch
def test_real_weights_that_are_not_there_are_an_error_with_the_way_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY_LLAMA))
    exit_code = main(["trial", TINY_TARGET, str(tmp_path), "--trial-weights", "real", "--json", "-"])
    told = json.loads(capsys.readouterr().out)
    assert exit_code == 7
    assert told["error"]["code"] == "trial_weights_missing"
    assert "--trial-weights dummy" in told["error"]["hint"]


@needs_torch
def test_sampling_measures_too_and_compares_no_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, document = trial(
        capsys, TINY_TARGET, TINY_DRAFT, "--num-speculative-tokens", "4", "--temperature", "1", *SHORT
    )
    assert exit_code in {0, 4}
    assert document["trial"]["lossless"]["checked"] == 0
    assert document["trial"]["temperature"] == 1.0


@needs_torch
def test_fit_ranks_the_embedded_drafts_by_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--devices", "cpu", "--engine", "transformers", "--context", "512", "--trial-seconds", "30"]
    exit_code = main(["fit", TINY_TARGET, *arguments, "--trial", "--fresh", "--json", "-"])
    report = json.loads(capsys.readouterr().out)
    assert exit_code == 0
    assert report["recommendation"]["draft"] == TINY_DRAFT
    found = {candidate["repo_id"]: candidate for candidate in report["candidates"]}
    assert found[TINY_DRAFT]["trial"]["answer"] == "helps"
    assert found[TINY_DRAFT_BAD]["trial"]["answer"] == "hurts"
    assert not found[TINY_DRAFT_BAD]["accepted"]
    assert report["worthwhile"]["reasons"][0]["code"] == "measured"


def test_a_model_that_is_nowhere_is_not_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", "nobody/big", "nobody/small", "--devices", "cpu"]) == 8
    assert "nobody/big" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--num-speculative-tokens", "0"],
        ["--new-tokens", "3"],
        ["--num-speculative-tokens", "16", "--new-tokens", "17"],
        ["--trial-seconds", "0"],
        ["--temperature", "-1"],
        ["--batch", "0"],
    ],
)
def test_options_out_of_range_are_usage_errors(arguments: list[str], tmp_path: Path) -> None:
    assert main(["trial", str(tmp_path), str(tmp_path), *arguments]) == 2
