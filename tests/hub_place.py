"""One machine that reads models from a stand-in Hub: its store, its Hub cache, and quick limits for tests."""

from pathlib import Path

import pytest
from hub_server import HubRepo, HubServer, Sparse
from huggingface_hub import hf_hub_download
from made_repos import (
    sharded_repo,
)

from model_catalog.errors import (
    SpecplanError,
)
from model_catalog.hub import HubLimits, load_snapshot
from model_catalog.snapshot import ModelSnapshot, RepoRef
from model_catalog.snapshot_store import SnapshotStore

QUICK = HubLimits(
    deadline_seconds=5.0, request_seconds=0.4, attempts=2, pause_seconds=0.01, longest_wait_seconds=0.5, threads=4
)
REF = RepoRef(repo_id="org/tiny")
SHARD = "model-00002-of-00003.safetensors"
NO_CONNECTION = "http://127.0.0.1:9"  # discard: nothing listens there


class Place:
    """One machine: its store and Hub cache, and a Hub to ask."""

    def __init__(self, folder: Path, url: str) -> None:
        self.store = SnapshotStore(folder / "store")
        self.cache = folder / "hub"
        self.url = url

    def load(self, ref: RepoRef | str = REF, *, offline: bool = False, limits: HubLimits = QUICK) -> ModelSnapshot:
        return load_snapshot(
            RepoRef.parse(ref) if isinstance(ref, str) else ref,
            offline=offline,
            endpoint=self.url,
            limits=limits,
            store=self.store,
            hub_cache=self.cache,
        )

    def refused(
        self, kind: type[SpecplanError], ref: RepoRef | str = REF, *, offline: bool = False
    ) -> SpecplanError:
        """The error of exactly this class that loading raises."""
        with pytest.raises(SpecplanError) as caught:
            self.load(ref, offline=offline)
        assert type(caught.value) is kind, repr(caught.value)
        assert caught.value.subject.startswith("org/")
        assert caught.value.hint
        return caught.value


def parameters(snapshot: ModelSnapshot) -> int:
    return sum(group.parameters for group in snapshot.weight_groups)


def add(server: HubServer, files: dict[str, bytes | Sparse] | None = None, *, gated: bool = False) -> HubRepo:
    return server.add(HubRepo(repo_id="org/tiny", files=files or sharded_repo(shards=3), gated=gated))


def download(server: HubServer, cache: Path, *names: str) -> None:
    """Let the real client fill its cache."""
    for name in names:
        hf_hub_download("org/tiny", name, endpoint=server.url, cache_dir=cache)
