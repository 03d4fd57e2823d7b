"""The settings that a start-up log prints: which model, on how many devices, with which limits. Not trusted.

Owns vLLM's two lines: ``Initializing a V1 LLM engine (v...) with config: model='...', ...`` says what runs, and
``non-default args: {...}`` (before 0.8 ``args: Namespace(...)``) what was asked for. Sources: vLLM 0.32.0
``config/vllm.py`` (``VllmConfig.__str__``), ``config/speculative.py`` (``__repr__``), ``entrypoints``; logs of 0.6
to 0.28 in public threads. SGLang's one line is read in ``sglang``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from planner.logs.literals import flag, inside, read_pairs, scalar, share, whole, words

MOST_DEVICES: Final = 1024
MOST_TOKENS: Final = 10**9
MOST_SEQUENCES: Final = 10**6
MOST_DRAFTED: Final = 64
_MOST_BYTES: Final = 2**50

_CONFIG: Final = re.compile(r"LLM engine \(v([\w.+-]{1,60})\) with config: ", re.ASCII)
_ARGUMENTS: Final = re.compile(r"non-default args: \{|\bargs: Namespace\(")
_VERSION: Final = re.compile(r"vLLM API server version ([\w.+-]{1,60})|█ {1,8}version ([\w.+-]{1,60})", re.ASCII)
_BATCHED: Final = re.compile(r"max_num_batched_tokens(?:=| to )(\d{1,9})\b", re.ASCII)
_DEFAULT_SEQS: Final = re.compile(r"Defaulting max_num_seqs to (\d{1,7}) ", re.ASCII)
_SERVER: Final = re.compile(r"\(APIServer|API server version|OPENAI_API_SERVER")
_ASYNC: Final = re.compile(r"Asynchronous scheduling is (enabled|disabled)")
_BLOCK: Final = re.compile(r"Setting (?:kv cache|attention) block size to (\d{1,5}) ", re.ASCII)
_GPU_NAME: Final = re.compile(
    r"^\W{0,8}GPU \d{1,3}: ([A-Za-z][\w ./-]{2,60}?)(?: \(UUID|$)", re.ASCII | re.MULTILINE
)
_DRIVER: Final = re.compile(r"Driver [Vv]ersion: ?(\d{1,5}(?:\.\d{1,5}){1,3})\b|driver version: (\d[\d.]{2,20})")

#: Settings that move memory and that no plan here knows, in the arguments' spelling.
_UNPLANNED: Final = (
    *("cpu_offload_gb", "enable_lora", "num_gpu_blocks_override", "data_parallel_size", "kv_transfer_config"),
    *("decode_context_parallel_size", "limit_mm_per_prompt", "hf_overrides", "compilation_config"),
    *("kv_offloading_size", "enable_dbo", "language_model_only"),
)

EngineName = Literal["vllm", "sglang"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What was started, as far as the log says. None: not said.

    ``asked`` tells whether the line of arguments was there: what it leaves out is then the engine's default.
    ``served``: by the API server, whose defaults are not those of a program's ``LLM``. ``draft_method`` is the
    engine's own name. ``unplanned``: settings that move memory in ways that are not planned.
    """

    engine: EngineName | None = None
    version: str | None = None
    model: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    context_tokens: int | None = None
    tp: int | None = None
    pp: int | None = None
    expert_parallel: bool = False
    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str | None = None
    kv_cache_memory_bytes: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    enforce_eager: bool | None = None
    async_scheduling: bool | None = None
    draft_method: str | None = None
    draft_model: str | None = None
    num_speculative_tokens: int | None = None
    on_cpu: bool = False
    asked: bool = False
    served: bool = False
    tokens_asked: bool = False
    gpu_name: str | None = None
    driver: str | None = None
    unplanned: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[tuple[str, object], ...]:
        """What the log says, by field, for people and scripts."""
        hidden = {"asked", "served", "tokens_asked", "unplanned", "on_cpu", "expert_parallel"}
        found = ((name, getattr(self, name)) for name in self.__slots__ if name not in hidden)
        return tuple((name, value) for name, value in found if value is not None)


def vllm_settings(text: str) -> tuple[LogSettings, int]:
    """The settings of one start of vLLM, and how many of its lines could not be read."""
    odd = 0
    config = _CONFIG.search(text)
    running: Mapping[str, str] = {}
    if config is not None:
        running = read_pairs(text, config.end(), "=")
        odd += "model" not in running
    given = _ARGUMENTS.search(text)
    asked: Mapping[str, str] = {}
    if given is not None:
        asked = read_pairs(text, given.end(), ":" if given[0].endswith("{") else "=")
        odd += not asked and text[given.end() : given.end() + 1] not in {"}", ")"}
    banner = _VERSION.search(text)
    version = config[1] if config else (banner[1] or banner[2]) if banner else None
    if version is None and not running and not asked:
        return LogSettings(), odd
    found = LogSettings(engine="vllm", version=version, asked=given is not None, served=bool(_SERVER.search(text)))
    return _drafted(_limits(_model(found, running, asked), asked, text), running, asked), odd


def machine(text: str, settings: LogSettings) -> LogSettings:
    """With the card and the driver, where output of ``nvidia-smi`` or vLLM's ``collect_env`` stands in the log."""
    names = {name.strip() for name in _GPU_NAME.findall(text)}
    driver = _DRIVER.search(text)
    return replace(
        settings,
        gpu_name=names.pop() if len(names) == 1 else None,
        driver=(driver[1] or driver[2]) if driver else None,
    )


def _model(found: LogSettings, running: Mapping[str, str], asked: Mapping[str, str]) -> LogSettings:
    def of(*names: str) -> str | None:
        """The running configuration's word, else that of the arguments."""
        places = (running.get(names[0]), *(asked.get(name) for name in names))
        return next((value for value in places if value is not None), None)

    dtype = words(of("dtype"))
    cache = words(of("kv_cache_dtype"))
    return replace(
        found,
        model=words(of("model", "model_tag")),
        dtype=None if dtype in {None, "auto"} else (dtype or "").removeprefix("torch."),
        quantization=words(of("quantization")),
        context_tokens=whole(of("max_seq_len", "max_model_len"), most=MOST_TOKENS),
        tp=_count(of("tensor_parallel_size"), found),
        pp=_count(of("pipeline_parallel_size"), found),
        enforce_eager=_truth(flag(of("enforce_eager")), found),
        kv_cache_dtype=None if cache is None else cache.removeprefix("torch."),
        on_cpu=words(running.get("device_config")) == "cpu",
    )


def _count(raw: str | None, found: LogSettings) -> int | None:
    """A parallel degree; 1 where the arguments are printed and do not name it."""
    return 1 if raw is None and found.asked else whole(raw, most=MOST_DEVICES)


def _truth(value: bool | None, found: LogSettings) -> bool | None:
    return False if value is None and found.asked else value


def _limits(found: LogSettings, asked: Mapping[str, str], text: str) -> LogSettings:
    batched = whole(asked.get("max_num_batched_tokens"), most=MOST_TOKENS)
    printed = [int(value) for value in _BATCHED.findall(text)]
    seqs = whole(asked.get("max_num_seqs"), most=MOST_SEQUENCES)
    by_default = _DEFAULT_SEQS.search(text)
    scheduling = _ASYNC.search(text)
    block = _BLOCK.search(text)
    if seqs is None and by_default is not None:
        seqs = int(by_default[1]) or None
    return replace(
        found,
        max_num_batched_tokens=batched or next((value for value in printed if value), None),
        tokens_asked=batched is not None,
        max_num_seqs=seqs,
        gpu_memory_utilization=share(asked.get("gpu_memory_utilization")),
        kv_cache_memory_bytes=whole(asked.get("kv_cache_memory_bytes"), most=_MOST_BYTES),
        block_size=whole(asked.get("block_size"), most=MOST_SEQUENCES)
        or (int(block[1]) or None if block else None),
        async_scheduling=scheduling[1] == "enabled" if scheduling else flag(asked.get("async_scheduling")),
        expert_parallel=flag(asked.get("enable_expert_parallel")) is True,
        unplanned=tuple(_moving(asked)),
    )


def _moving(asked: Mapping[str, str]) -> Iterable[str]:
    """Names of arguments that move memory and are set to something."""
    for name in _UNPLANNED:
        value = scalar(asked.get(name))
        # One device and no gigabytes go without saying; a switch counts where it is on.
        if value is True or value not in {None, False, 1, "{}"}:
            yield name


def _drafted(found: LogSettings, running: Mapping[str, str], asked: Mapping[str, str]) -> LogSettings:
    """With the draft: of the running configuration, or as it was asked for."""
    raw = running.get("speculative_config")
    if raw is not None:
        drafted = inside(raw, "=")
        tokens = drafted.get("num_spec_tokens") or drafted.get("num_speculative_tokens")
    else:
        drafted = inside(asked.get("speculative_config"), ":")
        tokens = drafted.get("num_speculative_tokens")
    return replace(
        found,
        draft_method=words(drafted.get("method")),
        draft_model=words(drafted.get("model")),
        num_speculative_tokens=whole(tokens, most=MOST_DRAFTED),
    )
