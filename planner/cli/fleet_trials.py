"""The trials of a fleet: `specplan trial` as a task of the cluster, on a node that holds the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from model_catalog.drafts import DraftMethod
from model_catalog.errors import SpecplanError
from model_catalog.model import Model
from planner.cli.output import Output
from planner.cli.pair_trial import MOST_SEQUENCES
from planner.cli.trial_options import TrialOptions
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineProfile
from planner.errors import TRIAL_INTERRUPTED, ClusterError, TrialError
from planner.fleet.asking import TrialAnswer, TrialJob, run_trials
from planner.fleet.records import NodeVerdict
from planner.report.findings import Findings, JudgedDraft
from planner.service.request import PlanOptions
from planner.speculation.prediction import Demand
from planner.speculation.selection import Offer
from planner.trial.backends import BACKENDS
from planner.trial.carry_over import with_trial
from planner.trial.embedded import EMBEDDED
from planner.trial.protocol import TrialRequest
from planner.trial.result import PairTrial, is_trial_document
from planner.trial.summary import failed_mapping
from planner.workload import Workload

#: Reasons against a draft that a trial may refute.
_ONLY_PREDICTED: Final = frozenset({"slower", "off_wins"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a trial may run: nodes that hold the plan, by verdict, and the devices of one copy.

    ``seconds``: how long the cluster may take to find room for it.
    """

    address: str
    nodes: tuple[NodeVerdict, ...]
    devices: tuple[Device, ...]
    seconds: float


class FleetTrials:
    """The trials of one `fit` for a fleet; ``found`` grows by draft name. Nothing is kept on this machine."""

    def __init__(
        self,
        target_name: str,
        trial: TrialOptions,
        options: PlanOptions,
        target: Model,
        engine: EngineProfile,
        workload: Workload,
        demand: Demand,
        place: Place,
        output: Output,
    ) -> None:
        self.found: dict[str, PairTrial] = {}
        self._target_name = target_name
        self._trial = trial
        self._options = options
        self._target = target
        self._engine = engine
        self._workload = workload
        self._demand = demand
        self._place = place
        self._output = output

    @property
    def failure(self) -> SpecplanError | None:
        """The first trial that failed."""
        return next((trial.error for trial in self.found.values() if trial.error is not None), None)

    def remember(self, findings: Findings) -> bool:  # noqa: ARG002 - what was measured is kept on the nodes
        """Nothing: the nodes keep what they measured."""
        return False

    def apply(self, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        """The offers with predictions that follow what was measured."""
        device = self._place.devices[0]
        return tuple(
            offer
            if (trial := self.found.get(offer.name)) is None
            else with_trial(offer, trial, self._target, device, self._workload, self._demand)
            for offer in offers
        )

    def run(self, findings: Findings) -> bool:
        """Run the best pairs as tasks of the cluster; whether anything new was learned."""
        drafts = [judged for judged in findings.drafts if self._worth_trying(judged)][: self._trial.top]
        if not drafts:
            self._output.warn("no_trial", "no trial: it runs draft models only, and none is among the best")
            return False
        names = ", ".join(judged.name for judged in drafts)
        nodes = len(self._place.nodes)
        self._output.note("trial", f"trying {names} on one of {nodes} nodes that hold the plan")
        jobs = [self._job(judged) for judged in drafts]
        with self._output.step("trials on the cluster") as step:

            def told(answer: TrialAnswer) -> None:
                self.found[answer.name] = self._pair_trial(answer)
                step.count(len(self.found), len(jobs))

            try:
                for answer in run_trials(self._place.address, jobs, told=told):
                    self.found.setdefault(answer.name, self._pair_trial(answer))
            except KeyboardInterrupt:  # the plan is still to be told
                hint = "run it again, or without: --no-trial"
                self._fail(jobs, TrialError("interrupted", subject="trial", hint=hint, code=TRIAL_INTERRUPTED))
            except ClusterError as error:
                self._fail(
                    jobs, TrialError(error.message, subject=error.subject, hint=error.hint, code="trial_failed")
                )
        return bool(self.found)

    def _fail(self, jobs: Sequence[TrialJob], error: TrialError) -> None:
        """The trials that did not end all ended with this."""
        for job in jobs:
            if job.name not in self.found:
                self.found[job.name] = self._failed(job.name, error)

    @property
    def _on_hosts(self) -> bool:
        return self._place.devices[0].source is DeviceSource.HOST

    def _worth_trying(self, judged: JudgedDraft) -> bool:
        model, method = judged.offer.draft.model, judged.offer.draft.method
        only_predicted = all(reason.code in _ONLY_PREDICTED for reason in judged.reasons)
        return model is not None and method is DraftMethod.DRAFT_MODEL and (judged.accepted or only_predicted)

    def _job(self, judged: JudgedDraft) -> TrialJob:
        backend = BACKENDS[self._trial.backend]
        cpus = min((verdict.node.offered_cpus or 1 for verdict in self._place.nodes), default=1)
        return TrialJob(
            name=judged.name,
            arguments=tuple(self._arguments(judged)),
            nodes=tuple(verdict.node.node_id for verdict in self._place.nodes),
            num_gpus=0 if self._on_hosts else len(self._place.devices),
            # The child decodes on half of a host's cores; beside GPUs it needs one.
            num_cpus=max(1, cpus // 2) if self._on_hosts else min(1, cpus),
            seconds=self._place.seconds + backend.start_seconds + 3 * self._trial.seconds,
        )

    def _arguments(self, judged: JudgedDraft) -> list[str]:
        """The command line of `specplan trial` on the node."""
        trial, options = self._trial, self._options
        model = judged.offer.draft.model
        # What is made here lies in a folder of this machine; a folder that the user named has to be there, too.
        folder = None if model is None or model.snapshot.repo_id in EMBEDDED else model.snapshot.folder
        draft = judged.name if model is None else folder or model.snapshot.repo_id
        typed = ["trial", self._target_name, str(draft), "--json", "-", "--quiet"]
        typed += ["--trial-backend", trial.backend, "--trial-seconds", str(int(trial.seconds))]
        typed += ["--trial-weights", trial.weights, "--batch", str(min(self._workload.batch, MOST_SEQUENCES))]
        if self._on_hosts:
            typed += ["--devices", "cpu"]
        if options.dtype in {"float32", "bfloat16", "float16"}:
            typed += ["--dtype", options.dtype]
        if not (trial.sweep and BACKENDS[trial.backend].sweeps):
            typed += ["--num-speculative-tokens", str(judged.offer.draft.num_speculative_tokens)]
        if trial.engine_python is not None:
            typed += ["--engine-python", trial.engine_python]
        typed += ["--download"] * trial.download + ["--fresh"] * trial.fresh + ["--offline"] * options.offline
        return typed

    def _pair_trial(self, answer: TrialAnswer) -> PairTrial:
        given = answer.document
        trial = None if given is None else given.get("trial")
        if is_trial_document(trial) and isinstance(trial, dict):
            return PairTrial(document=trial, as_served=self._as_served(trial))
        return self._failed(answer.name, _error_of(answer))

    def _failed(self, name: str, error: TrialError) -> PairTrial:
        request = TrialRequest(
            target_folder=self._target_name,
            draft_folder=name,
            device="cpu" if self._on_hosts else "cuda",
            batch=min(self._workload.batch, MOST_SEQUENCES),
        )
        return PairTrial(document=failed_mapping(request, error, backend=self._trial.backend), error=error)

    def _as_served(self, document: Mapping[str, Any]) -> bool:
        """Run by the engine that is planned for, with as many sequences."""
        ours = "transformers" if document["backend"] == "builtin" else document["backend"]
        return bool(ours == self._engine.name and document["batch"] == self._workload.batch)


def _error_of(answer: TrialAnswer) -> TrialError:
    """Why there is no result, as the node told it, or the cluster."""
    told = None if answer.document is None else answer.document.get("error")
    if isinstance(told, dict):
        return TrialError(
            str(told.get("message")),
            subject=f"trial on the cluster, {told.get('subject')}",
            hint=str(told.get("hint")),
            code=str(told.get("code")) if str(told.get("code")).startswith("trial") else "trial",
        )
    if answer.why is None:
        return TrialError(
            "not done in time: the cluster found no room for it, or its node fell silent",
            subject="trial on the cluster",
            hint="see what is free: ray status; or leave the trial out: --no-trial",
            code="trial_deadline",
        )
    hint = "see Ray's logs of that task: ray list tasks; or leave the trial out: --no-trial"
    return TrialError(answer.why, subject="trial on the cluster", hint=hint, code="trial_failed")
