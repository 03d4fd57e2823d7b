import json
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from model_catalog import snapshot_store
from model_catalog.architecture import Component, Role
from model_catalog.errors import UsageError
from model_catalog.snapshot import (
    ModelSnapshot,
    RepoFile,
    RepoKind,
    SnapshotSource,
    WeightGroup,
    WeightsKnownFrom,
)
from model_catalog.snapshot_store import SnapshotStore, add_user_snapshot, user_snapshots

COMMIT = "c" * 40
HUB = "https://huggingface.co"
SNAPSHOT = ModelSnapshot(
    repo_id="org/name",
    revision="main",
    commit=COMMIT,
    source=SnapshotSource.HUB,
    kind=RepoKind.MODEL,
    config={"model_type": "llama", "time_step_limit": [0.0, 1.5]},
    files=(RepoFile(path="model.safetensors", size_bytes=10), RepoFile(path="x", size_bytes=None)),
    weights_from=WeightsKnownFrom.HEADERS,
    weight_groups=(
        WeightGroup(
            component=Component.TEXT,
            layer=None,
            role=Role.HEAD,
            dtype="BF16",
            parameters=2,
            stored_bytes=4,
            tensors=1,
        ),
    ),
)


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A place where no folder can be made: a plain file stands there, which stops root too."""
    place = tmp_path / "locked"
    place.write_text("")
    yield place / "below"


def only_entry(folder: Path) -> Path:
    (place,) = folder.glob("*/*.json")
    return place


def test_a_snapshot_comes_back_equal(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    assert store.put(SNAPSHOT) is None
    assert store.get("org/name", COMMIT) == SNAPSHOT
    assert store.get("org/name", "d" * 40) is None
    assert store.get("org/other", COMMIT) is None


def test_repos_that_differ_in_case_or_punctuation_do_not_collide(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    names = ("org/name", "Org/name", "org--name", "org/Name")
    for name in names:
        store.put(replace(SNAPSHOT, repo_id=name))
    folders = {place.parent.name.lower() for place in tmp_path.glob("*/*.json")}
    assert len(folders) == len(names)
    assert [store.get(name, COMMIT) for name in names] == [replace(SNAPSHOT, repo_id=name) for name in names]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b'{"reader": 1}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"schema":"specplan.store/1","reader":1,"snapshot":{"schema":"specplan.snapshot/1"}}',
        b'{"schema":"specplan.store/1","reader":1,"snapshot":{"schema":"specplan.snapshot/99"}}',
    ],
    ids=["empty", "cut", "list", "no-snapshot", "not-text", "deep", "no-fields", "future"],
)
def test_a_damaged_entry_is_forgotten_and_can_be_written_again(tmp_path: Path, damage: bytes) -> None:
    store = SnapshotStore(tmp_path)
    store.put(SNAPSHOT)
    only_entry(tmp_path).write_bytes(damage)
    assert store.get("org/name", COMMIT) is None
    store.put(SNAPSHOT)
    assert store.get("org/name", COMMIT) == SNAPSHOT


def test_an_entry_of_another_reader_or_repo_is_not_used(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    store.put(SNAPSHOT)
    place = only_entry(tmp_path)
    document = json.loads(place.read_bytes())
    place.write_text(json.dumps({**document, "reader": document["reader"] + 1}))
    assert store.get("org/name", COMMIT) is None
    document["snapshot"]["repo_id"] = "evil/name"
    place.write_text(json.dumps(document))
    assert store.get("org/name", COMMIT) is None


def test_an_entry_above_the_cap_is_neither_written_nor_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SnapshotStore(tmp_path)
    store.put(SNAPSHOT)
    monkeypatch.setattr(snapshot_store, "ENTRY_LIMIT_BYTES", 100)
    assert store.get("org/name", COMMIT) is None
    note = store.put(replace(SNAPSHOT, commit="e" * 40))
    assert note is not None
    assert "could not be written" in note


def test_a_store_that_cannot_be_written_gives_a_note(locked: Path) -> None:
    store = SnapshotStore(locked)
    note = store.put(SNAPSHOT)
    assert note is not None
    assert str(locked) in note
    store.remember_commit("org/name", "main", HUB, COMMIT)
    assert store.get("org/name", COMMIT) is None
    assert store.known_commit("org/name", "main", HUB) is None


def test_a_snapshot_without_commit_is_not_kept(tmp_path: Path) -> None:
    assert SnapshotStore(tmp_path).put(replace(SNAPSHOT, commit=None)) is None
    assert list(tmp_path.iterdir()) == []


def test_a_branch_is_known_by_repo_name_and_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SnapshotStore(tmp_path)
    monkeypatch.setattr("model_catalog.snapshot_store.time.time", lambda: 1000.0)
    store.remember_commit("org/name", "refs/pr/1", HUB, COMMIT)
    monkeypatch.setattr("model_catalog.snapshot_store.time.time", lambda: 1090.0)
    known = store.known_commit("org/name", "refs/pr/1", HUB)
    assert known is not None
    assert (known.commit, known.age_seconds) == (COMMIT, 90.0)
    assert store.known_commit("org/name", "main", HUB) is None
    assert store.known_commit("org/name", "refs/pr/1", "http://mirror") is None


def test_an_answer_from_the_future_is_not_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SnapshotStore(tmp_path)
    monkeypatch.setattr("model_catalog.snapshot_store.time.time", lambda: 2000.0)
    store.remember_commit("org/name", "main", HUB, COMMIT)
    monkeypatch.setattr("model_catalog.snapshot_store.time.time", lambda: 1000.0)
    known = store.known_commit("org/name", "main", HUB)
    assert known is not None
    assert known.age_seconds == float("inf")


@pytest.mark.parametrize(
    "pointer", ['{"commit": "../../x", "asked_at": 1}', '{"commit": 5, "asked_at": 1}', '{"asked_at": true}', "no"]
)
def test_a_damaged_branch_pointer_is_forgotten(tmp_path: Path, pointer: str) -> None:
    store = SnapshotStore(tmp_path)
    store.remember_commit("org/name", "main", HUB, COMMIT)
    only_entry(tmp_path).write_text(pointer)
    assert store.known_commit("org/name", "main", HUB) is None


def test_the_oldest_entries_go_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_store, "MAX_ENTRIES", 3)
    store = SnapshotStore(tmp_path)
    commits = [digit * 40 for digit in "12345"]
    for age, commit in enumerate(commits):
        store.put(replace(SNAPSHOT, commit=commit))
        newest = max(tmp_path.glob("*/*.json"), key=lambda place: place.stat().st_mtime_ns)
        os.utime(newest, (1000 + age, 1000 + age))
    kept = [commit for commit in commits if store.get("org/name", commit) is not None]
    assert kept == commits[2:]


def test_writers_at_the_same_time_leave_a_whole_entry_and_no_rubbish(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    big = replace(SNAPSHOT, notes=tuple(str(number) for number in range(20_000)))
    writers = [threading.Thread(target=store.put, args=(big,)) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert store.get("org/name", COMMIT) == big
    assert [place.suffix for place in tmp_path.glob("*/*")] == [".json"]


def test_user_snapshots_are_catalogue_entries_one_a_repo(tmp_path: Path) -> None:
    add_user_snapshot(replace(SNAPSHOT, repo_id="b/second"), tmp_path)
    add_user_snapshot(SNAPSHOT, tmp_path)
    place = add_user_snapshot(replace(SNAPSHOT, repo_id="b/second", notes=("newer",)), tmp_path)
    (tmp_path / "broken.json").write_text("{")
    found = user_snapshots(tmp_path)
    assert [snapshot.repo_id for snapshot in found] == ["b/second", "org/name"]
    assert found[0].notes == ("newer",)
    assert {snapshot.source for snapshot in found} == {SnapshotSource.CATALOGUE}
    assert stat.S_ISREG(place.stat().st_mode)


def test_no_user_folder_means_no_user_snapshots(tmp_path: Path) -> None:
    assert user_snapshots(tmp_path / "absent") == ()


def test_adding_where_nothing_can_be_written_says_so(locked: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written") as caught:
        add_user_snapshot(SNAPSHOT, locked)
    assert "XDG_DATA_HOME" in caught.value.hint


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, ".cache"), ("", ".cache"), ("relative/path", ".cache"), ("/elsewhere", "/elsewhere")],
    ids=["unset", "empty", "relative: to be ignored (XDG Base Directory Specification)", "absolute"],
)
def test_the_cache_folder_follows_xdg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, expected: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if value is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert snapshot_store.cache_folder() == tmp_path / expected / "specplan" / "snapshots"


def test_the_user_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert user_snapshots() == ()
    add_user_snapshot(SNAPSHOT)
    assert [snapshot.repo_id for snapshot in user_snapshots()] == ["org/name"]
    assert list((tmp_path / "specplan" / "models").glob("*.json"))
