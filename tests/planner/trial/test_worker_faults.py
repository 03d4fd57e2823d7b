"""Faults of the child, each from a real child process: one error event, with a code that says what it was."""

import importlib.util
import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from planner.errors import TrialError
from planner.trial.protocol import Event, TrialRequest
from planner.trial.runner import Deadlines, Outcome, run_trial

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "accelerate")):
    pytest.skip("the trial's libraries are not installed: pip install 'specplan[trial]'", allow_module_level=True)

#: A child that differs from the real one by what is put in before its main is called.
WRAPPER = """
import sys
from planner.trial.worker.__main__ import main
{body}
sys.exit(main(int(sys.argv[1])))
"""
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


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole folder: one-layer Llama and a tokenizer of one token a byte."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("model")
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=letters, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    transformers.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=len(letters),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def copy_of(folder: Path, root: Path) -> Path:
    root.mkdir()
    for file in folder.iterdir():
        (root / file.name).write_bytes(file.read_bytes())
    return root


def request(target: Path, draft: Path | None = None, **given: Any) -> TrialRequest:
    given = {"num_speculative_tokens": 2, "new_tokens": 24, "seconds": 1.0, "threads": 1, **given}
    return TrialRequest(target_folder=str(target), draft_folder=str(draft or target), **given)


def run(asked: TrialRequest, body: str | None = None) -> tuple[Outcome | None, TrialError | None, Sequence[Event]]:
    """One trial in a real child, with ``body`` put in before its main."""
    command = None if body is None else [sys.executable, "-c", WRAPPER.format(body=body)]
    seen: list[Event] = []
    try:
        return run_trial(asked, command=command, watch=seen.append, deadlines=Deadlines(whole=120)), None, seen
    except TrialError as error:
        return None, error, seen


def fault(asked: TrialRequest, body: str | None = None) -> TrialError:
    """The one error that such a trial ends with."""
    outcome, error, seen = run(asked, body)
    assert outcome is None
    assert error is not None
    assert [event.name for event in seen].count("error") == 1, error.message
    assert seen[-1].name == "error"
    return error


def test_a_whole_folder_runs_and_says_what_it_loaded(model: Path) -> None:
    import torch

    outcome, error, seen = run(request(model))
    assert error is None
    assert outcome is not None
    loaded = next(event.content for event in seen if event.name == "loaded")
    assert loaded["device"] == "CPU, 1 thread"
    assert loaded["seconds"] > 0
    assert loaded["versions"]["torch"] == torch.__version__
    assert ("cuda" in loaded["versions"]) is (torch.version.cuda is not None)
    stored = (model / "model.safetensors").stat().st_size
    # The file holds the weights and a header of a few kilobytes; the model also its RoPE frequencies.
    assert loaded["weights_bytes"]["target"] == pytest.approx(stored, abs=8192)
    assert loaded["weights_bytes"]["draft"] == loaded["weights_bytes"]["target"]


def test_dummy_weights_need_neither_weights_nor_a_tokenizer(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    outcome, error, _ = run(request(tmp_path, weights="dummy"))
    assert error is None, error
    assert outcome is not None
    assert outcome.runs


def test_only_bin_files(model: Path, tmp_path: Path) -> None:
    folder = copy_of(model, tmp_path / "bin")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    error = fault(request(model, folder))
    assert error.code == "trial_weights"
    assert "only .bin files" in error.message


def test_a_truncated_file(model: Path, tmp_path: Path) -> None:
    folder = copy_of(model, tmp_path / "cut")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])
    error = fault(request(model, folder))
    assert error.code == "trial_weights"
    assert f"is {len(whole) - 100} bytes long, but its header describes {len(whole)}" in error.message


def test_a_missing_shard(model: Path, tmp_path: Path) -> None:
    folder = copy_of(model, tmp_path / "shard")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    error = fault(request(folder))
    assert error.code == "trial_weights"
    assert "model-00002-of-00002.safetensors is missing" in error.message


def test_no_tokenizer(model: Path, tmp_path: Path) -> None:
    folder = copy_of(model, tmp_path / "mute")
    (folder / "tokenizer.json").unlink()
    error = fault(request(folder))
    assert error.code == "trial_tokenizer"
    assert "no tokenizer" in error.message


def test_remote_code(model: Path, tmp_path: Path) -> None:
    folder = copy_of(model, tmp_path / "remote")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "made_up", "auto_map": {"AutoModelForCausalLM": "made.Made"}}
    (folder / "config.json").write_text(json.dumps(config))
    error = fault(request(folder))
    assert error.code == "trial_remote_code"
    assert "made_up" in error.message


def test_no_cuda(model: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    error = fault(request(model, device="cuda"))
    assert error.code == "trial_no_cuda"
    assert f"torch {torch.__version__}" in error.message


def test_a_library_that_is_not_there(model: Path) -> None:
    error = fault(request(model), 'sys.modules["accelerate"] = None\nsys.modules["torch"] = None\n')
    assert error.code == "trial_missing_import"
    assert "torch" in error.message


def test_host_memory_that_runs_out_while_loading(tmp_path: Path) -> None:
    """A real shortage: eight gigabytes of dummy weights where the system permits six of address space."""
    wide = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 16_384,
        "num_hidden_layers": 8,
        "num_attention_heads": 32,
        "vocab_size": 1024,
    }
    (tmp_path / "config.json").write_text(json.dumps(wide))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    body = f"import resource, torch, transformers\nresource.setrlimit(resource.RLIMIT_AS, (6 << 30, {most}))\n"
    error = fault(request(tmp_path, weights="dummy"), body)
    assert error.code == "trial_out_of_memory"
    assert "while loading" in error.message


def test_a_device_that_is_lost_while_loading(model: Path) -> None:
    error = fault(request(model), FAILING.format(module="loading", name="load_model", error=LAUNCH))
    assert error.code == "trial_device_lost"
    assert "while loading: CUDA error: unspecified launch failure" in error.message
    # Advice for those who debug CUDA kernels is not for the user.
    assert "CUDA_LAUNCH_BLOCKING" not in error.message


def test_an_exception_that_nobody_foresaw_is_told_by_its_name(model: Path) -> None:
    raised = 'LookupError("surprise")'
    error = fault(request(model), FAILING.format(module="loading", name="load_model", error=raised))
    assert error.code == "trial_failed"
    assert "LookupError while loading: surprise" in error.message


def test_memory_that_runs_out_while_warming_up(model: Path) -> None:
    error = fault(request(model), FAILING_AFTER.format(event="loaded", error=CUDA_OUT))
    assert error.code == "trial_out_of_memory"
    assert "while warming up: CUDA out of memory" in error.message


@pytest.mark.parametrize(
    ("raised", "code"), [(CPU_OUT, "out_of_memory"), (ASSERT, "device_lost")], ids=["memory", "device"]
)
def test_faults_in_the_midst_of_measuring(model: Path, raised: str, code: str) -> None:
    """No further prompt is tried on a device that is gone, and none on one that is full."""
    _, error, seen = run(request(model, seconds=60.0), FAILING_AFTER.format(event="progress", error=raised))
    assert error is not None
    assert error.code == f"trial_{code}"
    assert "while running" in error.message
    assert [event.name for event in seen].count("progress") == 1


def test_a_cache_that_cannot_go_back(model: Path) -> None:
    raised = 'loading.UncroppableCacheError("RecurrentCache")'
    body = "import planner.trial.worker.decoding\n" + FAILING_AFTER.format(event="loaded", error=raised)
    body += "loading.UncroppableCacheError = planner.trial.worker.decoding.UncroppableCacheError\n"
    error = fault(request(model), body)
    assert error.code == "trial_cache"
    assert "RecurrentCache" in error.message


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (CUDA_OUT, "out_of_memory"),
        ("MemoryError()", "out_of_memory"),
        (CPU_OUT, "out_of_memory"),
        ('RuntimeError("CUDA error: out of memory")', "out_of_memory"),
        ('torch.AcceleratorError("CUDA error: out of memory")', "out_of_memory"),
        (
            'RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")',
            "out_of_memory",
        ),
        ('OSError(12, "Cannot allocate memory")', "out_of_memory"),
        (LAUNCH, "device_lost"),
        (ASSERT, "device_lost"),
        ('RuntimeError("CUDA error: an illegal memory access was encountered")', "device_lost"),
        ('RuntimeError("CUDA error: unknown error")', "device_lost"),
        ('RuntimeError("every prompt failed, the first with code-1: GPU is lost")', "device_lost"),
        ('RuntimeError("CUDA error: no kernel image is available for execution on the device")', "no_cuda"),
        ('RuntimeError("The NVIDIA driver on your system is too old: driver version is insufficient")', "no_cuda"),
        ('ImportError("fp8 needs the package kernels")', "weights"),
        ('RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")', "failed"),
        ('KeyError("rope_theta")', "failed"),
    ],
)
def test_faults_are_told_by_type_and_by_the_texts_of_torch_and_cuda(raised: str, code: str) -> None:
    import torch

    from planner.trial.worker import faults

    error = eval(raised, {"torch": torch})  # noqa: S307 - the table above
    assert faults.describe(error, faults.RUNNING)[0] == code
    wrapped = RuntimeError("a library's own words")
    wrapped.__cause__ = error
    if code in {"out_of_memory", "device_lost", "no_cuda"}:
        assert faults.code_of(wrapped) == code
