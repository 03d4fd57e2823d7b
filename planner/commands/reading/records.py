"""What a command line says once it is read. None always means: not said, so the engine's own default."""

from dataclasses import dataclass
from typing import Literal

from model_catalog.drafts import DraftMethod
from planner.verdict import Reason

#: What an option that is not planned does to a plan: needs more, less, or either; ``slight``: hardly anything.
Effect = Literal["more", "less", "either", "slight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """The settings of one command that a plan knows.

    ``longest``: the engine is asked for the longest context that fits. ``batch``: slots that have their memory
    from the start (llama.cpp). ``draft`` is a model's name; ``method`` how it drafts. ``visible``: the command's
    own CUDA_VISIBLE_DEVICES.
    """

    engine: str
    model: str | None = None
    revision: str | None = None
    context_tokens: int | None = None
    longest: bool = False
    batch: int | None = None
    tp: int | None = None
    pp: int | None = None
    expert_parallel: bool = False
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    draft_kv_cache_dtype: str | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    async_scheduling: bool = True
    method: DraftMethod | None = None
    draft: str | None = None
    draft_revision: str | None = None
    num_speculative_tokens: int | None = None
    on_host: bool = False
    visible: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplanned:
    """An option that moves memory and that no plan here knows."""

    option: str
    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """An option that the engine's release does not have: names like it, and what is known of it."""

    option: str
    near: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One command read. ``ignored``: options that hardly touch memory, by name; their values are kept nowhere.

    ``remarks``: what the engine does with the command that its writer may not expect.
    """

    settings: CommandSettings
    unplanned: tuple[Unplanned, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    ignored: tuple[str, ...] = ()
    remarks: tuple[Reason, ...] = ()
