"""Options and fixtures for all tests: golden files, model folders made of configurations, a clean environment."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ["distribution_fixtures", "hub_fixtures"]

# The same examples in every run, so that what is green here is green elsewhere, and no deadline that a busy
# machine misses. To look for new ones: HYPOTHESIS_PROFILE=explore.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden; then read the difference")


@pytest.fixture(autouse=True)
def own_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """With LC_ALL=C answers are in ASCII: whoever runs the tests may have set it."""
    monkeypatch.delenv("LC_ALL", raising=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file in tests/golden, or rewrite it with --update-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing: run pytest --update-golden and review what it writes"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def clean_environment(tmp_path: Path) -> dict[str, str]:
    """An environment without the user's settings, caches and devices: UTF-8, 80 columns, no colour, no network."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGING", "XDG_", "CUDA_", "PYTHON", "SPECPLAN")) and name != "NO_COLOR"
    }
    home = tmp_path / "home"
    home.mkdir()
    return {**kept, "HOME": str(home), "LC_ALL": "C.UTF-8", "COLUMNS": "80", "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def model_folder(tmp_path: Path) -> Callable[[str, Mapping[str, Any]], Path]:
    """Make a local model folder that holds a configuration alone."""

    def make(name: str, config: Mapping[str, Any]) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return folder

    return make


def llama_config(
    *,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    intermediate: int,
    vocabulary: int,
    tied: bool = False,
    positions: int = 131_072,
) -> dict[str, Any]:
    """A Llama configuration in bf16 with heads of 128 or hidden / heads."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "intermediate_size": intermediate,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        "tie_word_embeddings": tied,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "torch_dtype": "bfloat16",
    }


@pytest.fixture
def llama_8b() -> dict[str, Any]:
    """The shape of Llama 3.1 8B: 8,030,261,248 parameters (Hub parameter count of meta-llama/Llama-3.1-8B)."""
    return llama_config(hidden=4096, layers=32, heads=32, kv_heads=8, intermediate=14_336, vocabulary=128_256)


@pytest.fixture
def llama_1b() -> dict[str, Any]:
    """The shape of Llama 3.2 1B: 1,235,814,400 parameters (Hub parameter count of meta-llama/Llama-3.2-1B)."""
    return llama_config(
        hidden=2048, layers=16, heads=32, kv_heads=8, intermediate=8192, vocabulary=128_256, tied=True
    )
