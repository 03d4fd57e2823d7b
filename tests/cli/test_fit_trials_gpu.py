"""Trials of `specplan fit` on live GPUs, whose readings and whose child are scripted."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trial_children import behaving, use_child

from model_catalog.bounds import ByteRange
from planner import nvml
from planner.cli.main import main
from planner.devices import Device, DeviceSource
from planner.errors import DeviceLostError
from planner.nvml import DeviceReading
from planner.report.document import Candidate, Report, read_report

Folder = Callable[[str, Mapping[str, Any]], Path]
GIB = 2**30
CARD = Device(
    index=0,
    name="NVIDIA H100 80GB HBM3",
    source=DeviceSource.NVML,
    total_bytes=80 * GIB,
    engine_total_bytes=ByteRange(low_bytes=79 * GIB, high_bytes=79 * GIB),
    free_bytes=78 * GIB,
    uuid="GPU-1",
    used_by_others_bytes=GIB,
    compute_capability=(9, 0),
    bandwidth_bytes_per_second=3_350 * 10**9,
    half_precision_flops=989e12,
)


@pytest.fixture(autouse=True)
def here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model_folder: Folder,
    llama_8b: Mapping[str, Any],
    llama_1b: Mapping[str, Any],
) -> None:
    model_folder("target", llama_8b)
    model_folder("draft", llama_1b)
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("planner.cli.pair_trial._torch_has_a_gpu_library", lambda: True)


def read_as(monkeypatch: pytest.MonkeyPatch, *readings: tuple[Device, ...] | Exception) -> None:
    """Let NVML say these things in turn, and the last one from then on."""
    left = list(readings)

    def read() -> DeviceReading:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return DeviceReading(devices=found, driver_version="580.1", nvml_version=None, cuda_version="13.0")

    monkeypatch.setattr(nvml, "read_devices", read)


def fit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Candidate, str]:
    exit_code = main(["fit", "./target", "--draft", "./draft", "--offline", *arguments, "--json", "report.json"])
    printed = capsys.readouterr()
    report = read_report(json.loads(Path("report.json").read_text(encoding="utf-8")))
    assert isinstance(report, Report)
    assert report.exit_code == exit_code
    return exit_code, report.candidates[0], " ".join((printed.out + printed.err).split())


def test_a_live_gpu_gets_a_trial_unasked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_as(monkeypatch, (CARD,))
    use_child(monkeypatch, behaving(1.5, allocated_peak_bytes=17_700 * 2**20, longest_tokens=300))
    exit_code, found, shown = fit(capsys)
    assert exit_code == 0
    assert found.trial is not None
    assert found.trial.device.driver == "580.1"
    assert found.trial.weights == "dummy"
    assert found.trial.dtype == "bfloat16"
    # 14.96 + 2.30 GiB of weights = 17,675 MiB; a cache of some 300 tokens and activations add a little.
    assert found.trial.outcome == "confirms"
    assert found.trial.memory is not None
    assert found.trial.memory.predicted_bytes is not None
    assert 17.2 * GIB < found.trial.memory.predicted_bytes < 20 * GIB
    assert "STEP TIMES ONLY" in shown


def test_the_child_sees_the_chosen_device_alone_and_is_capped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    second = replace(CARD, index=1, uuid="GPU-2")
    read_as(monkeypatch, (CARD, second))
    said = 'text=os.environ["CUDA_VISIBLE_DEVICES"] + " " + str(request["device_limits_bytes"])'
    use_child(monkeypatch, f'send(event="error", code="failed", {said})\n')
    exit_code, found, _ = fit(capsys, "--devices", "1")
    assert exit_code == 7
    assert found.trial is not None
    assert found.trial.error is not None
    words = found.trial.error.message.split()
    assert words[0] == "GPU-2"
    (limit,) = json.loads(words[1])
    assert 17.2 * GIB < limit < 22 * GIB


def test_memory_that_is_gone_by_now_refuses_the_trial(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = replace(CARD, free_bytes=10 * GIB, used_by_others_bytes=69 * GIB)
    read_as(monkeypatch, (CARD,), (taken,))
    use_child(monkeypatch, behaving(1.5))
    exit_code, found, shown = fit(capsys, "--trial")
    assert exit_code == 7
    assert found.trial is not None
    assert found.trial.error is not None
    assert found.trial.error.code == "trial_no_room"
    assert "10.00 GiB are free now" in shown


def test_a_device_that_vanished_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_as(monkeypatch, (CARD,), (replace(CARD, uuid="GPU-9"),))
    use_child(monkeypatch, behaving(1.5))
    exit_code, found, _ = fit(capsys, "--trial")
    assert exit_code == 7
    assert found.trial is not None
    assert found.trial.error is not None
    assert found.trial.error.code == "trial_device_lost"
    assert "GPU-1" in found.trial.error.message


def test_a_driver_that_fails_in_between_is_a_hardware_error_with_the_plan_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_as(monkeypatch, (CARD,), DeviceLostError("GPU 0 is lost", subject="GPU 0", hint="look at dmesg"))
    use_child(monkeypatch, behaving(1.5))
    exit_code, found, _ = fit(capsys, "--trial")
    assert exit_code == 6
    assert found.trial is not None
    assert found.trial.outcome == "failed"
    assert found.memory is not None


def test_torch_without_a_gpu_library_is_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_as(monkeypatch, (CARD,))
    use_child(monkeypatch, behaving(1.5))
    monkeypatch.setattr("planner.cli.pair_trial._torch_has_a_gpu_library", lambda: False)
    monkeypatch.setattr("planner.cli.pair_trial.version", lambda package: "9+cpu")
    exit_code, found, shown = fit(capsys)
    assert (exit_code, found.trial) == (0, None)
    assert "runs on the CPU alone" in shown


def test_measured_acceptance_carries_over_to_another_engine_and_the_speedup_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Our loop measured it, vLLM is planned: acceptance is the pair's, eager step times are not vLLM's."""
    read_as(monkeypatch, (CARD,))
    use_child(monkeypatch, behaving(0.9))
    for module in ("trial_weights", "trials"):
        monkeypatch.setattr(f"planner.cli.{module}.real_folder", lambda model, options, output: tmp_path)
    _, found, _ = fit(capsys, "--num-speculative-tokens", "2")
    assert found.trial is not None
    assert found.trial.weights == "real"
    assert found.prediction is not None
    # 5 of 10 rounds accept the first proposal: alike prompts, so both ends are 0.5.
    assert (found.prediction.acceptance.low, found.prediction.acceptance.high) == pytest.approx((0.5, 0.5))
    assert "measured here" in found.prediction.acceptance.source
    assert found.prediction.speedup is not None
    assert found.prediction.speedup.high > 0.9
    assert [reason.code for reason in found.reasons if reason.code == "slower"] == []


def test_a_trial_that_was_not_asked_for_and_cannot_run_is_no_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default a plan for a live GPU is tried; that its memory is taken by now is a warning, not exit code 7."""
    taken = replace(CARD, free_bytes=10 * GIB, used_by_others_bytes=69 * GIB)
    read_as(monkeypatch, (CARD,), (taken,))
    use_child(monkeypatch, behaving(1.5))
    exit_code, found, shown = fit(capsys)
    assert (exit_code, found.trial) == (0, None)
    assert "no trial of draft" in shown


@pytest.mark.parametrize(
    ("asked", "told"),
    [((), {None}), (("--num-speculative-tokens", "4"), {4}), (("--num-speculative-tokens", "5-6"), {5, 6})],
    ids=["nothing", "one k", "a range"],
)
def test_a_k_that_was_asked_for_is_not_swept(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    asked: tuple[str, ...],
    told: set[int | None],
) -> None:
    read_as(monkeypatch, (CARD,))
    use_child(
        monkeypatch,
        'send(event="error", code="failed", text=str(request["num_speculative_tokens"]))\n',
    )
    _, found, _ = fit(capsys, *asked)
    assert found.trial is not None
    assert found.trial.error is not None
    assert found.trial.error.message.split(";")[0] in {str(k) for k in told}
