"""Faults of the network, the server and the files on it, through the real client over loopback."""

import time
from dataclasses import replace

import pytest
from hub_place import NO_CONNECTION, QUICK, SHARD, Place, add, parameters
from hub_server import Fault, HubServer, Sparse
from made_repos import (
    TINY_LLAMA,
    TINY_LLAMA_PARAMETERS,
    sharded_repo,
    single_file_repo,
    weight_map_of,
    with_index,
)

from model_catalog import repo_reader
from model_catalog.errors import (
    ConfigError,
    HubRateLimitedError,
    HubServerError,
    HubTimeoutError,
    HubUnreachableError,
    ModelNotFoundError,
    WeightsError,
)
from model_catalog.snapshot import WeightsKnownFrom


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


def test_no_network_and_no_cache(place: Place) -> None:
    place.url = NO_CONNECTION
    error = place.refused(HubUnreachableError)
    assert NO_CONNECTION in error.message
    for way_out in ("--offline", "local folder", "specplan models"):
        assert way_out in error.hint


def test_an_address_that_is_none(place: Place) -> None:
    place.url = "nonsense"
    assert "HF_ENDPOINT" in place.refused(HubUnreachableError).hint


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
