"""What transformer layers keep: windows, patterns, chunks and KV heads, as published models have them."""

from typing import Any

import pytest
from published_configs import WHISPER_TINY

from model_catalog.architecture import (
    ArchitectureSpec,
    ChunkedAttention,
    Component,
    CrossAttention,
    FullAttention,
    NoCache,
    SlidingWindow,
)
from model_catalog.config_reader import read_architecture
from model_catalog.errors import ConfigError, UnsupportedConfigError

GIB = 2**30
CONTEXT = 8192
BATCH = 16


def read(config: dict[str, Any]) -> ArchitectureSpec:
    return read_architecture(config, subject="org/name")


def decoder(
    model_type: str, layers: int, hidden: int, heads: int, kv_heads: int, **others: object
) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": 4 * hidden,
        "vocab_size": 32000,
        **others,
    }


def cache_gib(spec: ArchitectureSpec, *, capped: bool) -> float:
    """Keys and values of every decoder layer at 2 bytes an element; ``capped``: windows keep no more."""
    elements = 0
    for layer in spec.decoder_layers:
        for rule in layer.caches:
            assert isinstance(rule, FullAttention | SlidingWindow)
            window = rule.window_tokens if capped and isinstance(rule, SlidingWindow) else CONTEXT
            elements += min(window, CONTEXT) * rule.kv_heads * (rule.key_dim + rule.value_dim)
    return elements * 2 * BATCH / GIB


QWEN3 = {"head_dim": 128, "use_sliding_window": False, "sliding_window": None, "max_window_layers": 28}
GEMMA3_27B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 62,
        "hidden_size": 5376,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "intermediate_size": 21504,
        "sliding_window": 1024,
    },
}
GPT_OSS_120B = decoder(
    "gpt_oss",
    36,
    2880,
    64,
    8,
    head_dim=64,
    num_local_experts=128,
    num_experts_per_tok=4,
    sliding_window=128,
    layer_types=["sliding_attention", "full_attention"] * 18,
)
MIXTRAL = decoder("mixtral", 32, 4096, 32, 8, num_local_experts=8, num_experts_per_tok=2, sliding_window=None)

# Expected: layers * KV heads * 2 * head dimension * 2 bytes * 8192 * 16, by hand from the published shapes; for
# gemma-3-27b 10 of 62 layers are full and 52 keep 1024 tokens, for gpt-oss-120b half keep 128.
CACHES = [
    ("Llama-3.1-8B", decoder("llama", 32, 4096, 32, 8), 16.0, 16.0),
    ("Llama-3.1-70B", decoder("llama", 80, 8192, 64, 8), 40.0, 40.0),
    ("Qwen3-32B", decoder("qwen3", 64, 5120, 64, 8, **QWEN3), 32.0, 32.0),
    ("Qwen3-0.6B", decoder("qwen3", 28, 1024, 16, 8, **QWEN3), 14.0, 14.0),
    ("Qwen2.5-0.5B", decoder("qwen2", 24, 896, 14, 2), 1.5, 1.5),
    ("gemma-3-27b", GEMMA3_27B, 16.5, 62.0),
    ("Mixtral-8x7B", MIXTRAL, 16.0, 16.0),
    ("gpt-oss-120b", GPT_OSS_120B, 4.5 + 4.5 / 64, 9.0),
]


@pytest.mark.parametrize(("name", "config", "capped", "uncapped"), CACHES, ids=[row[0] for row in CACHES])
def test_cache_at_8192_tokens_and_16_sequences(
    name: str, config: dict[str, Any], capped: float, uncapped: float
) -> None:
    spec = read(config)
    assert cache_gib(spec, capped=True) == capped
    assert cache_gib(spec, capped=False) == uncapped


def window_map(config: dict[str, Any]) -> str:
    """One letter a layer: S slides, C keeps a chunk, F keeps everything."""
    letters = {SlidingWindow: "S", ChunkedAttention: "C", FullAttention: "F"}
    return "".join(letters[type(layer.caches[0])] for layer in read(config).decoder_layers)


# Expected: the model cards and the config classes of transformers: Gemma 2 and gpt-oss alternate, Gemma 3 has
# 5 to 1, Command R7B, OLMo 3 and EXAONE 4 3 to 1, Qwen2 slides from max_window_layers on, Mistral everywhere.
SMALL = {"layers": 8, "hidden": 512, "heads": 8, "kv_heads": 8}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 1}
QWEN_MOE = {"num_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 64} | {
    "use_sliding_window": True,
    "sliding_window": 4096,
}
WINDOWS = [
    ("mistral", {"sliding_window": 4096}, "SSSSSSSS"),
    ("mistral", {"sliding_window": None}, "FFFFFFFF"),
    ("mistral", {}, "SSSSSSSS"),
    ("mixtral", {"sliding_window": 4096, **EXPERTS}, "SSSSSSSS"),
    ("mixtral", EXPERTS, "FFFFFFFF"),
    ("ministral3", {}, "FFFFFFFF"),
    ("qwen2", {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 4}, "FFFFFFFF"),
    ("qwen2", {"sliding_window": 4096, "max_window_layers": 4}, "FFFFFFFF"),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 6}, "FFFFFFSS"),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 0}, "SSSSSSSS"),
    ("qwen2_moe", {**QWEN_MOE, "shared_expert_intermediate_size": 64, "max_window_layers": 5}, "SFSFSFFF"),
    ("qwen3_moe", {**QWEN_MOE, "max_window_layers": 5}, "SSSSSSSS"),
    ("qwen3_moe", {**QWEN_MOE, "use_sliding_window": False}, "FFFFFFFF"),
    ("phi3", {"sliding_window": 2047}, "SSSSSSSS"),
    ("phi3", {}, "FFFFFFFF"),
    ("starcoder2", {"sliding_window": 4096}, "SSSSSSSS"),
    ("gemma", {}, "FFFFFFFF"),
    ("gemma2", {"sliding_window": 4096}, "SFSFSFSF"),
    ("gemma3_text", {"sliding_window": 512}, "SSSSSFSS"),
    ("gemma3_text", {"sliding_window": 512, "sliding_window_pattern": 4}, "SSSFSSSF"),
    ("gemma3_text", {"layer_types": ["full_attention"] * 7 + ["sliding_attention"]}, "FFFFFFFS"),
    ("cohere2", {"sliding_window": 4096, "sliding_window_pattern": 4}, "SSSFSSSF"),
    ("olmo3", {"sliding_window": 4096}, "SSSFSSSF"),
    ("exaone4", {"sliding_window": 4096, "sliding_window_pattern": "LLLG"}, "SSSFSSSF"),
    ("exaone4", {"sliding_window": None, "sliding_window_pattern": None}, "FFFFFFFF"),
    ("gpt_oss", EXPERTS, "SFSFSFSF"),
    ("llama4_text", {**EXPERTS, "attention_chunk_size": 8192}, "CCCFCCCF"),
    ("llama4_text", {**EXPERTS, "attention_chunk_size": 8192, "no_rope_layers": []}, "CCCFCCCF"),
    ("llama4_text", {**EXPERTS, "attention_chunk_size": None}, "FFFFFFFF"),
    ("olmo2", {"layer_types": ["full_attention"] * 8}, "FFFFFFFF"),
    ("smollm3", {"use_sliding_window": False, "sliding_window": 64}, "FFFFFFFF"),
    ("smollm3", {"use_sliding_window": False, "layer_types": ["sliding_attention"] * 8}, "FFFFFFFF"),
    ("llama", {"sliding_window": 64, "layer_types": ["full_attention", "sliding_attention"] * 4}, "FSFSFSFS"),
]


@pytest.mark.parametrize(("model_type", "others", "expected"), WINDOWS, ids=lambda value: str(value)[:60])
def test_which_layers_slide(model_type: str, others: dict[str, Any], expected: str) -> None:
    assert window_map(decoder(model_type, **SMALL, **others)) == expected


def test_gpt_neo_alternates_global_and_local_layers() -> None:
    config = {"model_type": "gpt_neo", "hidden_size": 768, "num_layers": 4, "num_heads": 12, "vocab_size": 50257}
    layers = read(config).decoder_layers
    assert [type(layer.caches[0]) for layer in layers] == [FullAttention, SlidingWindow] * 2
    assert layers[1].caches == (SlidingWindow(kv_heads=12, key_dim=64, value_dim=64, window_tokens=256),)


# Expected KV heads: the model cards (multi-query: one).
KV_HEADS = [
    ("falcon", {"multi_query": True}, 1),
    ("falcon", {"multi_query": True, "num_kv_heads": 8}, 1),
    ("falcon", {"multi_query": False}, 8),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}, 2),
    ("RefinedWeb", {"n_head_kv": 4}, 4),
    ("gpt_neox", {}, 8),
]


@pytest.mark.parametrize(("model_type", "others", "expected"), KV_HEADS, ids=str)
def test_kv_heads(model_type: str, others: dict[str, Any], expected: int) -> None:
    config = decoder(model_type, **SMALL, **others)
    del config["num_key_value_heads"]
    spec = read(config)
    assert spec.kv_heads == expected
    assert spec.layers[0].caches == (FullAttention(kv_heads=expected, key_dim=64, value_dim=64),)


def test_kv_heads_that_a_family_cannot_have_stop_the_plan() -> None:
    assert read(decoder("gpt_neox", 8, 512, 8, 8, head_dim=64)).kv_heads == 8
    with pytest.raises(UnsupportedConfigError) as raised:
        read(decoder("gpt_neox", 8, 512, 8, 2))
    assert raised.value.key_path == "num_key_value_heads"


@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        ({"attn_type": "multihead_attention"}, 16),
        ({"attn_type": "multiquery_attention"}, 1),
        ({"attn_type": "grouped_query_attention", "kv_n_heads": 4}, 4),
    ],
    ids=str,
)
def test_kv_heads_of_mpt(attention: dict[str, Any], expected: int) -> None:
    config = {"model_type": "mpt", "d_model": 1024, "n_heads": 16, "n_layers": 2, "vocab_size": 50432}
    assert read({**config, "attn_config": attention}).kv_heads == expected


def test_multi_query_of_starcoder_1() -> None:
    config = {"model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 40, "vocab_size": 49152}
    assert read(config).layers[0].caches == (FullAttention(kv_heads=1, key_dim=128, value_dim=128),)


def test_whisper_keeps_the_encoders_frames_in_every_decoder_layer() -> None:
    spec = read({key: value for key, value in WHISPER_TINY.items() if key != "max_source_positions"})
    assert len(spec.decoder_layers) == 4
    assert spec.decoder_layers[0].caches == (
        FullAttention(kv_heads=6, key_dim=64, value_dim=64),
        CrossAttention(kv_heads=6, key_dim=64, value_dim=64, encoder_tokens=1500),
    )
    encoder = [layer for layer in spec.layers if layer.component is Component.ENCODER]
    assert [layer.caches for layer in encoder] == [(NoCache(),)] * 4
    assert spec.max_context_tokens == 448


def test_mixture_figures_reach_the_spec() -> None:
    spec = read(MIXTRAL)
    assert (spec.experts, spec.experts_per_token, spec.expert_intermediate_size) == (8, 2, 16384)


def test_dense_first_layers_and_every_other_sparse_layer() -> None:
    glm = decoder("glm4_moe", **SMALL, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=64)
    sparse = [any("experts" in tensor.name for tensor in layer.tensors) for layer in read(glm | FIRST_3).layers]
    assert sparse == [False] * 3 + [True] * 5
    qwen = decoder("qwen3_moe", **SMALL, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64)
    changes = {"decoder_sparse_step": 2, "mlp_only_layers": [3]}
    sparse = [any("experts" in tensor.name for tensor in layer.tensors) for layer in read(qwen | changes).layers]
    assert sparse == [False, True, False, False, False, True, False, True]


FIRST_3 = {"first_k_dense_replace": 3}


# --- multimodal models with the decoder's keys at the top ----------------------------------------------------

# Expected: the decoder that each release's model card names.
RELEASES = [(2.0, "minicpm"), (2.5, "llama"), ("2.6", "qwen2"), (2.6, "qwen2"), (4.0, "llama"), (4.5, "qwen3")]


@pytest.mark.parametrize(("version", "model_type"), RELEASES, ids=str)
def test_minicpm_v_uses_the_decoder_of_its_release(version: object, model_type: str) -> None:
    shape = decoder("minicpmv", **SMALL, version=version, tie_word_embeddings=False)
    assert read(shape).layers == read({**shape, "model_type": model_type, "version": None}).layers


@pytest.mark.parametrize("version", [3.0, "next"])
def test_an_unknown_release_of_minicpm_v_is_refused(version: object) -> None:
    with pytest.raises(UnsupportedConfigError) as raised:
        read(decoder("minicpmv", **SMALL, version=version))
    assert raised.value.key_path == "version"


def test_molmo_has_a_tower_of_unknown_size() -> None:
    # Molmo 7B-D is Qwen2 7B's decoder (7,615,616,512 parameters) with 128 more rows in its token table.
    config = decoder("molmo", 28, 3584, 28, 4, embedding_size=152064) | {"intermediate_size": 2 * 18944}
    spec = read(config)
    assert spec.parameters() == 7_615_616_512 + 128 * 3584
    assert spec.multimodal
    assert not spec.tower_parameters_known


@pytest.mark.parametrize("model_type", ["qwen2_vl", "qwen2_5_vl", "qwen2_vl_text", "qwen2_5_omni_text"])
def test_qwen_vl_has_qwens_decoder(model_type: str) -> None:
    assert read(decoder(model_type, **SMALL)).layers == read(decoder("qwen2", **SMALL)).layers


# --- contradictions inside a family --------------------------------------------------------------------------

CONTRADICTIONS = [
    (decoder("mixtral", **SMALL, num_local_experts=4, num_experts_per_tok=5), "num_experts_per_tok"),
    (decoder("mixtral", **SMALL, num_experts_per_tok=2), "num_local_experts"),
    (decoder("qwen", **SMALL, kv_channels=64) | {"intermediate_size": 4095}, "intermediate_size"),
    (decoder("exaone4", **SMALL, sliding_window=64, sliding_window_pattern="LGLG"), "sliding_window_pattern"),
    (decoder("exaone4", **SMALL, sliding_window=64, sliding_window_pattern=""), "sliding_window_pattern"),
    (decoder("llama4_text", **SMALL, **EXPERTS, no_rope_layers=[1, 0]), "no_rope_layers"),
    (decoder("llama", **SMALL, layer_types=["sliding_attention"] * 8), "sliding_window"),
    (decoder("dbrx", **SMALL), "attn_config"),
]


@pytest.mark.parametrize(("config", "key"), CONTRADICTIONS, ids=[row[1] for row in CONTRADICTIONS])
def test_a_contradiction_names_its_key(config: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(config)
    assert raised.value.key_path == key


def test_a_nested_contradiction_names_its_path() -> None:
    config = {"model_type": "dbrx", "d_model": 1024, "n_heads": 16, "n_layers": 2, "vocab_size": 1000}
    ffn = {"moe_num_experts": 4, "moe_top_k": 8}
    with pytest.raises(ConfigError) as raised:
        read({**config, "attn_config": {"kv_n_heads": 4}, "ffn_config": ffn})
    assert raised.value.key_path == "ffn_config.moe_top_k"


UNSUPPORTED = [
    (decoder("hunyuan_v1_dense", **SMALL, use_cla=True, cla_share_factor=2), "use_cla"),
    (decoder("minimax_m2", **SMALL, **EXPERTS, attn_type_list=[1, 0]), "attn_type_list"),
    (decoder("minimax_m2", **SMALL, **EXPERTS, shared_intermediate_size=64), "shared_intermediate_size"),
    (decoder("phi", **SMALL, qk_layernorm=True), "qk_layernorm"),
]


@pytest.mark.parametrize(("config", "key"), UNSUPPORTED, ids=[row[1] for row in UNSUPPORTED])
def test_what_a_family_does_not_know_stops_the_plan(config: dict[str, Any], key: str) -> None:
    with pytest.raises(UnsupportedConfigError) as raised:
        read(config)
    assert raised.value.key_path == key
