"""What models with latent attention keep per token, which layers run an indexer, and which keys they insist on."""

import json
from pathlib import Path
from typing import Any

import pytest

from model_catalog.architecture import ArchitectureSpec, LatentAttention, Role, SlidingWindow
from model_catalog.config_reader import read_architecture
from model_catalog.errors import ConfigError, UnsupportedConfigError

TABLE = Path(__file__).with_name("parameter_counts_hybrid.jsonl")
CONFIGS: dict[str, dict[str, Any]] = {
    row["repo_id"]: row["config"] for row in map(json.loads, TABLE.read_text(encoding="utf-8").splitlines())
}
V3 = "deepseek-ai/DeepSeek-V3"


def read(repo_id: str, **changes: object) -> ArchitectureSpec:
    return read_architecture(CONFIGS[repo_id] | changes, subject=repo_id)


def latent_bytes_per_token(spec: ArchitectureSpec, element_bytes: int = 2) -> int:
    return sum(
        element_bytes * (rule.latent_dim + rule.rope_dim) + rule.indexer_bytes_per_token
        for layer in spec.decoder_layers
        for rule in layer.caches
        if isinstance(rule, LatentAttention)
    )


@pytest.mark.parametrize(
    ("repo_id", "expected"),
    [
        # 61 layers x (512 + 64) x 2 B: the 70 KB a token of the DeepSeek-V3 ISCA paper, table 1
        pytest.param(V3, 70_272, id="deepseek-v3"),
        # the same plus 61 x 132 B of indexer keys (vLLM's indexer cache: 128 fp8 + one fp32 scale)
        pytest.param("deepseek-ai/DeepSeek-V3.2", 70_272 + 61 * 132, id="deepseek-v3.2"),
        # 27 layers x 576 x 2 B
        pytest.param("deepseek-ai/DeepSeek-V2-Lite", 31_104, id="deepseek-v2-lite"),
        # 78 layers, all with an indexer in GLM-5.1, 21 of them in GLM-5.2
        pytest.param("zai-org/GLM-5.1", 78 * (1152 + 132), id="glm-5.1"),
        pytest.param("zai-org/GLM-5.2", 78 * 1152 + 21 * 132, id="glm-5.2"),
        # 24 of 93 layers are latent in Kimi K3
        pytest.param("moonshotai/Kimi-K3", 24 * 1152, id="kimi-k3"),
    ],
)
def test_cache_per_token(repo_id: str, expected: int) -> None:
    assert latent_bytes_per_token(read(repo_id)) == expected


def test_indexer_schedule_without_a_list() -> None:
    """GLM-5.2's schedule keys (every fourth, from the third layer on) say what its list says."""
    config = {key: value for key, value in CONFIGS["zai-org/GLM-5.2"].items() if key != "indexer_types"}
    by_schedule = read_architecture(
        config | {"index_topk_freq": 4, "index_skip_topk_offset": 3}, subject="GLM-5.2"
    )
    assert by_schedule.parameters() == read("zai-org/GLM-5.2").parameters()


def test_shared_layers_store_no_indexer() -> None:
    layers = read("zai-org/GLM-5.2").decoder_layers
    with_indexer = [
        number for number, layer in enumerate(layers) if any("indexer" in t.name for t in layer.tensors)
    ]
    assert len(with_indexer) == 21
    assert with_indexer[:4] == [0, 1, 2, 6]


def test_down_projections_are_replicated_and_up_projections_split_by_heads() -> None:
    roles = {tensor.name: tensor.role for tensor in read(V3).decoder_layers[0].tensors}
    assert roles["self_attn.kv_a_proj_with_mqa.weight"] is Role.LATENT
    assert roles["self_attn.q_a_proj.weight"] is Role.LATENT
    assert roles["self_attn.kv_b_proj.weight"] is Role.QUERY
    assert roles["self_attn.q_b_proj.weight"] is Role.QUERY


def test_first_layers_are_dense() -> None:
    layers = read(V3).decoder_layers
    dense = [not any(t.role is Role.EXPERT for t in layer.tensors) for layer in layers]
    assert dense == [True] * 3 + [False] * 58


def test_deepseek_v4_windows_and_compressed_rows() -> None:
    """One 512-wide row a token in a window of 128; 512/4 or 512/128 elements a token of compressed rows."""
    spec = read("deepseek-ai/DeepSeek-V4-Pro")
    caches = [layer.caches for layer in spec.decoder_layers]
    window = SlidingWindow(kv_heads=1, key_dim=512, value_dim=0, window_tokens=128)
    assert all(rules[0] == window for rules in caches)
    rows = [rules[1] for rules in caches if len(rules) == 2]
    assert {
        (rule.latent_dim, rule.indexer_bytes_per_token) for rule in rows if isinstance(rule, LatentAttention)
    } == {
        (128, 33),
        (4, 0),
    }
    assert spec.mtp_layers[0].caches == (window,)


@pytest.mark.parametrize(
    ("repo_id", "change", "key_path"),
    [
        (V3, {"kv_lora_rank": None}, "kv_lora_rank"),
        (V3, {"qk_nope_head_dim": None}, "qk_nope_head_dim"),
        (V3, {"kv_lora_rank": "512"}, "kv_lora_rank"),
        (V3, {"moe_layer_freq": 0}, "moe_layer_freq"),
        (V3, {"first_k_dense_replace": -1}, "first_k_dense_replace"),
        (V3, {"mlp_layer_types": ["dense"]}, "mlp_layer_types"),
        (V3, {"num_nextn_predict_layers": 1.5}, "num_nextn_predict_layers"),
        ("zai-org/GLM-5.2", {"indexer_types": ["full"]}, "indexer_types"),
        ("deepseek-ai/DeepSeek-V3.2", {"index_head_dim": None}, "index_head_dim"),
        ("deepseek-ai/DeepSeek-V4-Pro", {"compress_ratios": [0, 4]}, "compress_ratios"),
        ("moonshotai/Kimi-K2.5", {"text_config": {"model_type": "kimi_k2"}}, "text_config.hidden_size"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_values_name_their_key(repo_id: str, change: dict[str, Any], key_path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(repo_id, **change)
    assert caught.value.key_path == key_path


def test_deepseek_v4_without_its_ratios_is_unsupported() -> None:
    with pytest.raises(UnsupportedConfigError) as caught:
        read("deepseek-ai/DeepSeek-V4-Pro", compress_ratios=None)
    assert caught.value.key_path == "compress_ratios"
