"""The YAML files that engines read beside a command: read as the engine reads them, and as untrusted text."""

import sys
from dataclasses import fields
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from test_read_commands import PAIRS, WORKS, name_of, plan_of, same_draft

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from planner.commands.reading.config_file import read_config, with_config
from planner.commands.reading.read_sglang import read_sglang
from planner.commands.reading.read_tensorrt_llm import read_tensorrt_llm
from planner.commands.reading.read_vllm import read_vllm
from planner.commands.reading.records import CommandSettings
from planner.commands.tensorrt_llm import tensorrt_llm_command
from planner.engines.base import Draft
from planner.engines.tensorrt_llm import TensorRtLlmProfile


def said(settings: CommandSettings) -> dict[str, Any]:
    empty = CommandSettings(engine=settings.engine)
    pairs = ((field.name, getattr(settings, field.name)) for field in fields(empty))
    return {name: value for name, value in pairs if value != getattr(empty, name)}


# Expected from vLLM 0.32.0, `load_config_file`, `_pull_args_from_config`: the command line goes before the file.
@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        (("org/m",), "port: 80\ntensor-parallel-size: 4\n", {"model": "org/m", "tp": 4}),
        (("org/m", "-tp", "2"), "tensor_parallel_size: 4\n", {"model": "org/m", "tp": 2}),
        (
            ("org/m", "--config", "c.yaml", "-tp", "2"),
            "enforce-eager: true",
            {"model": "org/m", "tp": 2, "e": True},
        ),
        (
            ("--config=c.yaml",),
            "model: org/other\nmax-model-len: 16k\n",
            {"model": "org/other", "context": 16_000},
        ),
        (("org/m",), "model: org/other\n", {"model": "org/m"}),
        (("org/m",), "enforce-eager: false\nasync-scheduling: false\n", {"model": "org/m", "a": False}),
        # A list does not swallow the model.
        (("org/m",), "lora-modules: [a=b, c=d]\n", {"model": "org/m"}),
        (
            ("org/m",),
            "speculative-config:\n  model: org/d\n  num_speculative_tokens: 3\n",
            {"model": "org/m", "method": DraftMethod.DRAFT_MODEL, "draft": "org/d", "k": 3},
        ),
        (("org/m",), "", {"model": "org/m"}),
    ],
)
def test_vllm_reads_its_file_as_options(words: tuple[str, ...], text: str, expected: dict[str, Any]) -> None:
    short = {
        "e": "enforce_eager",
        "a": "async_scheduling",
        "k": "num_speculative_tokens",
        "context": "context_tokens",
    }
    reading = read_vllm(with_config("vllm", words, read_config(text)))
    assert reading.unknown == ()
    assert said(reading.settings) == {short.get(key, key): value for key, value in expected.items()}
    assert not any(entry.option == "--config" for entry in reading.unplanned)


def test_sglang_reads_its_file_as_options() -> None:
    config = read_config("model-path: org/m\ntp-size: 2\ndisable-cuda-graph: true\nmem-fraction-static: 0.8\n")
    reading = read_sglang(with_config("sglang", ("--config", "c.yaml", "--mem-fraction-static", "0.7"), config))
    assert reading.unknown == ()
    assert said(reading.settings) == {
        "model": "org/m",
        "tp": 2,
        "enforce_eager": True,
        "gpu_memory_utilization": 0.7,
    }


def test_a_key_that_is_no_option_is_named() -> None:
    reading = read_vllm(with_config("vllm", ("org/m",), read_config("max-modle-len: 8192\n")))
    assert [(entry.option, entry.near[0]) for entry in reading.unknown] == [("--max-modle-len", "--max-model-len")]


# Expected from TensorRT-LLM's llm_args.py at 00043967 and its documentation of speculative decoding.
TENSORRT: dict[str, dict[str, Any]] = {
    "kv_cache_config:\n  free_gpu_memory_fraction: 0.8\n  dtype: fp8\n  tokens_per_block: 64\n": {
        "gpu_memory_utilization": 0.8,
        "kv_cache_dtype": "fp8",
        "block_size": 64,
    },
    "kv_cache_config:\n  enable_block_reuse: false\nprint_iter_log: true\n": {},
    "cuda_graph_config: null\n": {"enforce_eager": True},
    "max_seq_len: 8192\nmax_batch_size: 16\nmax_num_tokens: 4096\n": {
        "context_tokens": 8192,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 4096,
    },
    "speculative_config:\n  decoding_type: Draft_Target\n  max_draft_len: 4\n  speculative_model: org/d\n": {
        "method": DraftMethod.DRAFT_MODEL,
        "draft": "org/d",
        "num_speculative_tokens": 4,
    },
    "speculative_config:\n  decoding_type: Eagle\n  max_draft_len: 3\n  speculative_model_dir: org/h\n": {
        "method": DraftMethod.EAGLE3,
        "draft": "org/h",
        "num_speculative_tokens": 3,
    },
    "speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 2, max_concurrency: 8}\n": {
        "method": DraftMethod.MTP,
        "num_speculative_tokens": 2,
    },
    "speculative_config: {decoding_type: MTP}\n": {"method": DraftMethod.MTP},
    "speculative_config: {decoding_type: NGram, max_draft_len: 5, max_matching_ngram_size: 3}\n": {
        "method": DraftMethod.NGRAM,
        "num_speculative_tokens": 5,
    },
    "": {},
}


@pytest.mark.parametrize("text", TENSORRT)
def test_tensorrt_llms_file_is_read(text: str) -> None:
    reading = read_tensorrt_llm(("org/m", "--config", "c.yaml"), read_config(text))
    assert reading.unknown == ()
    assert reading.unplanned == ()
    assert said(reading.settings) == {"model": "org/m", **TENSORRT[text]}


def test_tensorrt_llms_file_goes_before_the_command() -> None:
    reading = read_tensorrt_llm(("org/m", "--max_seq_len", "100", "--tp_size", "2"), {"max_seq_len": 200})
    assert (reading.settings.context_tokens, reading.settings.tp) == (200, 2)
    assert [remark.code for remark in reading.remarks] == ["overruled"]
    assert "max_seq_len" in reading.remarks[0].text


@pytest.mark.parametrize(
    ("config", "unplanned", "unknown"),
    [
        ({"enable_lora": True, "enable_attention_dp": False}, {"enable_lora": "more"}, []),
        ({"kv_cache_config": {"max_tokens": 1000}}, {"kv_cache_config.max_tokens": "either"}, []),
        ({"kv_cache_config": {"max_tokens": None}}, {}, []),
        ({"cuda_graph_config": {"max_batch_size": 8}}, {"cuda_graph_config": "either"}, []),
        (
            {"speculative_config": {"decoding_type": "SA", "max_draft_len": 4}},
            {"speculative_config: SA": "more"},
            [],
        ),
        ({"kv_cache_config": {"free_gpu_mem_fraction": 0.8}}, {}, ["kv_cache_config.free_gpu_mem_fraction"]),
        ({"max_seq_length": 10}, {}, ["max_seq_length"]),
    ],
)
def test_what_is_not_planned_or_not_there_is_named(
    config: dict[str, Any], unplanned: dict[str, str], unknown: list[str]
) -> None:
    reading = read_tensorrt_llm(("org/m",), config)
    assert {entry.option: entry.effect for entry in reading.unplanned} == unplanned
    assert [entry.option for entry in reading.unknown] == unknown
    assert all(entry.near for entry in reading.unknown)


@pytest.mark.parametrize(
    "config",
    [
        {"max_seq_len": True},
        {"max_seq_len": -5},
        {"max_seq_len": [1]},
        {"kv_cache_config": [1]},
        {"kv_cache_config": {"free_gpu_memory_fraction": 9}},
        {"speculative_config": {"max_draft_len": 4}},
        {"speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 4}},
        {"speculative_config": {"decoding_type": "Draft_Target", "speculative_model": "org/d"}},
        {"speculative_config": {"decoding_type": 5}},
    ],
)
def test_what_tensorrt_llm_would_refuse_is_a_usage_error(config: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        read_tensorrt_llm(("org/m",), config)
    assert caught.value.hint


@pytest.mark.parametrize("draft", PAIRS, ids=name_of)
@pytest.mark.parametrize("work", WORKS)
def test_tensorrt_llm_commands_of_ours_are_read_back(draft: Draft | None, work: dict[str, Any]) -> None:
    work = {**work, "kv_cache_dtype": work.get("kv_cache_dtype", "auto").removesuffix("_e4m3")}
    plan = plan_of(TensorRtLlmProfile(), draft, work)
    command = tensorrt_llm_command(plan)
    config = read_config(dict(command.files)["specplan-tensorrt-llm.yaml"]) if command.files else None
    reading = read_tensorrt_llm(tuple(command.argv[1:]), config)
    found, asked = reading.settings, plan.serving.workload
    slight = {entry.option for entry in reading.unplanned if entry.effect == "slight"}
    assert (reading.unknown, slight) == ((), {entry.option for entry in reading.unplanned})
    same_draft(found, draft)
    assert (found.model, found.context_tokens, found.tp or 1) == ("made/target", asked.context_tokens, asked.tp)
    assert found.gpu_memory_utilization == pytest.approx(plan.gpu_memory_utilization, abs=0.0005)
    assert (found.kv_cache_dtype or "auto", found.block_size) == (asked.kv_cache_dtype, asked.block_size)
    assert (found.max_num_seqs, found.enforce_eager) == (asked.max_num_seqs, asked.enforce_eager)
    assert found.max_num_batched_tokens == asked.max_num_batched_tokens


@pytest.mark.parametrize(
    "text",
    [
        "- a\n- b\n",
        "5",
        "a: [1, 2",
        "1: 2\n",
        "a: &x 1\nb: *x\n",
        "a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n",
        "a: !!python/object/apply:os.system ['true']\n",
        "a: " + "[" * 20 + "]" * 20,
        "a: " + "[" * 5000,
        "a: [" + "1, " * 3000 + "1]\n",
        "a" * 70_000,
        "\x00",
        "a: 2001-99-99\n",
    ],
)
def test_a_file_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_config(text)
    assert caught.value.hint
    assert sys.getrecursionlimit() >= 1000


@given(st.text(max_size=60))
def test_any_text_is_a_mapping_or_refused(text: str) -> None:
    try:
        config = read_config(text)
    except UsageError as refusal:
        assert refusal.message
        return
    assert (yaml.safe_load(text) or {}) == config
    for read in (read_tensorrt_llm, lambda words, found: read_vllm(with_config("vllm", words, found))):
        try:
            read(("org/m",), config)
        except UsageError as refusal:
            assert refusal.message
