"""Searching the Hub for drafts, through the real client's session against a listing on loopback."""

import json
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hub_place import NO_CONNECTION
from hub_server import TOKEN, Fault, HubRepo, HubServer
from huggingface_hub import HfApi, constants

from model_catalog.catalogue import find_row
from model_catalog.drafts import CandidateOrigin, DraftMethod
from model_catalog.hub import HubLimits
from model_catalog.hub_listing import ModelQuery, read_listing
from model_catalog.hub_search import HubSearch, original_of, queries_for, search_drafts
from model_catalog.snapshot import ModelSnapshot

QUICK = HubLimits(deadline_seconds=6.0, request_seconds=1.2, attempts=1)
TARGET = "Qwen/Qwen3-8B"


def target(repo_id: str = TARGET) -> ModelSnapshot:
    snapshot = find_row(repo_id)
    assert snapshot is not None
    return snapshot


def publish(server: HubServer, repo_id: str, *tags: str, **info: object) -> None:
    """A repo in the listing; ``model_type`` and ``parameters`` become the fields that the Hub shows."""
    fields: dict[str, Any] = {"tags": ["safetensors", *tags], "pipeline_tag": "text-generation"}
    if "model_type" in info:
        fields["config"] = {"model_type": info.pop("model_type"), "architectures": ["AForCausalLM"]}
    if "parameters" in info:
        fields["safetensors"] = {"total": info.pop("parameters")}
    server.add(HubRepo(repo_id=repo_id, files={}, info={**fields, **info}))


def qwen3_hub(server: HubServer) -> None:
    """A Hub as it looks around Qwen3-8B; counts are the Hub's (Qwen/Qwen3-0.6B, -1.7B, -8B, -32B)."""
    head = (f"base_model:{TARGET}", f"base_model:finetune:{TARGET}")
    publish(server, TARGET, model_type="qwen3", parameters=8_190_735_360, downloads=9_000_000)
    publish(server, "Qwen/Qwen3-0.6B", model_type="qwen3", parameters=751_632_384, downloads=8_000_000)
    publish(server, "Qwen/Qwen3-1.7B", model_type="qwen3", parameters=2_031_739_904, downloads=4_000_000)
    publish(server, "Qwen/Qwen3-32B", model_type="qwen3", parameters=32_762_123_264, downloads=7_000_000)
    publish(server, "Qwen/Qwen3-0.6B-FP8", "base_model:quantized:Qwen/Qwen3-0.6B", model_type="qwen3")
    publish(server, "Qwen/Qwen3-8B-AWQ", f"base_model:quantized:{TARGET}", model_type="qwen3")
    publish(server, "Qwen/Qwen3-Embedding-0.6B", model_type="qwen3", pipeline_tag="feature-extraction")
    publish(server, "Qwen/Qwen3-VL-Tiny-2B", model_type="llava", parameters=2_000_000_000)
    publish(server, "Qwen/Qwen3-Nameless", model_type="qwen3")
    server.add(HubRepo(repo_id="Qwen/Qwen3-1.7B-GGUF", files={}, info={"tags": ["gguf"]}))
    publish(server, "AngelSlim/Qwen3-8B_eagle3", *head, model_type="llama", downloads=5000)
    publish(server, "z-lab/Qwen3-8B-DFlash-b16", "speculative-decoding", *head, model_type="qwen3", downloads=900)
    publish(server, "someone/qwen3-8b-eagle-lora", f"base_model:adapter:{TARGET}", *head, library_name="peft")
    publish(server, "someone/qwen3-8b-medusa", "speculative-decoding", *head)
    publish(server, "other/unrelated", downloads=10**9)


def reasons(found: HubSearch) -> dict[str, str]:
    return {one.candidate.name: one.code for one in found.discarded}


def test_heads_come_first_then_the_smallest_models(server: HubServer) -> None:
    qwen3_hub(server)
    found = search_drafts(target(), endpoint=server.url, limits=QUICK)
    assert [(one.repo_id, one.method) for one in found.candidates] == [
        ("AngelSlim/Qwen3-8B_eagle3", DraftMethod.EAGLE3),
        ("z-lab/Qwen3-8B-DFlash-b16", DraftMethod.DFLASH),
        ("Qwen/Qwen3-0.6B", DraftMethod.DRAFT_MODEL),
        ("Qwen/Qwen3-1.7B", DraftMethod.DRAFT_MODEL),
    ]
    assert {one.origin for one in found.candidates} == {CandidateOrigin.HUB}
    assert "751,632,384" in found.candidates[2].source
    assert found.notes == ()


def test_what_cannot_serve_is_discarded_with_its_reason(server: HubServer) -> None:
    qwen3_hub(server)
    assert reasons(search_drafts(target(), endpoint=server.url, limits=QUICK)) == {
        TARGET: "target_itself",
        "Qwen/Qwen3-8B-AWQ": "target_itself",
        "Qwen/Qwen3-0.6B-FP8": "storage_variant",
        "Qwen/Qwen3-32B": "larger_than_target",
        "Qwen/Qwen3-Embedding-0.6B": "not_for_text",
        "Qwen/Qwen3-VL-Tiny-2B": "other_kind",
        "Qwen/Qwen3-Nameless": "size_unknown",
        "Qwen/Qwen3-1.7B-GGUF": "gguf_only",
        "someone/qwen3-8b-eagle-lora": "adapter",
        "someone/qwen3-8b-medusa": "unsupported_head",
    }


def test_a_head_for_another_model_is_told_apart(server: HubServer) -> None:
    publish(server, "Qwen/Qwen3-32B-eagle3", "base_model:Qwen/Qwen3-32B")
    found = search_drafts(target(), endpoint=server.url, limits=QUICK)
    assert reasons(found) == {"Qwen/Qwen3-32B-eagle3": "head_for_another_target"}
    assert "qwen/qwen3-32b" in found.discarded[0].text


def test_a_head_without_a_card_counts_by_its_name(server: HubServer) -> None:
    publish(server, "Qwen/qwen3_8b_eagle3")
    publish(server, "Qwen/qwen3_80b_eagle3")
    found = search_drafts(target(), endpoint=server.url, limits=QUICK)
    assert [one.repo_id for one in found.candidates] == ["Qwen/qwen3_8b_eagle3"]
    assert reasons(found) == {"Qwen/qwen3_80b_eagle3": "head_for_another_target"}


@pytest.mark.parametrize(
    ("repo_id", "requests"),
    [(TARGET, 3), ("Qwen/Qwen2.5-72B-Instruct", 4), ("meta-llama/Llama-3.3-70B-Instruct", 4)],
)
def test_at_most_four_requests(server: HubServer, repo_id: str, requests: int) -> None:
    with server.counted() as seen:
        assert search_drafts(target(repo_id), endpoint=server.url, limits=QUICK) == HubSearch()
    assert len(seen) == requests
    assert all(one.method == "GET" and one.path.startswith("/api/models?") for one in seen)
    assert all(parse_qs(urlsplit(one.path).query)["limit"] == ["40"] for one in seen)


def test_a_storage_variant_is_searched_under_the_name_of_its_original(server: HubServer) -> None:
    with server.counted() as seen:
        search_drafts(target("RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8"), endpoint=server.url, limits=QUICK)
    asked = [parse_qs(urlsplit(one.path).query) for one in seen]
    assert asked[0]["filter"] == ["base_model:meta-llama/Llama-3.3-70B-Instruct"]
    assert asked[1]["filter"] == ["base_model:meta-llama/Llama-3.3-70B-Instruct", "speculative-decoding"]
    assert [one.get("author") for one in asked[2:]] == [["meta-llama"], ["meta-llama"]]
    assert [one.get("search") for one in asked[2:]] == [["llama-3.3"], ["llama-3"]]


def test_the_listing_is_asked_as_the_client_asks_it(server: HubServer) -> None:
    """The client's own list_models, with the same question, must lead to the same request."""
    with server.counted() as seen:
        list(
            HfApi(endpoint=server.url).list_models(
                filter=["base_model:a/b", "speculative-decoding"],
                author="a",
                search="x",
                sort="downloads",
                limit=40,
                expand=["tags", "config", "safetensors", "library_name", "pipeline_tag", "gated", "downloads"],
            )
        )
    query = ModelQuery(tags=("base_model:a/b", "speculative-decoding"), author="a", search="x")
    asked = urlsplit(query.address(server.url))
    theirs = urlsplit(seen[0].path)
    assert asked.path == theirs.path
    assert parse_qs(asked.query) == parse_qs(theirs.query)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(status=500), "500"),
        (Fault(status=429, headers={"Retry-After": "3600"}), "429"),
        (Fault(status=401), "not at all"),
        (Fault(drop=True), "not at all"),
        (Fault(delay_seconds=3.0), "too slowly"),
        (Fault(status=200, body=b"<html>please log in</html>"), "not the Hub's list of models"),
        (Fault(status=200, body=b'{"error": "x"}'), "not the Hub's list of models"),
        (Fault(status=200, body=b"[" * 100_000), "not the Hub's list of models"),
    ],
    ids=["500", "429", "401", "dropped", "slow", "a login page", "no list", "nested"],
)
def test_a_faulty_hub_leaves_a_note_after_one_request(server: HubServer, fault: Fault, said: str) -> None:
    qwen3_hub(server)
    server.fail("", fault)
    with server.counted() as seen:
        found = search_drafts(target(), endpoint=server.url, limits=QUICK)
    assert found.candidates == ()
    assert len(found.notes) == 1
    assert said in found.notes[0]
    assert len(seen) == 1


def test_a_hub_that_fails_half_way_leaves_what_it_gave(server: HubServer) -> None:
    qwen3_hub(server)
    server.fail("author=", Fault(status=503))
    found = search_drafts(target(), endpoint=server.url, limits=QUICK)
    assert [one.method for one in found.candidates] == [DraftMethod.EAGLE3, DraftMethod.DFLASH]
    assert "in part only" in found.notes[0]


def test_all_requests_share_one_deadline(server: HubServer) -> None:
    server.fail("", Fault(delay_seconds=0.6))
    limits = replace(QUICK, deadline_seconds=1.0)
    with server.counted() as seen:
        found = search_drafts(target(), endpoint=server.url, limits=limits)
    assert len(seen) == 2
    assert "slow" in found.notes[0]


@pytest.mark.usefixtures("quiet_surroundings")
def test_no_network_leaves_a_note() -> None:
    found = search_drafts(target(), endpoint=NO_CONNECTION, limits=QUICK)
    assert found.candidates == ()
    assert "cannot be reached" in found.notes[0]


def test_offline_asks_nothing(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with server.counted() as seen:
        found = search_drafts(target(), endpoint=server.url, limits=QUICK)
    assert (seen, found.candidates) == ([], ())
    assert "HF_HUB_OFFLINE" in found.notes[0]


def test_a_local_folder_is_not_searched_for(server: HubServer) -> None:
    with server.counted() as seen:
        found = search_drafts(replace(target(), repo_id="my-finetune"), endpoint=server.url, limits=QUICK)
    assert seen == []
    assert "no Hub repo" in found.notes[0]


def test_the_token_goes_only_into_the_header(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    server.fail("", Fault(status=500, body=TOKEN.encode()))
    with server.counted() as seen:
        found = search_drafts(target(), endpoint=server.url, limits=QUICK)
    assert seen[0].authorization == f"Bearer {TOKEN}"
    assert TOKEN not in seen[0].path
    assert TOKEN not in found.notes[0]


@pytest.mark.parametrize(
    ("repo_id", "original"),
    [
        ("Qwen/Qwen3-32B-AWQ", "Qwen/Qwen3-32B"),
        ("nvidia/Qwen3-32B-NVFP4", "Qwen/Qwen3-32B"),
        ("unsloth/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"),
        ("casperhansen/llama-3-70b-instruct-awq", "meta-llama/Meta-Llama-3-70B-Instruct"),
        ("someone/My-Model-7B-GPTQ-Int4", "someone/My-Model-7B"),
        ("someone/My-Model-7B", "someone/My-Model-7B"),
    ],
)
def test_the_original_of_a_storage_variant(repo_id: str, original: str) -> None:
    assert original_of(repo_id) == original


def test_no_more_than_four_questions_for_any_curated_target() -> None:
    assert max(len(queries_for(original_of(name))) for name in ("a/b", TARGET, "x/Llama-3.1-8B", "a/phi-3.5")) == 4


@pytest.mark.parametrize(
    "row",
    [{}, {"id": ""}, {"id": 5}, {"id": "a\nb"}, {"id": "x" * 300}, "text", None, []],
    ids=["empty", "no id", "number", "control", "long", "text", "null", "list"],
)
def test_rows_without_a_name_are_skipped(row: object) -> None:
    good = {"id": "a/b", "tags": "no list", "config": [], "safetensors": {"total": True}, "gated": "auto"}
    listed = read_listing(json.dumps([row, good]).encode(), 40)
    assert [(one.repo_id, one.tags, one.config, one.parameters, one.gated) for one in listed] == [
        ("a/b", frozenset(), {}, None, True)
    ]


def test_no_more_rows_than_asked_for() -> None:
    raw = json.dumps([{"id": f"a/{number}"} for number in range(100)]).encode()
    assert len(read_listing(raw, 40)) == 40
