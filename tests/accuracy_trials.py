"""The page's part about measured trials, from the figures that `make bench-trial` wrote on a quiet machine."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "trial.json"


def trials_section() -> str:
    """Verdicts, speedups, efficiency and memory of the embedded pairs; says so where nothing was measured."""
    if not RESULTS.is_file():
        return "## Measured trials\n\nNot measured yet: `make bench-trial` writes the figures.\n"
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    good, bad, library = found["good"], found["bad"], found["library"]
    versions = good[0]["versions"]
    rows = [_row("tiny-draft", good), _row("tiny-draft-bad", bad)]
    head = (
        "| draft | trials | right | speedup | lowest low end | highest high end | efficiency | memory | seconds |"
    )
    lines = [
        "## Measured trials",
        "",
        f"The embedded pairs on {found['machine']}, measured on {found['measured_on']} with torch "
        f"{versions['torch']} and transformers",
        f"{versions['transformers']}, float32, by `make bench-trial`. *Right*: the draft that helps has a speedup above "
        "1.5 with a low end above 1.2, the",
        "one that hurts stays below 0.7. *Efficiency*: the measured speedup over L t_T / (k t_D + t_V) of its own step "
        "times. *Memory*: bytes of the",
        "tensors held, against the plan. Speedup and efficiency: median, and range over the trials.",
        "",
        head,
        "|" + "---|" * 9,
        *rows,
        "",
        f"The library's own `generate(assistant_model=)` takes {library['ratio']:.2f} times as long as our loop on the "
        f"same pair, k = {library['num_speculative_tokens']}, {library['prompts']} prompts, in",
        f"turn; {library['same_tokens']} of {library['prompts']} outputs are equal token for token.",
        "",
        *_engines(found.get("engines", [])),
        "No figure on this page was measured on a GPU: `benchmarks/gpu_check.py` is the script for one.",
        "",
    ]
    return "\n".join(lines)


def _row(name: str, trials: list[dict[str, Any]]) -> str:
    speedups = sorted(row["speedup"]["value"] for row in trials)
    efficiencies = sorted(row["efficiency"] for row in trials)
    seconds = sorted(row["seconds"] for row in trials)
    shares = [row["memory"]["tensor_bytes"] / row["memory"]["predicted_bytes"] - 1 for row in trials]
    right = sum(row["right"] for row in trials)
    low = min(row["speedup"]["low"] for row in trials)
    high = max(row["speedup"]["high"] for row in trials)
    return (
        f"| {name} | {len(trials)} | {right} | {_median(speedups):.2f} ({speedups[0]:.2f} to {speedups[-1]:.2f}) | "
        f"{low:.2f} | {high:.2f} | {_median(efficiencies):.2f} ({efficiencies[0]:.2f} to {efficiencies[-1]:.2f}) | "
        f"{min(shares):+.1%} to {max(shares):+.1%} | {seconds[0]:.0f} to {seconds[-1]:.0f} |"
    )


def _engines(rows: list[dict[str, Any]]) -> list[str]:
    """The same pair in serving engines: acceptance must be the pair's, whoever runs it."""
    if not rows:
        return []
    return [
        "The same pair, prompts and k in serving engines on the CPU. Acceptance is the pair's own, whoever runs it; "
        "speedups are the engines':",
        "",
        "| backend | prompts | acceptance by position | speedup | tokens that differ |",
        "|---|---|---|---|---|",
        *(
            f"| {row['backend']} | {row['prompts']} | {', '.join(f'{rate:.3f}' for rate in row['by_position'])} | "
            f"{row['speedup']} | {row['diverged']} |"
            for row in rows
        ),
        "",
    ]


def _median(values: list[float]) -> float:
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
