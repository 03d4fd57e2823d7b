"""Commands for SGLang, TensorRT-LLM, llama.cpp and transformers, each in its own current words."""

import ast
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_models import device, llama, model_of

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.model import Model
from model_catalog.units import GIB
from planner.commands.base import StartCommand
from planner.commands.llama_cpp import llama_cpp_command
from planner.commands.registry import command_engines, start_command
from planner.commands.sglang import sglang_command
from planner.commands.tensorrt_llm import tensorrt_llm_command
from planner.commands.transformers import transformers_command
from planner.commands.vllm import vllm_command
from planner.devices import DeviceSource
from planner.engines.base import Draft, Serving
from planner.engines.vllm import VllmProfile
from planner.planning import Plan, make_plan
from planner.speculation.compatibility import Check, Compatibility, CompatibilityVerdict
from planner.speculation.vocabulary_rules import judged_engines
from planner.workload import Workload

PLAIN, HEAD = DraftMethod.DRAFT_MODEL, DraftMethod.EAGLE3
#: A file that holds llama.cpp's argument parser: llama-server itself, or a library made of it.
LLAMA_CPP = os.environ.get("SPECPLAN_LLAMA_CPP", "")


def plan_of(
    method: DraftMethod | None = PLAIN,
    k: int = 4,
    *,
    draft: Model | None = None,
    work: Mapping[str, object] | None = None,
    **more: object,
) -> Plan:
    """A plan of the target with a draft of this method; the draft's own memory is of no interest here."""
    values: dict[str, Any] = {**(work or {}), **more}
    workload = replace(Workload(), **values)
    serving = Serving(target=model_of(llama(), "made/target"), draft=None, workload=workload)
    plan = make_plan(serving, [device(80 * GIB)] * (workload.tp * workload.pp), VllmProfile())
    if method is None:
        return plan
    weightless = method in {DraftMethod.NGRAM, DraftMethod.MTP}
    model = None if weightless else draft or model_of(llama(num_hidden_layers=1), "made/draft")
    chosen = Draft(method=method, num_speculative_tokens=k, model=model)
    return replace(plan, serving=replace(serving, draft=chosen))


def at(model: Model, revision: str) -> Model:
    return replace(model, snapshot=replace(model.snapshot, revision=revision))


SGLANG = "python -m sglang.launch_server --model-path made/target"
CHAIN = "--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5"


@pytest.mark.parametrize(
    ("method", "work", "words"),
    [
        pytest.param(None, {}, "--context-length 8192", id="alone"),
        pytest.param(
            PLAIN,
            {},
            "--context-length 8192 --speculative-algorithm STANDALONE "
            f"--speculative-draft-model-path made/draft {CHAIN}",
            id="plain",
        ),
        pytest.param(
            HEAD,
            {"tp": 2},
            "--tp-size 2 --context-length 8192 --speculative-algorithm EAGLE3 "
            f"--speculative-draft-model-path made/draft {CHAIN}",
            id="eagle3",
        ),
        pytest.param(
            DraftMethod.MTP, {}, f"--context-length 8192 --speculative-algorithm NEXTN {CHAIN}", id="mtp"
        ),
        pytest.param(
            DraftMethod.NGRAM,
            {"pp": 2, "max_num_seqs": 8},
            "--pp-size 2 --context-length 8192 --max-running-requests 8 "
            "--speculative-algorithm NGRAM --speculative-num-draft-tokens 5",
            id="ngram",
        ),
        pytest.param(
            DraftMethod.DSPARK,
            {},
            "--context-length 8192 --speculative-algorithm DSPARK --speculative-draft-model-path made/draft "
            "--speculative-dspark-block-size 4",
            id="dspark",
        ),
        pytest.param(
            DraftMethod.DFLASH,
            {},
            "--context-length 8192 --speculative-algorithm DFLASH --speculative-draft-model-path made/draft",
            id="dflash",
        ),
        pytest.param(
            None,
            {
                "dtype": "bfloat16",
                "quantization": "fp8",
                "kv_cache_dtype": "fp8",
                "expert_parallel": True,
                "tp": 2,
            },
            "--tp-size 2 --ep-size 2 --context-length 8192 --dtype bfloat16 --quantization fp8 "
            "--kv-cache-dtype fp8_e4m3",
            id="settings",
        ),
    ],
)
def test_sglang(method: DraftMethod | None, work: Mapping[str, object], words: str) -> None:
    """Names: arg_groups/fields of SGLang 0.5.23; top-k 1 forces draft tokens = steps + 1 (speculative_hook)."""
    assert sglang_command(plan_of(method, work=work)).text == f"{SGLANG} {words}"


def test_sglang_serves_more_than_its_default_when_asked() -> None:
    """Speculation sets max_running_requests to 48 (speculative_hook.py)."""
    assert "--max-running-requests 64" in sglang_command(plan_of(batch=64)).text
    assert "--max-running-requests" not in sglang_command(plan_of(batch=48)).text
    assert "--max-running-requests" not in sglang_command(plan_of(None, batch=64)).text


def test_sglang_draft_cache_and_revision() -> None:
    draft = at(model_of(llama(num_hidden_layers=1), "made/draft"), "v2")
    text = sglang_command(plan_of(draft=draft, draft_kv_cache_dtype="fp8")).text
    assert "--speculative-draft-model-revision v2" in text
    assert text.endswith("--speculative-draft-kv-cache-dtype fp8_e4m3")
    with pytest.raises(UsageError, match="no cache of the dtype 'float16'"):
        sglang_command(plan_of(kv_cache_dtype="float16"))


def test_tensorrt_llm() -> None:
    """Keys: llmapi/llm_args.py; the page on speculative decoding shows the YAML."""
    plan = plan_of(tp=2, pp=2, kv_cache_dtype="fp8", max_num_seqs=8, max_num_batched_tokens=4096)
    command = tensorrt_llm_command(plan, stops_paying_at_batch=32)
    assert command.text == (
        "trtllm-serve made/target --tp_size 2 --pp_size 2 --max_seq_len 8192 --max_batch_size 8 "
        "--max_num_tokens 4096 --config specplan-tensorrt-llm.yaml"
    )
    assert command.files == (
        (
            "specplan-tensorrt-llm.yaml",
            'kv_cache_config:\n  dtype: "fp8"\n'
            "disable_overlap_scheduler: true\n"
            'speculative_config:\n  decoding_type: "Draft_Target"\n  max_draft_len: 4\n'
            '  speculative_model: "made/draft"\n  max_concurrency: 31\n',
        ),
    )


@pytest.mark.parametrize(
    ("method", "kind"),
    [(HEAD, "Eagle3"), (DraftMethod.MTP, "MTP"), (DraftMethod.NGRAM, "NGram"), (DraftMethod.DFLASH, "DFlash")],
)
def test_tensorrt_llm_decoding_types(method: DraftMethod, kind: str) -> None:
    [(_, content)] = tensorrt_llm_command(plan_of(method)).files
    assert f'decoding_type: "{kind}"' in content
    assert ("speculative_model" in content) is (method not in {DraftMethod.MTP, DraftMethod.NGRAM})
    assert ("disable_overlap_scheduler" in content) is (method is DraftMethod.NGRAM)


def test_tensorrt_llm_without_a_file() -> None:
    command = tensorrt_llm_command(plan_of(None))
    assert command.files == ()
    assert command.text == "trtllm-serve made/target --max_seq_len 8192"


@pytest.mark.parametrize("write", [tensorrt_llm_command, llama_cpp_command], ids=lambda write: write.__name__)
def test_first_generation_heads_are_refused(write: Callable[[Plan], StartCommand]) -> None:
    with pytest.raises(UsageError, match="does not take eagle heads"):
        write(plan_of(DraftMethod.EAGLE))


def test_a_yaml_string_cannot_break_out() -> None:
    model = model_of(llama(num_hidden_layers=1), "made/draft")
    odd = replace(model, snapshot=replace(model.snapshot, folder='/x: {y}\\ "# z'))
    [(_, content)] = tensorrt_llm_command(plan_of(draft=odd)).files
    assert content.splitlines()[-1] == '  speculative_model: "/x: {y}\\\\ \\"# z"'


LLAMA = "llama-server --model TARGET.gguf"


@pytest.mark.parametrize(
    ("method", "work", "words"),
    [
        pytest.param(None, {}, "--parallel 1 --ctx-size 8192 --n-gpu-layers all --fit off", id="alone"),
        pytest.param(
            PLAIN,
            {"batch": 4},
            "--parallel 4 --ctx-size 32768 --n-gpu-layers all --fit off --spec-type draft-simple "
            "--spec-draft-model DRAFT.gguf --spec-draft-ngl all --spec-draft-n-max 4",
            id="plain",
        ),
        pytest.param(
            DraftMethod.NGRAM,
            {},
            "--parallel 1 --ctx-size 8192 --n-gpu-layers all --fit off --spec-type ngram-simple "
            "--spec-ngram-simple-size-m 4",
            id="ngram",
        ),
        pytest.param(
            PLAIN,
            {"kv_cache_dtype": "bfloat16", "draft_kv_cache_dtype": "float16"},
            "--parallel 1 --ctx-size 8192 --n-gpu-layers all --cache-type-k bf16 --cache-type-v bf16 --fit off "
            "--spec-type draft-simple --spec-draft-model DRAFT.gguf --spec-draft-ngl all "
            "--spec-draft-type-k f16 --spec-draft-type-v f16 --spec-draft-n-max 4",
            id="cache-types",
        ),
    ],
)
def test_llama_cpp(method: DraftMethod | None, work: Mapping[str, object], words: str) -> None:
    assert llama_cpp_command(plan_of(method, work=work)).text == f"{LLAMA} {words}"


def test_llama_cpp_says_what_its_file_names_stand_for() -> None:
    notes = llama_cpp_command(plan_of(kv_cache_dtype="fp8", tp=2)).notes
    assert "TARGET.gguf stands for a GGUF file of made/target" in notes
    assert "DRAFT.gguf stands for a GGUF file of made/draft" in notes
    assert any("no fp8 cache" in note for note in notes)
    assert any("not tensor parallelism" in note for note in notes)


@pytest.mark.skipif(not LLAMA_CPP, reason="SPECPLAN_LLAMA_CPP does not name llama-server or a library made of it")
def test_llama_cpp_knows_every_word() -> None:
    """Each option and type stands in the binary as a string of its own; those that were removed say so there."""
    strings = set(re.findall(rb"[\x20-\x7e]+", Path(LLAMA_CPP).read_bytes()))
    words: set[str] = set()
    for method in (PLAIN, HEAD, DraftMethod.MTP, DraftMethod.DFLASH, DraftMethod.DSPARK, DraftMethod.NGRAM):
        plan = plan_of(method, kv_cache_dtype="bfloat16", draft_kv_cache_dtype="float16")
        argv = llama_cpp_command(plan).argv
        words |= {word for word in argv if word.startswith("--")} | {argv[argv.index("--spec-type") + 1]}
    assert {word for word in words if word.encode() not in strings} == set()
    assert b"the argument has been removed. " in strings


def calls_in(script: str) -> dict[str, dict[str, str]]:
    """Method name -> keyword arguments as source; two calls of one name keep the last."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found[node.func.attr] = {str(word.arg): ast.unparse(word.value) for word in node.keywords}
    return found


def test_transformers() -> None:
    command = transformers_command(plan_of())
    assert command.python is not None
    assert command.files == (("specplan_generate.py", command.python),)
    assert command.text == "python specplan_generate.py"
    generate = calls_in(command.python)["generate"]
    assert generate["assistant_model"] == "assistant"
    assert "assistant_tokenizer" not in generate
    # Defaults would be 20 tokens, and stopping early below a confidence of 0.4 (configuration_utils.py).
    assert "settings.num_assistant_tokens = 4\n" in command.python
    assert 'settings.num_assistant_tokens_schedule = "constant"\n' in command.python
    assert "settings.assistant_confidence_threshold = 0.0\n" in command.python


def test_transformers_wants_both_tokenizers_only_for_other_vocabularies() -> None:
    """generate() refuses assistant_tokenizer for equal vocab_size, and its absence otherwise (utils.py)."""
    other = model_of(llama(num_hidden_layers=1, vocab_size=900), "made/other")
    script = transformers_command(plan_of(draft=other)).python
    assert script is not None
    generate = calls_in(script)["generate"]
    assert generate["tokenizer"] == "tokenizer"
    assert generate["assistant_tokenizer"] == "assistant_tokenizer"


def test_transformers_prompt_lookup_and_refusals() -> None:
    script = transformers_command(plan_of(DraftMethod.NGRAM)).python
    assert script is not None
    assert calls_in(script)["generate"]["prompt_lookup_num_tokens"] == "4"
    assert "assistant" not in script
    with pytest.raises(UsageError, match="no script for eagle3 drafts"):
        transformers_command(plan_of(HEAD))
    with pytest.raises(UsageError, match="quantisation"):
        transformers_command(plan_of(quantization="fp8"))


@pytest.mark.parametrize(
    ("version", "word"), [("5.24.0", "dtype"), ("4.56.0", "dtype"), ("4.55.4", "torch_dtype")]
)
def test_transformers_names_the_dtype_as_its_release_does(version: str, word: str) -> None:
    script = transformers_command(plan_of(dtype="bfloat16"), version=version).python
    assert script is not None
    assert calls_in(script)["from_pretrained"][word] == "'bfloat16'"


def test_start_command_finds_the_engine() -> None:
    assert set(command_engines()) == set(judged_engines())
    plan = plan_of()
    for name in ("vllm", "sglang", "TensorRT-LLM", "tensorrt_llm", "llama.cpp", "llama_cpp", "transformers"):
        command = start_command(name, "0.33.0", plan)
        assert re.sub("[^a-z]", "", command.engine) == re.sub("[^a-z]", "", name.lower())
        assert tuple(shlex.split(command.text)) == command.argv
    assert start_command("vllm", "0.33.0", plan) == vllm_command(plan, version="0.33.0")
    with pytest.raises(UsageError, match=r"no engine .* is known"):
        start_command("triton", "1.0", plan)


def compatibility(verdict: CompatibilityVerdict, *checks: Check) -> Compatibility:
    return Compatibility(engine="vllm", verdict=verdict, checks=checks)


def test_start_command_and_the_pairs_checks() -> None:
    passed = Check(name="vocab_size", passed=True, text="equal")
    warned = Check(name="same tokens", passed=False, text="four ids differ", by_engine=False)
    wrong = Check(name="vocab_size", passed=False, text="sizes differ", remedy="choose another")
    plan = plan_of()
    noted = start_command(
        "vllm", "0.33.0", plan, compatibility(CompatibilityVerdict.ACCEPTED_WITH_WARNING, passed, warned)
    )
    assert noted.notes == ("four ids differ",)
    with pytest.raises(UsageError, match="sizes differ") as caught:
        start_command("vllm", "0.33.0", plan, compatibility(CompatibilityVerdict.REFUSED, passed, wrong))
    assert caught.value.hint == "choose another"


def test_a_plan_for_other_devices_than_the_first_says_so() -> None:
    live = replace(device(80 * GIB), source=DeviceSource.NVML, uuid="GPU-1")
    for index, told in ((0, False), (2, True)):
        serving = plan_of(None).serving
        notes = start_command(
            "vllm", "0.33.0", make_plan(serving, [replace(live, index=index)], VllmProfile())
        ).notes
        assert any("planned for GPU 2 (GPU-1) as rank 0" in note for note in notes) is told
