"""Models made of small configurations of our own, for tests that need one but not a real one."""

from collections.abc import Mapping
from typing import Any

from model_catalog.bounds import ByteRange
from model_catalog.model import Model, describe
from model_catalog.snapshot import ModelSnapshot, RepoKind, SnapshotSource
from planner.devices import Device, DeviceSource


def model_of(config: Mapping[str, Any], repo_id: str = "made/model") -> Model:
    """The model of a configuration alone."""
    return describe(
        ModelSnapshot(
            repo_id=repo_id,
            revision=None,
            commit=None,
            source=SnapshotSource.LOCAL,
            kind=RepoKind.MODEL,
            config=config,
        )
    )


def llama(**changes: object) -> dict[str, Any]:
    """A small Llama configuration: 4 layers, 8 heads of 64, 2 KV heads."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "intermediate_size": 1024,
        "vocab_size": 1000,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **changes,
    }


def windowed(**changes: object) -> dict[str, Any]:
    """A small Gemma 3 text configuration: five windows of 128 tokens to each full layer."""
    return {
        **llama(),
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": 12,
        "sliding_window": 128,
        "sliding_window_pattern": 6,
        "query_pre_attn_scalar": 64,
        **changes,
    }


def mixture(**changes: object) -> dict[str, Any]:
    """A small Mixtral configuration: 8 experts, 2 for each token."""
    return {
        **llama(),
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": None,
        **changes,
    }


def latent(**changes: object) -> dict[str, Any]:
    """A small DeepSeek-V2 configuration: latent attention of 64 + 16, three expert layers after a dense one."""
    return {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "hidden_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "intermediate_size": 1024,
        "moe_intermediate_size": 256,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "kv_lora_rank": 64,
        "q_lora_rank": None,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "vocab_size": 1000,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **changes,
    }


def device(size_bytes: int, *, name: str = "made GPU", index: int = 0) -> Device:
    """An empty declared device whose totals are all the same."""
    return Device(
        index=index,
        name=name,
        source=DeviceSource.DECLARED,
        total_bytes=size_bytes,
        engine_total_bytes=ByteRange.point(size_bytes),
        free_bytes=size_bytes,
        compute_capability=(9, 0),
    )
