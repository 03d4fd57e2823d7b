"""The overhead terms as the logs state them, in the unit that each constant of the vLLM profile has.

Owns the step from a log's figure to a coefficient, and the bounds in the code that must hold it. The constants
were read from the families of ``FITTED_FAMILIES``; the others validate them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from replay import Replay
from replay_figures import RELEASES, of_release

from model_catalog.units import GIB, KIB
from planner.engines.vllm_activation import profile_phases, sampler_bytes
from planner.engines.vllm_defaults import capture_sizes
from planner.engines.vllm_shape import EngineShape, shape_of

#: Fewer rows than this, and a release's range says nothing of the next start.
ENOUGH_ROWS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One coefficient under one group of releases: what the rows of both parts measured."""

    name: str
    unit: str
    release: str
    fit: tuple[float, ...]
    validation: tuple[float, ...]

    @property
    def too_few(self) -> bool:
        return len(self.fit) < ENOUGH_ROWS


def terms(found: Sequence[Replay]) -> Iterator[Term]:
    """Every term of every group of releases that has a row."""
    for name, unit, coefficient in _TERMS:
        for release, _ in RELEASES:
            parts: dict[str, list[float]] = {"fit": [], "validation": []}
            for each in of_release(release, found):
                value = coefficient(each)
                if value is not None:
                    parts[each.row.part].append(value)
            if parts["fit"] or parts["validation"]:
                yield Term(
                    name=name,
                    unit=unit,
                    release=release,
                    fit=tuple(sorted(parts["fit"])),
                    validation=tuple(sorted(parts["validation"])),
                )


def shape(each: Replay) -> EngineShape:
    """The numbers of the first rank, which the logs print."""
    rank = each.plan.ranks[0].rank
    engine = each.plan.engine
    numbers = shape_of(each.plan.serving, rank, engine.defaults(each.plan.serving, rank.device))
    return replace(numbers, version=engine.version)


def _growth(ranks: bool) -> Callable[[Replay], float | None]:
    def coefficient(each: Replay) -> float | None:
        line = each.line("non-torch")
        return line.measured if line is not None and (shape(each).tp > 1) is ranks else None

    return coefficient


def _context(ranks: bool) -> Callable[[Replay], float | None]:
    def coefficient(each: Replay) -> float | None:
        line = each.line("context")
        return line.measured if line is not None and (shape(each).world_size > 1) is ranks else None

    return coefficient


def _sampler(each: Replay) -> float | None:
    """Bytes a logit beside the row itself, where sampling is the largest phase and nothing else is kept."""
    line, numbers = each.line("activation"), shape(each)
    if line is None or numbers.target.experts or numbers.target.multimodal or not numbers.last_stage:
        return None
    if "activation_with_graphs" in each.row.facts.get("use", ()):
        return None
    held = numbers.max_num_batched_tokens * numbers.target.hidden_size * numbers.element_bytes
    rows = min(numbers.max_num_seqs, numbers.max_num_batched_tokens)
    logits = rows * numbers.target.vocabulary_size
    if sampler_bytes(numbers, rows).low_bytes < profile_phases(numbers).forward.high_bytes:
        return None  # a small vocabulary: the forward pass may be larger
    return (line.measured * GIB - held) / logits - numbers.element_bytes


def _graphs(experts: bool) -> Callable[[Replay], float | None]:
    def coefficient(each: Replay) -> float | None:
        line, numbers = each.line("graphs taken"), shape(each)
        if line is None or bool(numbers.target.experts) is not experts:
            return None
        sizes = capture_sizes(
            numbers.defaults, numbers.num_speculative_tokens, numbers.device, model_type=numbers.target.model_type
        )
        return line.measured * GIB / KIB / (len(numbers.layers) * len(sizes))

    return coefficient


_TERMS: Final[tuple[tuple[str, str, Callable[[Replay], float | None]], ...]] = (
    ("context, one rank", "GiB", _context(False)),
    ("context and communicators, several ranks", "GiB", _context(True)),
    ("driver growth, tp 1", "GiB", _growth(False)),
    ("driver growth, tp above 1", "GiB", _growth(True)),
    ("sampler, beside the logit", "B", _sampler),
    ("graphs taken, a layer and size, dense", "KiB", _graphs(False)),
    ("graphs taken, a layer and size, experts", "KiB", _graphs(True)),
)
