"""What `specplan trial` refuses before it loads anything, each with a hint that helps."""

import json
import re
from pathlib import Path

import pytest

from planner.cli.main import main

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "float32",
}
PLACE = ["--devices", "cpu", "--offline", "--quiet"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return str(tmp_path)


@pytest.mark.parametrize("word", ["ngram", "mtp", "none"])
def test_a_draft_that_is_no_model_is_said_so(word: str, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", folder, word, *PLACE]) == 2
    error = capsys.readouterr().err
    assert "no draft model" in error
    assert f"--draft {word}" in error


def test_the_most_new_tokens_that_it_names_are_taken(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["trial", folder, folder, *PLACE, "--trial-weights", "real", "--new-tokens"]
    assert main([*arguments, "2048"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --new-tokens: ")
    found = re.search(r"give (\d+) or fewer", error)
    assert found is not None
    # Followed, the length is no obstacle any more: the weights are, which are not there.
    assert main([*arguments, found[1]]) == 7
    assert main([*arguments, str(int(found[1]) + 1)]) == 2


def test_a_folder_without_weights_is_not_to_be_downloaded(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", folder, folder, *PLACE, "--trial-weights", "real"]) == 7
    error = capsys.readouterr().err
    assert "*.safetensors" in error
    assert "--download" not in error
