"""Reading models through the real client, over a stand-in Hub on loopback: what, in how many requests."""

import json
import os
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from hub_place import QUICK, Place, add, parameters
from hub_server import TOKEN, Fault, HubServer, Sparse
from made_repos import (
    TINY_LLAMA,
    TINY_LLAMA_PARAMETERS,
    sharded_repo,
    single_file_repo,
)

from model_catalog import hub, repo_reader
from model_catalog.errors import (
    ModelGatedError,
    ModelNotFoundError,
    SpecplanError,
    UsageError,
)
from model_catalog.snapshot import RepoKind, RepoRef, SnapshotSource


@pytest.mark.parametrize(
    ("files", "requests"),
    [
        (single_file_repo(), 3),  # description, config, header
        (sharded_repo(shards=3), 6),  # description, config, index, three headers
        ({**single_file_repo(), "hf_quant_config.json": b"{}"}, 4),
        ({"config.json": b"{}", "README.md": b""}, 2),
    ],
    ids=["single", "sharded", "quantised", "no weights"],
)
def test_requests_of_a_first_and_a_second_run(
    server: HubServer, place: Place, files: dict[str, bytes | Sparse], requests: int
) -> None:
    repo = add(server, files)
    with server.counted() as first:
        snapshot = place.load()
    assert len(first) == requests
    assert (snapshot.source, snapshot.commit, snapshot.revision) == (SnapshotSource.HUB, repo.commit, "main")
    with server.counted() as second:
        again = place.load()
    assert second == []
    assert again == replace(snapshot, source=SnapshotSource.CACHE)
    with server.counted() as by_commit:
        assert place.load(f"org/tiny@{repo.commit}").weight_groups == snapshot.weight_groups
    assert by_commit == []


def test_weights_are_exact_and_only_headers_are_fetched(server: HubServer, place: Place) -> None:
    big = {**TINY_LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "vocab_size": 128256}
    add(server, single_file_repo(big, sparse=True))
    snapshot = place.load()
    # As made_repos counts by hand, for these sizes.
    expected = 2 * 128256 * 8192 + 2 * (2 * 8192**2 + 2 * 4096 * 8192 + 3 * 28672 * 8192 + 2 * 8192) + 8192
    assert parameters(snapshot) == expected
    assert server.bytes_sent < 250_000


def test_facts_of_the_description_are_kept(server: HubServer, place: Place) -> None:
    repo = add(server, single_file_repo())
    repo.info = {"safetensors": {"parameters": {"BF16": 7}, "total": 7}}
    snapshot = place.load()
    assert snapshot.published_parameters == 7
    assert snapshot.tokenizer is not None
    assert (snapshot.tokenizer.file_hash or "").startswith("git:")
    assert {file.path: file.size_bytes for file in snapshot.files}["README.md"] == len(b"# tiny\n")


def test_a_branch_is_asked_for_again_when_its_answer_is_old(server: HubServer, place: Place) -> None:
    repo = add(server)
    place.load()
    stale = replace(QUICK, branch_age_seconds=0.0)
    with server.counted() as unchanged:
        assert place.load(limits=stale).source is SnapshotSource.HUB
    assert len(unchanged) == 1
    repo.generation, repo.files = 1, single_file_repo()
    with server.counted() as moved:
        snapshot = place.load(limits=stale)
    assert len(moved) == 3
    assert snapshot.commit == repo.commit


def test_every_file_is_read_at_the_described_commit(server: HubServer, place: Place) -> None:
    repo = add(server)
    place.load()
    assert all(f"/resolve/{repo.commit}/" in request.path for request in server.seen[1:])


def test_a_long_header_takes_one_more_request(
    server: HubServer, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repo_reader, "FIRST_READ_BYTES", 100)
    add(server, single_file_repo())
    with server.counted() as requests:
        assert parameters(place.load()) == TINY_LLAMA_PARAMETERS
    ranges = [request.range for request in requests if request.range]
    assert ranges[0] == "bytes=0-99"
    assert ranges[1].startswith("bytes=100-")
    assert len(ranges) == 2


def test_a_branch_with_a_slash(server: HubServer, place: Place) -> None:
    add(server).branches = ("main", "refs/pr/3")
    assert place.load("org/tiny@refs/pr/3").revision == "refs/pr/3"


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, RepoKind.PICKLE_ONLY),
        ({"tiny.Q4_K_M.gguf": b"GGUF"}, RepoKind.GGUF_ONLY),
        ({"adapter_config.json": b'{"base_model_name_or_path": "org/base"}'}, RepoKind.ADAPTER),
        ({"README.md": b"#"}, RepoKind.EMPTY),
    ],
)
def test_repos_that_are_no_models_are_told_apart(
    server: HubServer, place: Place, files: dict[str, bytes | Sparse], kind: RepoKind
) -> None:
    add(server, files)
    snapshot = place.load()
    assert snapshot.kind is kind
    assert snapshot.weight_groups == ()
    assert not any(request.path.endswith((".bin", ".gguf")) for request in server.seen)


def test_401_without_a_token_may_be_missing_or_gated(server: HubServer, place: Place) -> None:
    error = place.refused(ModelNotFoundError, "org/absent")
    assert "no such repo, or it is private or gated" in error.message
    assert "hf auth login" in error.hint
    assert error.__cause__ is not None


def test_404_with_a_token_is_not_found(server: HubServer, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    error = place.refused(ModelNotFoundError, "org/absent")
    assert "no such repo on the Hub" in error.message
    assert type(error.__cause__).__name__ == "RepositoryNotFoundError"


def test_a_gated_repo_without_a_token(server: HubServer, place: Place) -> None:
    add(server, gated=True)
    error = place.refused(ModelGatedError)
    assert f"{server.url}/org/tiny" in error.hint
    assert "hf auth login" in error.hint


def test_403_gated_with_a_token_asks_to_accept_the_licence(
    server: HubServer, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 34)
    add(server, gated=True)
    error = place.refused(ModelGatedError)
    assert "has not been granted" in error.message
    assert "accept the licence on its page" in error.hint
    assert type(error.__cause__).__name__ == "GatedRepoError"


def test_a_gated_repo_opens_with_the_right_token(
    server: HubServer, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    add(server, gated=True)
    assert parameters(place.load()) == TINY_LLAMA_PARAMETERS


def test_an_unknown_revision_is_named(server: HubServer, place: Place) -> None:
    add(server)
    assert "no branch, tag or commit nope" in place.refused(ModelNotFoundError, "org/tiny@nope").message


def test_a_file_that_vanished_is_named(server: HubServer, place: Place) -> None:
    add(server)
    server.fail("config.json", Fault(status=404, headers={"X-Error-Code": "EntryNotFound"}))
    assert "the repo has no config.json" in place.refused(ModelNotFoundError).message


def test_a_disabled_repo(server: HubServer, place: Place) -> None:
    add(server)
    disabled = Fault(status=403, headers={"X-Error-Message": "Access to this resource is disabled."})
    server.fail("/api/models", disabled)
    assert "disabled on the Hub" in place.refused(ModelNotFoundError).message


def test_a_bad_repo_id_is_a_usage_error(place: Place) -> None:
    with pytest.raises(UsageError, match="not a Hub repo id"):
        place.load(RepoRef(repo_id="a/b/c"))


def test_the_token_goes_to_the_hub_and_not_to_the_storage_it_redirects_to(
    server: HubServer, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    files = single_file_repo()
    repo = add(server, files)
    with HubServer() as storage:
        storage.add(repo)
        path = f"/org/tiny/resolve/{repo.commit}/model.safetensors"
        server.fail("model.safetensors", Fault(status=302, headers={"Location": f"{storage.url}{path}"}))
        assert parameters(place.load()) == TINY_LLAMA_PARAMETERS
        assert [request.authorization for request in storage.seen] == [None]
    assert {request.authorization for request in server.seen} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
def test_no_message_holds_a_token_even_if_the_server_echoes_it(
    server: HubServer, place: Place, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    add(server)
    body = json.dumps({"error": f"bad token {TOKEN}"}).encode()
    server.fail("/api/models", Fault(status=status, headers={"X-Error-Message": f"bad {TOKEN}"}, body=body))
    with pytest.raises(SpecplanError) as caught:
        place.load()
    assert TOKEN not in f"{caught.value} {caught.value.hint} {caught.value.subject}"
    assert TOKEN not in "".join(traceback.format_exception(caught.value))  # its causes, as --debug shows them


def test_hf_endpoint_is_obeyed_and_nothing_is_printed(server: HubServer, tmp_path: Path) -> None:
    add(server)
    server.fail("/api/models", Fault(status=503, headers={"X-HF-Warning": "topic; beware"}), times=1)
    script = (
        "from model_catalog.hub import load_snapshot; from model_catalog.snapshot import RepoRef; "
        "print(load_snapshot(RepoRef.parse('org/tiny')).weights_from)"
    )
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("HF_", "http", "HTTP"))},
        "HF_ENDPOINT": server.url,
        "XDG_CACHE_HOME": str(tmp_path),
        "HF_HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "headers\n", "")
    assert server.seen
    assert list((tmp_path / "specplan" / "snapshots").glob("*/*.json"))


def test_a_branch_answer_is_believed_for_an_hour_by_default() -> None:
    assert hub.DEFAULT_LIMITS.branch_age_seconds == 60 * 60
