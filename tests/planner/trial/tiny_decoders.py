"""Tiny random decoders of transformers, small enough to decode hundreds of tokens a second. Needs torch."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import transformers

from planner.trial.worker.caches import CachedModel

VOCABULARY: Final = 50
#: Of the models with a sliding window: far shorter than what the tests decode.
WINDOW: Final = 8
_COMMON: Final[Mapping[str, Any]] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,  # tied ones of random weights repeat one token for ever
}
_EXPERTS: Final[Mapping[str, Any]] = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
_MAMBA: Final[Mapping[str, Any]] = {"mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2}
_GATED_DELTA: Final[Mapping[str, Any]] = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
#: By model type: configuration, class, and what the configuration takes beyond the common sizes.
_KINDS: Final[Mapping[str, tuple[str, str, Mapping[str, Any]]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"sliding_window": WINDOW}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {"sliding_window": WINDOW, "query_pre_attn_scalar": 8}),
    "gemma3_text": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {"sliding_window": WINDOW, "query_pre_attn_scalar": 8, "sliding_window_pattern": 2},
    ),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        {**_EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 24},
    ),
    "deepseek_v3": (
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {
            **_EXPERTS,
            "num_key_value_heads": 4,
            **{"q_lora_rank": 16, "kv_lora_rank": 16},
            **{"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
            **{"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
        },
    ),
    "mamba": ("MambaConfig", "MambaForCausalLM", {"state_size": 8}),
    "mamba2": (
        "Mamba2Config",
        "Mamba2ForCausalLM",
        {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "expand": 2, "chunk_size": 8},
    ),
    "jamba": (
        "JambaConfig",
        "JambaForCausalLM",
        {
            **_MAMBA,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
            **{"num_experts": 2, "num_experts_per_tok": 1},
            **{"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
        },
    ),
    "bamba": (
        "BambaConfig",
        "BambaForCausalLM",
        {
            **_MAMBA,
            "mamba_n_heads": 4,
            "mamba_d_head": 16,
            "mamba_n_groups": 1,
            "mamba_chunk_size": 8,
            "attn_layer_indices": [1, 3],
        },
    ),
    "falcon_h1": (
        "FalconH1Config",
        "FalconH1ForCausalLM",
        {
            **_MAMBA,
            "mamba_d_ssm": 64,
            "mamba_n_heads": 4,
            "mamba_d_head": 16,
            "mamba_n_groups": 1,
            "mamba_chunk_size": 8,
        },
    ),
    "qwen3_next": (
        "Qwen3NextConfig",
        "Qwen3NextForCausalLM",
        {**_EXPERTS, **_GATED_DELTA, "num_experts": 4, "shared_expert_intermediate_size": 24},
    ),
    "lfm2": (
        "Lfm2Config",
        "Lfm2ForCausalLM",
        {"layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    ),
    "recurrent_gemma": (
        "RecurrentGemmaConfig",
        "RecurrentGemmaForCausalLM",
        {"lru_width": 32, "attention_window_size": WINDOW},
    ),
}
_OF_FOUR_LAYERS: Final = frozenset({"bamba", "qwen3_next", "lfm2", "recurrent_gemma"})


def decoder(kind: str, *, seed: int = 0, layers: int | None = None, **sizes: Any) -> Any:
    """A model with random weights in float32; ``sizes`` overrides its configuration."""
    torch.manual_seed(seed)
    configuration, name, own = _KINDS[kind]
    # Two hold one of each kind of layer, but where recurrent and attention layers take turns by fours.
    layers = layers or (4 if kind in _OF_FOUR_LAYERS else 2)
    common = {**_COMMON, "num_hidden_layers": layers}
    if kind == "gpt2":
        common = {name: common[name] for name in ("vocab_size", "initializer_range", "tie_word_embeddings")}
        common |= {"n_embd": 32, "n_layer": layers, "n_head": 4}
    model = getattr(transformers, name)(getattr(transformers, configuration)(**{**common, **own, **sizes})).eval()
    model.generation_config.eos_token_id = None
    return model


def disturbed(model: Any, share: float, seed: int = 7) -> Any:
    """A copy whose weights are off by that share of each tensor's spread: a draft that is right now and then."""
    torch.manual_seed(seed)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            if weight.dim() > 1:
                weight.add_(share * weight.std() * torch.randn_like(weight))
    return other


def cached(model: Any) -> CachedModel:
    """On the CPU."""
    return CachedModel(model=model, device="cpu")


#: Drafts by how often they are right: always, now and then, hardly ever.
DRAFTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "the target itself": lambda model: model,
    "a disturbed target": lambda model: disturbed(model, 0.03),
    "a stranger": lambda _: decoder("llama", seed=1, layers=1),
}
