"""What ``--kv-cache-dtype auto`` means for checkpoints that carry scales for a smaller cache."""

from collections.abc import Mapping
from typing import Any

import pytest
from made_models import latent, llama, model_of

from model_catalog.errors import ConfigError
from planner.engines.checkpoint_cache import with_checkpoint_cache
from planner.workload import Workload

SCHEME = {"dynamic": False, "num_bits": 8, "type": "float"}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8"}
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {**SCHEME, "strategy": "channel"}}},
}
SPARSE = {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "q_lora_rank": 96}
INDEXER = {"index_head_dim": 128, "index_n_heads": 4, "index_topk": 64}


@pytest.mark.parametrize(
    ("config", "section", "resolved", "told"),
    [
        # vLLM 0.33.0 utils/torch_utils.py: get_kv_cache_quant_algo_string
        pytest.param(llama(), {**MODELOPT, "kv_cache_quant_algo": "FP8"}, "fp8_e4m3", True, id="modelopt-name"),
        pytest.param(llama(), {**MODELOPT, "kv_cache_scheme": SCHEME}, "fp8_e4m3", True, id="modelopt-scheme"),
        pytest.param(llama(), {**MODELOPT, "kv_cache_quant_algo": "NVFP4"}, "nvfp4", True, id="modelopt-nvfp4"),
        pytest.param(llama(), {**MODELOPT, "kv_cache_quant_algo": "INT8"}, "auto", False, id="modelopt-int8"),
        pytest.param(llama(), {**MODELOPT, "kv_cache_quant_algo": None}, "auto", False, id="modelopt-none"),
        pytest.param(latent(), {**MODELOPT, "kv_cache_quant_algo": "FP8"}, "fp8_e4m3", True, id="modelopt-latent"),
        # model_executor/layers/attention/attention.py; the latent layer beside it does not look at the scheme
        pytest.param(llama(), {**PACKED, "kv_cache_scheme": SCHEME}, "fp8", True, id="compressed-tensors"),
        pytest.param(llama(), PACKED, "auto", False, id="compressed-tensors-none"),
        pytest.param(latent(), {**PACKED, "kv_cache_scheme": SCHEME}, "auto", True, id="compressed-latent"),
        pytest.param(
            latent(**SPARSE, **INDEXER),
            {**MODELOPT, "kv_cache_quant_algo": "FP8"},
            "auto",
            True,
            id="sparse-latent",
        ),
        pytest.param(llama(), None, "auto", False, id="unquantised"),
    ],
)
def test_the_checkpoint_decides_where_nobody_else_does(
    config: Mapping[str, Any], section: Mapping[str, Any] | None, resolved: str, told: bool
) -> None:
    model = model_of({**config, **({} if section is None else {"quantization_config": section})})
    workload, remark = with_checkpoint_cache(Workload(), model, "vllm")
    assert workload.kv_cache_dtype == resolved
    assert (remark is not None) is told
    asked, silent = with_checkpoint_cache(Workload(kv_cache_dtype="bfloat16"), model, "vllm")
    assert (asked.kv_cache_dtype, silent) == ("bfloat16", None)
    assert with_checkpoint_cache(Workload(), model, "transformers")[0].kv_cache_dtype == "auto"


@pytest.mark.parametrize("value", [True, -1, float("nan"), [1, 2], {"num_bits": "8", "type": "float"}])
def test_a_malformed_scheme_is_named(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        model_of({**llama(), "quantization_config": {**MODELOPT, "kv_cache_scheme": value}})
    assert "kv_cache_scheme" in caught.value.key_path
