"""Offline and unreachable: our store, the Hub's cache that the real client filled, and nothing at all."""

from dataclasses import replace
from pathlib import Path

import pytest
from hub_place import NO_CONNECTION, QUICK, SHARD, Place, add, download, parameters
from hub_server import Fault, HubServer
from huggingface_hub import constants, hf_hub_download
from made_repos import (
    TINY_LLAMA_PARAMETERS,
    sharded_repo,
    single_file_repo,
    write_folder,
)

from model_catalog.errors import (
    HubUnreachableError,
)
from model_catalog.snapshot import RepoKind, RepoRef, SnapshotSource, WeightsKnownFrom
from model_catalog.snapshot_store import SnapshotStore


def test_offline_uses_the_store_at_any_age(server: HubServer, place: Place) -> None:
    add(server)
    before = place.load()
    with server.counted() as requests:
        snapshot = place.load(offline=True, limits=replace(QUICK, branch_age_seconds=0.0))
    assert requests == []
    assert snapshot.weight_groups == before.weight_groups
    assert snapshot.source is SnapshotSource.CACHE


def test_an_unreachable_hub_leaves_the_store_with_a_note(server: HubServer, place: Place) -> None:
    add(server)
    place.load()
    server.fail("", Fault(status=503))
    snapshot = place.load(limits=replace(QUICK, branch_age_seconds=0.0))
    assert parameters(snapshot) == TINY_LLAMA_PARAMETERS
    assert "503" in snapshot.notes[-1]
    assert "may have a newer commit" in snapshot.notes[-1]


@pytest.mark.parametrize("way", ["offline", "server down", "no network"])
def test_the_hubs_cache_serves_without_a_network(server: HubServer, place: Place, way: str) -> None:
    files = sharded_repo()
    repo = add(server, files)
    download(server, place.cache, *files)
    server.fail("", Fault(status=503))
    place.url = NO_CONNECTION if way == "no network" else server.url
    with server.counted() as requests:
        snapshot = place.load(offline=way == "offline")
    assert len(requests) == (QUICK.attempts if way == "server down" else 0)
    assert parameters(snapshot) == TINY_LLAMA_PARAMETERS
    assert (snapshot.source, snapshot.commit, snapshot.kind) == (
        SnapshotSource.CACHE,
        repo.commit,
        RepoKind.MODEL,
    )
    assert "the Hub's cache on disk" in snapshot.notes[-1]
    by_commit = place.load(f"org/tiny@{repo.commit}", offline=True)
    assert by_commit.weight_groups == snapshot.weight_groups


def test_a_commit_in_the_hubs_cache_serves_where_no_branch_is_known(server: HubServer, place: Place) -> None:
    repo = add(server, single_file_repo())
    for name in ("config.json", "model.safetensors"):
        hf_hub_download("org/tiny", name, revision=repo.commit, endpoint=server.url, cache_dir=place.cache)
    snapshot = place.load(offline=True)
    assert (snapshot.commit, parameters(snapshot)) == (repo.commit, TINY_LLAMA_PARAMETERS)
    assert "the newest one on disk was taken" in snapshot.notes[0]
    place.refused(HubUnreachableError, "org/tiny@main", offline=True)


def test_a_partly_filled_hub_cache_says_what_it_lacks(server: HubServer, place: Place) -> None:
    add(server)
    download(server, place.cache, "config.json")
    assert place.load(offline=True).weights_from is WeightsKnownFrom.CONFIG
    download(server, place.cache, "model.safetensors.index.json", SHARD)
    snapshot = place.load(offline=True)
    assert snapshot.weights_from is WeightsKnownFrom.INDEX
    assert "2 of 3 weight files are not on disk" in snapshot.notes[0]


def test_offline_with_nothing_on_disk(place: Place) -> None:
    error = place.refused(HubUnreachableError, offline=True)
    assert "nothing about it is on disk" in error.message


def test_a_cache_whose_refs_lead_elsewhere_is_not_read(place: Place) -> None:
    base = write_folder(place.cache / "models--org--tiny", {"refs/main": b"../../../elsewhere"})
    assert base.is_dir()
    place.refused(HubUnreachableError, offline=True)
    place.refused(HubUnreachableError, RepoRef(repo_id="org/tiny", revision="../../x"), offline=True)


def test_hf_hub_offline_is_obeyed(server: HubServer, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    add(server)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    place.refused(HubUnreachableError)
    assert server.seen == []


def test_a_store_that_cannot_be_written_does_not_fail_the_plan(
    server: HubServer, place: Place, tmp_path: Path
) -> None:
    add(server)
    (tmp_path / "file").write_text("")
    place.store = SnapshotStore(tmp_path / "file")
    snapshot = place.load()
    assert parameters(snapshot) == TINY_LLAMA_PARAMETERS
    assert "could not be written" in snapshot.notes[-1]


def test_a_local_folder_asks_nobody(server: HubServer, place: Place, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", single_file_repo())
    snapshot = place.load(RepoRef(repo_id="model", folder=folder))
    assert snapshot.source is SnapshotSource.LOCAL
    assert server.seen == []
