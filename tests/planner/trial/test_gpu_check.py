"""The check that is made for a machine with a GPU runs on any: its whole path, with tiny shapes, on the CPU."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'specplan[trial]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
SCRIPT = str(BENCHMARKS / "gpu_check.py")


@pytest.fixture(scope="module")
def steps() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_steps", BENCHMARKS / "gpu_steps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_whole_path_with_tiny_shapes(tmp_path: Path) -> None:
    """The fp8 pair alone: it takes every turn that the others take, and one more."""
    path = tmp_path / "check.json"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--device", "cpu", "--tiny", "--json", str(path), "--only", "llama-70b-fp8"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(path.read_text())
    (part,) = document["parts"]
    assert part["status"] == "ok", part
    rows = {(row["batch"], row["what"]): row for row in part["bytes"]}
    for batch in (1, 4):
        cache = rows[batch, "target KV cache"]
        assert cache["low_bytes"] <= cache["measured_bytes"] <= cache["high_bytes"]
        weights = rows[batch, "target weights"]
        # RoPE's frequencies and the scales of fp8 come on top: some hundred bytes of a quarter of a megabyte.
        assert weights["measured_bytes"] == pytest.approx(weights["high_bytes"], rel=0.01)
    assert {(row["batch"], row["way"]) for row in part["steps"]} == {
        (batch, way) for batch in (1, 4) for way in ("eager", "static")
    }
    for row in part["steps"]:
        assert row["speedup_of_measured_steps"]["high"] <= row["mean_acceptance_length"]["high"]
    for heading in ("## Bytes, in MiB", "## Step times", "| llama-70b-fp8 | ok |"):
        assert heading in done.stdout


def test_a_part_that_fails_is_told_and_ends_in_a_failure(tmp_path: Path) -> None:
    """No time at all is left for it: skipped, which is no failure; a GPU that is not here is one."""
    given = ["--device", "cpu", "--tiny", "--only", "qwen3-8b", "--budget-seconds", "0"]
    done = subprocess.run([sys.executable, SCRIPT, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| qwen3-8b | skipped |" in done.stdout
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    given = ["--device", "cuda", "--gpu", "h100", "--tiny", "--only", "qwen3-8b"]
    done = subprocess.run([sys.executable, SCRIPT, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "| qwen3-8b | failed |" in done.stdout
    assert "reaches no GPU" in done.stdout


def tiny(layers: int) -> Any:
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("length", [1, 5])
def test_the_step_that_is_captured_is_the_step_that_is_meant(steps: ModuleType, length: int) -> None:
    """Over the same context, the fixed cache with its own mask and positions chooses what the library's does."""
    model, context, batch = tiny(3), 11, 2
    ids = torch.randint(0, 96, (batch, context))
    grown = transformers.DynamicCache(config=model.config)
    fixed = transformers.StaticCache(config=model.config, max_cache_len=context + length)
    measured = steps.Steps(model, torch.device("cpu"), 0.0)
    with torch.inference_mode():
        for cache in (grown, fixed):
            measured._forward(ids, cache)
        torch.manual_seed(7)
        chosen = measured.static_forward(batch, context, length, fixed)()
        torch.manual_seed(7)  # the same tokens are drawn for the step
        expected, _ = measured._forward(measured._tokens(batch, length), grown)
    assert torch.equal(chosen, expected)


def test_a_projection_in_fp8_is_the_projection_up_to_its_three_bits_of_mantissa(steps: ModuleType) -> None:
    torch.manual_seed(1)
    plain = torch.nn.Linear(64, 48, bias=False, dtype=torch.bfloat16)
    small = steps.Fp8Linear(plain)
    assert small.weight.element_size() == 1
    given = torch.randn(3, 64, dtype=torch.bfloat16)
    with torch.inference_mode():
        exact, rounded = plain(given).float(), small(given).float()
    assert rounded.shape == exact.shape
    # Each factor is off by at most 2^-4 of itself; errors of 64 independent terms mostly cancel.
    assert float((rounded - exact).norm() / exact.norm()) < 2 * 2**-4
