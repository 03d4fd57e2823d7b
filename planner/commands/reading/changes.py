"""Settings back into options: how each engine spells what a plan changes, as changes to a command."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from planner.commands.reading.records import CommandSettings

#: Option of each setting, by engine. An empty name: the engine has no such option.
_SPELLED: Final[dict[str, dict[str, str]]] = {
    "vllm": {
        "gpu_memory_utilization": "--gpu-memory-utilization",
        "kv_cache_memory_bytes": "--kv-cache-memory-bytes",
        "max_num_seqs": "--max-num-seqs",
        "context_tokens": "--max-model-len",
        "max_num_batched_tokens": "--max-num-batched-tokens",
        "kv_cache_dtype": "--kv-cache-dtype",
        "enforce_eager": "--enforce-eager",
        "quantization": "--quantization",
        "draft": "--speculative-config",
        "tp": "--tensor-parallel-size",
    },
    "sglang": {
        "gpu_memory_utilization": "--mem-fraction-static",
        "max_num_seqs": "--max-running-requests",
        "context_tokens": "--context-length",
        "max_num_batched_tokens": "--chunked-prefill-size",
        "kv_cache_dtype": "--kv-cache-dtype",
        "enforce_eager": "--disable-cuda-graph",
        "draft": "--speculative-algorithm and its companions",
        "tp": "--tp-size",
    },
    # By the name that an option and a key of the file share.
    "tensorrt-llm": {
        "gpu_memory_utilization": "free_gpu_memory_fraction",
        "max_num_seqs": "max_batch_size",
        "context_tokens": "max_seq_len",
        "max_num_batched_tokens": "max_num_tokens",
        "kv_cache_dtype": "kv_cache_config.dtype",
        "enforce_eager": "cuda_graph_config: null",
        "draft": "speculative_config",
        "tp": "tensor_parallel_size",
    },
    "llama.cpp": {
        "context_tokens": "--ctx-size",
        "max_num_batched_tokens": "--ubatch-size",
        "kv_cache_dtype": "--cache-type-k and --cache-type-v",
        "draft": "--spec-type and --spec-draft-model",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change to a command. ``before``: the value that it names, empty where it leaves it to the engine."""

    action: Literal["add", "change", "remove"]
    option: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """As one would say it."""
        if self.action == "add":
            return f"add {self.option} {self.after}".rstrip()
        if self.action == "remove":
            return f"remove {self.option}"
        return f"change {self.option} {self.before} to {self.after}"


def spelled(engine: str, field: str) -> str | None:
    """The engine's option for this setting; None where it has none."""
    return _SPELLED.get(engine, {}).get(field)


def changes(before: CommandSettings, after: CommandSettings) -> tuple[Change, ...]:
    """What turns the one command into the other."""
    return tuple(_changes(before, after))


def _changes(before: CommandSettings, after: CommandSettings) -> Iterator[Change]:
    for field, option in _SPELLED.get(before.engine, {}).items():
        if field == "draft":
            if before.method is not None and after.method is None:
                yield Change(action="remove", option=option, before="", after="")
            continue
        old, new = getattr(before, field), getattr(after, field)
        if before.engine == "llama.cpp" and field == "context_tokens":
            # One size for all slots.
            old = None if old is None else old * (before.batch or 1)
            new = None if new is None else new * (after.batch or 1)
        if old == new:
            continue
        if isinstance(new, bool):
            yield Change(action="add" if new else "remove", option=option, before="", after="")
        elif new is None:
            yield Change(action="remove", option=option, before=_figure(old), after="")
        elif old is None:
            yield Change(action="add", option=option, before="", after=_figure(new))
        else:
            yield Change(action="change", option=option, before=_figure(old), after=_figure(new))


def _figure(value: object) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
