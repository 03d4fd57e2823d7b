"""Mean acceptance length L from conditional acceptance rates: tokens per target pass, bonus token included.

Pure formulas; where the rates come from is ``acceptance``'s.
"""

from collections.abc import Sequence
from typing import Final

from planner.speculation.prediction import Acceptance
from planner.speculation.ranges import Range

#: Conditional rates fall with the position. Fitted on 73 published pairs of a head and a benchmark with lengths at
#: k = 3 and k = 7 (sgl-project/SpecForge, spec_bundle raw data, Llama-4-Scout left out): a flat rate fitted at 3
#: predicts a length 5.7 % too long at 7; with this factor a position 0.0 % (single pairs -5 to +8 %).
DECAY_PER_POSITION: Final = 0.97


def geometric_length(rate: float, num_speculative_tokens: int) -> float:
    """Tokens per target pass where every position is accepted with the same ``rate``.

    (1 - a^(k+1)) / (1 - a): Leviathan et al. 2023 (arXiv:2211.17192), equation 1; positions taken as independent.
    """
    return sum(rate**position for position in range(num_speculative_tokens + 1))


def length_from_rates(rates: Sequence[float]) -> float:
    """1 + sum of the products a_1 ... a_i: what conditional rates by position give."""
    length = survival = 1.0
    for rate in rates:
        survival *= rate
        length += survival
    return length


def conditional_rates(unconditional: Sequence[float]) -> tuple[float, ...]:
    """Conditional rates from unconditional ones (vLLM's per-position acceptance): a_i = u_i / u_(i-1)."""
    rates: list[float] = []
    before = 1.0
    for value in unconditional:
        rates.append(value / before if before else 0.0)
        before = value
    return tuple(rates)


def decayed_rates(rate: float, count: int, decay: float = DECAY_PER_POSITION) -> tuple[float, ...]:
    """``count`` conditional rates: the first is ``rate``, each further one ``decay`` times the one before."""
    return tuple(rate * decay**position for position in range(count))


def rate_from_length(length: float, num_speculative_tokens: int, decay: float = DECAY_PER_POSITION) -> float:
    """The first position's rate for which ``decayed_rates`` give this mean length; between 0 and 1.

    Raises:
        ValueError: for a length outside 1 .. k + 1.
    """
    if not 1 <= length <= num_speculative_tokens + 1:
        raise ValueError(f"a mean length of {length} is impossible with k = {num_speculative_tokens}")
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if length_from_rates(decayed_rates(middle, num_speculative_tokens, decay)) < length:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def mean_acceptance_length(acceptance: Acceptance, num_speculative_tokens: int) -> Range:
    """L at this k: known positions as they are, later ones extrapolated with the acceptance's decay."""
    return Range(
        low=length_from_rates(_rates(acceptance, num_speculative_tokens, high=False)),
        high=length_from_rates(_rates(acceptance, num_speculative_tokens, high=True)),
    )


def _rates(acceptance: Acceptance, count: int, *, high: bool) -> tuple[float, ...]:
    known = [bound.high if high else bound.low for bound in acceptance.per_position[:count]]
    if not known:
        first = acceptance.rate.high if high else acceptance.rate.low
        return decayed_rates(first, count, acceptance.decay_per_position)
    beyond = decayed_rates(known[-1], count - len(known) + 1, acceptance.decay_per_position)[1:]
    return (*known, *beyond)
