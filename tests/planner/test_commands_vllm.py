"""The vLLM command: what is in it and what is left out, by release, in both forms."""

import ast
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_models import device, llama, model_of

from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.local_folder import load_folder
from model_catalog.model import Model, describe
from model_catalog.units import GIB
from planner.commands.base import StartCommand
from planner.commands.vllm import vllm_command
from planner.commands.vllm_versions import FIELD_SINCE, METHOD_SINCE, written
from planner.devices import Device
from planner.engines.base import Draft, Serving
from planner.engines.vllm import VllmProfile
from planner.planning import Plan, make_plan
from planner.workload import Workload

NEWEST = "0.33.0"
MTP = {
    "num_nextn_predict_layers": 2,
    "architectures": ["MiMoForCausalLM"],
    "model_type": "mimo",
}


def target(**changes: object) -> Model:
    return model_of(llama(**changes), "made/target")


def small(name: str = "made/draft", **changes: object) -> Model:
    return model_of(llama(num_hidden_layers=1, **changes), name)


def draft_of(model: Model | None, k: int = 4, method: DraftMethod = DraftMethod.DRAFT_MODEL) -> Draft:
    return Draft(method=method, num_speculative_tokens=k, model=model)


def workload_of(start: Workload, changes: Mapping[str, object]) -> Workload:
    """``replace`` takes no mapping of mixed values under strict types."""
    values: dict[str, Any] = dict(changes)
    return replace(start, **values)


def plan_of(
    draft: Draft | None = None, *, model: Model | None = None, card: Device | None = None, **work: object
) -> Plan:
    workload = workload_of(Workload(), work)
    serving = Serving(target=model or target(), draft=draft, workload=workload)
    cards = [card or device(80 * GIB)] * (workload.tp * workload.pp)
    return make_plan(serving, cards, VllmProfile())


def options(command: StartCommand) -> list[str]:
    """The words after ``vllm serve MODEL``."""
    assert command.argv[:2] == ("vllm", "serve")
    return list(command.argv[3:])


def speculation(command: StartCommand) -> dict[str, Any]:
    words = options(command)
    found: dict[str, Any] = json.loads(words[words.index("--speculative-config") + 1])
    return found


def python_arguments(command: StartCommand) -> dict[str, Any]:
    """The keyword arguments of the one ``LLM(...)`` call."""
    assert command.python is not None
    calls = [node for node in ast.walk(ast.parse(command.python)) if isinstance(node, ast.Call)]
    [made] = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "LLM"]
    return {str(word.arg): ast.literal_eval(word.value) for word in made.keywords}


def test_the_target_alone() -> None:
    command = vllm_command(plan_of(), version=NEWEST)
    assert command.argv == ("vllm", "serve", "made/target", "--max-model-len", "8192")
    assert command.notes == ()


def test_a_plain_draft() -> None:
    command = vllm_command(plan_of(draft_of(small())), version=NEWEST)
    assert options(command)[:2] == ["--max-model-len", "8192"]
    assert speculation(command) == {"method": "draft_model", "model": "made/draft", "num_speculative_tokens": 4}


@pytest.mark.parametrize(
    ("work", "words"),
    [
        pytest.param({"tp": 2}, ["--tensor-parallel-size", "2"], id="tp"),
        pytest.param({"pp": 2}, ["--pipeline-parallel-size", "2"], id="pp"),
        pytest.param({"expert_parallel": True}, ["--enable-expert-parallel"], id="ep"),
        pytest.param({"dtype": "float16"}, ["--dtype", "float16"], id="dtype"),
        pytest.param({"quantization": "fp8"}, ["--quantization", "fp8"], id="quantization"),
        pytest.param({"kv_cache_dtype": "fp8"}, ["--kv-cache-dtype", "fp8"], id="kv-cache-dtype"),
        pytest.param({"gpu_memory_utilization": 0.5}, ["--gpu-memory-utilization", "0.500"], id="fraction"),
        pytest.param({"gpu_memory_utilization": 0.8765}, ["--gpu-memory-utilization", "0.8765"], id="finer"),
        pytest.param({"gpu_memory_utilization": 0.92}, [], id="the-engines-own-fraction"),
        pytest.param({"max_num_seqs": 8}, ["--max-num-seqs", "8"], id="seqs"),
        pytest.param({"max_num_batched_tokens": 4096}, ["--max-num-batched-tokens", "4096"], id="tokens"),
        pytest.param({"block_size": 32}, ["--block-size", "32"], id="block"),
        pytest.param({"enforce_eager": True}, ["--enforce-eager"], id="eager"),
        pytest.param({"async_scheduling": False}, ["--no-async-scheduling"], id="async"),
        pytest.param({"kv_cache_memory_bytes": GIB}, ["--kv-cache-memory-bytes", "1073741824"], id="pinned"),
    ],
)
def test_each_setting_adds_its_own_words(work: dict[str, Any], words: list[str]) -> None:
    plain = options(vllm_command(plan_of(), version=NEWEST))
    given = options(vllm_command(plan_of(**work), version=NEWEST))
    rest = [word for word in given if word not in words]
    assert rest == [word for word in plain if word not in words]
    assert given[given.index(words[0]) : given.index(words[0]) + len(words)] == words if words else given == plain


def test_the_default_fraction_follows_the_release() -> None:
    """0.90 up to 0.19, 0.92 from 0.20 on (vllm/config/cache.py of the two wheels)."""
    plan = plan_of(gpu_memory_utilization=0.9)
    assert "--gpu-memory-utilization" not in options(vllm_command(plan, version="0.19.0"))
    assert "--gpu-memory-utilization" in options(vllm_command(plan, version="0.20.0"))


def test_a_pinned_cache_lowers_a_fraction_that_is_not_free() -> None:
    """The start-up check wants the fraction free, pinned or not: half of the card cannot pass with 0.92."""
    half = replace(device(80 * GIB), free_bytes=40 * GIB)
    words = options(vllm_command(plan_of(card=half, kv_cache_memory_bytes=GIB), version=NEWEST))
    fraction = float(words[words.index("--gpu-memory-utilization") + 1])
    assert 0.4 < fraction < 0.5


def test_draft_tensor_parallel_is_the_targets() -> None:
    """Other degrees are refused, and a draft is split over the target's group anyway."""
    assert (
        speculation(vllm_command(plan_of(draft_of(small()), tp=2), version=NEWEST))["draft_tensor_parallel_size"]
        == 2
    )
    ngram = vllm_command(plan_of(draft_of(None, method=DraftMethod.NGRAM), tp=2), version=NEWEST)
    assert speculation(ngram) == {"method": "ngram", "num_speculative_tokens": 4}


def test_revisions() -> None:
    def at(model: Model, revision: str | None) -> Model:
        return replace(model, snapshot=replace(model.snapshot, revision=revision))

    commit = "0123456789abcdef0123456789abcdef01234567"
    plan = plan_of(draft_of(at(small(), "v2")), model=at(target(), commit))
    command = vllm_command(plan, version=NEWEST)
    assert options(command)[:2] == ["--revision", commit]
    assert speculation(command)["revision"] == "v2"
    plan = plan_of(draft_of(at(small(), "main")), model=at(target(), "main"))
    assert "revision" not in vllm_command(plan, version=NEWEST).text


@pytest.mark.parametrize("method", list(METHOD_SINCE), ids=str)
def test_a_method_is_refused_before_its_first_release(method: DraftMethod) -> None:
    since = METHOD_SINCE[method]
    own = None if method in {DraftMethod.NGRAM, DraftMethod.MTP} else small()
    plan = plan_of(draft_of(own, method=DraftMethod.NGRAM if own is None else DraftMethod.DRAFT_MODEL))
    plan = replace(plan, serving=replace(plan.serving, draft=draft_of(own, method=method)))
    assert speculation(vllm_command(plan, version=written(since)))["method"] == method.value
    with pytest.raises(UsageError) as caught:
        vllm_command(plan, version=f"{since[0]}.{since[1] - 1}.0")
    if since > (0, 11):
        assert f"vllm=={written(since)}" in caught.value.hint


@pytest.mark.parametrize(
    ("field", "value", "draft", "work"),
    [
        pytest.param("use_heterogeneous_vocab", True, small(vocab_size=900), {}, id="other-vocabulary"),
        pytest.param("kv_cache_dtype", "fp8", small(), {"draft_kv_cache_dtype": "fp8"}, id="draft-cache-dtype"),
    ],
)
def test_a_field_is_refused_before_its_first_release(
    field: str, value: object, draft: Model, work: dict[str, Any]
) -> None:
    plan, since = plan_of(draft_of(draft), **work), FIELD_SINCE[field]
    assert speculation(vllm_command(plan, version=written(since)))[field] == value
    with pytest.raises(UsageError, match=field) as caught:
        vllm_command(plan, version=f"{since[0]}.{since[1] - 1}.0")
    assert f"vllm=={written(since)}" in caught.value.hint


def test_the_drafts_cache_dtype_is_said_only_where_it_differs() -> None:
    """Unset, the draft inherits the target's (SpeculativeConfig.kv_cache_dtype)."""
    plan = plan_of(draft_of(small()), kv_cache_dtype="fp8", draft_kv_cache_dtype="fp8")
    assert "kv_cache_dtype" not in speculation(vllm_command(plan, version="0.15.0"))


def test_varying_load() -> None:
    plan = plan_of(draft_of(small()), max_num_seqs=256)
    ranges = "num_speculative_tokens_per_batch_size"
    command = vllm_command(plan, version=NEWEST, load_varies=True, stops_paying_at_batch=32)
    assert speculation(command)[ranges] == [[1, 31, 4], [32, 256, 0]]
    assert ranges not in speculation(vllm_command(plan, version=NEWEST, stops_paying_at_batch=32))
    unknown = vllm_command(plan, version=NEWEST, load_varies=True)
    assert ranges not in speculation(unknown)
    assert "no smaller limit is known" in unknown.notes[0]
    old = vllm_command(plan, version="0.23.0", load_varies=True, stops_paying_at_batch=32)
    assert ranges not in speculation(old)
    assert "0.24.0" in old.notes[0]


@pytest.mark.parametrize(
    ("name", "flips"),
    [("made/eagle-tests", True), ("made/Dflash-free", True), ("made/eagles", False), ("made/draft", False)],
)
def test_a_name_that_flips_the_method_is_told(name: str, flips: bool) -> None:
    notes = vllm_command(plan_of(draft_of(small(name))), version=NEWEST).notes
    assert any("because of its name" in note for note in notes) is flips


@pytest.mark.parametrize(("k", "words"), [(2, None), (4, "repeatedly")])
def test_multi_token_layers_and_k(k: int, words: str | None) -> None:
    model = model_of(llama(**MTP), "made/mtp")
    command = vllm_command(plan_of(draft_of(None, k, DraftMethod.MTP), model=model), version=NEWEST)
    assert speculation(command) == {"method": "mtp", "num_speculative_tokens": k}
    assert len(model.architecture.mtp_layers) == 2
    assert (words in command.notes[0]) if words else command.notes == ()


def test_a_shorter_draft() -> None:
    plan = plan_of(draft_of(small(max_position_embeddings=16_384)))
    assert "caps the context at its own 16,384" in vllm_command(plan, version="0.33.0").notes[0]
    assert "beyond the draft's 16,384 tokens are not speculated" in vllm_command(plan, version="0.32.0").notes[0]


def test_other_notes() -> None:
    assert "last stage" in vllm_command(plan_of(draft_of(small()), pp=2), version=NEWEST).notes[0]
    assert "newer than" in vllm_command(plan_of(), version="0.34.0").notes[0]
    assert "--max-num-seqs 2000" in vllm_command(plan_of(batch=2000, context_tokens=128), version=NEWEST).notes[0]


@pytest.mark.parametrize("version", ["0.10.2", "0", "1"])
def test_releases_that_the_table_does_not_cover(version: str) -> None:
    with pytest.raises(UsageError, match="no command is known"):
        vllm_command(plan_of(), version=version)


def test_the_shell_reads_the_text_back() -> None:
    model = target()
    odd = replace(model, snapshot=replace(model.snapshot, folder='/models/it\'s; rm -rf $HOME `x` "y"'))
    command = vllm_command(plan_of(draft_of(small()), model=odd), version=NEWEST)
    assert tuple(shlex.split(command.text)) == command.argv
    assert python_arguments(command)["model"] == odd.snapshot.folder


def test_both_forms_say_the_same() -> None:
    plan = plan_of(draft_of(small()), tp=2, gpu_memory_utilization=0.5, enforce_eager=True, async_scheduling=False)
    command = vllm_command(plan, version=NEWEST)
    arguments = python_arguments(command)
    assert arguments.pop("model") == command.argv[2]
    assert arguments.pop("speculative_config") == speculation(command)
    # LLM() has other defaults for these two than the server (engine/arg_utils.py, get_batch_defaults).
    assert arguments.pop("max_num_seqs") == plan.defaults.max_num_seqs
    assert arguments.pop("max_num_batched_tokens") == plan.defaults.max_num_batched_tokens
    flags = set(re.findall(r"--(?:no-)?([a-z-]+)", " ".join(options(command)))) - {"speculative-config"}
    assert {name.replace("_", "-") for name in arguments} == flags


@pytest.mark.parametrize("name", ["-rf", "--model", "a\nb", "a\x1b[31m", ""])
def test_names_that_would_be_options_never_get_there(name: str) -> None:
    model = target()
    odd = replace(model, snapshot=replace(model.snapshot, repo_id=name))
    with pytest.raises(UsageError, match="cannot be written into a command"):
        vllm_command(plan_of(model=odd), version=NEWEST)


@pytest.mark.parametrize("field", ["dtype", "quantization"])
@pytest.mark.parametrize("value", ["--trust-remote-code", "fp8 x", "fp8\n", "f'p8"])
def test_settings_are_names(field: str, value: str) -> None:
    plan = plan_of()
    odd = workload_of(plan.serving.workload, {field: value})
    with pytest.raises(UsageError, match="is not a name"):
        vllm_command(replace(plan, serving=replace(plan.serving, workload=odd)), version=NEWEST)


def test_a_local_folder_is_named_by_its_whole_path(model_folder: Callable[[str, Mapping[str, Any]], Path]) -> None:
    """The path is for the command alone: a snapshot that travels does not hold it."""
    folder = model_folder("my model", llama())
    snapshot = load_folder(folder, repo_id="my model")
    command = vllm_command(plan_of(model=describe(snapshot)), version=NEWEST)
    assert command.argv[2] == str(folder.resolve())
    assert str(folder) not in json.dumps(snapshot.to_json())


@pytest.mark.parametrize(
    ("repo_id", "version", "words"),
    [
        # What vLLM 0.32.0 answers: "was supported in vLLM until v0.28.0", "are not supported for now".
        ("mosaicml/mpt-7b", "0.33.0", "vLLM 0.33.0 does not serve MPTForCausalLM; releases up to 0.28.0 did"),
        ("mosaicml/mpt-7b", "0.28.0", None),
        ("EleutherAI/gpt-neo-1.3B", "0.11.0", "vLLM does not serve GPTNeoForCausalLM"),
        ("facebook/opt-1.3b", "0.33.0", None),
    ],
)
def test_no_command_is_written_for_an_architecture_that_vllm_dropped(
    repo_id: str, version: str, words: str | None
) -> None:
    row = find_row(repo_id)
    assert row is not None
    plan = plan_of(model=describe(row), context_tokens=2048)
    if words is None:
        assert vllm_command(plan, version=version).argv[2] == repo_id
        return
    with pytest.raises(UsageError, match=words) as raised:
        vllm_command(plan, version=version)
    assert "--engine" in raised.value.hint
