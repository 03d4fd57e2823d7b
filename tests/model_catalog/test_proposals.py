"""Which drafts are looked at for a target, in which order, and what is discarded unread; and what is on disk."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model_catalog.catalogue import find_row
from model_catalog.disk_repos import cached_repo_ids, hub_cache_folder, known_on_disk
from model_catalog.drafts import Candidate, CandidateOrigin, DraftMethod
from model_catalog.model import Model, describe
from model_catalog.pairs import Pair
from model_catalog.proposals import MAX_CANDIDATES, MAX_HEADS, Proposal, propose
from model_catalog.snapshot import ModelSnapshot, RepoKind, TokenizerFingerprint
from model_catalog.snapshot_store import SnapshotStore, add_user_snapshot

HUB = "https://hub.example"


def model(repo_id: str) -> Model:
    return describe(row(repo_id))


def row(repo_id: str) -> ModelSnapshot:
    found = find_row(repo_id)
    assert found is not None
    return found


def candidate(
    repo_id: str,
    method: DraftMethod = DraftMethod.DRAFT_MODEL,
    origin: CandidateOrigin = CandidateOrigin.HUB,
) -> Candidate:
    return Candidate(method=method, origin=origin, source="test", repo_id=repo_id)


def names(proposal: Proposal) -> list[str]:
    return [one.name for one in proposal.candidates]


def codes(proposal: Proposal) -> dict[str, str]:
    return {one.candidate.name: one.code for one in proposal.discarded}


def test_curated_pairs_then_ngram() -> None:
    """The pairs of Llama 3.3 70B: three EAGLE-3 heads and the models of NVIDIA's TensorRT-LLM post of 2024-12."""
    found = propose(model("meta-llama/Llama-3.3-70B-Instruct"), known=find_row)
    assert [one.method.value for one in found.candidates] == [*["eagle3"] * 3, *["draft_model"] * 3, "ngram"]
    assert names(found)[3:6] == [
        "meta-llama/Llama-3.2-1B-Instruct",
        "meta-llama/Llama-3.2-3B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct",
    ]
    assert {one.origin.value for one in found.candidates} == {"curated", "built_in"}
    assert "NVIDIA" in found.candidates[3].source
    assert found.discarded == ()


@pytest.mark.parametrize(
    ("repo_id", "built_in"),
    [
        ("deepseek-ai/DeepSeek-V3", ["mtp", "ngram"]),  # one MTP layer: DeepSeek-V3 report, arXiv:2412.19437
        ("Qwen/Qwen3.5-27B", ["mtp", "ngram"]),
        ("Qwen/Qwen3-8B", ["ngram"]),
        ("microsoft/phi-4", ["ngram"]),
    ],
)
def test_mtp_comes_first_where_the_target_has_it_and_ngram_last(repo_id: str, built_in: list[str]) -> None:
    found = propose(model(repo_id), known=find_row)
    own = [one for one in found.candidates if one.origin is CandidateOrigin.BUILT_IN]
    assert [one.name for one in own] == built_in
    assert found.candidates[-1] is own[-1]
    assert found.candidates[0] is own[0] or len(own) == 1
    assert all(one.repo_id is None for one in own)


def test_a_repo_found_twice_keeps_its_best_origin() -> None:
    found = propose(
        model("Qwen/Qwen3-8B"),
        named=[candidate("qwen/qwen3-1.7b", origin=CandidateOrigin.NAMED)],
        cached_repo_ids=["Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B"],
        hub_candidates=[candidate("Qwen/Qwen3-4B"), candidate("Qwen/Qwen3-0.6B"), candidate("someone/Qwen3-1B")],
        known=find_row,
    )
    origins = {one.name: one.origin.value for one in found.candidates}
    assert origins["qwen/qwen3-1.7b"] == "named"
    assert origins["Qwen/Qwen3-0.6B"] == "curated"
    assert origins["Qwen/Qwen3-4B"] == "cache"
    assert origins["someone/Qwen3-1B"] == "hub"
    assert "Qwen/Qwen3-1.7B" not in origins
    assert names(found)[0] == "qwen/qwen3-1.7b"


def test_related_models_on_disk_are_proposed_the_smallest_first_and_others_passed_over() -> None:
    found = propose(
        model("google/gemma-3-27b-it"),
        pairs=(),
        cached_repo_ids=[
            "google/gemma-3-4b-it",  # vocab_size 262208, as the target's
            "google/gemma-3-270m-it",  # 262144: 64 fewer
            "google/gemma-3-27b-pt",  # no smaller
            "google/gemma-3-27b-it",  # the target
            "nvidia/gemma-3-27b-it-FP8",  # the target in fewer bits
            "google/gemma-2-2b-it",  # 256000
            "Qwen/Qwen3-0.6B",
            "sentence-transformers/all-MiniLM-L6-v2",
        ],
        known=find_row,
    )
    assert names(found) == ["google/gemma-3-270m-it", "google/gemma-3-4b-it", "ngram"]
    assert "off by 64" in found.candidates[0].source
    assert found.discarded == ()


def test_on_disk_without_facts_the_name_decides() -> None:
    found = propose(
        model("Qwen/Qwen3-8B"),
        pairs=(),
        cached_repo_ids=[
            "me/Qwen3-0.5B-draft",
            "me/Qwen3-70B-merge",
            "me/Qwen3-Embedding-0.6B",
            "me/qwen3-8b-eagle3",
            "me/qwen3-4b-eagle3",
            "me/qwen3-8b-medusa",
            "me/Qwen3-sizeless",
            "me/Mistral-0.5B",
        ],
        known=find_row,
    )
    assert names(found) == ["me/qwen3-8b-eagle3", "me/Qwen3-0.5B-draft", "ngram"]
    assert found.candidates[0].method is DraftMethod.EAGLE3


def test_an_equal_tokenizer_file_relates_models_of_different_kinds() -> None:
    same = TokenizerFingerprint(file_hash="sha256:aa")
    target = describe(replace(row("Qwen/Qwen3-8B"), tokenizer=same))
    other = replace(row("HuggingFaceTB/SmolLM2-135M"), repo_id="me/Small-135M", tokenizer=same)
    found = propose(target, pairs=(), cached_repo_ids=["me/Small-135M"], known={other.repo_id: other}.get)
    assert names(found) == ["me/Small-135M", "ngram"]
    assert "tokenizer file is the target's" in found.candidates[0].source


def known_with(kinds: Mapping[str, RepoKind]) -> Callable[[str], ModelSnapshot | None]:
    """The catalogue, with repos of these kinds beside it."""
    base = row("Qwen/Qwen3-0.6B")

    def known(repo_id: str) -> ModelSnapshot | None:
        kind = kinds.get(repo_id)
        return find_row(repo_id) if kind is None else replace(base, repo_id=repo_id, kind=kind)

    return known


@pytest.mark.parametrize(
    ("repo_id", "method", "code", "said"),
    [
        ("Qwen/Qwen3-8B", DraftMethod.DRAFT_MODEL, "target_itself", "the target itself"),
        ("nvidia/Qwen3-8B-NVFP4", DraftMethod.DRAFT_MODEL, "target_itself", "another storage type"),
        ("Qwen/Qwen3-32B", DraftMethod.DRAFT_MODEL, "larger_than_target", "32,762,123,264"),
        ("me/Qwen3-9B-new", DraftMethod.DRAFT_MODEL, "larger_than_target", "9,000,000,000"),
        ("AngelSlim/Qwen3-14B_eagle3", DraftMethod.EAGLE3, "head_for_another_target", "Qwen/Qwen3-14B"),
        ("me/lora", DraftMethod.DRAFT_MODEL, "adapter", "adapter"),
        ("me/gguf", DraftMethod.DRAFT_MODEL, "gguf_only", "GGUF"),
        ("bartowski/Qwen3-0.6B-GGUF", DraftMethod.DRAFT_MODEL, "gguf_only", "GGUF"),
        ("me/empty", DraftMethod.DRAFT_MODEL, "empty", ""),
    ],
)
@pytest.mark.parametrize("origin", [CandidateOrigin.NAMED, CandidateOrigin.HUB])
def test_what_cannot_draft_is_discarded_with_its_reason(
    repo_id: str, method: DraftMethod, code: str, said: str, origin: CandidateOrigin
) -> None:
    offered = [candidate(repo_id, method, origin)]
    known = known_with({"me/lora": RepoKind.ADAPTER, "me/gguf": RepoKind.GGUF_ONLY, "me/empty": RepoKind.EMPTY})
    named = offered if origin is CandidateOrigin.NAMED else []
    found = propose(model("Qwen/Qwen3-8B"), pairs=None, named=named, hub_candidates=offered, known=known)
    assert codes(found)[repo_id] == code
    assert said in next(one.text for one in found.discarded if one.candidate.name == repo_id)
    assert repo_id not in names(found)


def test_a_head_of_the_targets_storage_variant_is_kept() -> None:
    found = propose(model("Qwen/Qwen3-14B-AWQ"), known=find_row)
    assert "AngelSlim/Qwen3-14B_eagle3" in names(found)
    assert "(for Qwen/Qwen3-14B)" in found.candidates[0].source


def heads(count: int) -> list[Candidate]:
    return [candidate(f"h/head{number}", DraftMethod.EAGLE3) for number in range(count)]


def models(count: int) -> list[Candidate]:
    return [candidate(f"m/draft{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("head_count", "model_count", "heads_kept", "models_kept"),
    [(0, 0, 0, 0), (3, 3, 3, 3), (20, 3, 8, 3), (20, 20, 6, 5), (2, 20, 2, 9), (20, 0, 11, 0)],
)
def test_the_number_looked_at_is_bounded_and_models_are_not_crowded_out(
    head_count: int, model_count: int, heads_kept: int, models_kept: int
) -> None:
    """Twelve in all with n-gram; at least six heads where there are so many, and models fill the rest."""
    offered = [*models(model_count), *heads(head_count)]
    found = propose(model("microsoft/phi-4"), hub_candidates=offered, known=find_row)
    kept = [one.method for one in found.candidates]
    assert kept == [
        *[DraftMethod.EAGLE3] * heads_kept,
        *[DraftMethod.DRAFT_MODEL] * models_kept,
        DraftMethod.NGRAM,
    ]
    assert len(kept) <= MAX_CANDIDATES
    assert min(head_count, MAX_HEADS) <= heads_kept
    assert len(codes(found)) == head_count + model_count - heads_kept - models_kept
    assert set(codes(found).values()) <= {"not_examined"}


def test_named_ones_do_not_count_against_the_bound() -> None:
    named = [candidate(f"n/{number}", origin=CandidateOrigin.NAMED) for number in range(20)]
    found = propose(model("microsoft/phi-4"), named=named, hub_candidates=models(5), known=find_row)
    assert names(found)[:20] == [f"n/{number}" for number in range(20)]
    assert len(found.candidates) == 26


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_small_bound_still_leaves_what_costs_nothing(limit: int) -> None:
    found = propose(model("Qwen/Qwen3.5-27B"), known=find_row, limit=limit)
    assert names(found) == ["mtp", "ngram"]


def test_pairs_of_ones_own_replace_the_curated() -> None:
    own = [Pair(target="microsoft/phi-4", draft="me/draft", method=DraftMethod.DRAFT_MODEL, source="mine")]
    assert names(propose(model("microsoft/phi-4"), pairs=own, known=find_row)) == ["me/draft", "ngram"]


def hub_cache(folder: Path, *entries: str, snapshots: bool = True) -> Path:
    for entry in entries:
        place = folder / entry / "snapshots"
        (place / ("c" * 40) if snapshots else place).mkdir(parents=True)
    return folder


def test_repos_in_the_hubs_cache(tmp_path: Path) -> None:
    cache = hub_cache(
        tmp_path / "hub",
        "models--Qwen--Qwen3-0.6B",
        "models--gpt2",
        "datasets--a--b",
        "models--a--b--c",
        ".locks",
    )
    hub_cache(cache, "models--only--refs", snapshots=False)
    (cache / "models--a--file").write_text("no folder", encoding="utf-8")
    assert cached_repo_ids(cache, tmp_path / "none", tmp_path / "none") == ("Qwen/Qwen3-0.6B",)


def test_repos_in_our_own_store_and_the_users_catalogue(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "store")
    commit = "0" * 40
    for repo_id in ("Qwen/Qwen3-0.6B", "a-b/c.d_e", "x/" + "y" * 90):
        store.put(replace(row("Qwen/Qwen3-0.6B"), repo_id=repo_id, commit=commit))
    (tmp_path / "store" / "a--b.00000000").mkdir()
    add_user_snapshot(replace(row("Qwen/Qwen3-0.6B"), repo_id="me/mine"), tmp_path / "user")
    found = cached_repo_ids(tmp_path / "none", tmp_path / "store", tmp_path / "user")
    assert found == ("Qwen/Qwen3-0.6B", "a-b/c.d_e", "me/mine", "x/" + "y" * 90)


def test_facts_on_disk_go_before_the_catalogues_row(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    assert known_on_disk("Qwen/Qwen3-0.6B", endpoint=HUB, store=store) == row("Qwen/Qwen3-0.6B")
    held = replace(row("Qwen/Qwen3-0.6B"), commit="1" * 40, revision="main", published_parameters=7)
    store.put(held)
    store.remember_commit(held.repo_id, "main", HUB, "1" * 40)
    assert known_on_disk("Qwen/Qwen3-0.6B", endpoint=HUB, store=store) == held
    assert known_on_disk("Qwen/Qwen3-0.6B", endpoint="https://other.example", store=store) != held
    assert known_on_disk("no/where", endpoint=HUB, store=store) is None


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        # The order of huggingface_hub.constants.
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/c", "HF_HOME": "/b"}, "/c"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/d"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
        ({"HOME": "/e"}, "/e/.cache/huggingface/hub"),
        ({"HOME": "/e", "HF_HOME": "~/f"}, "/e/f/hub"),
        ({"HOME": "/e", "HF_HOME": "$HOME/g"}, "/e/g/hub"),
    ],
)
def test_the_place_of_the_hubs_cache(
    monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], folder: str
) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(hub_cache_folder()) == folder


def test_a_head_on_disk_is_told_by_its_configuration() -> None:
    """The first EAGLE heads carry their target's class name, and here the name says nothing either."""
    head = replace(row("yuhuili/EAGLE-llama2-chat-7B"), repo_id="me/llama-2-7b-fast")
    target = model("meta-llama/Llama-2-7b-chat-hf")
    found = propose(target, pairs=(), cached_repo_ids=[head.repo_id], known={head.repo_id: head}.get)
    assert [(one.name, one.method) for one in found.candidates[:-1]] == [(head.repo_id, DraftMethod.EAGLE)]


def test_malformed_facts_are_passed_over() -> None:
    odd: Sequence[Mapping[str, Any]] = ({}, {"vocab_size": "many"}, {"text_config": [], "model_type": 5})
    for config in odd:
        facts = replace(row("Qwen/Qwen3-0.6B"), repo_id="me/odd-1B", config=config)
        found = propose(
            model("Qwen/Qwen3-8B"), pairs=(), cached_repo_ids=["me/odd-1B"], known={"me/odd-1B": facts}.get
        )
        assert names(found) == ["ngram"]
