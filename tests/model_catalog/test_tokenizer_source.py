"""Where a tokenizer.json is found, in which order, with how many requests, and what stands in the way."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hub_place import NO_CONNECTION, Place, add, download
from hub_server import Fault, HubServer
from made_repos import single_file_repo, write_folder

from model_catalog.local_folder import load_folder
from model_catalog.snapshot import ModelSnapshot, RepoRef
from model_catalog.tokenizer_files import TokenizerFile, read_vocabulary
from model_catalog.tokenizer_source import MAX_KEPT, load_tokenizer

CONTENT = json.dumps({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}).encode()
REF = RepoRef(repo_id="org/tiny")

Ask = Callable[..., TokenizerFile]


@pytest.fixture
def ask(place: Place, tmp_path: Path) -> Ask:
    def ask_for(snapshot: ModelSnapshot, *, offline: bool = False, url: str | None = None) -> TokenizerFile:
        own = tmp_path / "tokenizers"
        return load_tokenizer(
            REF, snapshot, offline=offline, endpoint=url or place.url, hub_cache=place.cache, own_cache=own
        )

    return ask_for


def test_the_hub_is_asked_once_and_then_never_again(server: HubServer, place: Place, ask: Ask) -> None:
    add(server, {**single_file_repo(), "tokenizer.json": CONTENT})
    snapshot = place.load()
    with server.counted() as requests:
        first = ask(snapshot)
    assert first == TokenizerFile(content=CONTENT)
    assert [(seen.method, seen.path.rpartition("/")[2]) for seen in requests] == [("GET", "tokenizer.json")]
    with server.counted() as requests:
        assert ask(snapshot, offline=True).content == CONTENT
    assert requests == []
    assert dict(read_vocabulary(CONTENT).ids) == {"a": 0, "b": 1}


def test_the_hubs_own_cache_goes_first(server: HubServer, place: Place, ask: Ask) -> None:
    add(server, {**single_file_repo(), "tokenizer.json": CONTENT})
    snapshot = place.load()
    download(server, place.cache, "tokenizer.json")
    with server.counted() as requests:
        assert ask(snapshot).content == CONTENT
    assert requests == []


def test_a_local_folder_is_read_in_place(tmp_path: Path, ask: Ask) -> None:
    folder = write_folder(tmp_path / "model", {**single_file_repo(), "tokenizer.json": CONTENT})
    snapshot = load_folder(folder, repo_id="model")
    assert load_tokenizer(RepoRef(repo_id="model", folder=folder), snapshot).content == CONTENT
    (folder / "tokenizer.json").unlink()
    missing = load_tokenizer(RepoRef(repo_id="model", folder=folder), snapshot)
    assert missing == TokenizerFile(content=None, note="model: has no tokenizer.json")


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", single_file_repo())
    (tmp_path / "secret.json").write_bytes(CONTENT)
    (folder / "tokenizer.json").unlink()
    snapshot = load_folder(folder, repo_id="model")
    (folder / "tokenizer.json").symlink_to(tmp_path / "secret.json")
    file = load_tokenizer(RepoRef(repo_id="model", folder=folder), snapshot)
    assert file.content is None
    assert "link out of the folder" in (file.note or "")


def test_a_repo_without_the_file_costs_no_request(server: HubServer, place: Place, ask: Ask) -> None:
    files = {name: content for name, content in single_file_repo().items() if name != "tokenizer.json"}
    add(server, files)
    snapshot = place.load()
    with server.counted() as requests:
        file = ask(snapshot)
    assert file == TokenizerFile(content=None, note="org/tiny: has no tokenizer.json")
    assert requests == []


@pytest.mark.parametrize(
    ("fault", "note"),
    [
        (Fault(status=404), "tokenizer.json"),
        (Fault(status=500), "500"),
        (Fault(cut_after=10), "tokenizer.json"),
        (Fault(status=401), "tokenizer.json"),
    ],
    ids=["missing", "server error", "cut", "no access"],
)
def test_a_fault_becomes_a_note(server: HubServer, place: Place, ask: Ask, fault: Fault, note: str) -> None:
    add(server, {**single_file_repo(), "tokenizer.json": CONTENT})
    snapshot = place.load()
    server.fail("tokenizer.json", fault)
    file = ask(snapshot)
    assert file.content is None
    assert note in (file.note or "")
    server.heal()
    assert ask(snapshot).content == CONTENT  # nothing broken was kept


def test_no_connection_and_offline_are_notes(server: HubServer, place: Place, ask: Ask) -> None:
    add(server, {**single_file_repo(), "tokenizer.json": CONTENT})
    snapshot = place.load()
    with server.counted() as requests:
        assert "offline" in (ask(snapshot, offline=True).note or "")
    assert requests == []
    assert ask(snapshot, url=NO_CONNECTION).content is None


def test_the_own_cache_keeps_the_newest(server: HubServer, place: Place, ask: Ask, tmp_path: Path) -> None:
    add(server, {**single_file_repo(), "tokenizer.json": CONTENT})
    folder = tmp_path / "tokenizers"
    folder.mkdir()
    for number in range(MAX_KEPT + 3):
        (folder / f"old-{number}.json").write_bytes(b"{}")
    ask(place.load())
    kept = [path.name for path in folder.glob("*.json")]
    assert len(kept) == MAX_KEPT
    assert any(name.startswith("org--tiny.") for name in kept)
