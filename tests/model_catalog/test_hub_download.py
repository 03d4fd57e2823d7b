"""Fetching weights through the real client from a stand-in Hub: which files, and what goes wrong."""

import json
from pathlib import Path

import pytest
from hub_server import HubRepo, HubServer
from huggingface_hub import constants

from model_catalog.errors import ModelGatedError, ModelNotFoundError, UsageError
from model_catalog.hub_download import download_model, download_size_bytes, is_wanted
from model_catalog.snapshot import ModelSnapshot, RepoFile, RepoKind, SnapshotSource

FILES = {
    "config.json": json.dumps({"model_type": "llama"}).encode(),
    "model.safetensors": b"w" * 1000,
    "tokenizer.json": b"{}",
    "pytorch_model.bin": b"p" * 5000,
    "modeling_odd.py": b"raise SystemExit",
    "original/consolidated.00.safetensors": b"o" * 4000,
    "README.md": b"hello",
}


def snapshot_of(repo: HubRepo) -> ModelSnapshot:
    return ModelSnapshot(
        repo_id=repo.repo_id,
        revision="main",
        commit=repo.commit,
        source=SnapshotSource.HUB,
        kind=RepoKind.MODEL,
        config={},
        files=tuple(RepoFile(path=name, size_bytes=len(content)) for name, content in repo.files.items()),  # type: ignore[arg-type] # bytes here
    )


@pytest.fixture
def repo(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubRepo:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    made = HubRepo(repo_id="org/tiny", files=FILES)
    server.add(made)
    return made


def test_only_what_a_trial_loads_is_wanted() -> None:
    assert [name for name in FILES if is_wanted(name)] == ["config.json", "model.safetensors", "tokenizer.json"]


def test_the_size_told_beforehand_is_that_of_the_wanted_files(repo: HubRepo) -> None:
    wanted = ("config.json", "model.safetensors", "tokenizer.json")
    assert download_size_bytes(snapshot_of(repo)) == sum(len(FILES[name]) for name in wanted)


def test_a_file_without_a_size_makes_the_size_unknown(repo: HubRepo) -> None:
    listed = {**snapshot_of(repo).to_json(), "files": [["config.json", 10], ["more.safetensors", None]]}
    assert download_size_bytes(ModelSnapshot.from_json(listed)) is None


def test_the_wanted_files_and_no_others_are_fetched(
    repo: HubRepo, server: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = download_model(snapshot_of(repo), show_progress=False, endpoint=server.url, cache=tmp_path / "hub")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert folder.name == repo.commit


def test_a_repo_without_safetensors_is_refused_before_anything_is_fetched(
    repo: HubRepo, server: HubServer, tmp_path: Path
) -> None:
    repo.files = {name: content for name, content in FILES.items() if not name.endswith(".safetensors")}
    with pytest.raises(ModelNotFoundError, match="no safetensors"):
        download_model(snapshot_of(repo), show_progress=False, endpoint=server.url, cache=tmp_path / "hub")


def test_no_room_on_the_disk_is_told_before_anything_is_fetched(
    repo: HubRepo, server: HubServer, tmp_path: Path
) -> None:
    snapshot = snapshot_of(repo)
    huge = [["model.safetensors", 10**18]]
    with pytest.raises(UsageError, match="are free in"):
        download_model(
            ModelSnapshot.from_json({**snapshot.to_json(), "files": huge}),
            show_progress=False,
            endpoint=server.url,
            cache=tmp_path / "hub",
        )


def test_a_gated_repo_is_a_model_error(repo: HubRepo, server: HubServer, tmp_path: Path) -> None:
    repo.gated = True
    with pytest.raises(ModelGatedError):
        download_model(snapshot_of(repo), show_progress=False, endpoint=server.url, cache=tmp_path / "hub")
