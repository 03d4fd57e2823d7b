"""Draft heads are recognised, never taken for models, and the known layouts give the published counts."""

from typing import Any

import pytest

from model_catalog.architecture import FullAttention, Role, SlidingWindow
from model_catalog.config_reader import read_architecture
from model_catalog.errors import ConfigError, UnsupportedConfigError
from model_catalog.families.heads import draft_head_method, read_draft_head

LLAMA_8B_HEAD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "torch_dtype": "float16",
}
EAGLE_7B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "num_hidden_layers": 1,
    "vocab_size": 32000,
    "torch_dtype": "float16",
}
EAGLE_70B = EAGLE_7B | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
DFLASH: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 5,
    "num_target_layers": 36,
    "vocab_size": 151936,
    "dtype": "bfloat16",
}
LLAMA_8B = LLAMA_8B_HEAD | {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "draft_vocab_size": None,
}


@pytest.mark.parametrize(
    ("config", "method"),
    [
        pytest.param(LLAMA_8B_HEAD, "eagle3", id="SafeAILab class name"),
        pytest.param(LLAMA_8B_HEAD | {"architectures": ["Eagle3LlamaForCausalLM"]}, "eagle3", id="AngelSlim"),
        pytest.param(
            LLAMA_8B_HEAD | {"architectures": ["LlamaForCausalLM"]}, "eagle3", id="draft vocabulary only"
        ),
        pytest.param(
            {"speculators_model_type": "eagle3", "transformer_layer_config": {}}, "eagle3", id="speculators"
        ),
        pytest.param({"architectures": ["PEagleDraftModel"]}, "peagle", id="P-EAGLE"),
        pytest.param(EAGLE_7B, "eagle", id="one layer under the target's class name"),
        pytest.param({"model_type": "eagle"}, "eagle", id="converted EAGLE"),
        pytest.param(DFLASH, "dflash", id="DFlash"),
        pytest.param({"architectures": ["QwenDFlareDraftModel"]}, "dflash", id="DFlare"),
        pytest.param(DFLASH | {"dflash_config": {"projector_type": "dspark"}}, "dspark", id="DSpark by projector"),
        pytest.param({"architectures": ["DSparkDraftModel"]}, "dspark", id="DSpark by class"),
        pytest.param({"architectures": ["DominoDraftModel"]}, "domino", id="Domino"),
        pytest.param({"medusa_num_heads": 4, "medusa_num_layers": 1}, "medusa", id="Medusa"),
        pytest.param({"architectures": ["MLPSpeculatorPreTrainedModel"]}, "mlp_speculator", id="MLP speculator"),
        pytest.param({"architectures": ["DeepSeekMTPModel"]}, "mtp", id="MTP class"),
        pytest.param({"model_type": "qwen3_next_mtp"}, "mtp", id="MTP model type"),
        pytest.param({"architectures": ["Gemma4AssistantForCausalLM"]}, "mtp", id="Gemma 4 assistant"),
        pytest.param(LLAMA_8B, None, id="a model"),
        pytest.param(EAGLE_7B | {"hidden_size": 64}, None, id="a tiny one-layer model"),
        pytest.param({"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1}, None, id="V3"),
        pytest.param({}, None, id="empty"),
    ],
)
def test_recognition(config: dict[str, Any], method: str | None) -> None:
    assert draft_head_method(config) == method


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": "Eagle3"},
        {"architectures": [None, 3]},
        {"model_type": 7, "hidden_size": "4096", "num_hidden_layers": 1},
        {"dflash_config": "dspark"},
        {"speculators_model_type": ["eagle3"]},
    ],
)
def test_recognition_never_raises(config: dict[str, Any]) -> None:
    assert draft_head_method(config) in {None, "dflash"}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        # Hub parameter counts of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B, EAGLE-llama2-chat-7B and -70B, tables apart
        pytest.param(LLAMA_8B_HEAD, 424_689_664, id="EAGLE3-LLaMA3.1-Instruct-8B"),
        pytest.param(EAGLE_7B, 235_937_792, id="EAGLE-llama2-chat-7B"),
        pytest.param(EAGLE_70B, 989_872_128, id="EAGLE-llama2-chat-70B"),
        # Qwen3 layers: 5 x (2 x 4096 x 4096 + 2 x 1024 x 4096 + 3 x 4096 x 12288 + 2 x 4096 + 2 x 128),
        # 5 x 4096 x 4096 of fusion and two norms
        pytest.param(DFLASH, 5 * 192_946_432 + 83_886_080 + 8192, id="DFlash for Qwen3-8B"),
    ],
)
def test_layout_gives_the_published_count(config: dict[str, Any], parameters: int) -> None:
    assert read_draft_head(config, subject="head").parameters() == parameters


def test_the_token_table_is_extra() -> None:
    bare = read_draft_head(LLAMA_8B_HEAD, subject="head")
    own = read_draft_head(LLAMA_8B_HEAD, subject="head", with_embedding=True)
    assert own.parameters() - bare.parameters() == 128256 * 4096
    assert [t.shape for _, _, t in bare.tensors() if t.role is Role.HEAD] == [(32000, 4096)]


def test_speculators_format_nests_the_layer() -> None:
    layer = {
        key: value for key, value in LLAMA_8B_HEAD.items() if key not in {"architectures", "draft_vocab_size"}
    }
    config = {
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 32000,
        "transformer_layer_config": layer,
    }
    assert read_draft_head(config, subject="head").parameters() == 424_689_664


def test_a_wider_target_widens_the_fusion() -> None:
    """A head of 4096 for a target of 8192 takes three of its hidden states: 3 x 8192 in."""
    spec = read_draft_head(LLAMA_8B_HEAD | {"target_hidden_size": 8192}, subject="head")
    assert spec.parameters() == 424_689_664 + 3 * 4096 * 4096


def test_heads_cache_keys_and_values_of_their_own_layers() -> None:
    assert read_draft_head(LLAMA_8B_HEAD, subject="head").layers[0].caches == (
        FullAttention(kv_heads=8, key_dim=128, value_dim=128),
    )
    kinds = ["sliding_attention"] * 4 + ["full_attention"]
    spec = read_draft_head(DFLASH | {"layer_types": kinds, "sliding_window": 2048}, subject="head")
    rules = [layer.caches[0] for layer in spec.layers]
    assert rules[0] == SlidingWindow(kv_heads=8, key_dim=128, value_dim=128, window_tokens=2048)
    assert rules[4] == FullAttention(kv_heads=8, key_dim=128, value_dim=128)


def test_the_reader_knows_heads_by_their_class_name() -> None:
    assert read_architecture(LLAMA_8B_HEAD, subject="head").parameters() == 424_689_664


@pytest.mark.parametrize("config", [{"medusa_num_heads": 2}, {"architectures": ["DominoDraftModel"]}, LLAMA_8B])
def test_kinds_without_a_layout_are_unsupported(config: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedConfigError):
        read_draft_head(config, subject="head")


@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"])
def test_missing_sizes_name_their_key(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_draft_head(LLAMA_8B_HEAD | {key: None}, subject="head")
    assert caught.value.key_path == key
