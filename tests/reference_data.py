"""Reference pages of what is embedded: engines, declared GPUs, models and pairs, out of their own tables."""

from collections import Counter
from itertools import groupby
from typing import Final

from reference_text import MADE, page_text, table

from model_catalog.bounds import Basis, ByteRange
from model_catalog.catalogue import find_row, rows
from model_catalog.drafts import DraftMethod
from model_catalog.errors import SpecplanError
from model_catalog.model import Model, describe
from model_catalog.pairs import curated_pairs
from model_catalog.snapshot import ModelSnapshot
from model_catalog.tokenizer import tokenizer_facts
from planner.cli.trial_options import BACKENDS
from planner.commands.reading.options import options_of
from planner.commands.registry import command_engines
from planner.declared_gpus import DeclaredGpu, declared_gpus, find_gpu
from planner.engines.base import Draft, EngineProfile, Serving
from planner.engines.registry import engine_profile
from planner.report.facts import stored_bytes
from planner.report.words import need, parameters, room
from planner.speculation.compatibility import CompatibilityVerdict
from planner.speculation.vocabulary_rules import judge_pair
from planner.workload import Workload

_TAKES: Final = {
    "total": "a fraction of the device's total memory, at start",
    "free_before_load": "a fraction of what is free before weights are loaded",
    "free_after_load": "for its cache, a fraction of what is free once weights are loaded",
    "free": "what it needs, from what is free",
}
#: The model and the cards that the table of defaults is for.
_MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
_CARDS: Final = ("l4-24gb", "h100-80gb")
#: One pair of each method, from the catalogue.
_PAIRS: Final = {
    DraftMethod.DRAFT_MODEL: ("Qwen/Qwen3-32B", "Qwen/Qwen3-0.6B"),
    DraftMethod.EAGLE: ("mistralai/Mixtral-8x7B-Instruct-v0.1", "yuhuili/EAGLE-mixtral-instruct-8x7B"),
    DraftMethod.EAGLE3: ("Qwen/Qwen3-8B", "RedHatAI/Qwen3-8B-speculator.eagle3"),
    DraftMethod.MTP: ("deepseek-ai/DeepSeek-V3", None),
    DraftMethod.NGRAM: ("Qwen/Qwen3-8B", None),
    DraftMethod.DFLASH: ("Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16"),
    DraftMethod.DSPARK: ("Qwen/Qwen3-8B", "deepseek-ai/dspark_qwen3_8b_block7"),
}
_BACKEND_OF: Final = {"transformers": "builtin"}


def engines_page() -> str:
    profiles = [engine_profile(name) for name in command_engines()]
    lines = [
        "# Engines",
        "",
        MADE,
        "",
        "What differs between them is told in [Engines: who budgets what](../concepts/engines.md).",
        "",
        "## What is planned",
        "",
        "The release is the one planned for where none is named; `--engine vllm==0.19.0` names one. All of",
        "them get a plan and a command.",
        "",
        *table(["engine", "release", "it takes", "check-command reads it", "trial backend"], _planned(profiles)),
        "",
        "## Which drafts each takes",
        "",
        "By the engine's own rule, for one pair of each kind; *no plan* is a pair that the engine accepts and",
        "whose memory is not planned here under it.",
        "",
        *table(["method", "pair", *(profile.name for profile in profiles)], _methods(profiles)),
        "",
        "## Defaults",
        "",
        f"Where nothing is said, for {_MODEL}; in vLLM and SGLang they depend on the card.",
        "",
        *table(
            ["engine", "card", "tokens a step", "sequences at once", "tokens a block", "fraction"],
            _defaults(profiles),
        ),
    ]
    return page_text(lines)


def _planned(profiles: list[EngineProfile]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for profile in profiles:
        name = profile.name
        backend = _BACKEND_OF.get(name, name)
        backend = f"`{backend}`" if backend in BACKENDS else "none"
        found.append((f"`{name}`", profile.version, _TAKES[profile.budget_base], _read_by_us(name), backend))
    return found


def _read_by_us(engine: str) -> str:
    """Whether check-command reads the engine's own commands: where it has the table of their options."""
    try:
        return f"yes, {len(options_of(engine))} options known"
    except KeyError:
        return "no"


def _methods(profiles: list[EngineProfile]) -> list[tuple[str, ...]]:
    found = []
    for method, (target_name, draft_name) in _PAIRS.items():
        target, model = _model(target_name), None if draft_name is None else _model(draft_name)
        draft = Draft(method=method, num_speculative_tokens=3, model=model)
        told = [_told(profile, target, draft) for profile in profiles]
        own = "its own layers" if method is DraftMethod.MTP else "no model"
        found.append((f"`{method.value}`", f"{target_name} with {draft_name or own}", *told))
    return found


def _told(profile: EngineProfile, target: Model, draft: Draft) -> str:
    work = Workload()
    facts = None if draft.model is None else tokenizer_facts(draft.model)
    judged = judge_pair(profile.name, profile.version, target, draft, tokenizer_facts(target), facts, work)
    if judged.verdict is CompatibilityVerdict.REFUSED:
        return "no"
    try:
        profile.check(Serving(target=target, draft=draft, workload=work))
    except SpecplanError:
        return "no plan"
    return "yes"


def _defaults(profiles: list[EngineProfile]) -> list[tuple[str, ...]]:
    serving = Serving(target=_model(_MODEL), draft=None, workload=Workload())
    found = []
    for profile in profiles:
        for card in _CARDS:
            set_to = profile.defaults(serving, find_gpu(card).device())
            fraction = set_to.gpu_memory_utilization
            counts = (set_to.max_num_batched_tokens, set_to.max_num_seqs, set_to.block_size)
            cells = (*(f"{count:,}" for count in counts), "" if fraction is None else f"{fraction:g}")
            found.append((f"`{profile.name}`", f"`{card}`", *cells))
    return found


def _model(name: str) -> Model:
    row = find_row(name)
    assert row is not None, name
    return describe(row)


def gpus_page() -> str:
    lines = [
        "# GPUs",
        "",
        MADE,
        "",
        "What `--gpu` takes by name, from `planner/data/gpus.toml`. *Memory* is what the driver reports, *for",
        "CUDA* the least that CUDA calls total, which is what an engine budgets. *derived* means that no",
        "reading of such a card was found. GB/s is the bandwidth, TFLOPS the dense 16-bit rate of the data",
        "sheet; speedups come from them. Case, blanks and the maker's name do not matter, and a card that is",
        "not here is planned by its size: `--gpu 24GiB`.",
        "",
        "[Add one](../add/gpu.md).",
    ]
    by_vendor: dict[str, list[DeclaredGpu]] = {}
    for gpu in declared_gpus():
        by_vendor.setdefault(gpu.vendor, []).append(gpu)
    heads = ["name for `--gpu`", "card", "memory, GiB", "for CUDA, GiB", "GB/s", "TFLOPS", "memory from"]
    for vendor, gpus in by_vendor.items():
        lines += ["", f"## {vendor.upper()}", "", *table(heads, [_gpu_row(gpu) for gpu in gpus])]
    return page_text(lines)


def _gpu_row(gpu: DeclaredGpu) -> tuple[str, ...]:
    flops = gpu.bf16_flops or gpu.fp16_flops
    basis = "" if gpu.memory_basis is Basis.EXACT else f"{gpu.memory_basis.value}: "
    return (
        f"`{gpu.key}`",
        gpu.name,
        room(gpu.memory_total_bytes).removesuffix(" GiB"),
        room(gpu.engine_total.low_bytes).removesuffix(" GiB"),
        f"{gpu.bandwidth_bytes_per_second / 1e9:,.0f}",
        "" if flops is None else f"{flops / 1e12:,.0f}",
        basis + gpu.source.split(";")[0].removeprefix("memory: "),
    )


def models_page() -> str:
    known = sorted(rows(), key=lambda row: row.repo_id.lower())
    pairs = curated_pairs()
    drafts: dict[str, Counter[str]] = {}
    for pair in pairs:
        drafts.setdefault(pair.target, Counter())[pair.method.value] += 1
    lines = [
        "# Models",
        "",
        MADE,
        "",
        f"The embedded catalogue: {len(known)} models that need no network, and {len(pairs)} pairs, each with",
        "the source that says the two belong together. They are facts (a configuration, counts), never",
        "weights. All other models are read from the Hub or from a folder. `specplan models [NAME]` shows one",
        "and where its facts are from; `specplan drafts TARGET` judges its drafts. An empty cell: not stated,",
        "and derived when it is planned.",
        "",
        "[Add a model or a pair](../add/pair.md).",
    ]
    for owner, group in groupby(known, key=lambda row: row.repo_id.partition("/")[0]):
        cells = [_model_row(row, drafts.get(row.repo_id, Counter())) for row in group]
        lines += ["", f"## {owner}", "", *table(["model", "parameters", "stored", "drafts"], cells)]
    return page_text(lines)


def _model_row(row: ModelSnapshot, drafts: Counter[str]) -> tuple[str, ...]:
    stored, count = stored_bytes(row), row.published_parameters
    return (
        row.repo_id,
        "" if count is None else parameters(count),
        "" if stored is None else need(ByteRange.point(stored)),
        ", ".join(f"{number} {method}" for method, number in drafts.items()),
    )
