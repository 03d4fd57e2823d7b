"""Was the plan right? Each planned figure beside the measured one, for the conditions that the trial ran under.

A trial confirms what it does not contradict: memory above the planned high end, or a speedup whose whole interval
lies outside the predicted range. Acceptance outside its range is told, but decides nothing by itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planner.speculation.prediction import Prediction
from planner.speculation.ranges import Range
from planner.trial.statistics import Estimate, Measured

MEMORY: Final = "memory"
SPEEDUP: Final = "speedup"
ACCEPTANCE: Final = "acceptance"


def compare_memory(planned: tuple[int, int] | None, held_bytes: int | None) -> dict[str, Any] | None:
    """Bytes held against the plan of the backend that ran; None where either is not known."""
    if planned is None or held_bytes is None:
        return None
    low, high = planned
    agrees = held_bytes <= high
    share = held_bytes / high - 1
    text = f"{share:+.1%} against the plan's high end" if agrees else f"{share:.1%} more than the plan's high end"
    return comparison(MEMORY, (low, high), (held_bytes, held_bytes), agrees=agrees, harmful=True, text=text)


def compare_speedup(prediction: Prediction | None, speedup: Estimate | None) -> dict[str, Any] | None:
    """The interval against the range predicted for the trial's own conditions; None where none was predicted."""
    if prediction is None or prediction.speedup is None or speedup is None:
        return None
    span, (low, high) = prediction.speedup, _ends(speedup)
    if high < span.low:
        text, agrees, harmful = f"slower than the predicted {_words(span)}", False, True
    elif low > span.high:
        text, agrees, harmful = f"faster than the predicted {_words(span)}", False, False
    else:
        text, agrees, harmful = f"predicted {_words(span)}", True, False
    return comparison(SPEEDUP, (span.low, span.high), (low, high), agrees=agrees, harmful=harmful, text=text)


def compare_acceptance(prediction: Prediction | None, measured: Measured) -> dict[str, Any] | None:
    """The rate over all positions against the range that was assumed; never decides."""
    rate = measured.acceptance_rate
    if prediction is None or rate is None:
        return None
    span = prediction.acceptance.rate
    where = "in" if span.low <= rate <= span.high else "below" if rate < span.low else "above"
    text = f"{rate:.2f}, {where} the assumed {_words(span)}"
    return comparison(ACCEPTANCE, (span.low, span.high), (rate, rate), agrees=None, harmful=False, text=text)


def outcome_of(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """Contradicts where one comparison disagrees, else confirms."""
    return "contradicts" if any(item["agrees"] is False for item in comparisons) else "confirms"


def comparison(
    name: str,
    planned: tuple[float, float],
    measured: tuple[float, float],
    *,
    agrees: bool | None,
    harmful: bool,
    text: str,
) -> dict[str, Any]:
    """One planned figure beside the measured one; ``agrees`` None decides nothing, ``harmful``: at a cost."""
    return {
        "name": name,
        "planned": {"low": planned[0], "high": planned[1]},
        "measured": {"low": measured[0], "high": measured[1]},
        "agrees": agrees,
        "harmful": harmful,
        "text": text,
    }


def _ends(estimate: Estimate) -> tuple[float, float]:
    low = estimate.value if estimate.low is None else estimate.low
    return low, estimate.value if estimate.high is None else estimate.high


def _words(span: Range) -> str:
    return f"{span.low:.2f} – {span.high:.2f}"
