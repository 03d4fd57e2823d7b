"""What vLLM says of itself: lines that releases from 0.7 to 0.32 printed, each with the thread that quotes it."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog.units import GIB
from planner.trial.serving.log import (
    EngineLog,
    failure_code,
    is_second_hand,
    one_sentence,
    read_engine_log,
    root_cause,
)

#: vllm-project/vllm#28228, two ranks.
KIMI = """
(Worker_TP0 pid=26347) INFO 11-06 10:51:48 [gpu_worker.py:349] Available KV cache memory: 2.30 GiB
(EngineCore_DP0 pid=26283) WARNING 11-06 10:51:48 [kv_cache_utils.py:979] Add 1 padding layers, may waste at most 5%
(EngineCore_DP0 pid=26283) INFO 11-06 10:51:48 [kv_cache_utils.py:1229] GPU KV cache size: 75,840 tokens
(EngineCore_DP0 pid=26283) INFO 11-06 10:51:48 [kv_cache_utils.py:1234] Maximum concurrency for 120,000 tokens per request: 2.48x
(EngineCore_DP0 pid=26283) INFO 11-06 10:51:48 [kv_cache_utils.py:1234] Maximum concurrency for 120,000 tokens per request: 2.48x
"""  # noqa: E501 - as printed
#: aivrar/vllm-windows-build#4, vLLM of May 2026.
WINDOWS = """
INFO 05-26 21:34:12 [kv_cache_utils.py:1710] GPU KV cache size: 396,928 tokens
INFO 05-26 21:34:12 [kv_cache_utils.py:1711] Maximum concurrency for 131,072 tokens per request: 3.03x
Capturing CUDA graphs (decode, FULL): 100%|##########| 11/11 [00:00<00:00, 29.99it/s]
INFO 05-26 21:34:14 [gpu_model_runner.py:6243] Graph capturing finished in 2 secs, took 0.11 GiB
INFO 05-26 21:34:14 [gpu_worker.py:621] CUDA graph pool memory: 0.11 GiB (actual), 0.14 GiB (estimated), difference: 0.03 GiB (25.0%).
"""  # noqa: E501 - as printed
#: vllm-project/vllm#12569, V1 of January 2025: "GB" for GiB.
JANUARY = """
INFO 01-30 03:18:12 gpu_model_runner.py:848] Loading model weights took 67.7229 GB
INFO 01-30 03:19:14 kv_cache_utils.py:395] # GPU blocks: 1381
INFO 01-30 03:19:14 kv_cache_utils.py:398] Maximum concurrency for 2048 tokens per request: 10.79x
"""
#: kubernetes-sigs/gateway-api-inference-extension#550, the V0 engine.
V0 = (
    "INFO 03-21 20:15:45 [worker.py:267] model weights take 12.55GiB; non_torch_memory takes 0.16GiB; PyTorch "
    "activation peak memory takes 2.38GiB; the rest of the memory reserved for KV Cache is 56.18GiB."
)
#: vLLM 0.32.0 on a CPU, started by hand.
ON_A_CPU = (
    "\x1b[0;36m(MainProcess pid=5298)\x1b[0;0m INFO 11-30 00:50:08 [core.py:133] Initializing a V1 LLM engine "
    "(v0.32.0) with config: model='x', speculative_config=SpeculativeConfig(method='draft_model')\n"
    "INFO 11-30 00:50:10 [cpu_worker.py:260] Explicitly set (1.0/10.59) GiB for KV cache on node 0.\n"
    "INFO 11-30 00:50:10 [kv_cache_utils.py:2327] CPU KV cache size: 41,856 tokens, Maximum concurrency for "
    "512 tokens per request: 81.75x\n"
)
#: The format strings of 0.32.0's ``gpu_worker.py``, filled in; weights of two ranks.
NEWEST = """
(Worker_TP0 pid=1) INFO [model_runner.py:425] Model loading took 33.31 GiB memory and 40.100000 seconds
(Worker_TP1 pid=2) INFO [model_runner.py:425] Model loading took 33.29 GiB memory and 40.200000 seconds
INFO [gpu_model_runner.py:6475] Estimated CUDA graph memory: 1.25 GiB total
INFO [gpu_worker.py:760] Available KV cache memory: 30.5 GiB
(Worker_TP1 pid=2) INFO [gpu_worker.py:760] Available KV cache memory: 30.25 GiB
INFO [gpu_worker.py:1015] Free memory on device (78.5/79.18 GiB) on startup. Desired GPU memory utilization is (0.92, 72.84 GiB). Actual usage is 34.5 GiB for consumed memory (weights + non-torch), 2.75 GiB for peak activation, and 1.5 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=1` (0.0 GiB) to fit
"""  # noqa: E501 - as printed
PINNED = (
    "INFO [gpu_worker.py:669] Initial free memory 78.5 GiB, reserved 20.0 GiB memory for KV Cache as specified by "
    "kv_cache_memory_bytes config and skipped memory profiling."
)


def gib(value: float) -> int:
    return round(value * GIB)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            KIMI,
            {
                "kv_cache_bytes": gib(2.30),
                "kv_cache_tokens": 75_840,
                "max_concurrency": 2.48,
                "max_model_len": 120_000,
            },
        ),
        (
            WINDOWS,
            {
                "kv_cache_tokens": 396_928,
                "max_concurrency": 3.03,
                "max_model_len": 131_072,
                "cuda_graph_bytes": gib(0.11),
            },
        ),
        (JANUARY, {"weights_bytes": gib(67.7229), "max_concurrency": 10.79, "max_model_len": 2048}),
        (V0, {"weights_bytes": gib(12.55), "kv_cache_bytes": gib(56.18), "activation_bytes": gib(2.38)}),
        (
            ON_A_CPU,
            {
                "version": "0.32.0",
                "kv_cache_bytes": GIB,
                "kv_cache_tokens": 41_856,
                "max_concurrency": 81.75,
                "max_model_len": 512,
            },
        ),
        (
            NEWEST,
            {
                "weights_bytes": gib(33.31),
                "kv_cache_bytes": gib(30.25),
                "cuda_graph_estimate_bytes": gib(1.25),
                "consumed_bytes": gib(34.5),
                "activation_bytes": gib(2.75),
            },
        ),
        (PINNED, {"kv_cache_bytes": 20 * GIB}),
        ("Model loading took 0.2389 GiB and 0.978913 seconds", {"weights_bytes": gib(0.2389)}),  # vllm#25837
        # vllm#12529
        (
            "Initializing a V0 LLM engine (v0.7.4.dev390+gdebd6bbf) with config:",
            {"version": "0.7.4.dev390+gdebd6bbf"},
        ),
        ("", {}),
    ],
    ids=["Kimi", "Windows", "January 2025", "V0", "CPU", "0.32", "pinned", "no memory word", "a build", "nothing"],
)
def test_what_the_lines_say(text: str, expected: dict[str, object]) -> None:
    told = {name: value for name, value in asdict(read_engine_log(text)).items() if value is not None}
    assert told == expected


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    read_engine_log(text)
    root_cause(text)
    one_sentence(text)


@given(st.text(alphabet="0123456789,.Kx GiB"))
def test_no_figure_makes_it_fail(figure: str) -> None:
    log = read_engine_log(
        f"Model loading took {figure} GiB\nGPU KV cache size: {figure} tokens\n"
        f"Available KV cache memory: {figure} GiB\n"
        f"Maximum concurrency for {figure} tokens per request: {figure}x\n"
    )
    assert all(value is None or value >= 0 for value in (log.weights_bytes, log.kv_cache_tokens))


def test_a_flood_is_cut() -> None:
    flood = "x" * (5 << 20)
    assert read_engine_log(flood + KIMI) == EngineLog()


@pytest.mark.parametrize(
    ("kind", "text", "code"),
    [
        ("ValueError", "No available memory for the cache blocks. Try increasing", "out_of_memory"),
        (
            "ValueError",
            "4.0 GiB KV cache is needed, which is larger than the available KV cache memory (2.0",
            "out_of_memory",
        ),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 MiB.", "out_of_memory"),
        (
            "ValueError",
            "Free memory on device (1/79 GiB) on startup is less than desired GPU memory utilization",
            "out_of_memory",
        ),
        ("RuntimeError", "Cannot find any model weights with `/x`", "weights"),
        ("SafetensorError", "Error while deserializing header: invalid JSON", "weights"),
        ("ModuleNotFoundError", "No module named 'vllm'", "missing_import"),
        ("ValidationError", "1 validation error for SpeculativeConfig", "engine_refused"),
        ("VLLMValidationError", "This model's maximum context length is 96 tokens.", "engine_refused"),
        ("RuntimeError", "the device is on fire", "failed"),
    ],
)
def test_an_engines_word_has_a_code(kind: str, text: str, code: str) -> None:
    assert failure_code(kind, text) == code


def test_the_root_cause_stands_above_what_the_parent_says() -> None:
    """As 0.32.0 prints it: the child's error, then the parent's about the child."""
    log = (
        "(EngineCore pid=7) ERROR [core.py:1] ValueError: No available memory for the cache blocks.\n"
        "Traceback (most recent call last):\n"
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    )
    assert root_cause(log) == ("ValueError", "No available memory for the cache blocks.")
    assert is_second_hand("Engine core initialization failed. See root cause above.")
    assert root_cause("all is well") is None


def test_a_refusal_is_told_on_one_line() -> None:
    text = (
        "1 validation error for ModelConfig\n  Value error, too long (9 > 8)\n"
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error"
    )
    assert one_sentence(text) == "Value error, too long (9 > 8)"
