"""Faults of a trial: what is done to the real child or its folder, and the one error that has to come of it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from injected.record import Fault

FAILING = """
import torch
from planner.trial.worker import {module}
def fail(*_, **__):
    raise {error}
{module}.{name} = fail
"""
#: Every forward of the target fails once the child has said {event}.
FAILING_AFTER = """
import inspect, torch
from planner.trial.protocol import Event
from planner.trial.worker import loading
honest, told, said = loading.load_pair, Event.to_json, set()
def to_json(event):
    said.add(event.name)
    return told(event)
def load_pair(*given):
    target, draft = honest(*given)
    forward = target.forward
    def watched(*tokens, **options):
        if "{event}" in said:
            raise {error}
        return forward(*tokens, **options)
    watched.__signature__ = inspect.signature(forward)
    target.forward = watched
    return target, draft
Event.to_json, loading.load_pair = to_json, load_pair
"""
CUDA_OUT = 'torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")'
CPU_OUT = (
    "RuntimeError(\"[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: "
    'you tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)")'
)
LAUNCH = (
    'RuntimeError("CUDA error: unspecified launch failure\\nCUDA kernel errors might be asynchronously reported '
    'at some other API call\\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1")'
)
ASSERT = 'torch.AcceleratorError("CUDA error: device-side assert triggered")'
OUT_OF_CACHE = 'loading.UncroppableCacheError("RecurrentCache")'


def _only_bin(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _cut(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])


def _lengths(folder: Path) -> str:
    whole = (folder / "model.safetensors").stat().st_size
    return f"is {whole - 100} bytes long, but its header describes {whole}"


def _torch(_: Path) -> str:
    import torch

    return f"torch {torch.__version__}"


def _without_a_shard(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


def _without_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _with_code_of_its_own(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "made_up", "auto_map": {"AutoModelForCausalLM": "made.Made"}}
    (folder / "config.json").write_text(json.dumps(config))


def _wide(folder: Path) -> None:
    """A configuration alone, of eight gigabytes."""
    wide = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 16_384,
        "num_hidden_layers": 8,
        "num_attention_heads": 32,
        "vocab_size": 1024,
    }
    (folder / "config.json").write_text(json.dumps(wide))


@dataclass(frozen=True, kw_only=True)
class WorkerCase(Fault):
    """One trial of a tiny model by the real child.

    ``prepare`` spoils a copy of its folder, which is the draft's too unless ``draft_alone``; ``body`` is put in
    before the child's main. ``prompts_before``: runs that were told before the error, where that is known.
    """

    exit_code: int = 7
    prepare: Callable[[Path], None] | None = None
    draft_alone: bool = False
    body: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    says_of: Callable[[Path], str] = lambda _: ""  #: more words, by the folder before it was spoilt
    never_says: str | None = None
    prompts_before: int = 0


WORKER_CASES = [
    WorkerCase(
        id="only-bin",
        what="a draft folder with pickles alone",
        prepare=_only_bin,
        draft_alone=True,
        code="trial_weights",
        says="only .bin files",
    ),
    WorkerCase(
        id="truncated",
        what="a draft whose weight file is cut",
        prepare=_cut,
        draft_alone=True,
        code="trial_weights",
        says="bytes long, but its header describes",
        says_of=_lengths,
    ),
    WorkerCase(
        id="missing-shard",
        what="a folder that lacks a shard",
        prepare=_without_a_shard,
        code="trial_weights",
        says="model-00002-of-00002.safetensors is missing",
    ),
    WorkerCase(
        id="no-tokenizer",
        what="a folder without a tokenizer",
        prepare=_without_a_tokenizer,
        code="trial_tokenizer",
        says="no tokenizer",
    ),
    WorkerCase(
        id="remote-code",
        what="an architecture with code of its own",
        prepare=_with_code_of_its_own,
        code="trial_remote_code",
        says="made_up",
    ),
    WorkerCase(
        id="no-cuda",
        what="a GPU asked for, and a torch that cannot use one",
        request={"device": "cuda"},
        code="trial_no_cuda",
        says="reaches no GPU",
        says_of=_torch,
    ),
    WorkerCase(
        id="missing-library",
        what="torch and accelerate are not there",
        body='sys.modules["accelerate"] = None\nsys.modules["torch"] = None\n',
        code="trial_missing_import",
        says="torch",
    ),
    WorkerCase(
        id="host-memory",
        what="eight gigabytes of weights where the system permits six of address space",
        prepare=_wide,
        request={"weights": "dummy"},
        body="import resource, torch, transformers\nlimit = resource.getrlimit(resource.RLIMIT_AS)[1]\n"
        "resource.setrlimit(resource.RLIMIT_AS, (6 << 30, limit))\n",
        code="trial_out_of_memory",
        says="while loading",
    ),
    WorkerCase(
        id="device-lost-loading",
        what="a CUDA launch failure while loading",
        body=FAILING.format(module="loading", name="load_model", error=LAUNCH),
        code="trial_device_lost",
        says="while loading: CUDA error: unspecified launch failure",
        never_says="CUDA_LAUNCH_BLOCKING",  # advice for those who debug CUDA kernels
    ),
    WorkerCase(
        id="unforeseen",
        what="an exception that nobody foresaw",
        body=FAILING.format(module="loading", name="load_model", error='LookupError("surprise")'),
        code="trial_failed",
        says="LookupError while loading: surprise",
    ),
    WorkerCase(
        id="memory-warming-up",
        what="CUDA out of memory while warming up",
        body=FAILING_AFTER.format(event="loaded", error=CUDA_OUT),
        code="trial_out_of_memory",
        says="while warming up: CUDA out of memory",
    ),
    WorkerCase(
        id="memory-running",
        what="no memory in the midst of measuring",
        body=FAILING_AFTER.format(event="progress", error=CPU_OUT),
        request={"seconds": 60.0},
        code="trial_out_of_memory",
        says="while running",
        prompts_before=1,
    ),
    WorkerCase(
        id="device-running",
        what="a device-side assertion in the midst of measuring",
        body=FAILING_AFTER.format(event="progress", error=ASSERT),
        request={"seconds": 60.0},
        code="trial_device_lost",
        says="while running",
        prompts_before=1,
    ),
    WorkerCase(
        id="cache",
        what="a cache that cannot go back",
        body="import planner.trial.worker.decoding\n"
        + FAILING_AFTER.format(event="loaded", error=OUT_OF_CACHE)
        + "loading.UncroppableCacheError = planner.trial.worker.decoding.UncroppableCacheError\n",
        code="trial_cache",
        says="RecurrentCache",
    ),
]
