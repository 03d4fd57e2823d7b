"""Known verdicts of known pairs under each engine, and the refusals that hold everywhere.

Sources of the verdicts: the engines' own checks, as the rule modules name them; reports are in the ids.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from made_models import llama, model_of

from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from model_catalog.tokenizer import TokenizerFacts, tokenizer_facts
from model_catalog.tokenizer_files import TokenizerFile
from planner.engines.base import Draft
from planner.speculation.compatibility import Check, Compatibility, CompatibilityVerdict
from planner.speculation.vocabulary_rules import judge_pair, judged_engines
from planner.workload import Workload

VERSIONS = {
    "vllm": "0.33.0",
    "sglang": "0.5.23",
    "llama.cpp": "11434",
    "tensorrt-llm": "1.2.1",
    "transformers": "5.24.0",
}
OK, WARNED, NO, UNKNOWN = (
    CompatibilityVerdict.ACCEPTED,
    CompatibilityVerdict.ACCEPTED_WITH_WARNING,
    CompatibilityVerdict.REFUSED,
    CompatibilityVerdict.UNKNOWN,
)
#: target, draft, verdicts of vLLM, SGLang, llama.cpp, TensorRT-LLM, transformers.
PAIRS = [
    # vLLM wants equal sizes (vllm#10913, #7252); llama.cpp allows 128 (SPEC_VOCAB_MAX_SIZE_DIFFERENCE).
    ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct", NO, NO, OK, OK, OK),
    ("Qwen/Qwen2.5-Coder-32B-Instruct", "Qwen/Qwen2.5-Coder-0.5B-Instruct", NO, NO, OK, OK, OK),
    ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", NO, NO, OK, OK, OK),
    ("google/gemma-3-27b-it", "google/gemma-3-1b-it", NO, NO, OK, OK, OK),
    # One tokenizer file for both, so every engine takes the pair.
    ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct", OK, OK, OK, OK, OK),
    ("openai/gpt-oss-120b", "openai/gpt-oss-20b", OK, OK, OK, OK, OK),
    ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-3B-Instruct", NO, NO, OK, OK, OK),
    # llama.cpp#22358: this pair was refused by mistake once and is valid. A recurrent target stops transformers.
    ("Qwen/Qwen3.6-27B", "Qwen/Qwen3.5-0.8B", OK, OK, OK, OK, NO),
    # Equal sizes, four ids differ: only engines that compare tokens notice (sglang#23838).
    ("Qwen/Qwen3-8B", "Qwen/Qwen2.5-0.5B-Instruct", WARNED, NO, NO, WARNED, WARNED),
    ("Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen3-0.6B", WARNED, NO, NO, WARNED, WARNED),
    # Llama 3.1 renamed special tokens of Llama 3.0.
    ("meta-llama/Meta-Llama-3-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct", WARNED, NO, NO, WARNED, WARNED),
    # Mistral v1 (32,000), v3 (32,768) and tekken (131,072) are three tokenizers.
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mistral-7B-Instruct-v0.3", NO, NO, NO, NO, OK),
    ("mistralai/Mistral-Small-24B-Instruct-2501", "mistralai/Mistral-7B-Instruct-v0.3", NO, NO, NO, NO, OK),
    ("mistralai/Mistral-Large-Instruct-2407", "mistralai/Mistral-7B-Instruct-v0.3", OK, OK, OK, OK, OK),
    # Equal sizes of strangers: 32,000 SentencePiece pieces each, hardly one alike.
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", NO, NO, NO, NO, NO),
    # lmstudio-bug-tracker#481 reports texts that differ; the files were not compared here.
    ("google/gemma-2-27b-it", "google/gemma-2-2b-it", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
]


def known(repo_id: str) -> Model:
    row = find_row(repo_id)
    assert row is not None, repo_id
    return describe(row)


def judged(
    engine: str,
    target: Model,
    draft: Model | None,
    *,
    method: DraftMethod = DraftMethod.DRAFT_MODEL,
    workload: Workload | None = None,
    version: str | None = None,
    draft_name: str | None = None,
    tokenizers: tuple[TokenizerFacts, TokenizerFacts] | None = None,
) -> Compatibility:
    ours, theirs = tokenizers or (tokenizer_facts(target), None if draft is None else tokenizer_facts(draft))
    return judge_pair(
        engine,
        version or VERSIONS[engine],
        target,
        Draft(method=method, num_speculative_tokens=4, model=draft),
        ours,
        theirs,
        workload or Workload(),
        draft_name=draft_name,
    )


def check(compatibility: Compatibility, name: str) -> Check:
    (found,) = [check for check in compatibility.checks if check.name == name]
    return found


@pytest.mark.parametrize(
    ("target", "draft", "engine", "verdict"),
    [
        pytest.param(target, draft, engine, verdict, id=f"{engine}: {target} + {draft}")
        for target, draft, *verdicts in PAIRS
        for engine, verdict in zip(VERSIONS, verdicts, strict=True)
    ],
)
def test_the_verdict_is_the_engines_own(
    target: str, draft: str, engine: str, verdict: CompatibilityVerdict
) -> None:
    compatibility = judged(engine, known(target), known(draft))
    assert compatibility.verdict is verdict, compatibility.failed


def test_every_engine_is_in_the_table() -> None:
    assert set(judged_engines()) == set(VERSIONS)


def test_vllm_names_both_sizes_and_the_way_out() -> None:
    """152,064 and 151,936 rows by the published configs; use_heterogeneous_vocab since 0.25."""
    target, draft = known("Qwen/Qwen2.5-72B-Instruct"), known("Qwen/Qwen2.5-0.5B-Instruct")
    found = check(judged("vllm", target, draft), "vocab_size")
    assert "152,064" in found.text
    assert "151,936" in found.text
    assert "128" in found.text
    assert found.remedy is not None
    assert '"use_heterogeneous_vocab": true' in found.remedy
    assert "Do not edit vocab_size" in found.remedy  # vllm#42775 calls that unsafe
    older = check(judged("vllm", target, draft, version="0.20.0"), "vocab_size")
    assert older.remedy is not None
    assert '"use_heterogeneous_vocab": true' not in older.remedy


def test_the_four_ids_of_qwen3_are_named() -> None:
    """151665 to 151668 (tool_response and think, each with its end) exist in Qwen3's tokenizer alone."""
    found = check(judged("vllm", known("Qwen/Qwen3-8B"), known("Qwen/Qwen2.5-0.5B-Instruct")), "same tokens")
    assert "4 ids differ" in found.text
    assert "151668: '</think>' / none" in found.text
    assert not found.by_engine


@pytest.mark.parametrize("engine", VERSIONS)
@pytest.mark.parametrize(
    "draft",
    [
        TokenizerFile(content=None, note="tokenizer.json is not in the repo"),
        TokenizerFile(content=b'{"model": {"vocab": {"a": "not a number"}}}'),
        TokenizerFile(content=b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"),
    ],
    ids=["missing", "malformed", "lfs pointer"],
)
def test_an_unreadable_tokenizer_is_never_accepted(engine: str, draft: TokenizerFile) -> None:
    target = model_of(llama(num_hidden_layers=8), "made/target")
    small = model_of(llama(), "made/draft")
    good = TokenizerFile(content=json.dumps({"model": {"vocab": {"a": 0, "b": 1}}}).encode())
    facts = (tokenizer_facts(target, good), tokenizer_facts(small, draft))
    assert judged(engine, target, small, tokenizers=facts).verdict is UNKNOWN


@pytest.mark.parametrize("engine", VERSIONS)
def test_a_target_is_not_its_own_draft(engine: str) -> None:
    model = known("Qwen/Qwen3-8B")
    compatibility = judged(engine, model, model)
    assert compatibility.verdict is NO
    assert check(compatibility, "another model").passed is False


def test_a_draft_must_be_smaller() -> None:
    compatibility = judged("vllm", known("Qwen/Qwen3-0.6B"), known("Qwen/Qwen3-8B"))
    assert compatibility.verdict is NO
    assert check(compatibility, "smaller").passed is False


def test_a_head_is_no_draft_model_and_a_model_is_no_head() -> None:
    head, target = known("RedHatAI/Qwen3-8B-speculator.eagle3"), known("Qwen/Qwen3-8B")
    assert check(judged("vllm", target, head), "kind").passed is False
    small = known("Qwen/Qwen3-0.6B")
    assert check(judged("vllm", target, small, method=DraftMethod.EAGLE3), "kind").passed is False


@pytest.mark.parametrize(
    ("target", "head", "method", "verdict"),
    [
        ("Qwen/Qwen3-8B", "RedHatAI/Qwen3-8B-speculator.eagle3", DraftMethod.EAGLE3, OK),
        ("Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16", DraftMethod.DFLASH, OK),
        ("meta-llama/Llama-3.1-8B-Instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", DraftMethod.EAGLE3, OK),
        # Hidden sizes 5120 (Qwen3-32B) and 4096 (the head's target); vocabularies 128,256 and 151,936.
        ("Qwen/Qwen3-32B", "RedHatAI/Qwen3-8B-speculator.eagle3", DraftMethod.EAGLE3, NO),
        ("meta-llama/Llama-3.1-8B-Instruct", "RedHatAI/Qwen3-8B-speculator.eagle3", DraftMethod.EAGLE3, NO),
    ],
)
def test_a_head_fits_its_own_target_only(
    target: str, head: str, method: DraftMethod, verdict: CompatibilityVerdict
) -> None:
    compatibility = judged("vllm", known(target), known(head), method=method)
    assert compatibility.verdict is verdict, compatibility.failed


def head_naming(verifier: str) -> Model:
    """An EAGLE-3 head in the speculators format that names its target."""
    config: Mapping[str, Any] = {
        **llama(num_hidden_layers=1),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": 500,
        "speculators_config": {"verifier": {"name_or_path": verifier}},
    }
    row = find_row("RedHatAI/Qwen3-8B-speculator.eagle3")
    assert row is not None
    return describe(replace(row, repo_id="made/head", config=config, published_parameters=None))


@pytest.mark.parametrize(
    ("verifier", "verdict"), [("made/target", OK), ("made/target-FP8-dynamic", OK), ("made/other", WARNED)]
)
def test_a_head_that_names_another_target_is_warned_about(verifier: str, verdict: CompatibilityVerdict) -> None:
    target = model_of(llama(num_hidden_layers=8), "made/target")
    compatibility = judged("vllm", target, head_naming(verifier), method=DraftMethod.EAGLE3)
    assert compatibility.verdict is verdict, compatibility.failed


def test_vllm_divides_the_drafts_heads_by_the_targets_tp() -> None:
    """Qwen2.5-0.5B has 14 attention heads by its published config: tp 4 does not divide them, tp 2 does."""
    target, draft = known("Qwen/Qwen2.5-3B-Instruct"), known("Qwen/Qwen2.5-0.5B-Instruct")
    assert judged("vllm", target, draft, workload=Workload(tp=2)).verdict is OK
    refused = judged("vllm", target, draft, workload=Workload(tp=4))
    assert refused.verdict is NO
    assert "14" in check(refused, "draft tp").text


def test_a_short_draft_caps_the_context_under_vllm() -> None:
    """vLLM's _limit_max_model_len_to_draft lowers the target's max_model_len to the draft's, with a warning."""
    target, draft = model_of(llama(num_hidden_layers=8), "made/t"), model_of(llama(max_position_embeddings=4096))
    same = TokenizerFile(content=json.dumps({"model": {"vocab": {"a": 0}}}).encode())
    facts = (tokenizer_facts(target, same), tokenizer_facts(draft, same))
    long = judged("vllm", target, draft, tokenizers=facts, workload=Workload(context_tokens=8192))
    assert long.verdict is WARNED
    assert "4,096" in check(long, "draft context").text
    fits = judged("vllm", target, draft, tokenizers=facts, workload=Workload(context_tokens=4096))
    assert fits.verdict is OK


@pytest.mark.parametrize("name", ["/models/EAGLE-tests/small", "me/small-eagle3", "/m/dflash/small", "me/dspark"])
def test_a_path_that_flips_vllms_method_is_refused(name: str) -> None:
    target, draft = known("Qwen/Qwen3-8B"), known("Qwen/Qwen3-0.6B")
    assert judged("vllm", target, draft, draft_name=name).verdict is NO
    assert judged("sglang", target, draft, draft_name=name).verdict is OK


@pytest.mark.parametrize(("version", "verdict"), [("0.15.0", NO), ("0.19.0", NO), ("0.20.0", OK), ("0.33.0", OK)])
def test_vllm_has_dflash_since_0_20(version: str, verdict: CompatibilityVerdict) -> None:
    target, head = known("Qwen/Qwen3-8B"), known("z-lab/Qwen3-8B-DFlash-b16")
    assert judged("vllm", target, head, method=DraftMethod.DFLASH, version=version).verdict is verdict


@pytest.mark.parametrize(
    ("target", "draft", "refused"),
    [
        ("state-spaces/mamba-2.8b-hf", None, True),
        ("state-spaces/mamba-2.8b-hf", "state-spaces/mamba-130m-hf", True),
        ("ibm-granite/granite-4.0-h-small", None, False),  # Mamba-2
        ("Qwen/Qwen3.5-27B", None, False),  # gated delta nets
        ("Qwen/Qwen3-8B", None, False),
    ],
)
def test_vllm_cannot_roll_back_mamba_1_layers(target: str, draft: str | None, refused: bool) -> None:
    # layers/mamba/mamba_mixer.py of vLLM 0.32.0 passes neither num_accepted_tokens nor query_start_loc.
    method = DraftMethod.NGRAM if draft is None else DraftMethod.DRAFT_MODEL
    found = judged("vllm", known(target), None if draft is None else known(draft), method=method)
    assert (found.verdict is NO) is refused
    assert ("target state" in {failed.name for failed in found.failed}) is refused


def test_built_in_methods_need_no_tokenizer() -> None:
    target = known("Qwen/Qwen3-8B")
    assert judged("vllm", target, None, method=DraftMethod.NGRAM).verdict is OK
    assert judged("vllm", target, None, method=DraftMethod.MTP).verdict is NO
    assert judged("vllm", known("deepseek-ai/DeepSeek-V3"), None, method=DraftMethod.MTP).verdict is OK


@pytest.mark.parametrize("engine", ["llama.cpp", "tensorrt-llm", "transformers"])
def test_first_generation_eagle_heads_are_refused_where_no_command_takes_them(engine: str) -> None:
    target, head = known("meta-llama/Llama-2-7b-chat-hf"), known("yuhuili/EAGLE-llama2-chat-7B")
    assert check(judged(engine, target, head, method=DraftMethod.EAGLE), "method").passed is False


def test_transformers_takes_one_sequence() -> None:
    target, draft = known("Qwen/Qwen3-8B"), known("Qwen/Qwen3-0.6B")
    assert judged("transformers", target, draft).verdict is OK
    assert judged("transformers", target, draft, workload=Workload(batch=2)).verdict is NO


def test_an_engine_without_a_rule_is_unknown() -> None:
    target, draft = known("Qwen/Qwen3-8B"), known("Qwen/Qwen3-0.6B")
    assert judged("exllama", target, draft, version="1").verdict is UNKNOWN


@pytest.mark.parametrize(
    ("flags", "ids", "passed"),
    [
        ((True, False), (1, 1), False),
        ((True, True), (1, 2), False),
        ((True, True), (1, 1), True),
        ((False, False), (1, 2), True),  # llama.cpp#22358: ids count only where they are added
        ((None, None), (1, 1), True),
        ((None, None), (1, 2), None),
    ],
)
def test_llama_cpp_compares_bos_only_where_it_is_added(
    flags: tuple[bool | None, bool | None], ids: tuple[int, int], passed: bool | None
) -> None:
    target, draft = known("Qwen/Qwen3-8B"), known("Qwen/Qwen2.5-0.5B-Instruct")
    facts = [
        TokenizerFacts(
            repo_id=model.snapshot.repo_id,
            config_vocabulary_size=151_936,
            family=tokenizer_facts(model).family,
            add_bos=flag,
            bos_id=number,
        )
        for model, flag, number in zip((target, draft), flags, ids, strict=True)
    ]
    compatibility = judged("llama.cpp", target, draft, tokenizers=(facts[0], facts[1]))
    assert check(compatibility, "bos and eos").passed is passed


def test_llama_cpp_wants_one_type_and_sizes_within_128() -> None:
    """koboldcpp#2325 (types) and llama.cpp#3812 (152,064 with 32,002)."""
    target, draft = known("Qwen/Qwen2.5-7B-Instruct"), known("cognitivecomputations/dolphin-2.5-mixtral-8x7b")
    small = model_of(llama(vocab_size=32_002), "made/small")
    assert check(judged("llama.cpp", target, small), "vocabulary size").passed is False
    ours, theirs = tokenizer_facts(target), tokenizer_facts(draft)
    unigram = TokenizerFacts(repo_id="x/y", config_vocabulary_size=152_064, model_type="Unigram")
    assert check(judged("llama.cpp", target, small, tokenizers=(ours, unigram)), "vocabulary type").passed is False
    assert check(judged("llama.cpp", target, small, tokenizers=(ours, theirs)), "vocabulary type").passed is None
