"""Which acceptance rate to expect of a pair: measured here, else published for the pair, else a family prior.

Owns ``data/acceptance.toml`` and the order of the sources. The rate is always a range with its source.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from model_catalog.bounds import Basis
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model
from planner.engines.base import Draft
from planner.speculation.mean_length import DECAY_PER_POSITION, conditional_rates, rate_from_length
from planner.speculation.prediction import Acceptance, Demand, Task
from planner.speculation.ranges import Range

_DATA: Final = Path(__file__).parent.parent / "data" / "acceptance.toml"

_LOWEST, _HIGHEST = 0.01, 0.99
_OTHER_FAMILY: Final = "other_family"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLength:
    """A mean acceptance length (bonus included) that somebody measured at one k on one task."""

    task: Task
    num_speculative_tokens: int
    length: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPair:
    """What was published of one pair. Names are repos without their organisation; ``draft`` "" : any, or built in.

    ``unconditional``: rates per position as vLLM prints them, by task.
    """

    target: str
    draft: str
    method: DraftMethod
    source: str
    lengths: tuple[PublishedLength, ...] = ()
    unconditional: tuple[tuple[Task, tuple[float, ...]], ...] = ()


def acceptance_for(
    target: Model,
    draft: Draft,
    demand: Demand,
    *,
    measured: Acceptance | None = None,
    published: Sequence[PublishedPair] | None = None,
) -> Acceptance:
    """The best known acceptance of this pair for this demand.

    ``measured``: of this pair on this machine; taken as it is. ``published``: figures of single pairs (None: the
    embedded table; an empty sequence: family priors alone).
    """
    if measured is not None:
        return measured
    rows = published_pairs() if published is None else published
    found = _published(target, draft, demand, rows)
    return _prior(target, draft, demand) if found is None else found


def same_family(target: Model, draft: Model) -> bool:
    """Whether two models share a vocabulary size and either the name's first word or the model type."""
    one, other = target.architecture, draft.architecture
    if one.vocabulary_size != other.vocabulary_size and not _padded_alike(
        one.vocabulary_size, other.vocabulary_size
    ):
        return False
    return one.model_type == other.model_type or _first_word(target) == _first_word(draft)


@cache
def published_pairs() -> tuple[PublishedPair, ...]:
    """The embedded table of published pairs."""
    return tuple(_read_pair(row) for row in _table()["published"])


def _padded_alike(one: int, other: int) -> bool:
    # Qwen pads 151,643 tokens to 151,936 or 152,064 rows: the same family all the same.
    return abs(one - other) <= 128


def _first_word(model: Model) -> str:
    name = model.snapshot.repo_id.rpartition("/")[2].lower().removeprefix("meta-")
    match = re.match(r"[a-z]+", name)
    return match.group() if match else name


def _published(target: Model, draft: Draft, demand: Demand, rows: Iterable[PublishedPair]) -> Acceptance | None:
    wanted, drafted = _short(target), "" if draft.model is None else _short(draft.model)
    near = [
        row
        for row in rows
        if row.method is draft.method
        and row.target.lower() == wanted
        and (not row.draft or row.draft.lower() == drafted)
    ]
    for row in near:
        found = _from_pair(row, demand)
        if found is not None:
            return found
    return None


def _from_pair(row: PublishedPair, demand: Demand) -> Acceptance | None:
    """This task's figures, or all tasks' where it has none or the demand is mixed."""
    margin = _table()["adjust"]["published_margin"]
    decay = _decay(row.method.value)
    curves = [rates for task, rates in row.unconditional if task in (demand.task, Task.MIXED)]
    if curves or row.unconditional:
        chosen = curves or [rates for _, rates in row.unconditional]
        positions = [_widened(values, margin) for values in zip(*map(conditional_rates, chosen), strict=False)]
        return Acceptance(
            rate=positions[0],
            source=row.source,
            basis=Basis.DERIVED,
            per_position=tuple(positions),
            decay_per_position=decay,
        )
    same = [item for item in row.lengths if item.task is demand.task]
    used = same if same and demand.task is not Task.MIXED else list(row.lengths)
    if not used:
        return None
    rates = [rate_from_length(item.length, item.num_speculative_tokens, decay) for item in used]
    tasks = {item.task for item in used}
    if demand.task not in tasks and (demand.task is not Task.MIXED or len(tasks) == 1):
        return _carried_over(row, demand, [(item.task, rate) for item, rate in zip(used, rates, strict=True)])
    if demand.task is Task.MIXED:
        # A blend of tasks lies nearer to their mean than the single tasks do.
        mean = _mean(rates)
        spread = math.sqrt(_mean([(rate - mean) ** 2 for rate in rates]))
        rates, margin = [mean], max(margin, spread)
    return Acceptance(
        rate=_widened(rates, margin),
        source=row.source,
        basis=Basis.DERIVED,
        decay_per_position=decay,
    )


def _carried_over(row: PublishedPair, demand: Demand, rates: Sequence[tuple[Task, float]]) -> Acceptance:
    """Rates published for other tasks only: moved by how far the family priors of the tasks lie apart.

    What is carried over may be wrong by as much as the tasks differ, so the margin is widened by that.
    """
    prior = _table()["prior"][row.method.value]
    margin = 2 * _table()["adjust"]["published_margin"]
    wanted = _mean(prior[demand.task.value])
    moved = [rate + wanted - _mean(prior[task.value]) for task, rate in rates]
    apart = max(abs(wanted - _mean(prior[task.value])) for task, _ in rates)
    named = ", ".join(sorted({task.value for task, _ in rates}))
    return Acceptance(
        rate=_widened(moved, margin + apart),
        source=f"{row.source}; published for {named}, carried over to {demand.task.value}",
        basis=Basis.DERIVED,
        decay_per_position=_decay(row.method.value),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _widened(values: Sequence[float], margin: float) -> Range:
    return Range(low=max(_LOWEST, min(values) - margin), high=min(_HIGHEST, max(values) + margin))


def _prior(target: Model, draft: Draft, demand: Demand) -> Acceptance:
    table = _table()
    name = draft.method.value
    shift = 0.0
    if draft.method is DraftMethod.DRAFT_MODEL and draft.model is not None:
        if not same_family(target, draft.model):
            name = _OTHER_FAMILY
        shift = _size_shift(target, draft.model)
    prior = table["prior"][name]
    low, high = prior[demand.task.value]
    heat = table["adjust"]["temperature_one"]
    if demand.temperature is None:
        low -= heat / 2
    else:
        cooled = heat * min(max(demand.temperature, 0.0), 1.0)
        low, high = low - cooled, high - cooled
    return Acceptance(
        rate=Range(low=_clipped(low + shift), high=_clipped(high + shift)),
        source=f"family prior for {name}, task {demand.task.value}: {prior['source']}",
        basis=Basis.ASSUMED,
        decay_per_position=_decay(name),
    )


def _size_shift(target: Model, draft: Model) -> float:
    """A draft nearer to its target's size agrees with it a little more often."""
    adjust = _table()["adjust"]
    ratio = target.architecture.parameters() / max(draft.architecture.parameters(), 1)
    decades = math.log10(max(ratio, 1.0) / adjust["size_ratio_middle"])
    return -float(adjust["size_ratio_decade"]) * min(max(decades, -1.5), 1.5)


def _clipped(rate: float) -> float:
    return min(max(rate, _LOWEST), _HIGHEST)


def _decay(name: str) -> float:
    return float(_table()["prior"][name].get("decay_per_position", DECAY_PER_POSITION))


def _short(model: Model) -> str:
    return model.snapshot.repo_id.rpartition("/")[2].lower()


def _read_pair(row: Mapping[str, Any]) -> PublishedPair:
    return PublishedPair(
        target=row["target"],
        draft=row["draft"],
        method=DraftMethod(row["method"]),
        source=row["source"],
        lengths=tuple(
            PublishedLength(task=Task(task), num_speculative_tokens=k, length=length)
            for task, k, length in row.get("lengths", ())
        ),
        unconditional=tuple((Task(task), tuple(rates)) for task, rates in row.get("unconditional", ())),
    )


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(_DATA.read_text(encoding="utf-8"))
