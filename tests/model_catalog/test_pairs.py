"""The curated pairs: every row holds, and a repo gets the pairs of the model it is a variant of."""

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import model_catalog.pairs
from model_catalog.catalogue import catalogue_names, find_row
from model_catalog.config_reader import read_architecture
from model_catalog.drafts import DraftMethod
from model_catalog.families.heads import draft_head_method
from model_catalog.model import describe
from model_catalog.pairs import Pair, curated_pairs, pairs_for, targets_of
from model_catalog.repo_names import (
    family_of,
    head_method_in_name,
    major_family,
    names_model,
    size_in_name,
    states_other_use,
    untuned,
    variant_of,
    without_storage,
)
from model_catalog.snapshot import RepoKind

PAIRS = curated_pairs()
NAMES = frozenset(catalogue_names())
BOTH_KNOWN = [pair for pair in PAIRS if pair.target in NAMES and pair.draft in NAMES]
STAND_ALONE = [pair for pair in BOTH_KNOWN if pair.method is DraftMethod.DRAFT_MODEL]


def name(pair: Pair) -> str:
    return f"{pair.target} <- {pair.draft or pair.method.value}"


@cache
def vocabulary_and_size(repo_id: str) -> tuple[int, int]:
    snapshot = find_row(repo_id)
    assert snapshot is not None
    model = describe(snapshot)
    size = snapshot.published_parameters or model.weights.parameters
    assert size is not None
    return model.architecture.vocabulary_size, size


def shape(repo_id: str) -> tuple[int, int, int]:
    snapshot = find_row(repo_id)
    assert snapshot is not None
    spec = read_architecture(snapshot.config, subject=repo_id)
    return len(spec.decoder_layers), spec.hidden_size, spec.vocabulary_size


def test_enough_pairs_of_every_kind() -> None:
    """The catalogue's promise: at least 150 pairs whose target can be planned offline."""
    usable = [pair for pair in PAIRS if pair.target in NAMES]
    assert len(usable) >= 400
    counted = Counter(pair.method for pair in usable)
    assert counted[DraftMethod.DRAFT_MODEL] >= 300
    assert min(counted[method] for method in (DraftMethod.EAGLE3, DraftMethod.DFLASH, DraftMethod.MTP)) >= 15


def test_rows_are_sorted_distinct_and_have_a_source() -> None:
    path = Path(model_catalog.pairs.__file__).with_name("data") / "pairs.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["target"].lower() for row in rows] == sorted(row["target"].lower() for row in rows)
    assert len({(row["target"], row["draft"], row["method"]) for row in rows}) == len(rows) == len(PAIRS)
    assert all(set(row) == {"target", "draft", "method", "source"} for row in rows)
    assert all(len(pair.source) > 10 and pair.source.isprintable() for pair in PAIRS)


@pytest.mark.parametrize("pair", STAND_ALONE, ids=name)
def test_a_stand_alone_draft_is_smaller_and_speaks_the_same_vocabulary(pair: Pair) -> None:
    """Equal config vocab_size is vLLM's rule; up to 128 apart is llama.cpp's, and the row's source says so.

    Above 0.6 of its target a draft gains a quarter at the very most: 2 tokens for 1.6 steps at k = 1.
    """
    assert pair.draft is not None
    target_vocabulary, target_size = vocabulary_and_size(pair.target)
    draft_vocabulary, draft_size = vocabulary_and_size(pair.draft)
    assert draft_size < 0.6 * target_size
    if target_vocabulary == draft_vocabulary:
        assert "within llama.cpp's tolerance" not in pair.source
    else:
        assert abs(target_vocabulary - draft_vocabulary) <= 128
        assert str(draft_vocabulary) in pair.source


def test_methods_fit_the_drafts_names_and_rows() -> None:
    misnamed, misread = [], []
    for pair in PAIRS:
        if pair.draft is None:
            continue
        stated = None if pair.method is DraftMethod.DRAFT_MODEL else pair.method.value
        row = find_row(pair.draft)
        if head_method_in_name(pair.draft) != stated:
            misnamed.append(name(pair))
        if row is not None and (row.kind is RepoKind.DRAFT_HEAD) != (stated is not None):
            misread.append(name(pair))
        if row is not None and stated is not None and draft_head_method(row.config) != stated:
            misread.append(name(pair))
    assert (misnamed, misread) == ([], [])


@pytest.mark.parametrize(
    "pair", [pair for pair in BOTH_KNOWN if pair.method in {DraftMethod.EAGLE, DraftMethod.EAGLE3}], ids=name
)
def test_an_eagle_head_is_as_wide_as_its_target(pair: Pair) -> None:
    """An EAGLE head's layer works on the target's hidden states (arXiv:2401.15077; EAGLE-3: arXiv:2503.01840)."""
    target, head = find_row(pair.target), find_row(pair.draft or "")
    assert target is not None
    assert head is not None
    assert head.config["hidden_size"] == describe(target).architecture.hidden_size


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.draft is None], ids=name)
def test_a_built_in_draft_is_in_the_checkpoint(pair: Pair) -> None:
    row = find_row(pair.target)
    assert row is not None
    assert pair.method is DraftMethod.MTP
    assert describe(row).architecture.mtp_layers


@pytest.mark.parametrize(
    ("repo_id", "variant"),
    [
        # Published names of storage variants and of the model each holds.
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.3-70b-instruct"),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8", "llama-3.3-70b-instruct"),
        ("unsloth/Llama-3.3-70B-Instruct", "llama-3.3-70b-instruct"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b-instruct"),
        ("unsloth/Llama-3.2-1B-Instruct-unsloth-bnb-4bit", "llama-3.2-1b-instruct"),
        ("Qwen/Qwen3-32B-FP8-Static-PerTensor", "qwen3-32b"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b-instruct"),
        ("nvidia/Gemma-4-31B-IT-NVFP4", "gemma-4-31b-it"),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "nvidia-nemotron-3-ultra-550b-a55b"),
        ("google/gemma-3-12b-it-qat-q4_0-unquantized", "gemma-3-12b-it"),
        ("bartowski/Qwen3-8B-GGUF", "qwen3-8b"),
        # Not storage: these are models of their own.
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b-instruct-2507"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseek-r1-distill-qwen-7b"),
        ("someone/Fast-Dynamic", "fast-dynamic"),
        ("someone/bit-8bit-Model", "bit-8bit-model"),
        ("z-lab/Qwen3-8B-DFlash-b16", "qwen3-8b-dflash-b16"),
        ("awq", "awq"),
    ],
)
def test_the_variant_rule(repo_id: str, variant: str) -> None:
    assert variant_of(repo_id) == variant


def test_the_variant_rule_keeps_apart_what_the_catalogue_keeps_apart() -> None:
    """Repos that the rule calls one model have one number of layers, one width and one vocabulary."""
    variants: dict[str, list[str]] = {}
    for repo_id in NAMES:
        variants.setdefault(variant_of(repo_id), []).append(repo_id)
    shared = {key: names for key, names in variants.items() if len(names) > 1}
    assert len(shared) > 50
    assert {key: names for key, names in shared.items() if len(set(map(shape, names))) > 1} == {}


def test_storage_variants_share_every_pair_and_say_for_whom_it_was_stated() -> None:
    own = pairs_for("Qwen/Qwen3-8B")
    shared = pairs_for("nvidia/Qwen3-8B-NVFP4")
    assert [(pair.draft, pair.method) for pair in shared] == [(pair.draft, pair.method) for pair in own]
    assert {pair.draft for pair in own} >= {"RedHatAI/Qwen3-8B-speculator.eagle3", "Qwen/Qwen3-0.6B"}
    assert all(pair.source.endswith("(for Qwen/Qwen3-8B)") for pair in shared)


def test_another_tuning_shares_stand_alone_drafts_only() -> None:
    pairs = (
        Pair(target="o/M-8B-Instruct", draft="o/M-1B-Instruct", method=DraftMethod.DRAFT_MODEL, source="s"),
        Pair(target="o/M-8B-Instruct", draft="o/M-8B-EAGLE3", method=DraftMethod.EAGLE3, source="s"),
    )
    assert [pair.draft for pair in pairs_for("o/M-8B", pairs)] == ["o/M-1B-Instruct"]
    assert [pair.draft for pair in pairs_for("o/M-8B-Instruct-AWQ", pairs)] == ["o/M-1B-Instruct", "o/M-8B-EAGLE3"]
    own = Pair(target="o/M-8B", draft="o/M-1B", method=DraftMethod.DRAFT_MODEL, source="s")
    assert pairs_for("o/M-8B", (*pairs, own)) == (own,)


@pytest.mark.parametrize(
    "repo_id", ["someone/Novel-7B", "Qwen", "", "meta-llama/Llama-3.3-70B-Instruct-abliterated"]
)
def test_an_unknown_target_has_no_pairs(repo_id: str) -> None:
    assert pairs_for(repo_id) == ()


def test_a_head_knows_its_targets_and_a_model_has_none() -> None:
    assert targets_of("angelslim/qwen3-8b_eagle3") == ("Qwen/Qwen3-8B",)
    assert targets_of("Qwen/Qwen3-0.6B") == ()


@pytest.mark.parametrize(
    ("repo_id", "family", "major", "size"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3", "llama-3", 70 * 10**9),
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct-AWQ", "qwen2.5", "qwen2", 1_500_000_000),
        ("openai/gpt-oss-120b", "gpt-oss", "gpt-oss", 120 * 10**9),
        ("google/gemma-4-26B-A4B-it", "gemma-4", "gemma-4", 26 * 10**9),
        ("HuggingFaceTB/SmolLM2-135M", "smollm2", "smollm2", 135 * 10**6),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral", "mixtral", 56 * 10**9),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", "llama-3_3", "llama-3", 49 * 10**9),
        ("microsoft/phi-4", "phi-4", "phi-4", None),
    ],
)
def test_family_and_size_in_a_name(repo_id: str, family: str, major: str, size: int | None) -> None:
    assert (family_of(repo_id), major_family(repo_id), size_in_name(repo_id)) == (family, major, size)


@pytest.mark.parametrize(
    ("repo_id", "method"),
    [
        ("RedHatAI/Qwen3-8B-speculator.eagle3", "eagle3"),
        ("lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge", "eagle3"),
        ("nvidia/Llama-4-Maverick-17B-128E-Eagle3", "eagle3"),
        ("yuhuili/EAGLE-llama2-chat-7B", "eagle"),
        ("RedHatAI/Qwen3-8B-speculator.peagle", "peagle"),
        ("deepseek-ai/dspark_qwen3_8b_block7", "dspark"),
        ("google/gemma-4-31B-it-assistant", "mtp"),
        ("FasterDecoding/medusa-vicuna-7b-v1.3", "medusa"),
        ("someone/Beagle-7B", None),
        ("NousResearch/Yarn-Assistant-7B", None),
    ],
)
def test_the_method_in_a_heads_name(repo_id: str, method: str | None) -> None:
    assert head_method_in_name(repo_id) == method


def test_other_readings_of_a_name() -> None:
    assert names_model("Tengyunw/qwen3_8b_eagle3", "Qwen/Qwen3-8B-FP8")
    assert not names_model("Tengyunw/qwen3_80b_eagle3", "Qwen/Qwen3-8B")
    assert not names_model("Qwen/Qwen3-4B-eagle3", "Qwen/Qwen3-14B")
    assert states_other_use("Qwen/Qwen3-Embedding-0.6B")
    assert not states_other_use("Qwen/Qwen3-0.6B")
    assert without_storage("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4") == "Qwen/Qwen2.5-7B-Instruct"
    assert untuned("google/gemma-3-27b-it") == untuned("google/gemma-3-27b-pt") == "gemma-3-27b"
