"""What start-up lines say of the settings: lines that releases printed, each with the thread that quotes it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.logs.literals import flag, inside, read_pairs, scalar, share, whole, words
from planner.logs.readings import read_log
from planner.logs.settings import LogSettings

#: vllm-project/speculators#166, cut behind what is read.
EAGLE3 = (
    "(EngineCore_DP0 pid=774560) INFO 10-30 14:20:52 [core.py:93] Initializing a V1 LLM engine "
    "(v0.10.1.dev2081+gc44ef9fc0.d20250930) with config: model='meta-llama/Meta-Llama-3.1-8B-Instruct', "
    "speculative_config=SpeculativeConfig(method='eagle3', model='/scratch/eagle3-unconverted', "
    "num_spec_tokens=3), tokenizer='meta-llama/Meta-Llama-3.1-8B-Instruct', skip_tokenizer_init=False, "
    "tokenizer_mode=auto, revision=None, tokenizer_revision=None, trust_remote_code=False, dtype=torch.bfloat16, "
    "max_seq_len=1024, download_dir=None, load_format=auto, tensor_parallel_size=1, pipeline_parallel_size=1, "
    "data_parallel_size=1, disable_custom_all_reduce=False, quantization=None, enforce_eager=False, "
    "kv_cache_dtype=auto, device_config=cuda, structured_outputs_config=StructuredOutputsConfig(backend='auto', "
    "disable_fallback=False, reasoning_parser=''), seed=0\n"
)
#: vllm-project/vllm#49011.
MTP = (
    "(EngineCore pid=7476) INFO 07-25 13:41:51 [core.py:114] Initializing a V1 LLM engine (v0.25.1) with config: "
    "model='unsloth/Qwen3.6-27B-NVFP4', speculative_config=SpeculativeConfig(method='mtp', "
    "model='unsloth/Qwen3.6-27B-NVFP4', num_spec_tokens=2), tokenizer='unsloth/Qwen3.6-27B-NVFP4', "
    "dtype=torch.bfloat16, max_seq_len=1048576, load_format=fastsafetensors, tensor_parallel_size=1, "
    "pipeline_parallel_size=1, quantization=compressed-tensors, quantization_config=None, enforce_eager=False, "
    "kv_cache_dtype=nvfp4, device_config=cuda\n"
)
#: vllm-project/vllm#12529.
V0 = (
    "INFO 03-12 14:55:27 [llm_engine.py:235] Initializing a V0 LLM engine (v0.7.4.dev390+gdebd6bbf) with config: "
    "model='models/llama3.1-8B-INT8', speculative_config=None, tokenizer='models/llama3.1-8B-INT8', "
    "dtype=torch.bfloat16, max_seq_len=65536, load_format=LoadFormat.AUTO, tensor_parallel_size=1, "
    "pipeline_parallel_size=1, quantization=compressed-tensors, enforce_eager=False, kv_cache_dtype=auto, "
    'compilation_config={"splitting_ops":[],"cudagraph_capture_sizes":[256,248]}\n'
)
#: A server of 0.19.2 in a container, as found in public.
ARGUMENTS = (
    "2026-04-19 12:18:36.356 | (APIServer pid=1) INFO 04-19 10:18:36 [utils.py:233] non-default args: "
    "{'model_tag': "
    "'RedHatAI/Qwen3.6-35B-A3B-NVFP4', 'tool_call_parser': 'qwen3_coder', 'host': '0.0.0.0', 'model': "
    "'RedHatAI/Qwen3.6-35B-A3B-NVFP4', 'trust_remote_code': True, 'max_model_len': 8192, 'quantization': "
    "'compressed-tensors', 'served_model_name': ['RedHatAI/Qwen3.6-35B-A3B-NVFP4'], "
    "'gpu_memory_utilization': 0.8, 'kv_cache_dtype': 'fp8_e4m3', 'max_num_batched_tokens': 8192, "
    "'max_num_seqs': 32, 'enable_chunked_prefill': "
    "True}\n"
)
#: vllm-project/vllm issue quoted with LoRA modules: values that are no literals stand between those that are.
LORA = (
    "(APIServer pid=5) INFO 03-02 11:00:22 [utils.py:253] non-default args: {'model_tag': 'unsloth/Qwen2.5-32B', "
    "'lora_modules': [LoRAModulePath(name='org/risky, really', path='p', base_model_name=None)], 'model': "
    "'unsloth/Qwen2.5-32B', 'max_model_len': 8192, 'enable_lora': True, 'max_lora_rank': 32}\n"
)
#: sgl-project/sglang#12726, shortened.
SGLANG = (
    "[2025-11-06 01:22:00] server_args=ServerArgs(model_path='/shared/Qwen/Qwen3-4B/1cfa9a72/', "
    "tokenizer_path='/shared/Qwen/Qwen3-4B/1cfa9a72/', load_format='auto', model_loader_extra_config='{}', "
    "context_length=None, dtype='auto', quantization=None, kv_cache_dtype='auto', mem_fraction_static=0.835, "
    "max_running_requests=48, max_queued_requests=None, chunked_prefill_size=8192, tp_size=1, pp_size=1, "
    "speculative_algorithm='NGRAM', speculative_draft_model_path=None, speculative_num_steps=3)\n"
)


def said(text: str, *names: str) -> tuple[object, ...]:
    settings = read_log(text).settings
    return tuple(getattr(settings, name) for name in names)


def test_a_speculating_engine_names_method_draft_and_k() -> None:
    names = (
        "version",
        "model",
        "draft_method",
        "draft_model",
        "num_speculative_tokens",
        "context_tokens",
    )
    assert said(EAGLE3, "dtype") == ("bfloat16",)
    assert said(EAGLE3, *names) == (
        "0.10.1.dev2081+gc44ef9fc0.d20250930",
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "eagle3",
        "/scratch/eagle3-unconverted",
        3,
        1024,
    )


def test_layers_of_the_target_draft_and_the_cache_is_four_bits() -> None:
    names = (
        "version",
        "draft_method",
        "num_speculative_tokens",
        "context_tokens",
        "quantization",
        "kv_cache_dtype",
    )
    assert said(MTP, *names) == ("0.25.1", "mtp", 2, 1_048_576, "compressed-tensors", "nvfp4")


def test_the_old_engine_says_as_much() -> None:
    names = ("version", "model", "context_tokens", "tp", "pp", "draft_method", "enforce_eager")
    assert said(V0, *names) == ("0.7.4.dev390+gdebd6bbf", "models/llama3.1-8B-INT8", 65_536, 1, 1, None, False)


def test_arguments_say_what_was_asked_and_the_rest_is_default() -> None:
    names = ("model", "gpu_memory_utilization", "kv_cache_dtype", "max_num_batched_tokens", "max_num_seqs", "tp")
    assert said(ARGUMENTS, *names) == ("RedHatAI/Qwen3.6-35B-A3B-NVFP4", 0.8, "fp8_e4m3", 8192, 32, 1)


def test_values_that_are_no_literals_do_not_hide_those_that_are() -> None:
    assert said(LORA, "model", "context_tokens", "unplanned") == ("unsloth/Qwen2.5-32B", 8192, ("enable_lora",))


def test_sglang_says_it_in_one_line() -> None:
    names = ("engine", "model", "gpu_memory_utilization", "max_num_seqs", "tp", "draft_method")
    assert said(SGLANG, *names) == ("sglang", "/shared/Qwen/Qwen3-4B/1cfa9a72/", 0.835, 48, 1, "ngram")


def test_the_banner_alone_tells_the_release() -> None:
    banner = "(APIServer pid=1) INFO 04-22 00:13:55 [utils.py:299]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.19.0\n"
    assert said(banner, "engine", "version", "asked") == ("vllm", "0.19.0", False)


def test_of_several_starts_the_last_is_told() -> None:
    later = ARGUMENTS.replace("'max_num_seqs': 32", "'max_num_seqs': 64")
    log = read_log(ARGUMENTS + "Model loading took 9.0 GiB memory\n" + later)
    assert (log.starts, log.settings.max_num_seqs, log.readings.weights_bytes) == (2, 64, None)


def test_a_card_and_its_driver_are_read_where_they_are_pasted() -> None:
    """vLLM's collect_env.py prints both; two different cards are none."""
    pasted = "GPU models and configuration: \nGPU 0: NVIDIA H100 80GB HBM3\nNvidia driver version: 550.54.15\n"
    assert said(pasted + ARGUMENTS, "gpu_name", "driver") == ("NVIDIA H100 80GB HBM3", "550.54.15")
    two = "GPU 0: NVIDIA L4\nGPU 1: NVIDIA A10\n"
    assert said(two + ARGUMENTS, "gpu_name") == (None,)


@pytest.mark.parametrize(
    "line",
    [
        "non-default args: {'tensor_parallel_size': 99999999, 'model': 'a/b'}",
        "non-default args: {'tensor_parallel_size': -1, 'model': 'a/b'}",
        "non-default args: {'tensor_parallel_size': True, 'model': 'a/b'}",
        "non-default args: {'tensor_parallel_size': '__import__(\"os\").system(\"x\")', 'model': 'a/b'}",
    ],
)
def test_a_degree_that_is_none_is_not_said(line: str) -> None:
    assert said(line, "tp", "model") == (None, "a/b")


def test_braces_that_never_close_hide_only_what_is_behind_them() -> None:
    assert said("non-default args: {'model': 'a/b', 'x': {{{{[, 'max_num_seqs': 4}", "model", "max_num_seqs") == (
        "a/b",
        None,
    )
    assert read_log("non-default args: {{{{{{{{").ignored_lines == 1


def test_a_long_line_is_left_out_and_counted() -> None:
    log = read_log("x" * (1 << 20) + "\n" + ARGUMENTS)
    assert (log.ignored_lines, log.settings.max_num_seqs) == (1, 32)


@given(st.text())
@example("non-default args: {'a': '\\")
@example("server_args=ServerArgs(model_path=")
@example("LLM engine (v1) with config: model=")
def test_no_text_makes_it_fail(text: str) -> None:
    read_log(text)
    read_log(f"non-default args: {{{text}")
    read_log(f"Initializing a V1 LLM engine (v0.19.0) with config: {text}")
    read_log(f"server_args=ServerArgs({text})")


@given(st.text(alphabet="{}[]()'\"\\,:= a1.\n"), st.sampled_from(["=", ":"]))
def test_no_mixture_of_brackets_makes_it_fail(text: str, separator: str) -> None:
    pairs = read_pairs(text, 0, "=" if separator == "=" else ":")
    for raw in pairs.values():
        scalar(raw), whole(raw, most=10), words(raw), flag(raw), share(raw), inside(raw, ":")


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.one_of(st.integers(0, 999), st.booleans()))
)
def test_what_python_prints_is_read_back(values: dict[str, object]) -> None:
    printed = repr(values)
    read = {name: scalar(raw) for name, raw in read_pairs(printed, 1, ":").items()}
    assert read == values
    called = ", ".join(f"{name}={value!r}" for name, value in values.items())
    assert {name: scalar(raw) for name, raw in read_pairs(called, 0, "=").items()} == values


def test_nothing_is_said_of_nothing() -> None:
    assert read_log("").settings == LogSettings()
