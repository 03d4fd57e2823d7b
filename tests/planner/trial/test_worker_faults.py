"""Faults of the child, each from a real child process: one error event, with a code that says what it was."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from injected.trial import ASSERT, CPU_OUT, CUDA_OUT, LAUNCH, WORKER_CASES, WorkerCase

from planner.errors import TrialError
from planner.service.exit_codes import exit_code_of
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


def fault(asked: TrialRequest, body: str | None = None) -> tuple[TrialError, Sequence[Event]]:
    """The one error that such a trial ends with, and all that the child said."""
    outcome, error, seen = run(asked, body)
    assert outcome is None
    assert error is not None
    assert [event.name for event in seen].count("error") == 1, error.message
    assert seen[-1].name == "error"
    return error, seen


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


@pytest.mark.parametrize("case", WORKER_CASES, ids=lambda case: case.id)
def test_a_fault_is_one_error_that_says_what_it_was(case: WorkerCase, model: Path, tmp_path: Path) -> None:
    """No further prompt is tried on a device that is gone, and none on one that is full."""
    import torch

    if case.code == "trial_no_cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    folder = model
    if case.prepare is not None:
        folder = copy_of(model, tmp_path / "spoilt")
        case.prepare(folder)
    error, seen = fault(request(model if case.draft_alone else folder, folder, **case.request), case.body)
    assert error.code == case.code
    assert exit_code_of(error) == case.exit_code
    assert case.says in error.message
    assert case.says_of(model) in error.message
    assert case.never_says is None or case.never_says not in error.message
    assert error.hint
    assert [event.name for event in seen].count("progress") == case.prompts_before


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
