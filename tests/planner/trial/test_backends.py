"""Which backends there are, and the vLLM child against a stand-in for vLLM whose figures are known."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from planner.errors import TrialError
from planner.trial.backends import BACKENDS, VLLM, Backend
from planner.trial.protocol import Event, TrialRequest
from planner.trial.runner import Outcome, run_trial
from planner.trial.worker.vllm import engine as vllm_engine

#: A vLLM of 2 ms a pass. With a draft, rounds accept 0, 1, 2, ... proposals by turns.
STAND_IN = """
import itertools, json, os, time
from types import SimpleNamespace
__version__ = "9.9.9"
BEHAVIOUR = json.loads(os.environ.get("BEHAVIOUR", "{}"))

class SamplingParams:
    def __init__(self, **given):
        self.__dict__.update(given)

class LLM:
    def __init__(self, speculative_config=None, **given):
        print("Initializing a V1 LLM engine (v9.9.9) with config:")
        print("GPU KV cache size: 1,024 tokens, Maximum concurrency for 512 tokens per request: 2.00x", flush=True)
        print("given", json.dumps(given, sort_keys=True))
        if "start" in BEHAVIOUR:
            raise ValueError(BEHAVIOUR["start"])
        if "dies" in BEHAVIOUR and speculative_config:
            os._exit(5)
        self.spec = speculative_config
        mode = SimpleNamespace(name="NONE" if given.get("enforce_eager") else "FULL")
        self.llm_engine = SimpleNamespace(
            vllm_config=SimpleNamespace(compilation_config=SimpleNamespace(cudagraph_mode=mode)))
        self.drafts = self.drafted = self.iterations = 0
        self.per_pos = [0] * (speculative_config or {}).get("num_speculative_tokens", 0)
        self.clock = 100.0

    def generate(self, prompts, params, use_tqdm):
        assert params.ignore_eos and params.temperature == 0 and not use_tqdm
        if "refuses" in BEHAVIOUR and BEHAVIOUR["refuses"] in str(prompts):
            raise ValueError("too long a prompt")
        tokens, passes = params.max_tokens, params.max_tokens - 1
        if self.spec:
            k, passes = self.spec["num_speculative_tokens"], 0
            for sequence in prompts:
                made, rounds = 1, 0
                for accepted in itertools.cycle(range(k + 1)):
                    if made >= tokens:
                        break
                    made, rounds = made + accepted + 1, rounds + 1
                    self.drafts, self.drafted = self.drafts + 1, self.drafted + k
                    for position in range(accepted):
                        self.per_pos[position] += 1
                passes = max(passes, rounds)
        self.iterations += passes + 1
        begin, self.clock = self.clock, self.clock + 1 + 0.002 * passes
        metrics = SimpleNamespace(scheduled_ts=begin, first_token_ts=begin + 1, last_token_ts=self.clock)
        if "untold" in BEHAVIOUR:
            metrics = None
            time.sleep(0.002 * passes)
        last = 7 if self.spec and "differs" in BEHAVIOUR else 8
        return [SimpleNamespace(metrics=metrics, outputs=[SimpleNamespace(token_ids=[1] * (tokens - 1) + [last])])
                for _ in prompts]

    def get_metrics(self):
        found = [SimpleNamespace(name="vllm:other", value=3)]
        if "untold" not in BEHAVIOUR:
            found.append(SimpleNamespace(name="vllm:iteration_tokens_total", count=self.iterations))
        if self.spec:
            found += [
                SimpleNamespace(name="vllm:spec_decode_num_drafts", value=self.drafts),
                SimpleNamespace(name="vllm:spec_decode_num_draft_tokens", value=self.drafted),
                SimpleNamespace(name="vllm:spec_decode_num_accepted_tokens_per_pos", values=list(self.per_pos)),
            ]
        return found
"""
ARGUMENTS = """
import dataclasses

@dataclasses.dataclass
class EngineArgs:
    model: str
    tokenizer: str = ""
    skip_tokenizer_init: bool = False
    dtype: str = ""
    seed: int = 0
    load_format: str = ""
    trust_remote_code: bool = False
    disable_log_stats: bool = False
    enable_prefix_caching: bool = True
    max_num_seqs: int = 1
    max_model_len: int = 1
    enforce_eager: bool = False
    kv_cache_memory_bytes: int = 0
    gpu_memory_utilization: float = 0.9
    speculative_config: dict = None

    def create_engine_config(self):
        assert self.speculative_config
"""
PLATFORMS = """
class current_platform:
    device_type = "cpu"
"""
TORCH = """
def get_num_threads():
    return 2

class cuda:
    @staticmethod
    def is_initialized():
        return False
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {
        "vllm/__init__.py": STAND_IN,
        "vllm/engine/__init__.py": "",
        "vllm/engine/arg_utils.py": ARGUMENTS,
        "vllm/platforms/__init__.py": PLATFORMS,
        "torch/__init__.py": TORCH,
    }
    for name, text in files.items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def run(watch: list[Event] | None = None, behaviour: dict[str, object] | None = None, **changes: Any) -> Outcome:
    wanted = TrialRequest(target_folder="big", draft_folder="small", **{"new_tokens": 31, **changes})
    surroundings = {**VLLM.environment(wanted), "BEHAVIOUR": json.dumps(behaviour or {})}
    return run_trial(
        wanted,
        command=VLLM.command(sys.executable),
        environment=surroundings,
        watch=(watch if watch is not None else []).append,
    )


def failure(behaviour: dict[str, object] | None = None, **changes: Any) -> TrialError:
    with pytest.raises(TrialError) as raised:
        run(behaviour=behaviour, **changes)
    return raised.value


def test_both_engines_are_merged_prompt_by_prompt(stand_in: Path) -> None:
    """k = 2: rounds of 1, 2 and 3 tokens by turns, so 30 tokens after the first are 15 rounds, 5 of each kind."""
    events: list[Event] = []
    outcome = run(events, num_speculative_tokens=2)
    assert len(outcome.runs) == 48
    first = outcome.runs[0]
    assert (first.rounds, first.passes, first.accepted_counts) == (15, 15, (5, 5, 5))
    assert (first.baseline_tokens, first.baseline_passes, first.speculative_tokens) == (30, 30, 30)
    assert first.baseline_seconds == pytest.approx(0.060)
    assert first.speculative_seconds == pytest.approx(0.030)
    assert first.prefill_seconds == pytest.approx(1.0)
    assert (first.draft_seconds, first.verify_seconds) == (None, None)
    assert all(each.same_tokens for each in outcome.runs)
    assert outcome.repeats_spread == pytest.approx(0.0, abs=1e-9)
    assert outcome.versions["vllm"] == "9.9.9"
    assert (outcome.device, outcome.how, outcome.stopped_by) == ("CPU, 2 threads", "eager", "prompts")
    assert {name: log["kv_cache_tokens"] for name, log in outcome.engine.items()} == {
        "baseline": 1024,
        "speculative": 1024,
    }
    assert [event.name for event in events if event.name == "loaded"] == ["loaded"]


def test_a_batch_is_counted_by_sequence_and_timed_as_one(stand_in: Path) -> None:
    outcome = run(num_speculative_tokens=2, batch=3)
    first = outcome.runs[0]
    assert (first.rounds, first.passes, first.accepted_counts) == (45, 15, (15, 15, 15))
    assert (first.baseline_tokens, first.baseline_passes) == (90, 30)
    assert any("slowest" in note for note in outcome.notes)


def test_without_k_no_sweep_is_made_and_this_is_said(stand_in: Path) -> None:
    outcome = run()
    assert outcome.num_speculative_tokens == 3
    assert any("sweep" in note for note in outcome.notes)


def test_an_engine_that_tells_neither_times_nor_passes_is_timed_from_outside(stand_in: Path) -> None:
    outcome = run(behaviour={"untold": True}, num_speculative_tokens=2, batch=3)
    first = outcome.runs[0]
    assert (first.passes, first.baseline_passes) == (15, 30)
    assert 0.050 < first.baseline_seconds < 0.3
    assert any("does not count its passes" in note for note in outcome.notes)


def test_other_tokens_are_seen(stand_in: Path) -> None:
    assert not any(each.same_tokens for each in run(behaviour={"differs": True}).runs)


def test_a_prompt_that_is_refused_is_a_failure_and_the_rest_goes_on(stand_in: Path) -> None:
    outcome = run(behaviour={"refuses": "merges two sorted lists"}, new_tokens=31, batch=8)
    assert len(outcome.runs) == 5
    assert outcome.failures == ("code-1+7: too long a prompt",)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"engine_options": {"no_such": 1}}, "engine_options", "knows no no_such"),
        ({"engine_options": {"dtype": "half"}}, "engine_options", "sets dtype"),
        ({"engine_options": {"speculative_config": {"model": "x"}}}, "engine_options", "sets model"),
        ({"engine_options": {"max_num_seqs": 2}, "batch": 4}, "engine_options", "batch of 4"),
        ({"device": "cuda"}, "engine_refused", "runs on cpu"),
        ({"behaviour": {"start": "No available memory for the cache blocks."}}, "out_of_memory", "cache blocks"),
        ({"behaviour": {"start": "heads do not divide"}}, "engine_refused", "heads do not divide"),
        ({"behaviour": {"dies": True}}, "failed", "code 5"),
    ],
)
def test_what_stops_a_trial_has_a_code(stand_in: Path, changes: dict[str, Any], code: str, words: str) -> None:
    error = failure(**changes)
    assert error.code == f"trial_{code}"
    assert words in error.message


def test_an_interpreter_without_vllm_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise ImportError('No module named vllm')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert failure().code == "trial_missing_import"


def job(**changes: object) -> dict[str, Any]:
    plain = {
        "target": "big",
        "draft": "small",
        "dtype": "bfloat16",
        "seed": 3,
        "dummy": False,
        "batch": 4,
        "new_tokens": 64,
        "k": 3,
        "longest_bytes": 100,
        "options": {},
    }
    return {**plain, **changes}


KNOWN = frozenset({"max_model_len", "max_num_seqs", "gpu_memory_utilization", "quantization"})


def test_real_weights_come_from_safetensors_alone() -> None:
    real = vllm_engine.engine_arguments(job(), KNOWN, on_cpu=False)
    dummy = vllm_engine.engine_arguments(job(dummy=True), KNOWN, on_cpu=False)
    assert (real["load_format"], dummy["load_format"]) == ("safetensors", "dummy")
    assert (real["trust_remote_code"], dummy["trust_remote_code"]) == (False, False)


def test_the_options_of_the_plan_overrule_defaults() -> None:
    options = {
        "max_model_len": 4096,
        "quantization": "fp8",
        "speculative_config": {"draft_tensor_parallel_size": 2},
    }
    given = vllm_engine.engine_arguments(job(options=options), KNOWN, on_cpu=False)
    assert (given["max_model_len"], given["quantization"], given["max_num_seqs"]) == (4096, "fp8", 4)
    assert vllm_engine.speculative_arguments(job(options=options)) == {
        "method": "draft_model",
        "model": "small",
        "num_speculative_tokens": 3,
        "draft_tensor_parallel_size": 2,
    }


def test_every_text_fits_the_default_length() -> None:
    """Prompt, new tokens, and the k + 1 that a last round may write past them."""
    given = vllm_engine.engine_arguments(job(), KNOWN, on_cpu=False)
    assert given["max_model_len"] >= 100 + 64 + 3 + 1


@pytest.mark.parametrize(
    ("limits", "given", "expected"),
    [
        ([], {}, None),
        ([50, 40], {}, 0.4),
        ([50, 40], {"gpu_memory_utilization": 0.3}, 0.3),
        ([200, 200], {}, None),
    ],
)
def test_a_limit_of_memory_becomes_a_fraction(
    limits: list[int], given: dict[str, Any], expected: float | None
) -> None:
    assert vllm_engine.limited(given, limits, [100, 100]).get("gpu_memory_utilization") == expected


def test_counts_of_exactly_from_counts_of_at_least() -> None:
    """Ten rounds, of which 7 accepted one or more, 4 two or more, 4 three."""
    assert vllm_engine.accepted_counts(10, [7, 4, 4]) == [3, 3, 0, 4]


def test_times_span_the_whole_batch() -> None:
    stats = [
        SimpleNamespace(scheduled_ts=1.0, first_token_ts=1.5, last_token_ts=4.0),
        SimpleNamespace(scheduled_ts=1.1, first_token_ts=1.6, last_token_ts=5.0),
    ]
    outputs = [SimpleNamespace(metrics=entry) for entry in stats]
    prefill, decoding = vllm_engine.request_times(outputs)
    assert prefill == pytest.approx(0.5)
    assert decoding == pytest.approx(3.5)
    assert vllm_engine.request_times([SimpleNamespace(metrics=None)]) == (None, None)


def test_each_backend_is_known_by_its_name() -> None:
    assert {"builtin", "vllm"} <= set(BACKENDS)
    assert all(name == backend.name for name, backend in BACKENDS.items())


def test_a_command_runs_the_interpreter_that_was_named() -> None:
    assert BACKENDS["builtin"].command() == [sys.executable, "-m", "planner.trial.worker"]
    python, script = VLLM.command("/opt/engine/bin/python")
    assert python == "/opt/engine/bin/python"
    assert Path(script).is_file()


def test_the_engine_reports_to_nobody_and_stays_off_the_network() -> None:
    given = VLLM.environment(TrialRequest(target_folder="a", draft_folder="b", device="cuda"))
    assert (given["VLLM_NO_USAGE_STATS"], given["HF_HUB_OFFLINE"]) == ("1", "1")
    assert "VLLM_CPU_KVCACHE_SPACE" not in given


def test_a_pool_on_a_cpu_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    plain = TrialRequest(target_folder="a", draft_folder="b", threads=2)
    pinned = TrialRequest(target_folder="a", draft_folder="b", engine_options={"kv_cache_memory_bytes": 1 << 28})
    assert VLLM.environment(plain)["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert VLLM.environment(plain)["OMP_NUM_THREADS"] == "2"
    assert "VLLM_CPU_KVCACHE_SPACE" not in VLLM.environment(pinned)


def made(*needs: str) -> Backend:
    return Backend(name="made", start=("x.py",), needs=needs, hint="", start_seconds=1.0)


def test_what_is_usable_and_why_not(tmp_path: Path) -> None:
    assert made("click").usable(sys.executable) is None
    assert made("no-such-thing,click").usable() is None
    assert "does not have no-such-thing" in str(made("click", "no-such-thing").usable())
    assert "cannot be run" in str(made("click").usable(str(tmp_path / "nowhere")))
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    assert "not a usable Python: broken" in str(made("click").usable(str(broken)))
    assert "no interpreter" in str(VLLM.usable())
