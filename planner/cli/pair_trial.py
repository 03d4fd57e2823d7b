"""Runs one pair: its folders, its devices read again, the child, and what the plan had expected of it."""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from model_catalog.errors import SpecplanError
from model_catalog.model import Model
from planner import nvml
from planner.cli.output import Output
from planner.cli.trial_hints import with_engine_hint
from planner.cli.trial_options import TrialOptions
from planner.cli.trial_progress import LOADING, TrialProgress
from planner.cli.trial_weights import PairFolders, pair_folders
from planner.devices import Device, DeviceSource
from planner.errors import TRIAL_INTERRUPTED, TrialError
from planner.memory.breakdown import Group
from planner.nvml import DeviceReading
from planner.planning import Plan, make_plan
from planner.report.words import need_bytes, room
from planner.trial.backends import BACKENDS, Backend
from planner.trial.expectation import expected_prediction, held_range, longest_tokens, plan_trial, trial_dtype
from planner.trial.protocol import DEEPEST_SWEPT, TrialRequest
from planner.trial.runner import Deadlines, Outcome, run_trial
from planner.trial.serving.lines import compare_engine
from planner.trial.serving.options import vllm_options
from planner.trial.summary import Expected, Summary, Watched, summarize
from planner.trial.watch import DeviceWatch
from planner.verdict import Answer

#: What the built-in child imports.
NEEDED: Final = ("torch", "transformers", "accelerate")
#: A network disk on a bad day.
_SLOW_DISK_BYTES_PER_SECOND: Final = 100 * 10**6
#: Sequences at once that a trial decodes at most: beyond, its prompts would only repeat.
MOST_SEQUENCES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJob:
    """A pair to run on devices that were read. ``dtype`` as the engine names it; ``batch`` as served.

    ``num_speculative_tokens``: as planned, where nothing is swept. ``plan``: the pair's, where it is for the
    engine that the backend runs.
    """

    target: Model
    draft: Model
    devices: tuple[Device, ...]
    dtype: str
    batch: int
    options: TrialOptions
    num_speculative_tokens: int | None = None
    plan: Plan | None = None

    @property
    def backend(self) -> Backend:
        """What runs the pair."""
        return BACKENDS[self.options.backend]

    @property
    def device_kind(self) -> str:
        """What torch calls the device: ``cpu`` or ``cuda``."""
        return "cpu" if self.devices[0].source is DeviceSource.HOST else "cuda"

    def request(self, folders: PairFolders) -> TrialRequest:
        """What the child is told; its memory caps come later."""
        kind = self.device_kind
        k, planned = self.options.num_speculative_tokens, self.num_speculative_tokens
        request = TrialRequest(
            target_folder=str(folders.target),
            draft_folder=str(folders.draft),
            device=kind,
            dtype=trial_dtype(self.target, self.dtype, kind),
            weights=folders.weights,
            num_speculative_tokens=k if k or (self.backend.sweeps and self.options.sweep) else planned,
            new_tokens=self.options.new_tokens,
            batch=min(self.batch, MOST_SEQUENCES),
            temperature=self.options.temperature,
            seconds=self.options.seconds,
            threads=max(1, (os.cpu_count() or 2) // 2) if kind == "cpu" else None,
        )
        if self.backend.name == "vllm":
            request = replace(request, engine_options=vllm_options(self.plan, request))
        return request


def installed_versions() -> dict[str, str]:
    """Versions of the child's libraries that are installed, read without importing them."""
    found: dict[str, str] = {}
    for package in NEEDED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def obstacle(device_kind: str, options: TrialOptions) -> TrialError | None:
    """Why the backend cannot run here at all, or None; looks libraries up and imports none."""
    if options.backend != "builtin":
        backend = BACKENDS[options.backend]
        reason = backend.usable(options.engine_python if backend.needs_engine_python else None)
        return None if reason is None else _unusable(reason, backend.hint)
    missing = [package for package in NEEDED if package not in installed_versions()]
    if missing:
        return TrialError(
            f"{', '.join(missing)} not installed",
            subject="trial",
            hint="pip install 'specplan[trial]'; or leave the trial out: --no-trial",
            code="trial_missing_import",
        )
    if device_kind == "cuda" and not _torch_has_a_gpu_library():
        return TrialError(
            f"the torch {version('torch')} that is installed here runs on the CPU alone",
            subject="trial",
            hint="install a torch built for this driver's CUDA; or leave the trial out: --no-trial",
            code="trial_no_cuda",
        )
    return None


def _unusable(reason: str, hint: str) -> TrialError:
    return TrialError(reason, subject="trial", hint=hint, code="trial_missing_import")


def _torch_has_a_gpu_library() -> bool:
    found = importlib.util.find_spec("torch")
    places = [] if found is None else list(found.submodule_search_locations or [])
    names = ("libtorch_cuda.so", "libtorch_hip.so", "torch_cuda.dll")
    return any(Path(place, "lib", name).exists() for place in places for name in names)


def run_pair(job: PairJob, output: Output) -> Summary:
    """Run one pair.

    Raises:
        TrialError: whatever kept a result from being found. HardwareError: the devices cannot be read again.
        ModelError, NetworkError: the weights cannot be had.
    """
    if job.backend.name == "llama.cpp" and job.batch > 1:
        raise TrialError(
            "the llama.cpp backend runs one sequence at a time",
            subject="trial",
            hint="add --batch 1, or take another backend",
            code="trial_engine_options",
        )
    with pair_folders(job.target, job.draft, job.options, output) as folders:
        request = job.request(folders)
        reading = read_again(job.devices)
        devices = reading.devices
        plan = _plan_now(job, request, devices)
        _refuse_without_room(plan, devices)
        if job.device_kind == "cuda" and job.backend.name == "builtin":
            # One device a stage: the cap of each is what its stage was planned at.
            limits = tuple(rank.breakdown.total.high_bytes for rank in plan.ranks)
            request = replace(request, device_limits_bytes=limits)
        outcome, watched = _run(job, request, plan, devices, output)
    return summarize(
        request,
        outcome,
        backend=job.backend.name,
        expected=_expected(job, request, outcome),
        watched=watched,
        driver=reading.driver_version,
        revisions=(job.target.snapshot.commit, job.draft.snapshot.commit),
    )


def read_again(devices: Sequence[Device]) -> DeviceReading:
    """The same devices as they are now, in their order, with the driver's version and the clocks.

    Raises:
        HardwareError: the driver does not answer any more. TrialError: a device is gone.
    """
    if devices[0].source is DeviceSource.HOST:
        from planner.host_memory import host_device  # noqa: PLC0415 - read only where asked for

        return DeviceReading(devices=(host_device(),), driver_version=None, nvml_version=None, cuda_version=None)
    reading = nvml.read_devices()
    found = {device.uuid: device for device in reading.devices if device.uuid is not None}
    gone = [device for device in devices if device.uuid is None or device.uuid not in found]
    if gone:
        raise TrialError(
            f"{gone[0].name} ({gone[0].uuid or 'no UUID'}) is not there any more",
            subject="trial",
            hint="look for Xid errors in dmesg, then see what is left: specplan devices",
            code="trial_device_lost",
        )
    return replace(reading, devices=tuple(found[device.uuid or ""] for device in devices))


def _plan_now(job: PairJob, request: TrialRequest, devices: Sequence[Device]) -> Plan:
    """What the trial takes of the devices as they are now: by its own plan, or the engine's where there is one."""
    if job.plan is not None:
        plan = job.plan
        return make_plan(plan.serving, devices, plan.engine, with_pool=False)
    k = request.num_speculative_tokens or DEEPEST_SWEPT
    longest = longest_tokens(request)
    return plan_trial(job.target, job.draft, devices, request, context_tokens=longest, k=k)


def _refuse_without_room(plan: Plan, devices: Sequence[Device]) -> None:
    if plan.verdict.answer is not Answer.DOES_NOT_FIT:
        return
    rank = plan.ranks[plan.binding_rank]
    free = rank.rank.device.free_bytes
    raise TrialError(
        f"the trial itself needs {need_bytes(rank.breakdown.total.high_bytes)} on {rank.rank.device.name}"
        + ("" if free is None else f", and {room(free)} are free now"),
        subject="trial",
        hint="free memory there, choose other devices (--devices), or leave the trial out: --no-trial"
        if len(devices) == 1
        else "free memory there, choose more devices (--devices), or leave the trial out: --no-trial",
        code="trial_no_room",
    )


def _patience(backend: Backend, request: TrialRequest, plan: Plan) -> Deadlines:
    """The backend's deadlines, and for real weights the time that a slow disk takes to read them."""
    given = backend.deadlines(request)
    if request.weights == "dummy":
        return given
    weights = {Group.TARGET_WEIGHTS, Group.DRAFT_WEIGHTS}
    lines = [item for rank in plan.ranks for item in rank.breakdown.items if item.group in weights]
    reading = sum(item.high_bytes for item in lines) / _SLOW_DISK_BYTES_PER_SECOND
    return replace(given, whole=given.whole + reading, silence=given.silence + reading)


def _run(
    job: PairJob, request: TrialRequest, plan: Plan, devices: Sequence[Device], output: Output
) -> tuple[Outcome, Watched]:
    backend, on_gpu = job.backend, job.device_kind == "cuda"
    watch = DeviceWatch(read=lambda: read_again(devices))
    try:
        with output.step("trial"), output.step(LOADING) as step:
            outcome = run_trial(
                request,
                deadlines=_patience(backend, request, plan),
                command=backend.command(job.options.engine_python if backend.needs_engine_python else None),
                environment={**backend.environment(request), **(_visible(devices) if on_gpu else {})},
                watch=TrialProgress(step, request.seconds).see,
                started=watch.start if on_gpu else lambda _: None,
            )
    except TrialError as error:
        raise with_engine_hint(error, backend.name) from error.__cause__
    finally:
        watched = watch.stop()
    return outcome, watched


def _visible(devices: Sequence[Device]) -> Mapping[str, str]:
    """Only these devices, in this order, for the child."""
    uuids = [device.uuid for device in devices if device.uuid is not None]
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(uuids)}


def _expected(job: PairJob, request: TrialRequest, outcome: Outcome) -> Expected:
    """What the plan says for the lengths and the k that were run."""
    longest, k = outcome.memory.get("longest_tokens"), outcome.num_speculative_tokens
    memory = None
    if longest and job.backend.name == "builtin":
        plan = plan_trial(job.target, job.draft, job.devices, request, context_tokens=longest, k=k)
        memory = held_range(plan, temporary=job.device_kind == "cuda")
    return Expected(
        memory_bytes=memory,
        lines=() if job.plan is None else compare_engine(job.plan, outcome.engine),
        prediction=expected_prediction(
            job.target, job.draft, job.devices[0], request, k=k, graphs=outcome.how == "graphs"
        ),
    )


def attempt(job: PairJob, output: Output) -> Summary | SpecplanError:
    """``run_pair``, or the error that it ended with: an interruption too, for the plan is still to be told."""
    try:
        return run_pair(job, output)
    except SpecplanError as error:
        return error
    except KeyboardInterrupt:
        return TrialError(
            "interrupted", subject="trial", hint="run it again, or without: --no-trial", code=TRIAL_INTERRUPTED
        )


def python_version() -> str:
    """Of this interpreter, which is the built-in child's too."""
    return ".".join(map(str, sys.version_info[:3]))
