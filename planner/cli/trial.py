"""`specplan trial`: one pair, run on this machine, both ways."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from model_catalog.disk_repos import hub_cache_folder
from model_catalog.drafts import DraftMethod
from model_catalog.errors import ModelNotFoundError, UsageError
from model_catalog.model import Model
from model_catalog.snapshot_store import cache_folder
from planner.cli.failure import EXIT_NO, EXIT_OK, EXIT_UNSURE
from planner.cli.model_source import load_model
from planner.cli.options import apply, output_options, read_output, valued
from planner.cli.output import Output
from planner.cli.values import COUNT, MOST_SPECULATIVE_TOKENS
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Draft, Serving
from planner.engines.registry import engine_profile
from planner.errors import TrialError
from planner.memory.breakdown import Group
from planner.plan import make_plan
from planner.report.schemas import document_head
from planner.report.trial_text import trial_text
from planner.trial.embedded import EMBEDDED, embedded_folder, is_made
from planner.trial.protocol import DEEPEST_SWEPT, Event, TrialRequest
from planner.trial.runner import Outcome, run_trial
from planner.trial.summary import summarize, trial_mapping
from planner.workload import Workload

_EXIT: Final = {"helps": EXIT_OK, "hurts": EXIT_NO, "unsure": EXIT_UNSURE}
_DTYPES: Final = ("float32", "bfloat16", "float16")
_MAKING_SECONDS: Final = 120
_FULL_ROUNDS: Final = 4


@click.command("trial")
@click.argument("target")
@click.argument("draft")
@apply(
    click.option("--devices", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where."),
    click.option("--dtype", type=click.Choice(_DTYPES), help="Of both models.  [float32 on cpu, else bfloat16]"),
    click.option(
        "--num-speculative-tokens",
        type=click.IntRange(1, MOST_SPECULATIVE_TOKENS),
        metavar="K",
        help="Tokens the draft proposes a step.  [a sweep picks it]",
    ),
    click.option(
        "--trial-seconds",
        type=click.IntRange(1, 3600),
        default=60,
        show_default=True,
        help="At most so long, loading and warming aside; it ends earlier once the interval is narrow.",
    ),
    valued("--new-tokens", value=COUNT, text="Tokens a prompt.", default="128"),
    output_options(),
)
def command(target: str, draft: str, **given: object) -> int:
    """Run TARGET alone and with DRAFT, greedily, on 48 prompts of six tasks; measure whether the draft helps.

    Both are local folders with safetensors, repos in the Hub cache, or the embedded pair: specplan/tiny-target
    with specplan/tiny-draft, or with specplan/tiny-draft-bad.

    Exit code 0: the draft helps. 3: it hurts, or cannot serve this target. 4: the interval holds 1. 7: no result.
    """
    output = read_output(given)
    tokens = given["num_speculative_tokens"]
    k = tokens if isinstance(tokens, int) else None
    new_tokens = _enough(given["new_tokens"], DEEPEST_SWEPT if k is None else k)
    folders = [find_folder(name, output) for name in (target, draft)]
    device = str(given["devices"])
    dtype = str(given["dtype"] or ("float32" if device == "cpu" else "bfloat16"))
    models = [load_model(str(folder), offline=True, output=output, dtype=dtype) for folder in folders]
    _same_vocabulary(*models)
    request = TrialRequest(
        target_folder=str(folders[0]),
        draft_folder=str(folders[1]),
        device=device,
        dtype=dtype,
        num_speculative_tokens=k,
        new_tokens=new_tokens,
        seconds=_seconds(given["trial_seconds"]),
        threads=max(1, (os.cpu_count() or 2) // 2) if device == "cpu" else None,
    )
    output.advance("loading the pair")
    outcome = run_trial(request, watch=_Watcher(output).see)
    summary = summarize(request, outcome, planned_bytes(models[0], models[1], request, outcome))
    exit_code = _EXIT[summary.answer]
    output.document(
        {
            **document_head("trial", exit_code),
            "target": target,
            "draft": draft,
            "answer": summary.answer,
            "trial": trial_mapping(summary),
        }
    )
    output.answer(trial_text(target, draft, summary, quiet=output.quiet))
    return exit_code


def find_folder(name: str, output: Output) -> Path:
    """The folder of an embedded model (made on first use), a local folder, or a repo in the Hub cache.

    Raises:
        ModelNotFoundError: none of these.
        TrialError: the embedded pair cannot be made.
    """
    if name in EMBEDDED:
        root = cache_folder().parent
        if not is_made(root):
            output.advance("making the embedded pair")
            _make_embedded(root)
        return embedded_folder(root, name)
    if Path(name).is_dir():
        return Path(name).resolve()
    repo = hub_cache_folder() / f"models--{name.replace('/', '--')}"
    reference = repo / "refs" / "main"
    if reference.is_file():
        snapshot = repo / "snapshots" / reference.read_text(encoding="utf-8").strip()
        if any(snapshot.glob("*.safetensors")):
            return snapshot
    raise ModelNotFoundError(
        "a trial needs weights, and none are on this machine",
        subject=name,
        hint=f"download them first (hf download {name}), or give a local folder",
    )


def _make_embedded(root: Path) -> None:
    """Let a child make it: only children import torch."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "planner.trial.worker.make_embedded", str(root)],
            capture_output=True,
            text=True,
            timeout=_MAKING_SECONDS,
            check=False,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise _not_made("it took too long", "try again on a quieter machine") from error
    if done.returncode == 0:
        return
    reason = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
    hint = (
        "pip install 'specplan[trial]'"
        if "No module named" in reason
        else "make room in the cache folder, and run it again"
    )
    raise _not_made(reason, hint)


def _not_made(reason: str, hint: str) -> TrialError:
    return TrialError(
        f"the embedded pair cannot be made: {reason}", subject="trial", hint=hint, code="trial_embedded"
    )


def _same_vocabulary(target: Model, draft: Model) -> None:
    """Draft and target must speak of the same ids.

    Raises:
        UsageError: they do not.
    """
    ours, theirs = target.architecture.vocabulary_size, draft.architecture.vocabulary_size
    if ours != theirs:
        raise UsageError(
            f"its vocabulary of {theirs:,} is not the target's of {ours:,}",
            subject=draft.snapshot.repo_id,
            hint="choose a draft with the target's tokenizer; specplan drafts TARGET lists those known",
        )


def planned_bytes(target: Model, draft: Model, request: TrialRequest, outcome: Outcome) -> int | None:
    """What this backend's plan says of weights and caches; None where the child did not say how long they got.

    The device is of no account: these lines are the same on every one.
    """
    longest = outcome.memory.get("longest_tokens")
    if not longest:
        return None
    plan = make_plan(
        Serving(
            target=target,
            draft=Draft(
                method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=outcome.num_speculative_tokens, model=draft
            ),
            workload=Workload(context_tokens=longest, dtype=request.dtype),
        ),
        parse_gpu_option("l4"),
        engine_profile("transformers"),
        with_pool=False,
    )
    groups = {Group.TARGET_WEIGHTS, Group.DRAFT_WEIGHTS, Group.KV_CACHE}
    lines = [line for line in plan.ranks[0].breakdown.items if line.group in groups]
    return sum(line.high_bytes for line in lines)


class _Watcher:
    """Says how far the child has come."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._done = 0

    def see(self, event: Event) -> None:
        """Tell one event."""
        if event.name == "loaded":
            self._output.advance("warming up")
        elif event.name == "warmed":
            self._output.advance(f"measuring with {event.content.get('num_speculative_tokens')} tokens a step")
        elif event.name == "progress":
            self._done += 1
            self._output.advance(f"prompt {self._done} of {event.content.get('of')}")


def _seconds(given: object) -> float:
    return float(given) if isinstance(given, int) else 60.0


def _enough(given: object, k: int) -> int:
    """As many tokens as make a few full rounds even where every proposal is accepted.

    Raises:
        UsageError: for fewer, which would measure nothing.
    """
    least = _FULL_ROUNDS * (k + 1)
    if not isinstance(given, int) or given < least:
        raise UsageError(
            f"{given} new tokens are too few to measure", subject="--new-tokens", hint=f"give {least} or more"
        )
    return given
