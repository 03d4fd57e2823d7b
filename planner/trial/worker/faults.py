"""Names the fault behind an exception: out of memory, a device that is gone, no CUDA; told by type, else by text.

Texts are those of PyTorch (``c10/cuda/CUDAException``, ``c10/core/impl/alloc_cpu.cpp``, ``CUDACachingAllocator``),
of the CUDA runtime's ``cudaGetErrorString`` and of the driver's Xid messages.
"""

import re
from collections.abc import Iterator
from typing import Final

import torch

#: In words for whoever reads the error: when it happened.
LOADING: Final = "loading"
WARMING: Final = "warming up"
RUNNING: Final = "running"

_OUT_OF_MEMORY: Final = re.compile(
    r"out of memory|DefaultCPUAllocator|can't allocate memory|cannot allocate memory|not enough memory"
    r"|unable to mmap|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
#: The device answers, but this torch or this process may not use it.
_NO_CUDA: Final = re.compile(
    r"no kernel image is available|driver version is insufficient|found no NVIDIA driver|no CUDA-capable device"
    r"|No CUDA GPUs are available|busy or unavailable|not compiled with CUDA|invalid device ordinal",
    re.IGNORECASE,
)
#: After these nothing more can be done with the device in this process.
_DEVICE_LOST: Final = re.compile(
    r"unspecified launch failure|device-side assert|GPU is lost|fallen off the bus|illegal memory access"
    r"|illegal address|misaligned address|uncorrectable ECC|hardware stack error|launch timed out"
    r"|CUDA error: unknown error|context is destroyed|NVLink error|cudaErrorUnknown",
    re.IGNORECASE,
)
_LONGEST_TEXT: Final = 600


def code_of(error: BaseException) -> str | None:
    """``out_of_memory``, ``no_cuda`` or ``device_lost``; None for what says nothing of the machine.

    Whoever goes on after an exception (with the next prompt, say) must not go on after one of these.
    """
    for cause in _chain(error):
        text = str(cause)
        if isinstance(cause, torch.OutOfMemoryError | MemoryError) or _OUT_OF_MEMORY.search(text):
            return "out_of_memory"
        if _NO_CUDA.search(text):
            return "no_cuda"
        if _DEVICE_LOST.search(text) or _is_accelerators(cause):
            return "device_lost"
    return None


def describe(error: BaseException, stage: str) -> tuple[str, str]:
    """The code and the text of the ``error`` event for an exception that nothing more special caught."""
    text = _plain(str(error)) or "no reason was given"
    code = code_of(error)
    if code == "out_of_memory":
        return code, f"while {stage}: {text}"
    if code == "no_cuda":
        return code, f"{installed()} cannot use the GPU: {text}"
    if code == "device_lost":
        return code, f"the device was lost while {stage}: {text}"
    if isinstance(error, ImportError):
        return "weights", f"the weights need a package that is not installed: {text}"
    return "failed", f"{type(error).__name__} while {stage}: {text}"


def installed() -> str:
    """Which torch this is, and what it was built for."""
    built = torch.version.cuda or getattr(torch.version, "hip", None)
    return f"torch {torch.__version__} ({f'CUDA {built}' if built else 'built without CUDA'})"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and what caused it: libraries wrap."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_accelerators(error: BaseException) -> bool:
    kind = getattr(torch, "AcceleratorError", None)  # since torch 2.8
    return kind is not None and isinstance(error, kind)


def _plain(text: str) -> str:
    """The text without the advice on debugging that CUDA errors end with, on one line."""
    head = re.split(r"\n?(?:CUDA kernel errors might be|For debugging consider|Compile with `TORCH_USE)", text)[0]
    return " ".join(head.split())[:_LONGEST_TEXT]
