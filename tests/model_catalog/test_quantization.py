"""Quantisation configs of published checkpoints, and the bytes that each method stores for a matrix."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog.architecture import Component, Role, TensorTemplate
from model_catalog.conversion import Quantization, on_the_fly
from model_catalog.dtypes import BFLOAT16, FLOAT16
from model_catalog.errors import ConfigError, UnsupportedConfigError, UsageError
from model_catalog.quantization import read_quantization

TEXT, MTP, VISION = Component.TEXT, Component.MTP, Component.VISION


def read(section: Mapping[str, Any]) -> Quantization:
    found = read_quantization({"quantization_config": section}, None, subject="org/model")
    assert found is not None
    return found


def matrix(outputs: int, inputs: int, name: str = "self_attn.q_proj", role: Role = Role.QUERY) -> TensorTemplate:
    return TensorTemplate(name=f"{name}.weight", shape=(outputs, inputs), role=role, linear=True)


def sizes(
    quantization: Quantization, template: TensorTemplate, layer: int | None = 3, component: Component = TEXT
) -> list[tuple[str, int, int]]:
    parts = quantization.parts(component, layer, template, decoder_layers=60, dtype=BFLOAT16)
    return [(item.dtype, item.elements, item.stored_bytes) for item in parts]


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
FP8_BLOCKS = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}


def compressed(weights: Mapping[str, Any], file_format: str, **more: object) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    groups = {"group_0": {**group, **more}}
    return {
        "quant_method": "compressed-tensors",
        "format": file_format,
        "config_groups": groups,
        "ignore": ["lm_head"],
    }


# Tensors of one matrix as published headers list them.
MATRICES: list[tuple[str, Mapping[str, Any], tuple[int, int], list[tuple[str, int, int]]]] = [
    (
        "TheBloke/Llama-2-7B-GPTQ q_proj: qweight 512x4096, scales 32x4096, qzeros 32x512, g_idx 4096",
        GPTQ,
        (4096, 4096),
        [("I32", 2097152, 8388608), ("F16", 131072, 262144), ("I32", 16384, 65536), ("I32", 4096, 16384)],
    ),
    (
        "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8: 8 bits fill a word with four",
        {**GPTQ, "bits": 8},
        (3584, 3584),
        [("I32", 3211264, 12845056), ("F16", 100352, 200704), ("I32", 25088, 100352), ("I32", 3584, 14336)],
    ),
    (
        "one group for the whole input",
        {**GPTQ, "group_size": -1},
        (256, 512),
        [("I32", 16384, 65536), ("F16", 256, 512), ("I32", 32, 128), ("I32", 512, 2048)],
    ),
    (
        "Qwen/Qwen3-32B-AWQ down_proj: qweight 25600x640, scales 200x5120, qzeros 200x640",
        AWQ,
        (5120, 25600),
        [("I32", 16384000, 65536000), ("BF16", 1024000, 2048000), ("I32", 128000, 512000)],
    ),
    (
        "deepseek-ai/DeepSeek-V3 kv_a_proj_with_mqa: 576 rows need 5 blocks",
        FP8_BLOCKS,
        (576, 7168),
        [("F8_E4M3", 4128768, 4128768), ("F32", 280, 1120)],
    ),
    (
        "mistralai/Devstral-Small-2 FP8: a weight scale and an input scale",
        {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None},
        (4096, 5120),
        [("F8_E4M3", 20971520, 20971520), ("F32", 1, 4), ("F32", 1, 4)],
    ),
    (
        "nvidia/Qwen3-32B-NVFP4 q_proj: weight 8192x2560 U8, weight_scale 8192x320, two scalars",
        NVFP4,
        (8192, 5120),
        [("U8", 20971520, 20971520), ("F8_E4M3", 2621440, 2621440), ("F32", 2, 8)],
    ),
    (
        "moonshotai/Kimi-K2.5 expert up_proj: weight_packed 2048x896 I32, weight_scale 2048x224",
        compressed({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}, "pack-quantized"),
        (2048, 7168),
        [("I32", 1835008, 7340032), ("BF16", 458752, 917504), ("I64", 2, 16)],
    ),
    (
        "int4 with zero points and activation order",
        compressed(
            {
                "num_bits": 4,
                "type": "int",
                "strategy": "group",
                "group_size": 128,
                "symmetric": False,
                "actorder": "group",
            },
            "pack-quantized",
        ),
        (1024, 512),
        [("I32", 65536, 262144), ("BF16", 4096, 8192), ("I32", 512, 2048), ("I32", 512, 2048), ("I64", 2, 16)],
    ),
    (
        "RedHatAI/Llama-4-Scout-FP8-dynamic: one scale a row",
        compressed({"num_bits": 8, "type": "float", "strategy": "channel"}, "float-quantized"),
        (8192, 5120),
        [("F8_E4M3", 41943040, 41943040), ("BF16", 8192, 16384)],
    ),
    (
        "RedHatAI/*-quantized.w8a8: int8 rows",
        compressed({"num_bits": 8, "type": "int", "strategy": "channel", "group_size": None}, "int-quantized"),
        (64, 32),
        [("I8", 2048, 2048), ("BF16", 64, 128)],
    ),
    (
        "RedHatAI/*-NVFP4: global scales of weight and input",
        compressed(
            {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
            "nvfp4-pack-quantized",
            input_activations={"num_bits": 4, "type": "float", "dynamic": "local", "group_size": 16},
        ),
        (64, 32),
        [("U8", 1024, 1024), ("F8_E4M3", 128, 128), ("F32", 2, 8)],
    ),
    (
        "moonshotai/Kimi-K3: MXFP4 in compressed-tensors",
        compressed(
            {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, "mxfp4-pack-quantized"
        ),
        (64, 64),
        [("U8", 2048, 2048), ("U8", 128, 128)],
    ),
    (
        "unsloth/*-bnb-4bit: absmax quantised in its turn",
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
        (4096, 4096),
        [("U8", 8388608, 8388608), ("U8", 262144, 262144), ("F32", 1024 + 256 + 16, 5184), ("U8", 96, 96)],
    ),
    (
        "bitsandbytes 8 bit: SCB, one a row",
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        (64, 32),
        [("I8", 2048, 2048), ("F32", 64, 256)],
    ),
    (
        "amd/*-MXFP4 by Quark",
        {
            "quant_method": "quark",
            "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}},
            "exclude": ["lm_head"],
        },
        (64, 64),
        [("U8", 2048, 2048), ("U8", 128, 128)],
    ),
    (
        "facebook/*-FBGEMM-FP8",
        {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0},
        (64, 32),
        [("F8_E4M3", 2048, 2048), ("F32", 64, 256), ("F32", 1, 4)],
    ),
]


@pytest.mark.parametrize(
    ("section", "shape", "parts"), [row[1:] for row in MATRICES], ids=[row[0] for row in MATRICES]
)
def test_one_matrix(section: Mapping[str, Any], shape: tuple[int, int], parts: list[tuple[str, int, int]]) -> None:
    assert sizes(read(section), matrix(*shape)) == parts


def test_gpt_oss_converts_only_experts_in_one_tensor_each() -> None:
    section = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    experts = TensorTemplate(
        name="mlp.experts.gate_up_proj", shape=(128, 5760, 2880), role=Role.EXPERT, linear=True
    )
    # openai/gpt-oss-120b: gate_up_proj_blocks (128, 5760, 90, 16) and gate_up_proj_scales (128, 5760, 90), U8
    found = read(section).parts(TEXT, 3, experts, decoder_layers=36, dtype=BFLOAT16)
    assert [(item.dtype, item.elements, item.tensors) for item in found] == [
        ("U8", 128 * 5760 * 90 * 16, 1),
        ("U8", 128 * 5760 * 90, 1),
    ]
    assert sizes(read(section), matrix(4096, 2880)) == [("BF16", 4096 * 2880, 4096 * 2880 * 2)]


@pytest.mark.parametrize(
    ("section", "component", "layer", "template", "converted"),
    [
        (GPTQ, TEXT, None, matrix(9, 8, "lm_head", Role.HEAD), False),
        ({**GPTQ, "lm_head": True}, TEXT, None, matrix(9, 8, "lm_head", Role.HEAD), True),
        (GPTQ, TEXT, 3, matrix(9, 8, "mlp.gate", Role.ROUTER), False),
        (GPTQ, VISION, None, matrix(9, 8, "visual.blocks.0.attn.qkv", Role.TOWER), False),
        (GPTQ, MTP, 60, matrix(9, 8), False),
        ({**GPTQ, "dynamic": {"-:.*mlp.*": {}}}, TEXT, 3, matrix(9, 8, "mlp.up_proj", Role.MLP), False),
        ({**AWQ, "modules_to_not_convert": ["up_proj"]}, TEXT, 3, matrix(9, 8, "mlp.up_proj", Role.MLP), False),
        ({**AWQ, "modules_to_not_convert": None}, TEXT, 3, matrix(9, 8, "mlp.up_proj", Role.MLP), True),
        (FP8_BLOCKS, MTP, 60, matrix(9, 8), True),  # DeepSeek-V3 stores its MTP layer in FP8
        (FP8_BLOCKS, MTP, 60, matrix(9, 16, "eh_proj", Role.OTHER), False),
        (FP8_BLOCKS, TEXT, None, matrix(9, 8, "model.embed_tokens", Role.EMBEDDING), False),
        (
            {**FP8_BLOCKS, "modules_to_not_convert": ["model.layers.0.self_attn.q_proj"]},
            TEXT,
            0,
            matrix(9, 8),
            False,
        ),
        (
            {**FP8_BLOCKS, "modules_to_not_convert": ["model.layers.0.self_attn.q_proj"]},
            TEXT,
            10,
            matrix(9, 8),
            True,
        ),
        ({**NVFP4, "ignore": ["model.layers.3.*"]}, TEXT, 3, matrix(9, 8), False),
        ({**NVFP4, "ignore": ["model.layers.3.*"]}, TEXT, 30, matrix(9, 8), True),
        ({**NVFP4, "ignore": ["language_model.model.layers.3*"]}, TEXT, 3, matrix(9, 8), False),
        ({**NVFP4, "ignore": ["mtp*"]}, MTP, 60, matrix(9, 8), False),
        ({**NVFP4, "ignore": ["vision_tower"]}, VISION, None, matrix(9, 8, "vision_tower.x", Role.TOWER), False),
        (
            compressed({"num_bits": 4, "type": "int", "group_size": 32}, "pack-quantized")
            | {"ignore": ["re:.*self_attn.*"]},
            TEXT,
            3,
            matrix(9, 8),
            False,
        ),
        (
            compressed({"num_bits": 4, "type": "int", "group_size": 32}, "pack-quantized")
            | {"ignore": [r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]},
            TEXT,
            3,
            matrix(9, 8, "mlp.experts.*.up_proj", Role.EXPERT),
            True,
        ),
        (
            compressed({"num_bits": 8, "type": "float"}, "float-quantized", targets=["re:.*o_proj"]),
            TEXT,
            3,
            matrix(9, 8),
            False,
        ),
    ],
)
def test_what_is_converted(
    section: Mapping[str, Any], component: Component, layer: int | None, template: TensorTemplate, converted: bool
) -> None:
    scheme = read(section).scheme_for(component, layer, template, decoder_layers=60)
    assert (scheme is not None) is converted


def test_packed_experts_beside_fp8() -> None:
    # deepseek-ai/DeepSeek-V4-Pro: expert_dtype fp4 at the top of config.json
    found = read_quantization({"expert_dtype": "fp4", "quantization_config": FP8_BLOCKS}, None, subject="s")
    assert found is not None
    expert = matrix(64, 64, "ffn.experts.*.w1", Role.EXPERT)
    assert [row[0] for row in sizes(found, expert)] == ["U8", "U8"]
    assert [row[0] for row in sizes(found, expert, 60, MTP)] == ["U8", "U8"]
    assert [row[0] for row in sizes(found, matrix(64, 64))] == ["F8_E4M3", "F32"]


def test_mixed_precision_names_its_modules() -> None:
    # the layout of nvidia/Qwen3.6-27B-NVFP4, whose head is converted because it is named
    layers = {
        "model.language_model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.language_model.layers.3.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
        "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
    }
    found = read({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    expert = matrix(64, 64, "mlp.experts.*.up_proj", Role.EXPERT)
    assert [row[0] for row in sizes(found, matrix(64, 64))] == ["F8_E4M3", "F32", "F32"]
    assert [row[0] for row in sizes(found, expert)] == ["U8", "F8_E4M3", "F32"]
    assert [row[0] for row in sizes(found, matrix(64, 64, "lm_head", Role.HEAD), None)] == ["U8", "F8_E4M3", "F32"]
    assert sizes(found, matrix(64, 64), 4) == [("BF16", 4096, 8192)]


def test_modelopt_side_file_counts_where_the_config_is_silent() -> None:
    side = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    found = read_quantization({}, side, subject="s")
    assert found is not None
    assert found.label == "modelopt (FP8, one scale a tensor)"
    config_first = read_quantization({"quantization_config": AWQ}, side, subject="s")
    assert config_first is not None
    assert config_first.method == "awq"


def test_nested_sections_are_found() -> None:
    found = read_quantization({"text_config": {"quantization_config": AWQ}}, None, subject="s")
    assert found is not None
    assert found.method == "awq"


def test_an_unquantised_model_has_none() -> None:
    sections: tuple[object, ...] = (None, {})
    for section in sections:
        assert read_quantization({"hidden_size": 8, "quantization_config": section}, None, subject="s") is None
    cache_only = {"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}
    assert read_quantization({}, cache_only, subject="s") is None


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"quantization_config": {"quant_method": "exl3", "bits": 4}}, "exl3"),
        ({"quantization_config": {"quant_method": "aqlm"}}, "aqlm"),
        ({"quantization_config": {"quant_method": "torchao"}}, "torchao"),
        ({"quantization_config": {"bits": 4, "group_size": 64}}, "without a quant_method"),
        ({"quantization": {"bits": 4, "group_size": 64}}, "mlx"),
        ({"quantization_config": {**GPTQ, "bits": 5}}, "5-bit"),
        ({"quantization_config": {**GPTQ, "dynamic": {"+:.*down.*": {"bits": 8}}}}, "differ by module"),
        ({"quantization_config": {**NVFP4, "quant_algo": "W4A8_AWQ"}}, "W4A8_AWQ"),
        ({"quantization_config": {**NVFP4, "quant_algo": "MIXED_PRECISION"}}, "without quantized_layers"),
        ({"quantization_config": compressed({"num_bits": 4, "type": "int"}, "marlin-24")}, "marlin-24"),
        ({"quantization_config": {**AWQ, "modules_to_not_convert": ["re:(a+)+$"]}}, "too costly"),
        ({"quantization_config": {**AWQ, "modules_to_not_convert": ["re:" + ".*" * 5]}}, "too costly"),
        ({"quantization_config": {**AWQ, "modules_to_not_convert": ["*a" * 9]}}, "too costly"),
        ({"quantization_config": {**AWQ, "modules_to_not_convert": ["re:" + ".?" * 60]}}, "too costly"),
        ({"quantization_config": {**AWQ, "modules_to_not_convert": ["re:" + "(.|.)" * 30]}}, "too costly"),
        ({"quantization_config": {**AWQ, "modules_to_not_convert": [f"re:{n}" for n in range(300)]}}, "lists 300"),
        ({"quantization_config": {**AWQ, "modules_to_not_convert": ["re:("]}}, "cannot be read"),
        ({"quantization_config": {"quant_method": "\x1b[2J"}}, "x1b"),
    ],
)
def test_what_is_not_supported_is_named(config: Mapping[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedConfigError) as caught:
        read_quantization(config, None, subject="org/model")
    assert says in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.hint


@pytest.mark.parametrize(
    "section",
    [
        {**GPTQ, "bits": "4"},
        {**GPTQ, "group_size": True},
        {**AWQ, "modules_to_not_convert": "visual"},
        {**AWQ, "modules_to_not_convert": [3]},
        {**FP8_BLOCKS, "weight_block_size": [128]},
        {**FP8_BLOCKS, "weight_block_size": [0, 128]},
        {"quant_method": "compressed-tensors"},
        {"quant_method": 4},
        [],
        {"quant_method": "gptq", "bits": 4, "group_size": 0},
        {"quant_method": "awq", "bits": 4, "q_group_size": 0},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": float("nan")},
        {"quant_method": "modelopt", "quant_algo": "FP8", "config_groups": [1, 2]},
        {"quant_method": "fp8", "quantized_layers": {"a": {"quant_algo": "NVFP4"}}, "ignore": 0},
        compressed({"num_bits": 4, "type": "x", "strategy": "group", "group_size": 32}, "pack-quantized"),
        compressed({"num_bits": 4, "type": "int", "strategy": "x", "group_size": 32}, "pack-quantized"),
        compressed({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 0}, "pack-quantized"),
    ],
)
def test_malformed_sections_are_config_errors(section: object) -> None:
    with pytest.raises(ConfigError):
        read_quantization({"quantization_config": section}, None, subject="org/model")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 200)
    | st.sampled_from(["awq", "float", "re:x", "Linear", "local"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["weights", "num_bits", "type"]), inner)
    ),
    max_leaves=6,
)
KEYS = [
    "bits",
    "group_size",
    "config_groups",
    "ignore",
    "quantized_layers",
    "weight_block_size",
    "dynamic",
    "format",
]


@given(
    st.sampled_from(["gptq", "awq", "fp8", "compressed-tensors", "modelopt", "quark", "bitsandbytes", "mxfp4"]),
    st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4),
)
def test_odd_sections_raise_nothing_but_config_errors(method: str, section: dict[str, Any]) -> None:
    try:
        assert read({"quant_method": method, **section}).rules
    except ConfigError as error:
        assert error.key_path


def test_while_loading() -> None:
    fp8 = on_the_fly("fp8", subject="s")
    assert sizes(fp8, matrix(64, 32)) == [("F8_E4M3", 2048, 2048), ("F32", 1, 4)]
    assert sizes(fp8, matrix(64, 32, "lm_head", Role.HEAD), None) == [("BF16", 2048, 4096)]
    assert sizes(fp8, matrix(64, 32), 60, MTP) == [("BF16", 2048, 4096)]
    with pytest.raises(UsageError, match="awq"):
        on_the_fly("awq", subject="s")


def test_a_scale_in_the_models_type_follows_it() -> None:
    parts = read(AWQ).parts(TEXT, 0, matrix(128, 128), decoder_layers=1, dtype=FLOAT16)
    assert [item.dtype for item in parts] == ["I32", "F16", "I32"]
