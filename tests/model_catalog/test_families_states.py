"""What recurrent and hybrid models keep per sequence, and how layers are told apart."""

import json
from pathlib import Path
from typing import Any

import pytest

from model_catalog.architecture import (
    ArchitectureSpec,
    CacheRule,
    FullAttention,
    NoCache,
    RecurrentState,
    SharedCache,
    SlidingWindow,
)
from model_catalog.config_reader import read_architecture
from model_catalog.errors import ConfigError, UnsupportedConfigError

TABLE = Path(__file__).with_name("parameter_counts_hybrid.jsonl")
CONFIGS: dict[str, dict[str, Any]] = {
    row["repo_id"]: row["config"] for row in map(json.loads, TABLE.read_text(encoding="utf-8").splitlines())
}
QWEN3_NEXT = "Qwen/Qwen3-Next-80B-A3B-Instruct"


def read(repo_id: str, **changes: object) -> ArchitectureSpec:
    return read_architecture(CONFIGS[repo_id] | changes, subject=repo_id)


def rules(spec: ArchitectureSpec) -> list[CacheRule]:
    return [rule for layer in spec.decoder_layers for rule in layer.caches]


def states(spec: ArchitectureSpec) -> list[RecurrentState]:
    return [rule for rule in rules(spec) if isinstance(rule, RecurrentState)]


def state_bytes(spec: ArchitectureSpec, state_element_bytes: int) -> int:
    """Bytes per sequence: convolution history in bf16, recurrent matrices as asked."""
    return sum(
        2 * rule.conv_elements_per_step * rule.conv_steps + state_element_bytes * rule.state_elements
        for rule in states(spec)
    )


def gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.3f}"


def test_qwen3_next_at_8192_tokens_and_16_sequences() -> None:
    """12 full layers of 2 heads x (256 + 256); 36 gated-delta layers of 32 heads x 128 x 128 (fp32 or bf16)."""
    spec = read(QWEN3_NEXT)
    full = [rule for rule in rules(spec) if isinstance(rule, FullAttention)]
    assert (len(full), len(states(spec))) == (12, 36)
    keys_and_values = sum(2 * 8192 * 16 * rule.kv_heads * (rule.key_dim + rule.value_dim) for rule in full)
    assert gib(keys_and_values) == "3.000"
    assert gib(16 * state_bytes(spec, 4)) == "1.151"
    assert gib(keys_and_values + 16 * state_bytes(spec, 4)) == "4.151"
    assert gib(keys_and_values + 16 * state_bytes(spec, 2)) == "3.589"


@pytest.mark.parametrize(
    ("repo_id", "expected"),
    [
        # d_inner 4096 channels x 3 steps, d_inner x 16 (mamba paper, appendix; vLLM's mamba1 state shape)
        ("state-spaces/mamba-1.4b-hf", ("mamba1", 4096, 3, 4096 * 16, 48)),
        # 8192 + 2 x 8 groups x 128 channels; 128 heads x 64 x 128
        ("mistralai/Mamba-Codestral-7B-v0.1", ("mamba2", 8192 + 2048, 3, 128 * 64 * 128, 64)),
        # 3 x 2048 x 128 key/value channels of Qwen3-Next: 2 x 16 x 128 + 32 x 128
        (QWEN3_NEXT, ("gated_delta", 8192, 3, 32 * 128 * 128, 36)),
        # 3 x 32 x 128 channels, 32 heads x 128 x 128, 20 of 27 layers
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", ("kda", 12288, 3, 32 * 128 * 128, 20)),
        # short convolution of three taps over the hidden size, no matrix; 10 of 16 layers
        ("LiquidAI/LFM2-700M", ("short_conv", 1536, 2, 0, 10)),
        # lightning attention: 64 heads x 128 x 128, 70 of 80 layers
        ("MiniMaxAI/MiniMax-Text-01", ("lightning", 0, 0, 64 * 128 * 128, 70)),
        # Jamba: 28 of 32 layers, 8192 channels x 16
        ("ai21labs/Jamba-v0.1", ("mamba1", 8192, 3, 8192 * 16, 28)),
        # Falcon-H1 keeps a state in every layer: 1536 + 2 x 128 channels, 24 heads x 64 x 128
        ("tiiuae/Falcon-H1-0.5B-Base", ("mamba2", 1792, 3, 24 * 64 * 128, 36)),
        # Granite 4 H small: 36 of 40 layers, 8192 + 2 x 128 channels
        ("ibm-granite/granite-4.0-h-small", ("mamba2", 8448, 3, 128 * 64 * 128, 36)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_state_shape(repo_id: str, expected: tuple[str, int, int, int, int]) -> None:
    found = states(read(repo_id))
    kind, channels, steps, elements, layers = expected
    assert len(found) == layers
    assert {(r.kind, r.conv_elements_per_step, r.conv_steps, r.state_elements) for r in found} == {
        (kind, channels, steps, elements)
    }


def test_stated_state_type_is_kept_and_a_silent_config_leaves_it_open() -> None:
    stated = states(read("Qwen/Qwen3.5-27B"))[0].state_dtype
    assert stated is not None
    assert stated.name == "float32"
    assert states(read(QWEN3_NEXT))[0].state_dtype is None


def test_falcon_h1_layers_keep_both() -> None:
    for layer in read("tiiuae/Falcon-H1-0.5B-Base").decoder_layers:
        assert [type(rule) for rule in layer.caches] == [FullAttention, RecurrentState]


def test_rwkv_keeps_three_fp32_vectors_and_two_inputs() -> None:
    """RWKV 4 at 7B: transformers' state is two vectors in the model's dtype and three in fp32 a layer."""
    config = {"model_type": "rwkv", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 50277}
    found = states(read_architecture(config, subject="rwkv"))
    assert len(found) == 32
    assert (found[0].conv_elements_per_step, found[0].conv_steps, found[0].state_elements) == (8192, 1, 12288)


def test_nemotron_blocks_keep_one_thing_each() -> None:
    """Nemotron-H 56B: 54 Mamba 2, 10 attention and 54 MLP blocks in its published pattern."""
    found = rules(read("nvidia/Nemotron-H-56B-Base-8K"))
    kinds = [type(rule) for rule in found]
    assert (kinds.count(RecurrentState), kinds.count(FullAttention), kinds.count(NoCache)) == (54, 10, 54)


def test_searched_layout_drops_attention_in_some_layers() -> None:
    """Llama-3.3-Nemotron-Super-49B: 49 of 80 layers attend, each with 8 KV heads (its block_configs)."""
    found = rules(read("nvidia/Llama-3_3-Nemotron-Super-49B-v1"))
    full = [rule for rule in found if isinstance(rule, FullAttention)]
    assert (len(full), len(found)) == (49, 80)
    assert {rule.kv_heads for rule in full} == {8}


def test_gemma4_layers_share_the_last_cache_of_their_kind() -> None:
    """Gemma 4 E2B: the last 20 of 35 layers read layer 13 (window) or 14 (full); KV heads and sizes by kind."""
    found = rules(read("google/gemma-4-E2B-it"))
    assert found[:15].count(SlidingWindow(kv_heads=1, key_dim=256, value_dim=256, window_tokens=512)) == 12
    assert found[:15].count(FullAttention(kv_heads=1, key_dim=512, value_dim=512)) == 3
    assert set(found[15:]) == {SharedCache(source_layer=13), SharedCache(source_layer=14)}
    assert found[19] == SharedCache(source_layer=14)


def test_gemma4_global_layers_have_their_own_heads() -> None:
    found = rules(read("google/gemma-4-31B-it"))
    assert found[0] == SlidingWindow(kv_heads=16, key_dim=256, value_dim=256, window_tokens=1024)
    assert found[5] == FullAttention(kv_heads=4, key_dim=512, value_dim=512)


MIMO_V2 = {
    "model_type": "mimo_v2_flash",
    "num_hidden_layers": 4,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 192,
    "v_head_dim": 128,
    "intermediate_size": 16384,
    "vocab_size": 152576,
    "sliding_window": 128,
    "swa_num_attention_heads": 64,
    "swa_num_key_value_heads": 8,
    "swa_head_dim": 192,
    "swa_v_head_dim": 128,
    "hybrid_layer_pattern": [0, 1, 1, 0],
    "moe_layer_freq": [0, 1, 1, 1],
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": False,
}


def test_mimo_v2_has_two_attention_shapes() -> None:
    spec = read_architecture(MIMO_V2, subject="mimo")
    full = FullAttention(kv_heads=4, key_dim=192, value_dim=128)
    window = SlidingWindow(kv_heads=8, key_dim=192, value_dim=128, window_tokens=128)
    assert rules(spec) == [full, window, window, full]
    assert [layer.caches for layer in spec.mtp_layers] == [(window,)] * 3


@pytest.mark.parametrize(
    ("repo_id", "change", "key_path"),
    [
        (QWEN3_NEXT, {"linear_num_value_heads": None}, "linear_num_value_heads"),
        (QWEN3_NEXT, {"full_attention_interval": 0}, "full_attention_interval"),
        (QWEN3_NEXT, {"layer_types": ["full_attention"]}, "layer_types"),
        ("state-spaces/mamba-130m-hf", {"time_step_rank": "large"}, "time_step_rank"),
        ("state-spaces/mamba-130m-hf", {"conv_kernel": 10**9}, "conv_kernel"),
        ("mistralai/Mamba-Codestral-7B-v0.1", {"num_heads": 7}, "num_heads"),
        ("ibm-granite/granite-4.0-h-small", {"mamba_n_heads": 7}, "mamba_n_heads"),
        ("ai21labs/Jamba-v0.1", {"attn_layer_period": 0}, "attn_layer_period"),
        ("MiniMaxAI/MiniMax-Text-01", {"attn_type_list": [2] * 80}, "attn_type_list[0]"),
        ("nvidia/Nemotron-H-56B-Base-8K", {"hybrid_override_pattern": None}, "hybrid_override_pattern"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", {"block_configs": []}, "block_configs"),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", {"linear_attn_config": {}}, "linear_attn_config.num_heads"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_values_name_their_key(repo_id: str, change: dict[str, Any], key_path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(repo_id, **change)
    assert caught.value.key_path == key_path


@pytest.mark.parametrize(
    ("repo_id", "change", "key_path"),
    [
        (QWEN3_NEXT, {"layer_types": ["retention"] * 48}, "layer_types"),
        ("nvidia/Nemotron-H-56B-Base-8K", {"hybrid_override_pattern": "M?"}, "hybrid_override_pattern"),
        ("ibm-granite/granite-4.0-h-small", {"layer_types": ["retention"] * 40}, "layer_types"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_unknown_kinds_of_layer_are_unsupported(repo_id: str, change: dict[str, Any], key_path: str) -> None:
    with pytest.raises(UnsupportedConfigError) as caught:
        read(repo_id, **change)
    assert caught.value.key_path == key_path


def test_shared_layers_need_a_source() -> None:
    config = CONFIGS["google/gemma-4-E2B-it"]
    text = config["text_config"] | {"num_kv_shared_layers": 34}
    with pytest.raises(ConfigError) as caught:
        read("google/gemma-4-E2B-it", text_config=text)
    assert caught.value.key_path == "text_config.num_kv_shared_layers"
