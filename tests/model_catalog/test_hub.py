"""Reading models through the real client, over a stand-in Hub on loopback, with every fault we know of."""

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hub_server import TOKEN, Fault, HubRepo, HubServer, Sparse
from huggingface_hub import close_session, constants, hf_hub_download
from made_repos import (
    TINY_LLAMA,
    TINY_LLAMA_PARAMETERS,
    sharded_repo,
    single_file_repo,
    weight_map_of,
    with_index,
    write_folder,
)

from model_catalog import hub, repo_reader
from model_catalog.errors import (
    ConfigError,
    HubRateLimitedError,
    HubServerError,
    HubTimeoutError,
    HubUnreachableError,
    ModelGatedError,
    ModelNotFoundError,
    SpecplanError,
    UsageError,
    WeightsError,
)
from model_catalog.hub import HubLimits, load_snapshot
from model_catalog.snapshot import ModelSnapshot, RepoKind, RepoRef, SnapshotSource, WeightsKnownFrom
from model_catalog.snapshot_store import SnapshotStore

QUICK = HubLimits(
    deadline_seconds=5.0, request_seconds=0.4, attempts=2, pause_seconds=0.01, longest_wait_seconds=0.5, threads=4
)
REF = RepoRef(repo_id="org/tiny")
SHARD = "model-00002-of-00003.safetensors"
NO_CONNECTION = "http://127.0.0.1:9"  # discard: nothing listens there


@pytest.fixture(autouse=True)
def quiet_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No token, no proxy and no offline switch of this machine; a fresh session for each test."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    close_session()
    yield
    close_session()


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as running:
        yield running


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


@pytest.fixture
def place(tmp_path: Path, server: HubServer) -> Place:
    return Place(tmp_path, server.url)


def parameters(snapshot: ModelSnapshot) -> int:
    return sum(group.parameters for group in snapshot.weight_groups)


def add(server: HubServer, files: dict[str, bytes | Sparse] | None = None, *, gated: bool = False) -> HubRepo:
    return server.add(HubRepo(repo_id="org/tiny", files=files or sharded_repo(shards=3), gated=gated))


# --- what is read, in how many requests -----------------------------------------------------------------------


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


# --- refusals -------------------------------------------------------------------------------------------------


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


# --- faults of the network and the server ---------------------------------------------------------------------


def test_429_gives_the_time_to_wait(server: HubServer, place: Place) -> None:
    add(server)
    server.fail("/api/models", Fault(status=429, headers={"Retry-After": "90"}))
    with server.counted() as requests:
        error = place.refused(HubRateLimitedError)
    assert "wait 90 s" in error.message
    assert "after 90 s" in error.hint
    assert len(requests) == 1  # 90 s is longer than it is worth waiting


def test_429_without_a_time_is_tried_again(server: HubServer, place: Place) -> None:
    add(server)
    server.fail("/api/models", Fault(status=429))
    with server.counted() as requests:
        error = place.refused(HubRateLimitedError)
    assert "429" in error.message
    assert len(requests) == QUICK.attempts


def test_a_short_wait_that_the_hub_asks_for_is_kept(server: HubServer, place: Place) -> None:
    add(server)
    server.fail("/api/models", Fault(status=429, headers={"Retry-After": "1"}), times=1)
    started = time.monotonic()
    assert parameters(place.load(limits=replace(QUICK, longest_wait_seconds=2.0))) == TINY_LLAMA_PARAMETERS
    assert time.monotonic() - started >= 1.0


@pytest.mark.parametrize("status", [500, 502, 503])
def test_5xx_is_tried_again_then_reported(server: HubServer, place: Place, status: int) -> None:
    add(server)
    server.fail("/api/models", Fault(status=status))
    with server.counted() as requests:
        assert f"answered {status}" in place.refused(HubServerError).message
    assert len(requests) == QUICK.attempts


def test_a_fault_that_passes_is_not_seen(server: HubServer, place: Place) -> None:
    add(server)
    server.fail("/api/models", Fault(status=503), times=1)
    server.fail("config.json", Fault(drop=True), times=1)
    server.fail(SHARD, Fault(status=500), times=1)
    snapshot = place.load()
    assert parameters(snapshot) == TINY_LLAMA_PARAMETERS
    assert snapshot.notes == ()


def test_a_hub_that_does_not_answer_times_out(server: HubServer, place: Place) -> None:
    add(server)
    server.fail("/api/models", Fault(delay_seconds=3.0))
    assert "too slowly" in place.refused(HubTimeoutError).message


def test_a_body_that_drips_ends_at_the_deadline(server: HubServer, place: Place) -> None:
    add(server)
    server.fail("/api/models", Fault(drip_seconds=0.05))
    started = time.monotonic()
    with pytest.raises(HubTimeoutError, match=r"not read within 0\.6 s"):
        place.load(limits=replace(QUICK, deadline_seconds=0.6))
    assert time.monotonic() - started < 2.0


def test_an_error_whose_body_never_ends_is_cut_off(server: HubServer, place: Place) -> None:
    add(server)
    server.fail("/api/models", Fault(status=404, headers={"X-Error-Code": "RepoNotFound"}, body=b"x" * 10_000_000))
    assert "no such repo" in place.refused(ModelNotFoundError).message
    assert server.bytes_sent < 10_000_000


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"<html>please log in</html>", {"Content-Type": "text/html"}),
        (b"[]", {}),
        (b'{"sha": "main", "siblings": []}', {}),
        (b'{"sha": "%s"}' % (b"a" * 40), {}),
        (b"\x1f\x8b", {"Content-Encoding": "gzip"}),
    ],
    ids=["login page", "list", "no commit", "no files", "compressed unasked"],
)
def test_an_answer_that_is_not_the_hubs(
    server: HubServer, place: Place, body: bytes, headers: dict[str, str]
) -> None:
    server.fail("/api/models", Fault(status=200, headers=headers, body=body))
    assert "HF_ENDPOINT" in place.refused(HubServerError).hint


def test_no_network_and_no_cache(tmp_path: Path) -> None:
    error = Place(tmp_path, NO_CONNECTION).refused(HubUnreachableError)
    assert NO_CONNECTION in error.message
    for way_out in ("--offline", "local folder", "specplan models"):
        assert way_out in error.hint


def test_an_address_that_is_none(tmp_path: Path) -> None:
    assert "HF_ENDPOINT" in Place(tmp_path, "nonsense").refused(HubUnreachableError).hint


# --- faults of weights and configuration ----------------------------------------------------------------------


def test_a_truncated_header_names_its_file(server: HubServer, place: Place) -> None:
    add(server)
    server.fail(SHARD, Fault(cut_after=50))
    error = place.refused(WeightsError)
    assert error.message.startswith(f"{SHARD}: its body breaks off")


def test_a_content_length_that_contradicts_the_range(server: HubServer, place: Place) -> None:
    add(server)
    server.fail(SHARD, Fault(announced=20))
    error = place.refused(WeightsError)
    assert f"{SHARD}: the answer's body is 20 bytes long" in error.message


def test_a_content_length_beyond_the_body(server: HubServer, place: Place) -> None:
    add(server)
    server.fail("config.json", Fault(announced=5000, cut_after=5000))
    assert "config.json: its body breaks off" in place.refused(HubServerError).message


def test_a_range_that_is_ignored_costs_no_more_than_the_header(server: HubServer, place: Place) -> None:
    add(server, single_file_repo({**TINY_LLAMA, "vocab_size": 100_000_000}, sparse=True))
    server.fail("model.safetensors", Fault(ignore_range=True))
    snapshot = place.load()
    assert sum(group.stored_bytes for group in snapshot.weight_groups) > 25_000_000_000
    assert server.bytes_sent < 20_000_000  # what fits into the sockets' buffers at most


def test_an_ignored_range_is_skipped_to(server: HubServer, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repo_reader, "FIRST_READ_BYTES", 100)
    add(server, single_file_repo())
    server.fail("model.safetensors", Fault(ignore_range=True))
    assert parameters(place.load()) == TINY_LLAMA_PARAMETERS


def test_a_range_other_than_the_one_asked_for(server: HubServer, place: Place) -> None:
    add(server, single_file_repo())
    server.fail("model.safetensors", Fault(headers={"Content-Range": "bytes 5-9/10"}))
    assert "a range other than" in place.refused(HubServerError).message


@pytest.mark.parametrize(("declared", "message"), [(2**62, "the format allows"), (50_000_000, "in a file of")])
def test_a_huge_header_is_refused_before_it_is_read(
    server: HubServer, place: Place, declared: int, message: str
) -> None:
    files = sharded_repo()
    add(server, {**files, SHARD: Sparse(head=declared.to_bytes(8, "little"), size=10_000_000)})
    error = place.refused(WeightsError)
    assert error.message.startswith(f"{SHARD}: ")
    assert message in error.message


def test_a_mirror_with_another_file_size(server: HubServer, place: Place) -> None:
    repo = add(server, single_file_repo())
    described = repo.described()
    for row in described["siblings"]:
        row["size"] += 1 if row["rfilename"] == "model.safetensors" else 0
    repo.info = {"siblings": described["siblings"]}
    assert "model.safetensors: the server's copy is" in place.refused(WeightsError).message


@pytest.mark.parametrize("outside", ["../x.safetensors", "/x.safetensors"])
def test_an_index_that_leads_outside_asks_for_nothing_there(server: HubServer, place: Place, outside: str) -> None:
    files = sharded_repo()
    add(server, with_index(files, {**weight_map_of(files), "model.norm.weight": outside}))
    assert "not a file inside the repo" in place.refused(WeightsError).message
    assert not any("x.safetensors" in request.path for request in server.seen)


def test_an_index_against_the_headers(server: HubServer, place: Place) -> None:
    files = sharded_repo()
    add(server, with_index(files, {**weight_map_of(files), "model.ghost": SHARD}))
    assert f"{SHARD}: lacks tensor 'model.ghost'" in place.refused(WeightsError).message


def test_an_index_against_the_list_of_files(server: HubServer, place: Place) -> None:
    files = sharded_repo()
    del files[SHARD]
    add(server, files)
    assert f"names '{SHARD}', which does not exist" in place.refused(WeightsError).message


def test_a_config_above_the_cap_is_not_fetched(server: HubServer, place: Place) -> None:
    add(server, {**single_file_repo(), "config.json": Sparse(head=b"{", size=10**10)})
    assert "config.json: is longer than" in place.refused(ConfigError).message
    assert server.bytes_sent < 10_000


@pytest.mark.parametrize(
    "fault", [Fault(delay_seconds=1.5), Fault(status=503), Fault(drop=True)], ids=["slow", "503", "dropped"]
)
def test_headers_lost_to_the_network_leave_the_indexs_total(server: HubServer, place: Place, fault: Fault) -> None:
    add(server)
    server.fail(SHARD, fault)
    snapshot = place.load()
    assert snapshot.weights_from is WeightsKnownFrom.INDEX
    assert snapshot.index_total_bytes == 2 * TINY_LLAMA_PARAMETERS
    assert "weight headers could not be read" in snapshot.notes[0]
    server.heal()
    assert place.load().weights_from is WeightsKnownFrom.HEADERS  # the half answer was not kept


def test_headers_lost_without_an_index_are_a_network_error(server: HubServer, place: Place) -> None:
    add(server, single_file_repo())
    server.fail("model.safetensors", Fault(status=503))
    assert "model.safetensors" in place.refused(HubServerError).message


# --- offline, and the caches ----------------------------------------------------------------------------------


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


def download(server: HubServer, cache: Path, *names: str) -> None:
    """Let the real client fill its cache."""
    for name in names:
        hf_hub_download("org/tiny", name, endpoint=server.url, cache_dir=cache)


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


# --- the token, the endpoint, the output ----------------------------------------------------------------------


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
