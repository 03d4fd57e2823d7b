"""Facts about tokenizers and their comparison: by hash, by vocabulary, by the table of published families."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_models import llama, model_of

from model_catalog.catalogue import catalogue_names, find_row
from model_catalog.model import Model, describe
from model_catalog.snapshot import RepoFile, TokenizerFingerprint
from model_catalog.tokenizer import (
    Sameness,
    TokenizerFacts,
    compare_tokenizers,
    reading_would_help,
    tokenizer_facts,
)
from model_catalog.tokenizer_families import all_families, family_of_hash, find_difference, find_family
from model_catalog.tokenizer_files import TokenizerFile, file_hashes


def known(repo_id: str) -> TokenizerFacts:
    row = find_row(repo_id)
    assert row is not None, repo_id
    return tokenizer_facts(describe(row))


def file_of(vocab: dict[str, int], added: dict[str, int] | None = None) -> TokenizerFile:
    rows = [{"id": number, "content": token} for token, number in (added or {}).items()]
    document = {"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": rows}
    return TokenizerFile(content=json.dumps(document).encode())


def read(
    vocab: dict[str, int], added: dict[str, int] | None = None, repo_id: str = "made/model"
) -> TokenizerFacts:
    return tokenizer_facts(model_of(llama(), repo_id), file_of(vocab, added))


def listed(hash_of: str, name: str, size: int | None = 5_000, repo_id: str = "made/one") -> TokenizerFacts:
    """A model of which only the listing was read."""
    model = model_of(llama(), repo_id)
    files = (RepoFile(path=name, size_bytes=size),)
    snapshot = replace(model.snapshot, files=files, tokenizer=TokenizerFingerprint(file_hash=hash_of))
    return tokenizer_facts(
        Model(
            snapshot=snapshot,
            architecture=model.architecture,
            quantization=model.quantization,
            weights=model.weights,
        )
    )


WORDS = {f"w{number}": number for number in range(1000)}


def test_equal_files_need_no_reading() -> None:
    ours, theirs = listed("sha256:ab", "tokenizer.json"), listed("sha256:ab", "tokenizer.json", repo_id="made/two")
    comparison = compare_tokenizers(ours, theirs)
    assert comparison.sameness is Sameness.SAME
    assert comparison.differing_ids == 0
    assert "identical" in comparison.basis
    assert not reading_would_help(ours, theirs)


@pytest.mark.parametrize(
    ("name", "size", "same"),
    [
        ("tokenizer.json", None, True),
        ("tekken.json", 10_000_000, True),
        ("tokenizer.model", 500_000, False),  # SentencePiece alone: Llama-2's is Phi-3's, added tokens differ
        ("vocab.json", 500_000, False),
        ("tokenizer.json", 18, False),  # too short to hold a vocabulary
    ],
)
def test_an_equal_hash_counts_for_whole_tokenizers_only(name: str, size: int | None, same: bool) -> None:
    comparison = compare_tokenizers(listed("git:1", name, size), listed("git:1", name, size, "made/two"))
    assert (comparison.sameness is Sameness.SAME) is same
    assert same or comparison.sameness is Sameness.UNKNOWN


def test_a_read_file_matches_a_listed_hash_of_either_kind() -> None:
    file = file_of(WORDS)
    assert file.content is not None
    ours = tokenizer_facts(model_of(llama()), file)
    for listed_hash in file_hashes(file.content):
        assert compare_tokenizers(ours, listed(listed_hash, "tokenizer.json")).sameness is Sameness.SAME


def test_different_files_with_equal_vocabularies_are_the_same() -> None:
    """Whether a token stands in the base table or among the added ones changes no id."""
    comparison = compare_tokenizers(read(WORDS), read(WORDS, {"w999": 999}))
    assert comparison.sameness is Sameness.SAME
    assert "1,000" in comparison.basis


def test_ids_of_one_side_only_differ() -> None:
    """Four added tokens: the shape of Qwen2.5 against Qwen3."""
    added = {"<tool_response>": 1000, "</tool_response>": 1001, "<think>": 1002, "</think>": 1003}
    comparison = compare_tokenizers(read(WORDS), read(WORDS, added))
    assert comparison.sameness is Sameness.DIFFERENT
    assert comparison.differing_ids == 4
    assert comparison.differing_ranges == ((1000, 1003),)
    assert comparison.equal_up_to == 1000
    assert comparison.examples[0] == "1000: none / '<tool_response>'"
    assert not comparison.unrelated
    assert comparison.differs_within(5, 1000) is False
    assert comparison.differs_within(5, 1001) is True


def test_swapped_tokens_are_two_ids_and_are_printed_escaped() -> None:
    swapped = {**WORDS, "w7": 8, "w8": 7, "\x1b[31m": 1000}
    comparison = compare_tokenizers(read(WORDS), read(swapped))
    assert comparison.differing_ranges == ((7, 8), (1000, 1000))
    assert comparison.examples == ("7: 'w7' / 'w8'", "8: 'w8' / 'w7'", "1000: none / '\\x1b[31m'")


def test_strangers_are_unrelated_and_examples_stay_few() -> None:
    other = {f"v{number}": number for number in range(1000)}
    comparison = compare_tokenizers(read(WORDS), read(other))
    assert comparison.unrelated
    assert comparison.differing_ids == 1000
    assert len(comparison.examples) == 4


@given(
    st.dictionaries(st.text(max_size=3), st.integers(0, 300), min_size=1),
    st.dictionaries(st.text(max_size=3), st.integers(0, 300), min_size=1),
)
def test_comparing_is_symmetric_and_counts_every_id(ours: dict[str, int], theirs: dict[str, int]) -> None:
    """Against the plain definition: an id differs when its set of tokens does."""
    forth = compare_tokenizers(read(ours), read(theirs))
    back = compare_tokenizers(read(theirs), read(ours))
    differing = {
        number
        for number in range(301)
        if {t for t, n in ours.items() if n == number} != {t for t, n in theirs.items() if n == number}
    }
    assert forth.sameness is back.sameness
    assert forth.differing_ids == back.differing_ids == len(differing)
    assert forth.sameness is (Sameness.DIFFERENT if differing else Sameness.SAME)
    assert forth.differs_within(0, 301) is bool(differing)


@pytest.mark.parametrize(
    ("file", "note"),
    [
        (TokenizerFile(content=None, note="made/model: has no tokenizer.json"), "has no tokenizer.json"),
        (TokenizerFile(content=b"{"), "not JSON"),
        (TokenizerFile(content=b'{"model": {"vocab": {"a": null}}}'), "not a number in range"),
    ],
)
def test_what_cannot_be_read_is_unknown_with_the_reason(file: TokenizerFile, note: str) -> None:
    facts = tokenizer_facts(model_of(llama()), file)
    assert facts.vocabulary is None
    assert facts.file_hashes == ()
    comparison = compare_tokenizers(read(WORDS), facts)
    assert comparison.sameness is Sameness.UNKNOWN
    assert note in comparison.basis
    assert comparison.differs_within(5, 10) is None
    assert not reading_would_help(read(WORDS), facts)


def test_reading_helps_where_nothing_is_known_yet() -> None:
    assert reading_would_help(listed("sha256:a", "tokenizer.json"), listed("sha256:b", "tokenizer.json"))
    assert not reading_would_help(known("Qwen/Qwen3-8B"), known("Qwen/Qwen3-0.6B"))


def test_facts_of_a_file() -> None:
    model = model_of(llama(bos_token_id=1, eos_token_id=[3, 2]))
    facts = tokenizer_facts(model, file_of({"a": 0, "<s>": 1}, {"</s>": 2, "<|end|>": 3}))
    assert (facts.bos, facts.bos_id, facts.eos, facts.eos_id) == ("<s>", 1, "<|end|>", 3)
    assert (facts.length, facts.max_id_plus_1, facts.config_vocabulary_size) == (4, 4, 1000)
    assert facts.model_type == "BPE"
    assert facts.source == "tokenizer.json"


@pytest.mark.parametrize("value", [True, -1, "1", [], 2**40, 1.0])
def test_odd_token_ids_in_a_config_are_no_ids(value: object) -> None:
    assert tokenizer_facts(model_of(llama(bos_token_id=value))).bos_id is None


@pytest.mark.parametrize(
    ("first", "second", "sameness", "count"),
    [
        # Added tokens by the repos' tokenizer_config.json: Qwen2 3, Qwen2.5 22, Qwen3 26, from id 151643.
        ("Qwen/Qwen2-7B", "Qwen/Qwen2.5-0.5B", Sameness.DIFFERENT, 19),
        ("Qwen/Qwen2.5-3B", "Qwen/Qwen3-0.6B", Sameness.DIFFERENT, 4),
        ("Qwen/Qwen2-1.5B", "Qwen/Qwen3-32B", Sameness.DIFFERENT, 23),
        ("Qwen/Qwen2.5-72B", "Qwen/Qwen2.5-Coder-0.5B", Sameness.SAME, 0),
        ("nvidia/Qwen3-8B-FP8", "Qwen/Qwen3-0.6B", Sameness.SAME, 0),
        # Llama 3.0's reserved tokens end at 250, Llama 3.1's at 247, both at id 128255.
        ("meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3.2-1B", Sameness.DIFFERENT, 249),
        ("meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.2-3B", Sameness.SAME, 0),
        ("mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-v0.3", Sameness.DIFFERENT, None),
        ("Qwen/Qwen3-8B", "meta-llama/Llama-3.2-1B", Sameness.DIFFERENT, None),
        # Related, but nobody has said which ids differ.
        (
            "mistralai/Mistral-Nemo-Instruct-2407",
            "mistralai/Mistral-Small-24B-Instruct-2501",
            Sameness.UNKNOWN,
            None,
        ),
        # A fine-tune may have added tokens: its name proves nothing.
        ("cognitivecomputations/Dolphin3.0-R1-Mistral-24B", "Qwen/Qwen3-0.6B", Sameness.UNKNOWN, None),
    ],
)
def test_published_families(first: str, second: str, sameness: Sameness, count: int | None) -> None:
    comparison = compare_tokenizers(known(first), known(second))
    assert comparison.sameness is sameness, comparison.basis
    assert comparison.differing_ids == count
    turned = compare_tokenizers(known(second), known(first))
    assert (turned.sameness, turned.differing_ids) == (sameness, count)


def test_rows_of_the_table_hold_together() -> None:
    """A token needs a row: no family is longer than the smallest embedding among its repos in the catalogue."""
    names = [family.name for family in all_families()]
    assert len(names) == len(set(names))
    for name in catalogue_names():
        family, rows = find_family(name), known(name).config_vocabulary_size
        # Gemma 3 1B and 270M leave the image token without a row (262,145 tokens, 262,144 rows).
        if family is not None and family.length is not None and rows is not None and family.name != "gemma3":
            assert family.length <= rows, name


def test_every_family_has_a_source_and_matches_a_repo_of_its_own_alone() -> None:
    for family in all_families():
        assert family.source
        assert family.repos
        for pattern in family.repos:
            repo_id = pattern.replace("*", "x1")
            if any(sign in pattern for sign in "[]?"):
                continue
            others = [other.name for other in all_families() if other is not family and other.has(repo_id)]
            assert not others or not family.has(repo_id), f"{repo_id} is in {family.name} and {others}"


def test_differences_lie_beyond_the_shorter_or_inside_both() -> None:
    """Where the lengths of two related families differ, so many ids at least must differ."""
    families = {family.name: family for family in all_families()}
    found = 0
    for first in families.values():
        for second in families.values():
            known_difference = find_difference(first.name, second.name)
            if known_difference is None:
                continue
            found += 1
            assert first.root == second.root
            count = sum(end - start + 1 for start, end in known_difference.ranges)
            ends = [end for _, end in known_difference.ranges]
            assert ends == sorted(ends)
            if first.length is not None and second.length is not None:
                assert count >= abs(first.length - second.length)
                assert ends[-1] < max(first.length, second.length)
    assert found >= 20


def test_a_known_hash_names_the_family() -> None:
    """Llama-2's tokenizer.json as the Hub lists it; a copy under another name is recognised by it."""
    content = "sha256:bcd04f0eadf90287bd26e1a183ac487d8a141b09b06aecb7725bbdd343640f2e"
    family = family_of_hash(content)
    assert family is not None
    assert family.name == "llama2"
    copy = listed(content, "tokenizer.json", 1_840_000, "made/merged-70b")
    assert compare_tokenizers(known("meta-llama/Llama-2-70b-chat-hf"), copy).sameness is Sameness.SAME
