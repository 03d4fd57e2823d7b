"""`specplan trial` end to end on the embedded pairs: real models, a real child."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from planner.cli.main import main
from planner.trial.embedded import TINY_DRAFT, TINY_DRAFT_BAD, TINY_TARGET

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "accelerate")),
    reason="the trial's libraries are not installed: pip install 'specplan[trial]'",
)
SHORT = ["--trial-seconds", "4", "--new-tokens", "48"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(cache / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


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
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 999,
        "torch_dtype": "float32",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["trial", TINY_TARGET, str(tmp_path)]) == 2
    assert "vocabulary of 999" in capsys.readouterr().err


@needs_torch
def test_a_folder_without_weights_fails_with_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 320,
        "torch_dtype": "float32",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    exit_code = main(["trial", TINY_TARGET, str(tmp_path), "--json", "-"])
    told = json.loads(capsys.readouterr().out)
    assert exit_code == 7
    assert told["error"]["code"] == "trial_weights"
    assert "no weights" in told["error"]["message"]


def test_a_model_without_weights_at_hand_says_how_to_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", "nobody/big", "nobody/small"]) == 5
    assert "hf download nobody/big" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--num-speculative-tokens", "0"],
        ["--new-tokens", "3"],
        ["--num-speculative-tokens", "16", "--new-tokens", "17"],
        ["--trial-seconds", "0"],
        ["--devices", "tpu"],
    ],
)
def test_options_out_of_range_are_usage_errors(arguments: list[str], tmp_path: Path) -> None:
    assert main(["trial", str(tmp_path), str(tmp_path), *arguments]) == 2
