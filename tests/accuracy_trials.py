"""The page's part about measured trials, from the figures that `make bench-trial` wrote on a quiet machine."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "trial.json"
_PAIRS = """\
## Measured trials

The embedded pairs on {machine}, measured on {day} with torch {torch} and
transformers {transformers}, float32, by `make bench-trial`. *Right*: the draft that helps has a speedup above 1.5
with a low end above 1.2, the one that hurts stays below 0.7. *Efficiency*: the measured speedup over
L t_T / (k t_D + t_V) of its own step times. *Memory*: bytes of the tensors held, against the plan. Speedup,
efficiency and seconds: median, and range over the trials.

{table}

The library's own `generate(assistant_model=)` takes {ratio:.2f} times as long as our loop on the same pair, with
k = {k}, {prompts} prompts, in turn; {same} of {prompts} outputs are equal token for token.
"""
_ENGINES = """
The same pair, prompts and k = 4 in our loop and in a serving engine on the CPU. Acceptance is the pair's own,
whoever runs it; the speedup is the engine's.

{table}
"""
_END = "\nNo figure on this page was measured on a GPU: `benchmarks/gpu_check.py` is the script for one.\n"


def trial_sections() -> tuple[str, ...]:
    """Verdicts, speedups, efficiency and memory of the embedded pairs; says so where nothing was measured."""
    if not RESULTS.is_file():
        return ("## Measured trials\n\nNot measured yet: `make bench-trial` writes the figures.\n",)
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    versions, library = found["good"][0]["versions"], found["library"]
    heads = ("draft", "trials", "right", "speedup", "ends of all intervals", "efficiency", "memory", "seconds")
    text = _PAIRS.format(
        machine=found["machine"],
        day=found["measured_on"],
        torch=versions["torch"],
        transformers=versions["transformers"],
        table=_table(heads, [_pair("tiny-draft", found["good"]), _pair("tiny-draft-bad", found["bad"])]),
        ratio=library["ratio"],
        k=library["num_speculative_tokens"],
        prompts=library["prompts"],
        same=library["same_tokens"],
    )
    engines = found.get("engines", [])
    if engines:
        columns = ("backend", "prompts", "acceptance by position", "speedup", "prompts that differ")
        text += _ENGINES.format(table=_table(columns, map(_engine, engines)))
    return (text + _END,)


def _pair(name: str, trials: list[dict[str, Any]]) -> tuple[str, ...]:
    memory = [100 * (row["memory"]["tensor_bytes"] / row["memory"]["predicted_bytes"] - 1) for row in trials]
    low = min(row["speedup"]["low"] for row in trials)
    high = max(row["speedup"]["high"] for row in trials)
    return (
        name,
        str(len(trials)),
        str(sum(row["right"] for row in trials)),
        _spread([row["speedup"]["value"] for row in trials], 2),
        f"{low:.2f} to {high:.2f}",
        _spread([row["efficiency"] for row in trials], 2),
        f"{min(memory):+.1f} to {max(memory):+.1f} %",
        _spread([row["seconds"] for row in trials], 0),
    )


def _engine(row: dict[str, Any]) -> tuple[str, ...]:
    positions = ", ".join(f"{rate:.3f}" for rate in row["by_position"])
    return (row["backend"], str(row["prompts"]), positions, row["speedup"], row["diverged"])


def _spread(values: Sequence[float], digits: int) -> str:
    middle, low, high = (f"{value:.{digits}f}" for value in (median(values), min(values), max(values)))
    return f"{middle} ({low} to {high})"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
