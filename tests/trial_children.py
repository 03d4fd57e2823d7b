"""Scripted children of a trial for tests: they speak the protocol and import no torch."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest

from planner.cli import pair_trial
from planner.trial.backends import BACKENDS
from planner.trial.protocol import PromptRun

#: k = 2, ten rounds: 5 accept none, 2 accept one, 3 accept both; 1.5 times as fast.
RUN = PromptRun(
    prompt="code-1",
    task="code",
    baseline_tokens=18,
    baseline_seconds=1.8,
    baseline_passes=18,
    speculative_tokens=18,
    speculative_seconds=1.2,
    passes=10,
    rounds=10,
    prefill_seconds=0.1,
    accepted_counts=(5, 2, 3),
    draft_seconds=0.2,
    verify_seconds=1.0,
    same_tokens=True,
)
HEAD = """
import json, os, signal, sys, time
pipe = os.fdopen(int(sys.argv[1]), "w", buffering=1)
request = json.loads(sys.stdin.read())
def send(**event):
    pipe.write(json.dumps(event) + "\\n")
"""
LOADED = 'send(event="loaded", device="a device", versions={"torch": "9"})\n'


def progress(run: PromptRun) -> str:
    return f"send(event='progress', run=json.loads({json.dumps(asdict(run))!r}), of=48)\n"


def result(k: int = 2, **memory: int) -> str:
    held = {"tensor_bytes": 7, **memory}
    return (
        f'send(event="result", num_speculative_tokens={k}, stopped_by="interval", failures=[], '
        f'memory={held!r}, how="eager", repeats_spread=0.01)\n'
    )


def child_command(script: str) -> tuple[str, ...]:
    return ("-c", HEAD + script)


def runs(speedup: float, number: int = 12) -> Sequence[PromptRun]:
    """Alike prompts at this speedup, which must not exceed the run's 1.8 tokens a pass."""
    one = replace(RUN, speculative_seconds=RUN.baseline_seconds / speedup)
    return [replace(one, prompt=f"code-{position + 1}") for position in range(number)]


def behaving(speedup: float, **memory: int) -> str:
    return LOADED + "".join(map(progress, runs(speedup))) + result(**memory)


def use_child(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let the built-in backend start this script, whatever is installed here."""
    backend = replace(BACKENDS["builtin"], start=child_command(script), needs=())
    monkeypatch.setitem(BACKENDS, "builtin", backend)
    monkeypatch.setattr(
        pair_trial, "installed_versions", lambda: dict.fromkeys(pair_trial.NEEDED, "9"), raising=True
    )
    monkeypatch.setattr("planner.cli.trials.installed_versions", lambda: dict.fromkeys(pair_trial.NEEDED, "9"))
