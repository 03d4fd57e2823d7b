"""What a trial changes in the plan: k and the prediction of its draft, as far as what was measured carries over.

A speedup carries over only from a run like the one that is planned: the same engine, the same number of sequences.
Otherwise acceptance does (it is the pair's, whoever runs it), and the engine's step times stay modelled.
"""

from dataclasses import replace

from model_catalog.model import Model
from planner.devices import Device
from planner.engines.base import Draft
from planner.speculation.prediction import Demand, Prediction
from planner.speculation.selection import Offer
from planner.speculation.speedup import predict
from planner.trial.result import PairTrial
from planner.workload import Workload


def with_trial(
    offer: Offer, trial: PairTrial, target: Model, device: Device | None, workload: Workload, demand: Demand
) -> Offer:
    """The offer as it stands after its trial; unchanged by one that failed or of which nothing carries over."""
    k = trial.num_speculative_tokens
    if trial.answer is None or k is None or offer.prediction is None:
        return offer
    draft = replace(offer.draft, num_speculative_tokens=k) if trial.as_served else offer.draft
    prediction = _prediction(offer.prediction, draft, trial, target, device, workload, demand)
    return offer if prediction is None else replace(offer, draft=draft, prediction=prediction)


def _prediction(
    before: Prediction,
    draft: Draft,
    trial: PairTrial,
    target: Model,
    device: Device | None,
    workload: Workload,
    demand: Demand,
) -> Prediction | None:
    k = draft.num_speculative_tokens
    acceptance, speedup = trial.acceptance, trial.speedup
    if not trial.as_served:
        if acceptance is None:
            return None
        return predict(target, draft, device, workload, demand, k_range=(k, k), acceptance=acceptance)
    times = trial.step_times
    found = predict(
        target,
        draft,
        device,
        workload,
        demand,
        k_range=(k, k),
        acceptance=acceptance or before.acceptance,
        step_times=None if times is None else lambda wanted: times if wanted == k else None,
    )
    if speedup is None:
        return found
    return replace(
        found,
        speedup=speedup,
        end_to_end_speedup=None,
        cost_source=trial.source,
        by_num_speculative_tokens=((k, speedup),),
        measured=True,
    )
