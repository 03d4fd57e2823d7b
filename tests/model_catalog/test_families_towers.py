"""Towers: their size where a formula is proven, and never zero where it is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from model_catalog.architecture import ArchitectureSpec, Component, Role
from model_catalog.config_reader import read_architecture
from model_catalog.errors import ConfigError

TABLE = Path(__file__).with_name("parameter_counts_hybrid.jsonl")
CONFIGS: dict[str, dict[str, Any]] = {
    row["repo_id"]: row["config"] for row in map(json.loads, TABLE.read_text(encoding="utf-8").splitlines())
}
TOWERS = {Component.VISION, Component.AUDIO, Component.PROJECTOR}
GEMMA3 = "google/gemma-3-4b-it"


def read(repo_id: str, **changes: object) -> ArchitectureSpec:
    return read_architecture(CONFIGS[repo_id] | changes, subject=repo_id)


def tower_parameters(spec: ArchitectureSpec) -> int:
    return sum(tensor.parameters for component, _, tensor in spec.tensors() if component in TOWERS)


@pytest.mark.parametrize(
    ("repo_id", "expected"),
    [
        # model cards and papers name the size of these towers
        pytest.param("google/gemma-3-27b-it", 423_060_336, id="siglip-417M-and-projector"),
        pytest.param("llava-hf/llava-1.5-7b-hf", 303_507_456 + 20_979_712, id="clip-vit-l-336-and-projector"),
        pytest.param("Qwen/Qwen2.5-VL-3B-Instruct", 668_684_288, id="qwen2.5-vl"),
    ],
)
def test_tower_size(repo_id: str, expected: int) -> None:
    spec = read(repo_id)
    assert spec.multimodal
    assert tower_parameters(spec) == expected
    assert all(t.role is Role.TOWER for component, _, t in spec.tensors() if component in TOWERS)


@pytest.mark.parametrize(
    ("repo_id", "change"),
    [
        pytest.param("llava-hf/llava-1.5-7b-hf", {"vision_config": {"model_type": "made_up"}}, id="unknown ViT"),
        pytest.param(GEMMA3, {"audio_config": {"hidden_size": 8}}, id="a further tower"),
        pytest.param(GEMMA3, {"model_type": "made_up_vl"}, id="unknown model"),
        pytest.param("OpenGVLab/InternVL2-2B", {"vision_config": {"norm_type": "rms_norm"}}, id="InternViT-6B"),
    ],
)
def test_unknown_is_a_flag_not_zero(repo_id: str, change: dict[str, object]) -> None:
    spec = read(repo_id, **change)
    assert spec.multimodal
    assert not spec.tower_parameters_known
    assert tower_parameters(spec) == 0


def test_a_text_model_has_no_tower() -> None:
    spec = read("deepseek-ai/DeepSeek-V3")
    assert (spec.multimodal, spec.tower_parameters_known) == (False, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_size", "1152"), ("num_hidden_layers", 10**6), ("patch_size", 0), ("image_size", -1)],
)
def test_bad_values_name_their_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        read(GEMMA3, vision_config=CONFIGS[GEMMA3]["vision_config"] | {key: value})
    assert caught.value.key_path == f"vision_config.{key}"
