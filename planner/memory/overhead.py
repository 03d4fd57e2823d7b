"""What one process costs on a device before it holds any model: the CUDA context, and the communicators.

Fitted to what start-up logs print as used before loading (``Free memory on device (free/total)`` and the worker's
first memory snapshot). The measurements are in tests/measured/vllm_memory.jsonl.
"""

from typing import Final

from model_catalog.bounds import ByteRange
from model_catalog.units import GIB, MIB

# One process, one device. Cards below 70 GiB: 0.17 (sm_75), 0.23 (L4; a 16 GB card), 0.45 to 0.51 GiB (RTX 3090,
# 4090, 5090). Larger ones: 0.51 (H100, 38 starts), 0.56 (RTX PRO 6000), 0.60 (H200), 0.61 GiB (B300).
CUDA_CONTEXT: Final = ByteRange(low_bytes=150 * MIB, high_bytes=768 * MIB)
_SMALL_CARD_CONTEXT: Final = ByteRange(low_bytes=150 * MIB, high_bytes=608 * MIB)
_SMALL_CARD_BYTES: Final = 70 * GIB

# On top of it when ranks talk to each other, before any model is loaded. H100: 0.92 (pp 2), 0.97 (pp 4), 1.02 or
# 1.50 (tp 2), 1.04 or 1.56 GiB (tp 4); H20 and RTX PRO cards as little as 0.1 GiB.
COMMUNICATORS: Final = ByteRange(low_bytes=96 * MIB, high_bytes=1792 * MIB)

# Expert parallelism opens further communicators: 3.3 and 3.5 GiB in all on RTX PRO 6000 (tp 2, ep 2).
EXPERT_COMMUNICATORS_HIGH_BYTES: Final = 1536 * MIB

# A process that runs in host memory opens no context; what stays resident there is code: assumed.
HOST_PROCESS: Final = ByteRange(low_bytes=256 * MIB, high_bytes=1024 * MIB)

SOURCE: Final = (
    "start-up logs of vLLM 0.11 to 0.29: 59 starts on H100 (llm-d-incubation/llm-d-planner, accuracy results), "
    "further cards in tests/measured/vllm_memory.jsonl"
)


def cuda_context(total_bytes: int | None) -> ByteRange:
    """Bytes of the CUDA context of one process on a device of this size (None: unknown)."""
    small = total_bytes is not None and total_bytes < _SMALL_CARD_BYTES
    return _SMALL_CARD_CONTEXT if small else CUDA_CONTEXT


def communicators(*, world_size: int, expert_parallel: bool) -> ByteRange:
    """Bytes that collective communication takes on one rank; nothing where the rank is alone."""
    if world_size <= 1:
        return ByteRange.point(0)
    extra = EXPERT_COMMUNICATORS_HIGH_BYTES if expert_parallel else 0
    return ByteRange(low_bytes=COMMUNICATORS.low_bytes, high_bytes=COMMUNICATORS.high_bytes + extra)
