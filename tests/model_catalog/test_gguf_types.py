"""Block sizes and the quantiser's choices. Expected values are counted from ggml's block structures."""

import pytest

from model_catalog.architecture import Role, TensorTemplate
from model_catalog.errors import UsageError
from model_catalog.gguf_types import Setting, file_type, find_block_type, matrix_types, more_bits


@pytest.mark.parametrize(
    ("name", "row_bytes"),
    [
        # A scale in two bytes (and a minimum in two more), 32 codes, for five bits the fifth ones in four bytes.
        ("q4_0", 128 // 32 * (2 + 16)),
        ("q4_1", 128 // 32 * (4 + 16)),
        ("q5_0", 128 // 32 * (2 + 4 + 16)),
        ("q5_1", 128 // 32 * (4 + 4 + 16)),
        ("q8_0", 128 // 32 * (2 + 32)),
        ("mxfp4", 128 // 32 * (1 + 16)),
        ("f16", 256),
        ("bf16", 256),
        ("float32", 512),
    ],
)
def test_a_row_of_128(name: str, row_bytes: int) -> None:
    found = find_block_type(name)
    assert found is not None
    assert found.row_bytes(128) == row_bytes


@pytest.mark.parametrize(
    ("name", "block_bytes"),
    [
        ("q2_k", 256 // 4 + 16 + 4),
        ("q3_k", 256 // 8 + 256 // 4 + 12 + 2),
        ("q4_k", 256 // 2 + 12 + 4),
        ("q5_k", 256 // 2 + 256 // 8 + 12 + 4),
        ("q6_k", 256 // 2 + 256 // 4 + 16 + 2),
    ],
)
def test_a_block_of_256(name: str, block_bytes: int) -> None:
    """Codes, scales of sub-blocks, scales of the block (ggml-common.h, block_q*_K)."""
    found = find_block_type(name)
    assert found is not None
    assert (found.row_bytes(256), found.row_bytes(512)) == (block_bytes, 2 * block_bytes)


@pytest.mark.parametrize(
    ("typed", "name"), [("Q4_K_M", "q4_k_m"), ("q4_k", "q4_k_m"), ("MXFP4_MOE", "mxfp4"), ("bfloat16", "bf16")]
)
def test_names_as_the_quantiser_takes_them(typed: str, name: str) -> None:
    assert file_type(typed) == name


def test_an_unknown_file_type_is_refused() -> None:
    with pytest.raises(UsageError, match="ud-q4_k_xl"):
        file_type("ud-q4_k_xl")


LLAMA = Setting(layers=32, value_layers=32, heads_per_kv_head=4, experts=0, tied=False)


def matrix(name: str, role: Role, *, columns: int = 4096, count: int = 1, linear: bool = True) -> TensorTemplate:
    return TensorTemplate(name=name, shape=(1024, columns), role=role, count=count, linear=linear)


VALUE = matrix("self_attn.v_proj.weight", Role.KEY_VALUE)
DOWN = matrix("mlp.down_proj.weight", Role.MLP)
OUTPUT = matrix("self_attn.o_proj.weight", Role.ATTENTION_OUTPUT)
GATE = matrix("mlp.gate_proj.weight", Role.MLP)


def chosen(kind: str, tensor: TensorTemplate, layer: int = 5, setting: Setting = LLAMA) -> tuple[str, str]:
    low, high = matrix_types(kind, tensor, setting, layer=layer, value_layer=layer)
    return low.name, high.name


def test_more_bits_go_to_both_ends_and_to_every_third_layer_between() -> None:
    """Of 32 layers: 0 to 3, 28 to 31, and 6, 9, ... 27, since (6 - 4) % 3 == 2."""
    assert [number for number in range(32) if more_bits(number, 32)] == [
        *range(4),
        *range(6, 28, 3),
        *range(28, 32),
    ]


@pytest.mark.parametrize(
    ("kind", "tensor", "layer", "name"),
    [
        ("q4_k_m", VALUE, 0, "q6_k"),
        ("q4_k_m", VALUE, 5, "q4_k"),
        ("q4_k_m", DOWN, 6, "q6_k"),
        ("q4_k_m", GATE, 0, "q4_k"),
        ("q4_k_s", DOWN, 3, "q5_k"),
        ("q4_k_s", DOWN, 4, "q4_k"),
        ("q3_k_m", VALUE, 1, "q5_k"),
        ("q3_k_m", VALUE, 2, "q4_k"),
        ("q3_k_m", OUTPUT, 9, "q4_k"),
        ("q3_k_l", DOWN, 9, "q5_k"),
        ("q2_k", DOWN, 9, "q3_k"),
        ("q2_k", VALUE, 9, "q4_k"),
        ("q8_0", DOWN, 0, "q8_0"),
        ("bf16", DOWN, 0, "bf16"),
    ],
)
def test_choices_of_llama_quantize(kind: str, tensor: TensorTemplate, layer: int, name: str) -> None:
    """By hand from ``llama_tensor_get_type_impl``."""
    assert chosen(kind, tensor, layer) == (name, name)


def test_an_importance_matrix_may_widen_the_first_layers() -> None:
    assert chosen("q4_0", DOWN, 3) == ("q4_0", "q4_1")
    assert chosen("q4_0", DOWN, 4) == ("q4_0", "q4_0")


def test_output_matrices_are_wider_and_tied_tables_with_them() -> None:
    head, table = matrix("lm_head.weight", Role.HEAD), matrix("embed_tokens.weight", Role.EMBEDDING, linear=False)
    tied = Setting(layers=32, value_layers=32, heads_per_kv_head=4, experts=0, tied=True)
    assert chosen("q4_k_m", head) == ("q6_k", "q6_k")
    assert chosen("q4_k_m", table) == ("q4_k", "q4_k")
    assert chosen("q4_k_m", table, setting=tied) == ("q6_k", "q6_k")
    assert chosen("q8_0", head) == ("q8_0", "q8_0")


@pytest.mark.parametrize(
    ("columns", "name"), [(2880, "q5_0"), (4096, "q4_k"), (100, "f16")], ids=["of-32", "of-256", "of-neither"]
)
def test_rows_that_blocks_do_not_divide(columns: int, name: str) -> None:
    """2,880 = 11 x 256 + 64 = 90 x 32."""
    assert chosen("q4_k_m", matrix("mlp.gate_proj.weight", Role.MLP, columns=columns)) == (name, name)


def test_eight_experts_and_eighty_layers_have_rules_of_their_own() -> None:
    mixtral = Setting(layers=32, value_layers=32, heads_per_kv_head=4, experts=8, tied=False)
    large = Setting(layers=80, value_layers=80, heads_per_kv_head=8, experts=0, tied=False)
    assert chosen("q4_k_m", VALUE, setting=mixtral) == ("q8_0", "q8_0")
    assert chosen("q4_k_m", OUTPUT, setting=mixtral) == ("q5_k", "q5_k")
    assert chosen("q4_k_m", VALUE, 13, setting=large) == ("q5_k", "q5_k")


@pytest.mark.parametrize(
    "tensor",
    [
        TensorTemplate(name="input_layernorm.weight", shape=(4096,), role=Role.NORM),
        TensorTemplate(name="self_attn.q_proj.bias", shape=(4096,), role=Role.QUERY),
        TensorTemplate(name="mlp.gate.weight", shape=(64, 4096), role=Role.ROUTER, linear=True),
        TensorTemplate(name="linear_attn.conv1d.weight", shape=(8192, 1, 4), role=Role.STATE_MIXER),
        TensorTemplate(name="mixer.A_log", shape=(4096, 16), role=Role.STATE_MIXER),
    ],
    ids=lambda tensor: str(tensor.name),
)
def test_small_tensors_stay_in_single_precision(tensor: TensorTemplate) -> None:
    assert chosen("q4_k_m", tensor) == ("f32", "f32")
    assert chosen("f16", tensor) == ("f32", "f32")


def test_experts_alone_are_in_mxfp4() -> None:
    expert = matrix("mlp.experts.*.up_proj.weight", Role.EXPERT, count=8)
    assert chosen("mxfp4", expert) == ("mxfp4", "mxfp4")
    assert chosen("mxfp4", GATE) == ("q8_0", "f16")
