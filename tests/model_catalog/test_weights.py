"""Stored and resident bytes of published models, from their configuration and from headers.

Totals of stored bytes are those of the repos' index files (``metadata.total_size``) or of their safetensors
headers; parameter counts are the Hub's.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from published_configs import (
    AWQ,
    DEEPSEEK_V3,
    FP8,
    GEMMA3_27B,
    GPT_OSS,
    MIXTRAL,
    NVFP4,
    QWEN3_06B,
    QWEN3_32B,
    QWEN3_235B,
    QWEN3_NEXT,
    QWEN25_05B,
    llama,
)
from weighing import weighed

from model_catalog.architecture import Component, Role
from model_catalog.bounds import Basis, ByteRange
from model_catalog.config_reader import read_architecture
from model_catalog.errors import UsageError
from model_catalog.quantization import read_quantization
from model_catalog.safetensors_header import StoredTensor
from model_catalog.snapshot import (
    RepoFile,
    WeightGroup,
    WeightsKnownFrom,
)
from model_catalog.tensor_names import group_tensors
from model_catalog.weight_derivation import StorageLayout, derive_groups, layouts
from model_catalog.weight_totals import LayoutSizes

GIB: Final = 2**30
QWEN3_32B_AWQ: Final = {**QWEN3_32B, "torch_dtype": "float16", "quantization_config": AWQ}
QWEN3_32B_NVFP4: Final = {**QWEN3_32B, "quantization_config": NVFP4}


# (config, stored bytes, resident GiB to three places without MTP, parameters without MTP)
MODELS: list[tuple[str, Mapping[str, Any], int, str, int]] = [
    ("Llama-3.1-8B", llama(4096, 14336, 32, 32), 16_060_522_496, "14.958", 8_030_261_248),
    ("Llama-3.1-70B", llama(8192, 28672, 80, 64), 141_107_412_992, "131.417", 70_553_706_496),
    ("Qwen3-32B", QWEN3_32B, 65_524_246_528, "61.024", 32_762_123_264),
    ("Qwen3-0.6B", QWEN3_06B, 1_503_264_768, "1.110", 596_049_920),
    ("Qwen2.5-0.5B", QWEN25_05B, 988_065_536, "0.920", 494_032_768),
    ("gemma-3-27b-it", GEMMA3_27B, 54_864_813_280, "51.097", 27_432_406_640),
    ("DeepSeek-V3", DEEPSEEK_V3, 688_574_839_360, "626.920", 671_026_419_200),
    ("Mixtral-8x7B-v0.1", MIXTRAL, 93_405_585_408, "86.991", 46_702_792_704),
    ("gpt-oss-120b", GPT_OSS, 65_248_815_744, "60.768", 116_829_156_672),
    ("Qwen3-Next-80B-A3B", QWEN3_NEXT, 162_649_725_440, "148.405", 79_674_391_296),
    ("Qwen3-32B-AWQ", QWEN3_32B_AWQ, 19_325_298_688, "17.998", 32_762_123_264),
    ("Qwen3-32B-NVFP4", QWEN3_32B_NVFP4, 20_666_168_832, "19.247", 32_762_123_264),
]
IDS: Final = [row[0] for row in MODELS]


@pytest.mark.parametrize(("config", "stored", "resident", "parameters"), [row[1:] for row in MODELS], ids=IDS)
def test_formula_meets_the_index_total(
    config: Mapping[str, Any], stored: int, resident: str, parameters: int
) -> None:
    table = weighed(config, index_total_bytes=stored, weights_from=WeightsKnownFrom.INDEX)
    held = table.resident_bytes()
    assert table.stored == ByteRange.point(stored)
    assert "equal to the index's total" in table.source
    assert (table.basis, table.notes, table.complete) == (Basis.DERIVED, (), True)
    assert table.parameters == parameters
    assert held.low_bytes == held.high_bytes
    assert f"{held.low_bytes / GIB:.3f}" == resident


@pytest.mark.parametrize(("config", "stored"), [row[1:3] for row in MODELS], ids=IDS)
def test_without_any_total_the_bounds_hold_the_truth(config: Mapping[str, Any], stored: int) -> None:
    table = weighed(config)
    assert table.stored.low_bytes <= stored <= table.stored.high_bytes
    assert table.source == "config.json alone"


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        # Hub counts of FP8 repos include the block scales
        (DEEPSEEK_V3, 684_531_386_000),
        ({**QWEN3_32B, "quantization_config": {**FP8, "modules_to_not_convert": ["lm_head"]}}, 32_764_027_904),
        ({**QWEN3_235B, "quantization_config": {**FP8, "modules_to_not_convert": ["lm_head"]}}, 235_107_904_512),
        # nvidia/Qwen3-235B-A22B-NVFP4 converts every decoder matrix; two scalars for each of its
        # 36,472 matrices have no dimensions, and the Hub's count skips them
        ({**QWEN3_235B, "quantization_config": NVFP4}, 132_806_618_624 + 2 * 94 * (4 + 3 * 128)),
    ],
)
def test_stored_elements_of_quantised_repos(config: Mapping[str, Any], parameters: int) -> None:
    architecture = read_architecture(config, subject="s")
    groups = derive_groups(architecture, read_quantization(config, None, subject="s"))
    assert sum(group.parameters for group in groups) == parameters


# --- headers -------------------------------------------------------------------------------------------------


def tensors(rows: Iterator[tuple[str, tuple[int, ...], str]]) -> Iterator[StoredTensor]:
    size = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "U8": 1, "F8_E4M3": 1}
    for name, shape, dtype in rows:
        elements = 1
        for extent in shape:
            elements *= extent
        yield StoredTensor(name=name, dtype=dtype, shape=shape, start=0, end=elements * size[dtype])


def qwen3_tensors(
    config: Mapping[str, Any], *, head: bool, quantized: str | None = None, dtype: str = "BF16"
) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """The tensors of a dense Qwen3 checkpoint, written down from its header."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries, keys = config["num_attention_heads"] * 128, 1024

    def matrix(name: str, outputs: int, inputs: int) -> Iterator[tuple[str, tuple[int, ...], str]]:
        if quantized == "awq":
            yield f"{name}.qweight", (inputs, outputs // 8), "I32"
            yield f"{name}.qzeros", (inputs // 128, outputs // 8), "I32"
            yield f"{name}.scales", (inputs // 128, outputs), "F16"
        elif quantized == "nvfp4":
            yield f"{name}.weight", (outputs, inputs // 2), "U8"
            yield f"{name}.weight_scale", (outputs, inputs // 16), "F8_E4M3"
            yield f"{name}.weight_scale_2", (), "F32"
            yield f"{name}.input_scale", (), "F32"
        else:
            yield f"{name}.weight", (outputs, inputs), dtype

    yield "model.embed_tokens.weight", (151936, hidden), dtype
    yield "model.norm.weight", (hidden,), dtype
    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        yield from matrix(f"{layer}.self_attn.q_proj", queries, hidden)
        yield from matrix(f"{layer}.self_attn.k_proj", keys, hidden)
        yield from matrix(f"{layer}.self_attn.v_proj", keys, hidden)
        yield from matrix(f"{layer}.self_attn.o_proj", hidden, queries)
        yield from matrix(f"{layer}.mlp.gate_proj", inner, hidden)
        yield from matrix(f"{layer}.mlp.up_proj", inner, hidden)
        yield from matrix(f"{layer}.mlp.down_proj", hidden, inner)
        for norm, width in (("self_attn.q_norm", 128), ("self_attn.k_norm", 128)):
            yield f"{layer}.{norm}.weight", (width,), dtype
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}.{norm}.weight", (hidden,), dtype
    if head:
        yield "lm_head.weight", (151936, hidden), dtype


def groups(
    config: Mapping[str, Any], *, head: bool, quantized: str | None = None, dtype: str = "BF16"
) -> tuple[WeightGroup, ...]:
    rows = qwen3_tensors(config, head=head, quantized=quantized, dtype=dtype)
    return group_tensors(tensors(rows), num_layers=config["num_hidden_layers"])


@pytest.mark.parametrize(
    ("config", "stored_groups", "stored", "resident"),
    [
        (QWEN3_06B, groups(QWEN3_06B, head=True), 1_503_264_768, "1.110"),
        (QWEN3_32B, groups(QWEN3_32B, head=True), 65_524_246_528, "61.024"),
        (
            QWEN3_32B_AWQ,
            groups(QWEN3_32B, head=True, quantized="awq", dtype="F16"),
            19_325_298_688,
            "17.998",
        ),
        (QWEN3_32B_NVFP4, groups(QWEN3_32B, head=True, quantized="nvfp4"), 20_666_168_832, "19.247"),
    ],
    ids=["Qwen3-0.6B", "Qwen3-32B", "Qwen3-32B-AWQ", "Qwen3-32B-NVFP4"],
)
def test_headers_are_exact_and_agree_with_the_formula(
    config: Mapping[str, Any], stored_groups: tuple[WeightGroup, ...], stored: int, resident: str
) -> None:
    exact = weighed(config, weight_groups=stored_groups, weights_from=WeightsKnownFrom.HEADERS)
    formula = weighed(config, index_total_bytes=stored)
    assert (exact.basis, exact.stored) == (Basis.EXACT, ByteRange.point(stored))
    assert f"{exact.resident_bytes().high_bytes / GIB:.3f}" == resident
    assert exact.resident_bytes() == formula.resident_bytes()
    assert exact.resident == formula.resident
    assert exact.parameters == formula.parameters


def test_a_stored_copy_of_a_tied_head_is_noted_and_not_resident() -> None:
    table = weighed(QWEN3_06B, weight_groups=groups(QWEN3_06B, head=True))
    assert not any(group.role is Role.HEAD for group in table.resident)
    assert table.stored.low_bytes - table.resident_bytes().low_bytes == 151936 * 1024 * 2
    assert any("tied head" in note for note in table.notes)


def test_headers_that_contradict_the_config_are_noted() -> None:
    one_layer_more = {**QWEN3_06B, "num_hidden_layers": 29}
    table = weighed(one_layer_more, weight_groups=groups(QWEN3_06B, head=False))
    assert any("the configuration explains" in note for note in table.notes)


@pytest.mark.parametrize(
    ("layers", "quantized", "dtype", "whole"),
    [
        (28, None, "BF16", True),
        (28, None, "F32", True),
        (14, None, "BF16", False),
        (14, None, "F32", False),
        (28, "awq", "F16", True),
        (7, "awq", "F16", False),
    ],
)
def test_headers_of_a_part_of_the_decoder_prove_nothing(
    layers: int, quantized: str | None, dtype: str, whole: bool
) -> None:
    """A first shard under the name of a whole checkpoint: of its layers' sizes nothing is known."""
    part = {**QWEN3_32B, "num_hidden_layers": layers}
    config = QWEN3_32B_AWQ if quantized else QWEN3_32B
    stored = groups(part, head=True, quantized=quantized, dtype=dtype)
    table = weighed({**config, "num_hidden_layers": 28}, weight_groups=stored)
    assert table.complete == whole
    assert any("the configuration explains" in note for note in table.notes) or whole


def test_float32_checkpoints_are_cast_to_the_engines_type() -> None:
    wide = groups(QWEN3_06B, head=False, dtype="F32")
    halved = 596_049_920 * 2
    stored = 596_049_920 * 4
    auto = weighed(QWEN3_06B, weight_groups=wide)
    assert auto.stored == ByteRange.point(stored)
    # norms may stay in float32
    assert halved == auto.resident_bytes().low_bytes < auto.resident_bytes().high_bytes < halved * 1.001
    assert weighed(QWEN3_06B, "float32", weight_groups=wide).resident_bytes() == ByteRange.point(stored)
    narrow = groups(QWEN3_06B, head=False)
    assert weighed(QWEN3_06B, "float32", weight_groups=narrow).resident_bytes() == ByteRange.point(stored)
    assert weighed(QWEN3_06B, "half", weight_groups=narrow).resident_bytes() == ByteRange.point(halved)


def test_a_float32_config_loads_as_sixteen_bits() -> None:
    table = weighed({**QWEN3_06B, "torch_dtype": "float32"}, index_total_bytes=596_049_920 * 4)
    assert "equal to the index's total" in table.source
    assert table.resident_bytes().low_bytes == 596_049_920 * 2


@pytest.mark.parametrize("dtype", ["fp8", "int8", "bits", ""])
def test_dtypes_that_weights_are_not_loaded_in(dtype: str) -> None:
    with pytest.raises(UsageError, match="loaded in"):
        weighed(QWEN3_06B, dtype)


def test_buffers_are_stored_and_not_resident() -> None:
    plain = groups(QWEN3_06B, head=False)
    buffers = group_tensors(
        tensors(iter([("model.layers.0.self_attn.rotary_emb.inv_freq", (64,), "F32")])), num_layers=28
    )
    table = weighed(QWEN3_06B, weight_groups=(*plain, *buffers))
    assert table.stored.low_bytes == 596_049_920 * 2 + 256
    assert table.resident_bytes() == ByteRange.point(596_049_920 * 2)


# --- totals that the formula has to explain ---------------------------------------------------------------------


def test_mtp_tables_are_shared_at_best() -> None:
    table = weighed(DEEPSEEK_V3, index_total_bytes=688_574_839_360)
    without, with_mtp = table.resident_bytes(), table.resident_bytes(with_mtp=True)
    tables = 2 * 129280 * 7168 * 2
    assert with_mtp.high_bytes == 688_574_839_360
    assert with_mtp.low_bytes == 688_574_839_360 - tables
    # 14.36 GiB: what vLLM leaves out of DeepSeek-V3 without speculation
    assert f"{(with_mtp.high_bytes - without.high_bytes) / GIB:.2f}" == "14.36"


def test_a_checkpoint_without_its_mtp_layers_is_recognised() -> None:
    with_mtp = weighed(DEEPSEEK_V3, index_total_bytes=688_574_839_360)
    main = with_mtp.resident_bytes().low_bytes
    table = weighed(DEEPSEEK_V3, index_total_bytes=main)
    assert "no MTP layers" in table.source
    assert not any(group.component is Component.MTP for group in table.resident)


@pytest.mark.parametrize(
    ("config", "parameters", "says"),
    [
        (QWEN3_06B, 751_632_384, "the tied head stored"),  # Hub count of Qwen/Qwen3-0.6B
        (QWEN3_06B, 596_049_920, "parameter count"),
        # Hub count of meta-llama/Llama-2-7b-hf: 64 frequencies in each of 32 layers
        (llama(4096, 11008, 32, 32, 32000, num_key_value_heads=32), 6_738_417_664, "rotary"),
    ],
)
def test_hub_counts_prove_the_formula(config: Mapping[str, Any], parameters: int, says: str) -> None:
    table = weighed(config, published_parameters=parameters)
    assert "equal to the published parameter count" in table.source
    assert says in table.source
    assert table.notes == ()


def test_causal_masks_of_gpt_neox() -> None:
    # Hub count of EleutherAI/pythia-160m: 162,322,944 weights, masks of 2048 x 2048 and 8 frequencies in 12 layers
    config = {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "vocab_size": 50304,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
    }
    table = weighed(config, published_parameters=212_654_688)
    assert "masks" in table.source
    assert table.resident_bytes() == ByteRange.point(162_322_944 * 2)


def test_a_few_unexplained_elements_are_told_and_widen_only_what_is_stored() -> None:
    table = weighed(llama(4096, 14336, 32, 32), published_parameters=8_030_261_248 + 64)
    assert "within 128 B of the published parameter count" in table.source
    assert table.stored == ByteRange(low_bytes=16_060_522_496 - 128, high_bytes=16_060_522_496 + 128)
    assert table.resident_bytes() == ByteRange.point(16_060_522_496)


def test_a_hub_count_of_packed_words_is_not_used() -> None:
    # the Hub counts gpt-oss-120b's packed bytes twice: 118,244,966,400 in U8 alone
    assert weighed(GPT_OSS, published_parameters=120_412_337_472).source == "config.json alone"


def test_file_sizes_agree_within_their_headers() -> None:
    files = tuple(
        RepoFile(path=f"model-{number:05}-of-00002.safetensors", size_bytes=8_030_261_248 + 20_000)
        for number in (1, 2)
    )
    table = weighed(llama(4096, 14336, 32, 32), files=files, weights_from=WeightsKnownFrom.FILES)
    assert "in agreement with the sizes of its files" in table.source
    assert table.stored == ByteRange.point(16_060_522_496)


@pytest.mark.parametrize("extra", [10_000_000_000, -10_000_000_000])
def test_an_unexplained_total_widens_the_bounds(extra: int) -> None:
    truth = 16_060_522_496
    table = weighed(llama(4096, 14336, 32, 32), index_total_bytes=truth + extra)
    held = table.resident_bytes()
    assert held.low_bytes <= min(truth, truth + extra) + 1
    assert held.high_bytes >= max(truth, truth + extra)
    assert table.stored == ByteRange(low_bytes=min(truth, truth + extra), high_bytes=max(truth, truth + extra))
    assert any("no known way" in note for note in table.notes)


def test_what_a_total_leaves_for_an_unknown_tower() -> None:
    config = {**llama(4096, 14336, 32, 32), "mm_vision_tower": "openai/clip-vit-large-patch14-336"}
    alone = weighed(config)
    assert not alone.complete
    assert alone.parameters is None
    assert "tower" in alone.notes[0]
    known = weighed(config, index_total_bytes=16_060_522_496 + 607_000_000)
    (tower,) = [group for group in known.resident if group.component is Component.VISION]
    assert (known.complete, tower.low_bytes, tower.high_bytes) == (True, 607_000_000, 607_000_000)


def test_totals_by_arithmetic_equal_the_derived_groups() -> None:
    for config in (DEEPSEEK_V3, QWEN3_NEXT, QWEN3_06B, GPT_OSS):
        architecture = read_architecture(config, subject="s")
        quantization = read_quantization(config, None, subject="s")
        totals = LayoutSizes(architecture, quantization)
        seen: set[StorageLayout] = set()
        for layout in layouts(architecture, quantization):
            if layout.buffer_bytes == 0:
                derived = derive_groups(architecture, quantization, layout=layout)
                assert sum(group.stored_bytes for group in derived) == totals.total_bytes(layout), (
                    layout.describe()
                )
                seen.add(layout)
        assert len(seen) > 1 or config is GPT_OSS


# --- quantised while loading ---------------------------------------------------------------------------------


def test_fp8_while_loading_halves_the_decoders_matrices() -> None:
    table = weighed(QWEN3_32B, on_the_fly="fp8", index_total_bytes=65_524_246_528)
    tables = 2 * 151936 * 5120 * 2
    norms = 65_524_246_528 - tables - 2 * 31_205_621_760  # the FP8 elements of Qwen/Qwen3-32B-FP8
    scales = 64 * 7 * 4
    assert table.resident_bytes() == ByteRange.point(tables + norms + 31_205_621_760 + scales)
    assert table.basis is Basis.DERIVED
    exact = weighed(QWEN3_32B, on_the_fly="fp8", weight_groups=groups(QWEN3_32B, head=True))
    assert exact.resident_bytes() == table.resident_bytes()


def test_a_quantised_checkpoint_is_not_quantised_again() -> None:
    config = QWEN3_32B_AWQ
    assert weighed(config, on_the_fly="awq_marlin") == weighed(config)
    with pytest.raises(UsageError, match="quantised as awq, not fp8"):
        weighed(config, on_the_fly="fp8")
