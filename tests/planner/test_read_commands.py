"""Commands that people write, read as settings; and every command that we write, read back."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_models import device, llama, model_of

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.units import GIB
from planner.commands.llama_cpp import llama_cpp_command
from planner.commands.reading.moving import VLLM_MOVING, VLLM_NEUTRAL, VLLM_REMOVED
from planner.commands.reading.moving_other import (
    LLAMA_MOVING,
    LLAMA_NEUTRAL,
    LLAMA_REMOVED,
    SGLANG_MOVING,
    SGLANG_NEUTRAL,
    SGLANG_REMOVED,
)
from planner.commands.reading.moving_tensorrt_llm import (
    CACHE_MOVING,
    CACHE_NEUTRAL,
    CACHE_OTHER,
    SPECULATION_MOVING,
    SPECULATION_NEUTRAL,
    SPECULATION_OTHER,
    TENSORRT_MOVING,
    TENSORRT_NEUTRAL,
    TENSORRT_OTHER,
)
from planner.commands.reading.numbers import human
from planner.commands.reading.options import options_of
from planner.commands.reading.read_llama_cpp import read_llama_cpp
from planner.commands.reading.read_sglang import read_sglang
from planner.commands.reading.read_tensorrt_llm import read_tensorrt_llm
from planner.commands.reading.read_vllm import read_vllm
from planner.commands.reading.records import CommandSettings, Reading
from planner.commands.reading.split import find_engine, split_text
from planner.commands.sglang import sglang_command
from planner.commands.vllm import vllm_command
from planner.engines.base import Draft, Serving
from planner.engines.llama_cpp import LlamaCppProfile
from planner.engines.sglang import SglangProfile
from planner.engines.vllm import VllmProfile
from planner.planning import Plan, make_plan
from planner.workload import Workload

READERS: dict[str, Callable[[tuple[str, ...]], Reading]] = {
    "vllm": read_vllm,
    "sglang": read_sglang,
    "llama.cpp": read_llama_cpp,
    "tensorrt-llm": read_tensorrt_llm,
}
DRAFT = DraftMethod.DRAFT_MODEL


def read(text: str) -> Reading:
    found = find_engine(split_text(text))
    return READERS[found.engine](found.words)


def said(reading: Reading) -> dict[str, Any]:
    """What differs from a command that says nothing."""
    empty = CommandSettings(engine=reading.settings.engine)
    pairs = ((field.name, getattr(reading.settings, field.name)) for field in fields(empty))
    return {name: value for name, value in pairs if value != getattr(empty, name)}


VLLM = {
    "vllm serve org/m": {"model": "org/m"},
    "vllm serve org/m --max-model-len 16384": {"model": "org/m", "context_tokens": 16_384},
    "vllm serve org/m --max-model-len=16k": {"model": "org/m", "context_tokens": 16_000},
    "vllm serve org/m --max-model-len 16K": {"model": "org/m", "context_tokens": 16_384},
    "vllm serve org/m --max_model_len 1M": {"model": "org/m", "context_tokens": 1_048_576},
    "vllm serve org/m --max-model-len 25.6k": {"model": "org/m", "context_tokens": 25_600},
    "vllm serve org/m --max-model-len auto": {"model": "org/m", "longest": True},
    "vllm serve org/m --max-model-len -1": {"model": "org/m", "longest": True},
    "vllm serve --model org/m -tp 4 -pp 2": {"model": "org/m", "tp": 4, "pp": 2},
    "vllm serve org/m -tp=2 --revision abc": {"model": "org/m", "tp": 2, "revision": "abc"},
    "vllm serve org/m --gpu-memory-util 0.95": {"model": "org/m", "gpu_memory_utilization": 0.95},
    "vllm serve org/m --kv-cache-memory-bytes 8G": {"model": "org/m", "kv_cache_memory_bytes": 8 * 2**30},
    "vllm serve org/m --kv-cache-dtype fp8 -q fp8 --dtype half": {
        "model": "org/m",
        "kv_cache_dtype": "fp8",
        "quantization": "fp8",
        "dtype": "float16",
    },
    "vllm serve org/m --max-num-seqs 64 --max-num-batched-tokens 8k --block-size 32": {
        "model": "org/m",
        "max_num_seqs": 64,
        "max_num_batched_tokens": 8000,
        "block_size": 32,
    },
    "vllm serve org/m --enforce-eager --enable-expert-parallel --no-async-scheduling": {
        "model": "org/m",
        "enforce_eager": True,
        "expert_parallel": True,
        "async_scheduling": False,
    },
    "vllm serve org/m --enforce-eager --no-enforce-eager": {"model": "org/m"},
    "vllm serve org/m --port 8000 --host 0.0.0.0 --served-model-name a b --api-key k1 k2": {"model": "org/m"},
    "python3 -m vllm.entrypoints.openai.api_server --model org/m --seed 1": {"model": "org/m"},
    "CUDA_VISIBLE_DEVICES=0,1 env A=x vllm serve org/m -tp 2 > log 2>&1": {"model": "org/m", "tp": 2},
    "docker run --rm --gpus all -e HF_TOKEN=x -v ~/.cache:/root/.cache -p 8000:8000 --ipc=host "
    "vllm/vllm-openai:latest --model org/m --tensor-parallel-size 2": {"model": "org/m", "tp": 2},
    """# a comment
    vllm serve org/m \\
        --max-model-len 8192 \\
        --tensor-parallel-size 2""": {"model": "org/m", "context_tokens": 8192, "tp": 2},
    """vllm serve m --speculative-config '{"method": "eagle3", "model": "o/h", "num_speculative_tokens": 3}'""": {
        "model": "m",
        "method": DraftMethod.EAGLE3,
        "draft": "o/h",
        "num_speculative_tokens": 3,
    },
    """vllm serve m -sc '{"model": "org/d", "num-speculative-tokens": 5, "draft_tensor_parallel_size": 1}'""": {
        "model": "m",
        "method": DRAFT,
        "draft": "org/d",
        "num_speculative_tokens": 5,
    },
    "vllm serve org/m --speculative-config.method draft_model --speculative-config.model org/d "
    "--speculative-config.num_speculative_tokens=4": {
        "model": "org/m",
        "method": DRAFT,
        "draft": "org/d",
        "num_speculative_tokens": 4,
    },
    "vllm serve org/m --spec-method mtp --spec-tokens 2": {
        "model": "org/m",
        "method": DraftMethod.MTP,
        "num_speculative_tokens": 2,
    },
    """vllm serve org/m -sc '{"method": "deepseek_mtp", "num_speculative_tokens": 1}'""": {
        "model": "org/m",
        "method": DraftMethod.MTP,
        "num_speculative_tokens": 1,
    },
    """vllm serve org/m -sc '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'""": {
        "model": "org/m",
        "method": DraftMethod.NGRAM,
        "num_speculative_tokens": 5,
    },
    # The path settles the method: engines.md A4.
    """vllm serve org/m -sc '{"method": "draft_model", "model": "/m/eagle3-x", "num_speculative_tokens": 3}'""": {
        "model": "org/m",
        "method": DraftMethod.EAGLE3,
        "draft": "/m/eagle3-x",
        "num_speculative_tokens": 3,
    },
}
OTHERS = {
    "trtllm-serve org/m": {"model": "org/m"},
    "trtllm-serve serve org/m --max_seq_len=8192 --max_batch_size 64 --max_num_tokens 4096": {
        "model": "org/m",
        "context_tokens": 8192,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 4096,
    },
    "mpirun -n 4 trtllm-llmapi-launch trtllm-serve org/m --tp_size 4 --pp_size 1 --ep_size 4 "
    "--kv_cache_free_gpu_memory_fraction 0.85 --revision abc --host 0.0.0.0 --port 8000": {
        "model": "org/m",
        "tp": 4,
        "pp": 1,
        "expert_parallel": True,
        "gpu_memory_utilization": 0.85,
        "revision": "abc",
    },
    # The next word is the value, as click has it.
    "trtllm-serve --host --port org/m": {"model": "org/m"},
    "python -m sglang.launch_server --model-path org/m --tp 2 --context-length 8192 --mem-fraction-static 0.8": {
        "model": "org/m",
        "tp": 2,
        "context_tokens": 8192,
        "gpu_memory_utilization": 0.8,
    },
    "sglang serve --model-path org/m --max-running-requests 32 --chunked-prefill-size 4096 --page-size 16 "
    "--disable-cuda-graph --kv-cache-dtype fp8_e5m2": {
        "model": "org/m",
        "max_num_seqs": 32,
        "max_num_batched_tokens": 4096,
        "block_size": 16,
        "enforce_eager": True,
        "kv_cache_dtype": "fp8_e5m2",
    },
    "sglang serve --model org/m --speculative-algorithm EAGLE3 --speculative-draft-model-path org/h "
    "--speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6 --tp 4 --ep 4": {
        "model": "org/m",
        "tp": 4,
        "expert_parallel": True,
        "method": DraftMethod.EAGLE3,
        "draft": "org/h",
        "num_speculative_tokens": 5,
    },
    "sglang serve --model org/m --speculative-algorithm EAGLE --speculative-num-steps 1": {
        "model": "org/m",
        "method": DraftMethod.MTP,
        "num_speculative_tokens": 1,
    },
    "sglang serve --model org/m --speculative-draft-model-path org/h": {"model": "org/m"},
    "./build/bin/llama-server -m a.gguf -c 32768 -np 4 -ngl 99 -ub 256 -b 2048 -ctk q8_0 -ctv q8_0 -fa on": {
        "model": "a.gguf",
        "context_tokens": 8192,
        "batch": 4,
        "max_num_batched_tokens": 256,
        "kv_cache_dtype": "q8_0",
    },
    "llama-server -hf org/m-GGUF:Q4_K_M -c 8192": {
        "model": "org/m-GGUF:Q4_K_M",
        "context_tokens": 8192,
        "batch": 1,
    },
    "llama-server -m a.gguf -md d.gguf --spec-type draft-simple --spec-draft-n-max 8 -c 4096 -np 1": {
        "model": "a.gguf",
        "context_tokens": 4096,
        "batch": 1,
        "method": DRAFT,
        "draft": "d.gguf",
        "num_speculative_tokens": 8,
    },
    # Without --spec-type an ordinary draft is dropped again: engines.md D3.
    "llama-server -m a.gguf -md d.gguf -np 1": {"model": "a.gguf", "batch": 1},
    "llama-server -m a.gguf -ngl 0 -np 1": {"model": "a.gguf", "batch": 1, "on_host": True},
}


@pytest.mark.parametrize("text", [*VLLM, *OTHERS])
def test_a_command_is_read(text: str) -> None:
    reading = read(text)
    assert reading.unknown == ()
    assert said(reading) == {**VLLM, **OTHERS}[text]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("vllm serve m --enable-lora --cpu-offload-gb 10", {"--enable-lora": "more", "--cpu-offload-gb": "less"}),
        ("vllm serve m --cpu-offload-gb 0 --data-parallel-size 1 --load-format auto --no-enable-lora", {}),
        ("vllm serve m --no-enable-chunked-prefill", {"--no-enable-chunked-prefill": "more"}),
        ("vllm serve m --config a.yaml -O3", {"--config": "either", "--optimization-level": "either"}),
        ("vllm serve m -sc.method suffix", {"--speculative-config: method suffix": "more"}),
        ("sglang serve --model m --max-total-tokens 5000", {"--max-total-tokens": "either"}),
        ("llama-server -m a.gguf -ngl 20 -np 1", {"--gpu-layers": "less"}),
        ("llama-server -m a.gguf --mmproj b.gguf -np 1", {"--mmproj": "more"}),
        ("trtllm-serve m --config a.yaml --max_beam_width 1", {"config": "either"}),
        (
            "trtllm-serve m --backend _autodeploy --tp_size 4 --ep_size 2",
            {"backend": "either", "moe_expert_parallel_size": "either"},
        ),
    ],
)
def test_what_moves_memory_and_is_not_planned_is_named(text: str, options: dict[str, str]) -> None:
    text = text.replace("-sc.method", "--speculative-config.method")
    assert {entry.option: entry.effect for entry in read(text).unplanned} == options


@pytest.mark.parametrize(
    ("text", "option", "near", "why"),
    [
        ("vllm serve m --max-modle-len 8192", "--max-modle-len", "--max-model-len", ""),
        ("vllm serve m --swap-space 4", "--swap-space", None, "old releases"),
        ("vllm serve m --speculative-model d", "--speculative-model", None, "--speculative-config"),
        ("vllm serve m --tensor-parallel 2 --tensor-paralel-size 2", "--tensor-paralel-size", None, ""),
        # click takes no shortened names and no dashes for underscores.
        ("trtllm-serve m --max-seq-len 10", "--max-seq-len", "--max_seq_len", ""),
        ("trtllm-serve m --max_seq 10", "--max_seq", None, ""),
        ("trtllm-serve m n", "a word that belongs to no option", None, ""),
        ("vllm serve m stray", "a word that belongs to no option", None, ""),
        ("llama-server -m a.gguf --draft-max 8 -np 1", "--draft-max", None, "--spec-draft-n-max"),
        ("llama-server -m a.gguf -cd 8 -np 1", "-cd", None, "the draft's context"),
        ("sglang serve --model m --cuda-graph-max-bs 8", "--cuda-graph-max-bs", None, "decode"),
        (
            """vllm serve m -sc '{"method": "mtp", "num_speculative_tokens": 1, "disable_by_batch_size": 4}'""",
            "--speculative-config",
            None,
            "0.20",
        ),
    ],
)
def test_an_option_that_is_not_there_is_named(text: str, option: str, near: str | None, why: str) -> None:
    [entry] = read(text).unknown
    assert entry.option.startswith(option)
    assert near is None or near in entry.near
    assert why in entry.why


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m --max-model-len many",
        "vllm serve m --max-model-len 1.5K",
        "vllm serve m --gpu-memory-utilization 1.5",
        "vllm serve m --gpu-memory-utilization nan",
        "vllm serve m --tensor-parallel-size",
        "vllm serve m -tp 0",
        # vLLM asks for the number unless the draft's own config tells it (n_predict).
        """vllm serve m -sc '{"model": "o/d"}'""",
        """vllm serve m -sc '{"method": "ngram", "prompt_lookup_max": 4}'""",
        """vllm serve m -sc '{"method": "mtp"}'""",
        # The server takes the next word for the value.
        "llama-server -m a.gguf -fa --parallel 4",
        "vllm serve m -sc '{}x'",
        """vllm serve m -sc '{"method": "eagle3", "num_speculative_tokens": 3}'""",
        """vllm serve m -tp 4 -sc '{"model":"d","num_speculative_tokens":3,"draft_tensor_parallel_size":2}'""",
        """vllm serve m --spec-model d -sc '{"model": "d", "num_speculative_tokens": 3}'""",
        "sglang serve --model m --speculative-algorithm EAGLE3",
        "llama-server -m a.gguf -c x",
        # No method of vLLM's.
        """vllm serve m -sc '{"method": "eagel", "model": "d", "num_speculative_tokens": 3}'""",
        "trtllm-serve m --max_seq_len",
        "trtllm-serve m --tp_size 0",
        "trtllm-serve m --free_gpu_memory_fraction 90",
        "trtllm-serve disaggregated -c a.yaml",
        "vllm serve 'm",
        "make coffee",
        "",
    ],
)
def test_what_an_engine_would_refuse_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert caught.value.hint


#: From ``human_readable_int``'s docstring in vLLM 0.32.0.
@pytest.mark.parametrize(
    ("text", "value"), [("1k", 1000), ("1K", 1024), ("25.6k", 25_600), ("2m", 2 * 10**6), ("2M", 2**21)]
)
def test_counts_are_read_as_vllm_reads_them(text: str, value: int) -> None:
    assert human(text, "--x") == value


@pytest.mark.parametrize(
    ("engine", "moving", "neutral", "removed"),
    [
        ("vllm", VLLM_MOVING, VLLM_NEUTRAL, VLLM_REMOVED),
        ("sglang", SGLANG_MOVING, SGLANG_NEUTRAL, SGLANG_REMOVED),
        ("llama.cpp", LLAMA_MOVING, LLAMA_NEUTRAL, LLAMA_REMOVED),
    ],
)
def test_the_tables_speak_of_options_that_there_are(
    engine: str, moving: dict[str, str], neutral: dict[str, object], removed: dict[str, object]
) -> None:
    table = options_of(engine)
    assert [name for name in moving if name not in table] == []
    assert [name for name in neutral if name not in moving] == []
    assert [name for name in removed if name in table and table[name].arity != "x"] == []


def test_a_secret_is_kept_nowhere() -> None:
    canary = "sk-canary-1234567890"
    texts = (
        f"HF_TOKEN={canary} vllm serve m --api-key {canary} --hf-token {canary} --hf-overrides {canary}",
        f"docker run -e TOKEN={canary} vllm/vllm-openai --model m --api-key={canary}",
        f"vllm serve m --api-kye {canary} {canary}",
        f"vllm serve m --api-kye={canary} --{canary}{canary}{canary}{canary}",
        f"llama-server -m a.gguf --api-key {canary} -np 1",
        f"sglang serve --model m --api-key {canary} --admin-api-key {canary}",
    )
    for text in texts:
        assert canary not in str(read(text))
    for text in (f"vllm serve m --max-model-len {canary}", f"vllm serve m -sc {canary}"):
        with pytest.raises(UsageError) as caught:
            read(text)
        assert canary not in f"{caught.value} {caught.value.hint}"


WORDS = st.sampled_from(
    [
        *list(VLLM_MOVING)[:12],
        "--model",
        "-sc",
        "--speculative-config.a.b",
        "-tp",
        "--max-model-len",
        "1k",
        "{",
        "=",
    ]
)


@pytest.mark.parametrize(
    ("moving", "neutral", "other"),
    [
        (TENSORRT_MOVING, TENSORRT_NEUTRAL, TENSORRT_OTHER),
        (CACHE_MOVING, CACHE_NEUTRAL, CACHE_OTHER),
        (SPECULATION_MOVING, SPECULATION_NEUTRAL, SPECULATION_OTHER),
    ],
)
def test_a_key_is_in_one_table(moving: dict[str, str], neutral: dict[str, object], other: set[str]) -> None:
    assert set(neutral) <= set(moving)
    assert set(moving) & set(other) == set()


@given(
    st.sampled_from(
        ["vllm serve ", "trtllm-serve ", "sglang serve ", "llama-server ", "docker run ", "env A=1 ", ""]
    ),
    st.one_of(st.text(max_size=80), st.lists(st.one_of(WORDS, st.text(max_size=12)), max_size=8).map(" ".join)),
)
def test_any_text_is_read_or_refused(start: str, text: str) -> None:
    try:
        read(start + text)
    except UsageError as refusal:
        assert refusal.message


# --- what we write is read back


def plan_of(engine: Any, draft: Draft | None, work: dict[str, Any]) -> Plan:  # noqa: ANN401 - any profile
    workload = replace(Workload(), **work)
    target = model_of(llama(), "made/target")
    alone = Serving(target=target, draft=None, workload=workload)
    cards = [device(80 * GIB)] * (workload.tp * workload.pp)
    plan = make_plan(alone, cards, engine)
    return replace(plan, serving=replace(alone, draft=draft))


PAIRS = (
    None,
    Draft(method=DRAFT, num_speculative_tokens=4, model=model_of(llama(num_hidden_layers=1), "made/draft")),
    Draft(method=DraftMethod.EAGLE3, num_speculative_tokens=3, model=model_of(llama(), "made/head")),
    Draft(method=DraftMethod.NGRAM, num_speculative_tokens=5),
    Draft(method=DraftMethod.MTP, num_speculative_tokens=2),
)
WORKS: tuple[dict[str, Any], ...] = (
    {},
    {"tp": 2, "pp": 1, "context_tokens": 1000, "kv_cache_dtype": "fp8_e4m3", "enforce_eager": True},
    {"gpu_memory_utilization": 0.7, "max_num_seqs": 33, "max_num_batched_tokens": 4096, "block_size": 32},
    {"dtype": "bfloat16", "context_tokens": 512},
)


def name_of(draft: Draft | None) -> str:
    return draft.method.value if draft else "alone"


def same_draft(found: CommandSettings, draft: Draft | None) -> None:
    assert found.method is (None if draft is None else draft.method)
    if draft is not None:
        assert found.num_speculative_tokens == draft.num_speculative_tokens
        assert found.draft == (None if draft.model is None else draft.model.snapshot.repo_id)


@pytest.mark.parametrize("draft", PAIRS, ids=name_of)
@pytest.mark.parametrize("work", WORKS)
def test_vllm_commands_of_ours_are_read_back(draft: Draft | None, work: dict[str, Any]) -> None:
    plan = plan_of(VllmProfile(), draft, {**work, "async_scheduling": False})
    command = vllm_command(plan, version="0.33.0")
    reading = read(command.text)
    found, asked = reading.settings, plan.serving.workload
    assert (reading.unknown, reading.unplanned, reading.ignored) == ((), (), ())
    same_draft(found, draft)
    assert found.model == "made/target"
    assert found.context_tokens == asked.context_tokens
    assert (found.tp or 1, found.pp or 1, found.enforce_eager) == (asked.tp, asked.pp, asked.enforce_eager)
    assert found.gpu_memory_utilization in {plan.gpu_memory_utilization, None}
    assert found.max_num_seqs == asked.max_num_seqs
    assert found.max_num_batched_tokens == asked.max_num_batched_tokens
    assert (found.block_size, found.async_scheduling) == (asked.block_size, False)
    assert (found.kv_cache_dtype or "auto", found.dtype or "auto") == (asked.kv_cache_dtype, asked.dtype)


@pytest.mark.parametrize("draft", PAIRS, ids=name_of)
@pytest.mark.parametrize("work", WORKS)
def test_sglang_commands_of_ours_are_read_back(draft: Draft | None, work: dict[str, Any]) -> None:
    plan = plan_of(SglangProfile(), draft, work)
    reading = read(sglang_command(plan).text)
    found, asked = reading.settings, plan.serving.workload
    assert (reading.unknown, reading.unplanned, reading.ignored) == ((), (), ())
    same_draft(found, draft)
    assert (found.context_tokens, found.tp or 1) == (asked.context_tokens, asked.tp)
    assert found.gpu_memory_utilization == pytest.approx(plan.gpu_memory_utilization, abs=0.0005)
    assert found.max_num_batched_tokens == asked.max_num_batched_tokens
    assert (found.block_size, found.enforce_eager) == (asked.block_size, asked.enforce_eager)
    assert (found.kv_cache_dtype or "auto") == asked.kv_cache_dtype


@pytest.mark.parametrize(
    "draft", PAIRS[:2] + PAIRS[3:], ids=lambda draft: draft.method.value if draft else "alone"
)
@pytest.mark.parametrize("work", [{}, {"batch": 4, "context_tokens": 1024}, {"kv_cache_dtype": "q8_0"}])
def test_llama_cpp_commands_of_ours_are_read_back(draft: Draft | None, work: dict[str, Any]) -> None:
    plan = plan_of(LlamaCppProfile(), draft, work)
    reading = read(llama_cpp_command(plan).text)
    found, asked = reading.settings, plan.serving.workload
    assert (reading.unknown, reading.unplanned) == ((), ())
    assert found.method is (None if draft is None else draft.method)
    assert (found.context_tokens, found.batch) == (asked.context_tokens, asked.batch)
    assert (found.model, found.kv_cache_dtype or "auto") == ("TARGET.gguf", asked.kv_cache_dtype)
    assert draft is None or found.num_speculative_tokens == draft.num_speculative_tokens
