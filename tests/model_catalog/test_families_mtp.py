"""Multi-token-prediction layers: how many, of what, and that they cache like the model's own attention."""

import json
from pathlib import Path
from typing import Any

import pytest

from model_catalog.architecture import ArchitectureSpec, FullAttention, LatentAttention, Role, SlidingWindow
from model_catalog.config_reader import read_architecture
from model_catalog.errors import ConfigError

TABLE = Path(__file__).with_name("parameter_counts_hybrid.jsonl")
CONFIGS: dict[str, dict[str, Any]] = {
    row["repo_id"]: row["config"] for row in map(json.loads, TABLE.read_text(encoding="utf-8").splitlines())
}
V3 = "deepseek-ai/DeepSeek-V3"


def read(repo_id: str, **changes: object) -> ArchitectureSpec:
    return read_architecture(CONFIGS[repo_id] | changes, subject=repo_id)


def mtp_parameters(spec: ArchitectureSpec) -> int:
    return spec.parameters(with_mtp=True) - spec.parameters()


@pytest.mark.parametrize(
    ("repo_id", "rule"),
    [
        (V3, LatentAttention(latent_dim=512, rope_dim=64)),
        # GLM-5.2's MTP layer runs an indexer of its own, although most decoder layers share one
        ("zai-org/GLM-5.2", LatentAttention(latent_dim=512, rope_dim=64, indexer_bytes_per_token=132)),
        ("zai-org/GLM-4.5-Air", FullAttention(kv_heads=8, key_dim=128, value_dim=128)),
        # hybrids: always full attention, never the gated delta net
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", FullAttention(kv_heads=2, key_dim=256, value_dim=256)),
        ("Qwen/Qwen3.5-27B", FullAttention(kv_heads=4, key_dim=256, value_dim=256)),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", FullAttention(kv_heads=2, key_dim=128, value_dim=128)),
        ("XiaomiMiMo/MiMo-7B-Base", FullAttention(kv_heads=8, key_dim=128, value_dim=128)),
        ("deepseek-ai/DeepSeek-V4-Pro", SlidingWindow(kv_heads=1, key_dim=512, value_dim=0, window_tokens=128)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_one_layer_that_caches_like_the_model(repo_id: str, rule: object) -> None:
    (layer,) = read(repo_id).mtp_layers
    assert layer.caches == (rule,)


def test_repeated_tables_are_marked_as_such() -> None:
    """DeepSeek-V3's layer 61 stores the embedding and the head again: 2 x 129280 x 7168 elements."""
    spec = read(V3)
    tables = [t for t in spec.mtp_layers[0].tensors if t.role in {Role.EMBEDDING, Role.HEAD}]
    assert sum(tensor.parameters for tensor in tables) == 2 * 129280 * 7168
    # Without them and without the projection the layer is one of the decoder's, plus three norms.
    rest = mtp_parameters(spec) - 2 * 129280 * 7168 - 2 * 7168**2 - 3 * 7168
    assert rest == sum(tensor.parameters for tensor in spec.decoder_layers[-1].tensors)


def test_layers_multiply_with_the_stated_count() -> None:
    one, three = (read(V3, num_nextn_predict_layers=count) for count in (1, 3))
    assert len(three.mtp_layers) == 3
    assert mtp_parameters(three) == 3 * mtp_parameters(one)
    assert read(V3, num_nextn_predict_layers=0).mtp_layers == ()


def test_stated_but_never_stored() -> None:
    """MiniMax-M3's repo holds exactly decoder and tower (Hub parameter count), whatever its config says of MTP."""
    spec = read("MiniMaxAI/MiniMax-M3")
    assert spec.mtp_layers == ()


def test_an_unknown_layout_is_an_assumption() -> None:
    config = {
        "model_type": "ernie4_5",
        "hidden_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "intermediate_size": 3072,
        "vocab_size": 103424,
        "num_nextn_predict_layers": 1,
    }
    spec = read_architecture(config, subject="ernie")
    assert len(spec.mtp_layers) == 1
    assert any(item.key == "num_nextn_predict_layers" for item in spec.assumptions)


@pytest.mark.parametrize("value", [-1, 65, "1", 0.5, [1]])
def test_an_impossible_count_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        read(V3, num_nextn_predict_layers=value)
    assert caught.value.key_path == "num_nextn_predict_layers"
