"""Reading a configuration: which section, which family, what is refused, and that no input breaks the reader."""

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_configs import WHISPER_TINY

from model_catalog.architecture import ArchitectureSpec, FullAttention, SlidingWindow
from model_catalog.config_reader import read_architecture
from model_catalog.errors import ConfigError, UnsupportedConfigError
from model_catalog.families.registry import MODULE_FAMILIES, module_of

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
CORE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
HOSTILE: list[Any] = [
    None,
    "",
    "8",
    [],
    [None],
    {},
    {"a": 1},
    True,
    math.nan,
    math.inf,
    -math.inf,
    -1,
    0,
    1.5,
    1e18,
    10**18,
    10**400,
    10**5000,
]


def one_per_family() -> list[dict[str, Any]]:
    table = Path(__file__).with_name("parameter_counts_dense.jsonl")
    configs = [json.loads(line)["config"] for line in table.read_text(encoding="utf-8").splitlines()]
    smallest: dict[str, dict[str, Any]] = {}
    for config in configs:
        kept = smallest.setdefault(config["model_type"], config)
        if len(json.dumps(config)) < len(json.dumps(kept)):
            smallest[config["model_type"]] = config
    return [*smallest.values(), *OTHERS]


EXTENTS = {key: LLAMA[key] for key in CORE} | {"num_key_value_heads": 8}
#: Families without a row in the table, and nested ones.
OTHERS: list[dict[str, Any]] = [
    {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **EXTENTS, "sliding_window": 512}},
    {
        "model_type": "llama4",
        "text_config": {
            "model_type": "llama4_text",
            **EXTENTS,
            "intermediate_size_mlp": 16384,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "attention_chunk_size": 8192,
            "interleave_moe_layer_step": 1,
            "no_rope_layers": [],
            "moe_layers": None,
        },
    },
    {
        "model_type": "dbrx",
        "d_model": 6144,
        "n_heads": 48,
        "n_layers": 40,
        "vocab_size": 100352,
        "attn_config": {"kv_n_heads": 8},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
    },
    {
        "model_type": "mpt",
        "d_model": 4096,
        "n_heads": 32,
        "n_layers": 32,
        "vocab_size": 50432,
        "expansion_ratio": 4,
        "max_seq_len": 2048,
        "no_bias": True,
        "learned_pos_emb": True,
        "attn_config": {"alibi": True, "attn_type": "multihead_attention", "kv_n_heads": None},
    },
    WHISPER_TINY,
    {
        "model_type": "t5",
        "d_model": 768,
        "d_kv": 64,
        "d_ff": 3072,
        "num_layers": 12,
        "num_decoder_layers": 12,
        "num_heads": 12,
        "vocab_size": 32128,
        "relative_attention_num_buckets": 32,
        "feed_forward_proj": "relu",
        "n_positions": 512,
    },
    {
        "model_type": "opt",
        **{key: LLAMA[key] for key in CORE if key != "intermediate_size"},
        "ffn_dim": 8192,
        "word_embed_proj_dim": 512,
        "do_layer_norm_before": False,
        "enable_bias": True,
        "max_position_embeddings": 2048,
    },
    {
        "model_type": "gpt_neo",
        "hidden_size": 768,
        "num_layers": 2,
        "num_heads": 12,
        "vocab_size": 50257,
        "intermediate_size": None,
        "window_size": 256,
        "attention_layers": ["global", "local"],
        "max_position_embeddings": 2048,
    },
    {
        "model_type": "chatglm",
        "hidden_size": 4096,
        "num_layers": 28,
        "num_attention_heads": 32,
        "kv_channels": 128,
        "ffn_hidden_size": 13696,
        "padded_vocab_size": 65024,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "add_qkv_bias": True,
        "rmsnorm": True,
        "post_layer_norm": True,
    },
    {"model_type": "falcon", **EXTENTS, "num_kv_heads": 8, "new_decoder_architecture": True, "bias": False}
    | {"num_ln_in_parallel_attn": 2, "ffn_hidden_size": 16384, "parallel_attn": True, "multi_query": True},
    {"model_type": "molmo", **EXTENTS, "embedding_size": 152064, "additional_vocab_size": 128, "qkv_bias": True},
    {"model_type": "minicpmv", **EXTENTS, "version": 2.6, "vision_config": {"hidden_size": 1152}},
    {"model_type": "ernie4_5_moe", **EXTENTS, "moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536}
    | {
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
        "moe_layer_end_index": -1,
        "moe_layer_interval": 1,
    },
]


def mutations(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The configuration with one value replaced by a hostile one, for every key at every depth."""
    for key, kept in config.items():
        for value in HOSTILE:
            yield {**config, key: value}
        if isinstance(kept, Mapping):
            for inner in mutations(kept):
                yield {**config, key: inner}


FAMILY_CONFIGS = one_per_family()


def read(config: Mapping[str, Any]) -> ArchitectureSpec:
    return read_architecture(config, subject="org/name")


# --- extents, defaults, sections -----------------------------------------------------------------------------


def test_a_flat_config_gives_its_extents() -> None:
    spec = read(LLAMA)
    assert (spec.hidden_size, spec.vocabulary_size, spec.intermediate_size) == (4096, 128256, 14336)
    assert (spec.attention_heads, spec.kv_heads, len(spec.decoder_layers)) == (32, 8, 32)
    assert spec.max_context_tokens == 131072
    assert spec.dtype.name == "bfloat16"
    assert not spec.multimodal
    assert spec.layers[0].caches == (FullAttention(kv_heads=8, key_dim=128, value_dim=128),)


@pytest.mark.parametrize("section", ["text_config", "llm_config", "language_config"])
def test_a_nested_decoder_is_found(section: str) -> None:
    config = {"model_type": "a_wrapper", "architectures": ["AWrapperForConditionalGeneration"], section: LLAMA}
    assert read(config).layers == read(LLAMA).layers


def test_a_decoder_two_levels_down_is_found() -> None:
    config = {"model_type": "an_omni", "thinker_config": {"text_config": LLAMA}}
    assert read(config).layers == read(LLAMA).layers


def test_errors_in_a_nested_section_carry_its_path() -> None:
    with pytest.raises(ConfigError) as raised:
        read({"model_type": "a_wrapper", "text_config": {**LLAMA, "num_attention_heads": 0}})
    assert raised.value.key_path == "text_config.num_attention_heads"


def test_defaults_of_the_config_class_are_recorded() -> None:
    # transformers 5: Gemma3TextConfig has 8 heads of 256, 4 KV heads, a vocabulary of 262,208, a window of 4096.
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    spec = read({"model_type": "gemma3", "text_config": text})
    assert (spec.attention_heads, spec.kv_heads, spec.vocabulary_size) == (8, 4, 262_208)
    assert spec.layers[0].caches == (SlidingWindow(kv_heads=4, key_dim=256, value_dim=256, window_tokens=4096),)
    assumed = {entry.key: entry.value for entry in spec.assumptions}
    assert assumed["text_config.vocab_size"] == "262208"
    assert assumed["text_config.sliding_window"] == "4096"
    assert "text_config.layer_types" in assumed


def test_a_flat_config_gets_no_default_extents() -> None:
    with pytest.raises(ConfigError, match="num_hidden_layers: missing"):
        read({key: value for key, value in LLAMA.items() if key != "num_hidden_layers"})


@pytest.mark.parametrize(
    ("stated", "limit"),
    [
        # config.json of databricks/dbrx-instruct, CohereLabs/c4ai-command-r-v01, THUDM/chatglm-6b; keys as vLLM
        # 0.33.0 reads them (derive_max_model_len_and_key).
        ({"max_seq_len": 32_768}, 32_768),
        ({"max_position_embeddings": 8192, "model_max_length": 131_072}, 131_072),
        ({"max_sequence_length": 2048}, 2048),
        ({}, None),
    ],
    ids=str,
)
def test_a_longest_context_under_any_of_its_names(stated: dict[str, int], limit: int | None) -> None:
    silent = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    assert read({**silent, **stated}).max_context_tokens == limit


def test_a_silent_dtype_is_assumed_and_said() -> None:
    spec = read({key: value for key, value in LLAMA.items() if key != "torch_dtype"})
    assert [entry.value for entry in spec.assumptions if entry.key == "dtype"] == ["bfloat16"]


def test_a_tower_makes_the_model_multimodal() -> None:
    config = {"model_type": "a_wrapper", "text_config": LLAMA, "vision_config": {"model_type": "unheard_of"}}
    spec = read(config)
    assert spec.multimodal
    assert not spec.tower_parameters_known


def test_remote_code_is_not_run() -> None:
    config = {**LLAMA, "auto_map": {"AutoConfig": "configuration_evil.EvilConfig"}}
    before = set(sys.modules)
    assert read(config).layers == read(LLAMA).layers
    assert not [name for name in set(sys.modules) - before if "evil" in name.lower()]


# --- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kv_lora_rank", 512),
        ("sliding_window", 4096),
        ("attention_window_size", 1024),
        ("linear_num_value_heads", 32),
        ("mamba_d_state", 128),
        ("ssm_state_size", 128),
        ("state_size", 16),
        ("conv_kernel", 4),
        ("layers_block_type", ["attention", "mamba"]),
        ("hybrid_override_pattern", "M-M*"),
        ("attn_layer_period", 8),
        ("num_kv_shared_layers", 10),
        ("num_experts", 64),
        ("n_routed_experts", 160),
        ("moe_intermediate_size", 1408),
        ("global_head_dim", 512),
        ("index_topk", 2048),
        ("attention_chunk_size", 8192),
        ("cla_share_factor", 2),
        ("compress_ratios", [4, 128]),
        ("draft_vocab_size", 32000),
        ("block_size", 16),
        ("qk_rope_head_dim", 64),
        ("swa_num_key_value_heads", 8),
        ("sparse_attention_config", {"sparse_block_size": 128}),
    ],
)
def test_a_memory_relevant_key_that_nobody_reads_stops_the_plan(key: str, value: object) -> None:
    with pytest.raises(UnsupportedConfigError) as raised:
        read({**LLAMA, key: value})
    assert raised.value.key_path == key
    assert str(value)[:20] in str(raised.value)


@pytest.mark.parametrize("value", [None, 0, False, [], {}, ""])
@pytest.mark.parametrize("key", ["sliding_window", "num_experts", "kv_lora_rank", "layers_block_type"])
def test_such_a_key_without_a_value_is_harmless(key: str, value: object) -> None:
    assert read({**LLAMA, key: value}).layers == read(LLAMA).layers


def test_windows_that_are_switched_off_are_harmless() -> None:
    config = {**LLAMA, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
    assert read(config).layers == read(LLAMA).layers


@pytest.mark.parametrize("key", ["router_aux_loss_coef", "rope_theta", "no_repeat_ngram_size", "hidden_act"])
def test_keys_about_other_things_do_not_stop_the_plan(key: str) -> None:
    assert read({**LLAMA, key: 3}).layers == read(LLAMA).layers


@pytest.mark.parametrize("kind", ["mamba", "linear_attention", "compressed_attention", ""])
def test_an_unknown_kind_of_layer_stops_the_plan(kind: str) -> None:
    with pytest.raises(UnsupportedConfigError) as raised:
        read({**LLAMA, "layer_types": ["full_attention"] * 31 + [kind]})
    assert raised.value.key_path == "layer_types[31]"


@pytest.mark.parametrize("count", [0, 31, 33])
def test_layer_types_must_cover_every_layer(count: int) -> None:
    with pytest.raises(ConfigError, match=r"layer_types: has \d+ entries for 32 layers"):
        read({**LLAMA, "layer_types": ["full_attention"] * count})


def test_an_unknown_type_with_llamas_keys_is_planned_as_llama_and_says_so() -> None:
    spec = read({**LLAMA, "model_type": "novel", "architectures": ["NovelForCausalLM"]})
    assert spec.parameters() == read(LLAMA).parameters()
    assert [entry.value for entry in spec.assumptions if entry.key == "model_type"] == ["llama-like"]


@pytest.mark.parametrize(
    "change",
    [
        {"architectures": ["NovelModel"]},
        {"architectures": None},
        {"hidden_size": None},
        {"intermediate_size": None},
        {"qk_layernorm": True},
        {"use_bias": True},
        {"multi_query": True},
        {"num_experts": 8},
    ],
    ids=str,
)
def test_an_unknown_type_unlike_llama_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedConfigError):
        read({**LLAMA, "model_type": "novel", "architectures": ["NovelForCausalLM"], **change})


@pytest.mark.parametrize("config", [{}, {"model_type": "bert"}, {"architectures": ["BertModel"]}])
def test_a_config_of_no_known_kind_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedConfigError) as raised:
        read(config)
    assert raised.value.key_path == "model_type"
    assert raised.value.hint


@pytest.mark.parametrize("document", [[], None, "text", 3])
def test_a_file_that_is_not_an_object_is_refused(document: object) -> None:
    with pytest.raises(ConfigError, match="not a JSON object"):
        read(cast(Mapping[str, Any], document))


# --- contradictions and hostile values -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"num_key_value_heads": 64}, "num_key_value_heads"),
        ({"num_attention_heads": 24}, "num_attention_heads"),
        ({"num_hidden_layers": 5000}, "num_hidden_layers"),
        ({"torch_dtype": "int8"}, "torch_dtype"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"architectures": "LlamaForCausalLM"}, "architectures"),
        ({"architectures": [7]}, "architectures[0]"),
        ({"max_position_embeddings": -5}, "max_position_embeddings"),
        ({"text_config": "llama"}, "text_config"),
    ],
    ids=str,
)
def test_a_contradiction_names_its_key(change: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read({**LLAMA, **change})
    assert raised.value.key_path == key


@pytest.mark.parametrize("key", CORE)
@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: str(type(value).__name__))
def test_a_hostile_extent_names_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as raised:
        read({**LLAMA, key: value})
    assert raised.value.key_path == key


@pytest.mark.parametrize("config", FAMILY_CONFIGS, ids=[config["model_type"] for config in FAMILY_CONFIGS])
def test_no_hostile_value_breaks_a_family(config: dict[str, Any]) -> None:
    started = time.monotonic()
    for changed in mutations(config):
        try:
            spec = read(changed)
        except ConfigError as error:
            assert error.key_path, f"no path in: {error}"
        else:
            assert spec.parameters() > 0
    assert time.monotonic() - started < 60


@settings(max_examples=200, deadline=None)
@given(
    config=st.sampled_from(FAMILY_CONFIGS),
    changes=st.dictionaries(
        st.integers(min_value=0, max_value=40),
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers())
        ),
        max_size=4,
    ),
    removed=st.sets(st.integers(min_value=0, max_value=40), max_size=3),
)
def test_random_changes_end_in_a_spec_or_a_config_error(
    config: dict[str, Any], changes: dict[int, object], removed: set[int]
) -> None:
    keys = list(config)
    changed = dict(config)
    for position, value in changes.items():
        changed[keys[position % len(keys)]] = value
    for position in removed:
        changed.pop(keys[position % len(keys)], None)
    try:
        spec = read(changed)
    except ConfigError as error:
        assert error.key_path
    else:
        assert all(layer.caches for layer in spec.layers)


def test_deep_nesting_is_read_in_bounded_depth() -> None:
    config: dict[str, Any] = dict(LLAMA)
    for _ in range(200):
        config = {"model_type": "a_wrapper", "text_config": config}
    with pytest.raises(UnsupportedConfigError):
        read(config)


# --- the table of families -----------------------------------------------------------------------------------


@pytest.mark.parametrize("module", sorted(MODULE_FAMILIES))
def test_the_table_matches_its_module(module: str) -> None:
    imported = __import__(f"model_catalog.families.{module}", fromlist=["FAMILIES"])
    assert set(imported.FAMILIES) == set(MODULE_FAMILIES[module])
    assert all(module_of(name) == module for name in MODULE_FAMILIES[module])


def test_gemma_3_keeps_its_class_limit_where_the_config_is_silent() -> None:
    stated = {"model_type": "gemma3_text", **EXTENTS, "sliding_window": 512, "max_position_embeddings": 32_768}
    silent = {key: value for key, value in stated.items() if key != "max_position_embeddings"}
    assert read({"model_type": "gemma3", "text_config": stated}).max_context_tokens == 32_768
    spec = read({"model_type": "gemma3", "text_config": silent})
    assert spec.max_context_tokens == 131_072  # transformers 5.24.0 Gemma3TextConfig
    assert "text_config.max_position_embeddings" in {assumption.key for assumption in spec.assumptions}
