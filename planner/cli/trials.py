"""The trials of a `fit`: which pairs to run, what was measured earlier, and what to do where none can run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from model_catalog.drafts import DraftMethod
from model_catalog.errors import SpecplanError, UsageError
from model_catalog.model import Model
from planner.cli.output import Output
from planner.cli.pair_trial import PairJob, attempt, installed_versions, obstacle, python_version, read_again
from planner.cli.trial_options import BACKENDS, TrialOptions
from planner.cli.trial_weights import identity, real_folder
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineProfile
from planner.errors import TRIAL_INTERRUPTED
from planner.planning import Plan
from planner.report.findings import Findings, JudgedDraft
from planner.speculation.prediction import Demand
from planner.speculation.selection import Offer
from planner.trial.carry_over import with_trial
from planner.trial.expectation import trial_dtype
from planner.trial.protocol import TrialRequest
from planner.trial.result import PairTrial
from planner.trial.store import TrialKey, TrialStore
from planner.trial.summary import Summary, failed_mapping, trial_mapping
from planner.workload import Workload

#: Without being asked, the host's CPU runs no pair larger than this: it would take minutes a prompt.
_UNASKED_ON_CPU_BYTES: Final = 4 * 2**30
#: What keeps a trial from running at all: a failure only of one that was asked for.
_CANNOT_RUN: Final = frozenset(
    {
        *("trial_weights_missing", "trial_no_room", "trial_missing_import", "trial_no_cuda"),
        *("trial_cache", "trial_remote_code", "trial_engine_options", "trial_embedded"),
    }
)
#: Reasons against a draft that a trial may refute.
_ONLY_PREDICTED: Final = frozenset({"slower", "off_wins"})


class FitTrials:
    """The trials of one `fit`; ``found`` grows by draft name."""

    def __init__(
        self,
        options: TrialOptions,
        target: Model,
        devices: Sequence[Device],
        engine: EngineProfile,
        workload: Workload,
        demand: Demand,
        output: Output,
    ) -> None:
        self.options = options
        self.found: dict[str, PairTrial] = {}
        self._target = target
        self._devices = tuple(devices)
        self._engine = engine
        self._workload = workload
        self._demand = demand
        self._output = output
        self._store = TrialStore()
        if options.wanted and devices[0].source is DeviceSource.DECLARED:
            raise UsageError(
                "a trial runs on devices of this machine, and the plan is for a GPU that was named",
                subject="--trial and --gpu",
                hint="leave --gpu out, or run on the CPU: --devices cpu --engine transformers",
            )

    def remember(self, findings: Findings) -> bool:
        """Take what was measured earlier under the same conditions, unless a fresh start is wanted; was any?"""
        if self.options.fresh or not self._live:
            return False
        for judged in findings.drafts:
            job = self._job(judged.offer, judged.plan)
            document = None if job is None else self._remembered(job)
            if job is not None and not self.options.sweep and document is not None:
                # Measured with another k than the one that is asked for now.
                document = document if document["num_speculative_tokens"] == job.num_speculative_tokens else None
            if document is not None:
                self.found[judged.name] = PairTrial(
                    document=document, as_served=self._as_served(document), remembered=True
                )
        return bool(self.found)

    def apply(self, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        """The offers with predictions that follow what was measured."""
        return tuple(
            offer
            if (trial := self.found.get(offer.name)) is None
            else with_trial(offer, trial, self._target, self._devices[0], self._workload, self._demand)
            for offer in offers
        )

    def run(self, findings: Findings) -> bool:
        """Run the best pairs that were not measured yet; whether anything new was learned."""
        pairs = self._pairs(findings)
        if not pairs or not self._may_run(pairs):
            return False
        for name, job in pairs:
            self._output.note("trial", f"trying {name} on {self._devices[0].name}{self._run_by}")
            trial = self._tried(name, job)
            if trial is not None:
                self.found[name] = trial
            if self.interrupted:
                break
        return bool(self.found)

    @property
    def _run_by(self) -> str:
        """What runs the pairs, where it is not the engine that is planned for."""
        engine, backend = self._engine.name, self.options.backend
        if engine == backend or (backend == "builtin" and engine == "transformers"):
            return ""
        if backend != "builtin":
            return f", in {backend}"
        itself = f"; {engine} itself: --trial-backend {engine}" if engine in BACKENDS else ""
        return f", in specplan's own loop on transformers (not {engine}{itself}; --no-trial leaves it out)"

    @property
    def failure(self) -> SpecplanError | None:
        """The first trial of this run that failed."""
        return next((trial.error for trial in self.found.values() if trial.error is not None), None)

    @property
    def interrupted(self) -> bool:
        """Whether the user ended a trial."""
        return self.failure is not None and self.failure.code == TRIAL_INTERRUPTED

    @property
    def _live(self) -> bool:
        return self._devices[0].source is not DeviceSource.DECLARED

    def _pairs(self, findings: Findings) -> list[tuple[str, PairJob]]:
        """The best pairs that a trial can run, as many as asked for; the rest of them measured already."""
        if self.options.wanted is False or not self._live:
            return []
        pairs: list[tuple[str, PairJob]] = []
        for judged in [draft for draft in findings.drafts if self._worth_trying(draft)][: self.options.top]:
            job = self._job(judged.offer, judged.plan)
            known = self.found.get(judged.name)
            if job is not None and (known is None or (known.remembered and self.options.wanted)):
                pairs.append((judged.name, job))
        if not pairs and self.options.wanted and not self.found:
            self._output.warn("no_trial", f"no trial: {_why_none(findings.drafts)}")
        return pairs

    def _worth_trying(self, judged: JudgedDraft) -> bool:
        """What will do; and where a trial was asked for also what is only predicted not to pay."""
        only_predicted = all(reason.code in _ONLY_PREDICTED for reason in judged.reasons)
        return judged.accepted or (bool(self.options.wanted) and only_predicted)

    def _may_run(self, pairs: Sequence[tuple[str, PairJob]]) -> bool:
        """Whether nothing stands in the way; an obstacle is a warning unless a trial was asked for."""
        kind = pairs[0][1].device_kind
        if kind == "cpu" and self.options.wanted is None and not self._small_enough(pairs):
            text = (
                "no trial: on the CPU one runs unasked only with weights at hand and below 4 GiB (--trial runs it)"
            )
            self._output.note("no_trial", text)
            return False
        stop = obstacle(kind, self.options)
        if stop is None:
            return True
        if self.options.wanted is None:
            self._output.warn("no_trial", f"no trial: {stop.message} ({stop.hint})")
            return False
        for name, job in pairs:
            self.found[name] = _failed(job, stop, self.options.backend)
        return False

    def _small_enough(self, pairs: Sequence[tuple[str, PairJob]]) -> bool:
        models = {self._target.snapshot.repo_id: self._target}
        models |= {job.draft.snapshot.repo_id: job.draft for _, job in pairs}
        size = sum(model.weights.resident_bytes().high_bytes for model in models.values())
        at_hand = all(self._folder(model) is not None for model in models.values())
        return at_hand and size <= _UNASKED_ON_CPU_BYTES

    def _folder(self, model: Model) -> Path | None:
        return real_folder(model, replace(self.options, download=False), self._output)

    def _job(self, offer: Offer, plan: Plan | None = None) -> PairJob | None:
        model = offer.draft.model
        if model is None or offer.draft.method is not DraftMethod.DRAFT_MODEL:
            return None
        return PairJob(
            target=self._target,
            draft=model,
            devices=self._devices,
            dtype=self._workload.dtype,
            batch=self._workload.batch,
            options=self.options,
            num_speculative_tokens=offer.draft.num_speculative_tokens,
            plan=plan if plan is not None and plan.engine.name == self.options.backend else None,
        )

    def _tried(self, name: str, job: PairJob) -> PairTrial | None:
        """The trial of one pair; None where it was not asked for and cannot run here, which is no failure."""
        summary = attempt(job, self._output)
        if isinstance(summary, SpecplanError):
            if self.options.wanted is None and summary.code in _CANNOT_RUN:
                self._output.warn("no_trial", f"no trial of {name}: {summary.message} ({summary.hint})")
                return None
            return _failed(job, summary, self.options.backend)
        document = trial_mapping(summary)
        keep(job, summary, document, self._output)
        return PairTrial(document=document, as_served=self._as_served(document))

    def _as_served(self, document: Mapping[str, object]) -> bool:
        """Run by the engine that is planned for, with as many sequences."""
        ours = "transformers" if document["backend"] == "builtin" else document["backend"]
        return ours == self._engine.name and document["batch"] == self._workload.batch

    def _remembered(self, job: PairJob) -> Mapping[str, object] | None:
        if obstacle(job.device_kind, self.options) is not None:
            return None
        driver = None
        if job.device_kind == "cuda":
            try:
                driver = read_again(self._devices).driver_version
            except SpecplanError:
                return None
        kinds = [self.options.weights] if self.options.weights != "auto" else ["real", "dummy"]
        for kind in kinds:
            key = trial_key(job, kind, driver)
            document = None if key is None else self._store.get(key)
            if document is not None:
                return document
        return None


def keep(job: PairJob, summary: Summary, document: Mapping[str, object], output: Output) -> None:
    """Keep a trial for later plans; a note where that cannot be done."""
    key = trial_key(job, summary.request.weights, summary.driver)
    problem = None if key is None else TrialStore().put(key, document)
    if problem is not None:
        output.note("not_kept", problem)


def trial_key(job: PairJob, weights: str, driver: str | None) -> TrialKey | None:
    """What a trial of this pair would be kept under; None where the real weights are not at hand.

    None for a serving engine, too: its release is its interpreter's, and a figure of another must not come back.
    """
    if job.options.backend != "builtin":
        return None
    folders: list[Path | None] = [None, None]
    if weights == "real":
        quiet = Output(progress=False, quiet=True)
        still = replace(job.options, download=False)
        folders = [real_folder(model, still, quiet) for model in (job.target, job.draft)]
        if None in folders:
            return None
    kind = job.device_kind
    return TrialKey(
        backend=job.options.backend,
        devices=tuple(device.name for device in job.devices),
        driver=driver,
        versions=(("python", python_version()), *sorted(installed_versions().items())),
        target=identity(job.target, folders[0]),
        draft=identity(job.draft, folders[1]),
        dtype=trial_dtype(job.target, job.dtype, kind),
        batch=job.batch,
        temperature=job.options.temperature,
        weights=weights,
    )


def _failed(job: PairJob, error: SpecplanError, backend: str) -> PairTrial:
    request = TrialRequest(
        target_folder=job.target.snapshot.repo_id,
        draft_folder=job.draft.snapshot.repo_id,
        device=job.device_kind,
        dtype=trial_dtype(job.target, job.dtype, job.device_kind),
        batch=job.batch,
    )
    return PairTrial(document=failed_mapping(request, error, backend=backend), error=error)


def _why_none(drafts: Sequence[JudgedDraft]) -> str:
    if not any(draft.accepted for draft in drafts):
        return "no draft will do"
    return "it runs draft models only, and none is among the best"
