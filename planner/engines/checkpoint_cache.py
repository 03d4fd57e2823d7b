"""The KV cache's dtype where the user leaves it to the engine and the checkpoint carries scales for a smaller one.

Owns vLLM's rule for ``--kv-cache-dtype auto``. Source: vLLM 0.33.0 ``utils/torch_utils.py``
(resolve_kv_cache_dtype_string: ModelOpt checkpoints) and ``model_executor/layers/attention/attention.py``
(compressed-tensors, in layers with heads alone).
"""

from dataclasses import replace
from typing import Final

from model_catalog.architecture import LatentAttention
from model_catalog.model import Model
from planner.verdict import Reason
from planner.workload import Workload

_SERVERS: Final = frozenset({"vllm", "sglang", "tensorrt-llm"})
#: What ModelOpt's names become in the engine.
_ENGINE_NAMES: Final = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}


def with_checkpoint_cache(workload: Workload, target: Model, engine: str) -> tuple[Workload, Reason | None]:
    """The workload with ``auto`` resolved as the engine would, and what is to be told about it.

    Sparse latent caches stay as they are: which packed row they take depends on the GPU's kernels.
    """
    wanted = target.quantization.cache_dtype if target.quantization is not None else None
    if wanted is None or engine not in _SERVERS or workload.kv_cache_dtype != "auto":
        return workload, None
    if engine != "vllm":
        text = (
            f"the checkpoint asks for a KV cache in {wanted}, which {engine} may take up: planned in 16 bits, the "
            f"larger; --kv-cache-dtype settles it"
        )
        return workload, Reason(code="checkpoint_cache_dtype", text=text)
    rules = [rule for layer in target.architecture.layers for rule in layer.caches]
    latent = [rule for rule in rules if isinstance(rule, LatentAttention)]
    sparse = any(rule.indexer_bytes_per_token for rule in latent)
    modelopt = target.quantization is not None and target.quantization.method == "modelopt"
    if sparse or (latent and not modelopt):
        text = (
            f"the checkpoint asks for a KV cache in {wanted}, which the engine takes up on some GPUs only: "
            f"planned in 16 bits, the larger; --kv-cache-dtype settles it"
        )
        return workload, Reason(code="checkpoint_cache_dtype", text=text)
    dtype = _ENGINE_NAMES[wanted] if modelopt else wanted
    text = f"KV cache planned in {dtype}, as the checkpoint asks for; --kv-cache-dtype bfloat16 overrides it"
    return replace(workload, kv_cache_dtype=dtype), Reason(code="checkpoint_cache_dtype", text=text)
