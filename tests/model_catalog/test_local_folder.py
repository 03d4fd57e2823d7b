import json
import os
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hub_server import Sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from made_repos import (
    TINY_LLAMA,
    TINY_LLAMA_PARAMETERS,
    safetensors,
    sharded_repo,
    single_file_repo,
    weight_map_of,
    with_index,
    write_folder,
)

from model_catalog import local_folder, repo_reader
from model_catalog.architecture import Component, Role
from model_catalog.errors import (
    ConfigError,
    ModelError,
    ModelNotFoundError,
    NotAModelError,
    SpecplanError,
    WeightsError,
)
from model_catalog.local_folder import load_folder
from model_catalog.snapshot import ModelSnapshot, RepoKind, SnapshotSource, WeightsKnownFrom


def load(folder: Path, *trusted: Path) -> ModelSnapshot:
    return load_folder(folder, repo_id="tiny", trusted_roots=trusted)


def sums(snapshot: ModelSnapshot) -> tuple[int, int]:
    groups = snapshot.weight_groups
    return sum(group.parameters for group in groups), sum(group.stored_bytes for group in groups)


@pytest.mark.parametrize("files", [single_file_repo(), sharded_repo(shards=3)], ids=["single", "sharded"])
def test_weights_are_exact(tmp_path: Path, files: dict[str, bytes | Sparse]) -> None:
    snapshot = load(write_folder(tmp_path, files))
    assert sums(snapshot) == (TINY_LLAMA_PARAMETERS, 2 * TINY_LLAMA_PARAMETERS)  # bfloat16: two bytes
    assert snapshot.weights_from is WeightsKnownFrom.HEADERS
    assert (snapshot.source, snapshot.kind, snapshot.commit) == (SnapshotSource.LOCAL, RepoKind.MODEL, None)
    assert snapshot.config == TINY_LLAMA
    assert snapshot.notes == ()
    head = [group for group in snapshot.weight_groups if group.role is Role.HEAD]
    assert [(group.component, group.layer, group.parameters) for group in head] == [
        (Component.TEXT, None, 256 * 64)
    ]
    assert ModelSnapshot.from_json(json.loads(json.dumps(snapshot.to_json()))) == snapshot


def test_progress_counts_headers(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    load_folder(
        write_folder(tmp_path, sharded_repo(shards=3)),
        repo_id="tiny",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_header_longer_than_the_first_read_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repo_reader, "FIRST_READ_BYTES", 64)
    assert sums(load(write_folder(tmp_path, single_file_repo())))[0] == TINY_LLAMA_PARAMETERS


def test_config_alone_is_a_model_without_known_weights(tmp_path: Path) -> None:
    snapshot = load(write_folder(tmp_path, {"config.json": json.dumps(TINY_LLAMA).encode()}))
    assert (snapshot.kind, snapshot.weights_from) == (RepoKind.MODEL, WeightsKnownFrom.CONFIG)
    assert "no weights on disk" in snapshot.notes[0]


def test_config_and_index_alone_know_the_total(tmp_path: Path) -> None:
    files = {name: raw for name, raw in sharded_repo().items() if not name.endswith(".safetensors")}
    snapshot = load(write_folder(tmp_path, files))
    assert snapshot.weights_from is WeightsKnownFrom.INDEX
    assert snapshot.index_total_bytes == 2 * TINY_LLAMA_PARAMETERS
    assert snapshot.weight_groups == ()
    assert "3 of 3 weight files are not on disk" in snapshot.notes[-1]


def test_mistral_params_serve_where_there_is_no_config(tmp_path: Path) -> None:
    params = {"dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 256}
    tensors = [("tok_embeddings.weight", (256, 64), "BF16"), ("layers.1.attention.wq.weight", (64, 64), "BF16")]
    files = {"params.json": json.dumps(params).encode(), "consolidated.safetensors": safetensors(tensors)}
    snapshot = load(write_folder(tmp_path, files))
    assert snapshot.config == params
    assert sums(snapshot)[0] == 256 * 64 + 64 * 64
    assert "params.json" in snapshot.notes[0]


def test_the_quantisation_file_is_read(tmp_path: Path) -> None:
    quantization = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    files = {**single_file_repo(), "hf_quant_config.json": json.dumps(quantization).encode()}
    assert load(write_folder(tmp_path, files)).quantization_file == quantization


def test_a_total_that_differs_from_the_headers_is_noted_and_the_headers_count(tmp_path: Path) -> None:
    files = sharded_repo()
    snapshot = load(write_folder(tmp_path, with_index(files, weight_map_of(files), total=77)))
    assert sums(snapshot)[1] == 2 * TINY_LLAMA_PARAMETERS
    assert "gives a total of 77 bytes" in snapshot.notes[0]


def test_tensors_that_the_index_leaves_out_are_counted_and_noted(tmp_path: Path) -> None:
    files = sharded_repo()
    table = weight_map_of(files)
    del table["model.norm.weight"]
    snapshot = load(write_folder(tmp_path, with_index(files, table)))
    assert sums(snapshot)[0] == TINY_LLAMA_PARAMETERS
    assert "leaves out 1 tensor" in snapshot.notes[0]


@pytest.mark.parametrize(
    "place",
    [
        "../x.safetensors",
        "/etc/x.safetensors",
        "a/../../x.safetensors",
        "C:\\x.safetensors",
        "~",
        "",
        "x.bin",
        "a\nb",
    ],
)
def test_an_index_that_names_a_file_outside_is_refused(tmp_path: Path, place: str) -> None:
    files = sharded_repo()
    table = {**weight_map_of(files), "model.norm.weight": place}
    with pytest.raises(WeightsError, match=r"model\.safetensors\.index\.json: names .* not a file inside"):
        load(write_folder(tmp_path, with_index(files, table)))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {}}, "has no weight_map"),
        ({"weight_map": ["model.safetensors"]}, "has no weight_map"),
        ({"weight_map": {"a": 5}}, "not file names"),
        ({"weight_map": {"a": "model-9.safetensors"}, "metadata": None}, None),
    ],
)
def test_odd_indexes(tmp_path: Path, index: dict[str, object], message: str | None) -> None:
    files = {
        "config.json": json.dumps(TINY_LLAMA).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
    }
    if message is None:
        assert load(write_folder(tmp_path, files)).index_total_bytes is None
        return
    with pytest.raises(WeightsError, match=message):
        load(write_folder(tmp_path, files))


def test_a_tensor_that_the_index_promises_and_no_file_holds(tmp_path: Path) -> None:
    files = sharded_repo()
    table = {**weight_map_of(files), "model.ghost.weight": "model-00002-of-00003.safetensors"}
    with pytest.raises(
        WeightsError, match=r"model-00002-of-00003\.safetensors: lacks tensor 'model\.ghost\.weight'"
    ):
        load(write_folder(tmp_path, with_index(files, table)))


def test_one_missing_shard_is_an_error(tmp_path: Path) -> None:
    files = sharded_repo()
    del files["model-00002-of-00003.safetensors"]
    with pytest.raises(WeightsError, match=r"names 'model-00002-of-00003\.safetensors', which does not exist"):
        load(write_folder(tmp_path, files))


SHARD = "model-00002-of-00003.safetensors"
GOOD = single_file_repo()["model.safetensors"]
assert isinstance(GOOD, bytes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is 0 bytes long"),
        (b"1234", "is 4 bytes long"),
        (GOOD[:100], "declares a header of"),
        (GOOD[:-1], "its header describes"),
        (GOOD + b"x", "its header describes"),
        (struct.pack("<Q", 2**63) + b"{}", "the format allows"),
        (struct.pack("<Q", 90_000_000) + b"{}", "in a file of 10 bytes"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
    ],
    ids=["empty", "too short", "cut in the header", "cut in the data", "too long", "huge", "long", "list"],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(WeightsError, match=message) as caught:
        load(write_folder(tmp_path, {**single_file_repo(), "model.safetensors": content}))
    assert caught.value.message.startswith("model.safetensors: ")
    assert caught.value.subject == str(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b"[" * 200_000, "is not JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is not JSON"),
        (b"\xff\xfe\xfd", "is not JSON"),
    ],
    ids=["empty", "cut", "list", "deep", "long number", "binary"],
)
def test_a_malformed_config_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=f"config.json: {message}"):
        load(write_folder(tmp_path, {**single_file_repo(), "config.json": content}))


def test_infinity_in_a_config_is_read(tmp_path: Path) -> None:
    """Mamba-2 checkpoints publish ``"time_step_limit": [0.0, Infinity]``; strict JSON would refuse them."""
    files = {**single_file_repo(), "config.json": b'{"time_step_limit": [0.0, Infinity]}'}
    assert load(write_folder(tmp_path, files)).config["time_step_limit"] == [0.0, float("inf")]


def test_a_config_above_the_cap_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repo_reader, "CONFIG_LIMIT_BYTES", 50)
    with pytest.raises(ConfigError, match=r"config\.json: is longer than 50 bytes"):
        load(write_folder(tmp_path, single_file_repo()))


def test_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no config\.json") as caught:
        load(write_folder(tmp_path, {"model.safetensors": GOOD}))
    assert "config.json" in caught.value.hint


def test_a_pipeline_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(NotAModelError, match="diffusion pipeline"):
        load(write_folder(tmp_path, {"model_index.json": b"{}", "unet/model.safetensors": GOOD}))


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no such folder"):
        load(tmp_path / "absent")


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_folder, "MAX_FILES", 3)
    with pytest.raises(ConfigError, match="more than 3 files"):
        load(write_folder(tmp_path, single_file_repo()))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("config.json", ConfigError), ("model.safetensors", WeightsError)],
    ids=["config", "weights"],
)
def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, name: str, kind: type[SpecplanError]) -> None:
    folder = write_folder(tmp_path / "model", single_file_repo())
    outside = tmp_path / "outside"
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    with pytest.raises(kind, match=f"{name}: is a link out of the folder"):
        load(folder)
    assert sums(load(folder, tmp_path))[0] == TINY_LLAMA_PARAMETERS  # a root that the caller trusts


def test_a_snapshot_folder_of_the_hub_cache_may_link_into_its_blobs(tmp_path: Path) -> None:
    repo = tmp_path / "models--org--tiny"
    blobs = write_folder(repo / "blobs", single_file_repo())
    folder = repo / "snapshots" / ("a" * 40)
    folder.mkdir(parents=True)
    for blob in blobs.iterdir():
        (folder / blob.name).symlink_to(Path("../../blobs") / blob.name)
    assert sums(load(folder))[0] == TINY_LLAMA_PARAMETERS


@pytest.mark.parametrize("target", ["nowhere", "model.safetensors"], ids=["broken", "loop"])
def test_a_broken_link_is_named(tmp_path: Path, target: str) -> None:
    folder = write_folder(tmp_path, single_file_repo())
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(target)
    with pytest.raises(WeightsError, match=r"model\.safetensors: is a broken link"):
        load(folder)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, single_file_repo())
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(ConfigError, match=r"config\.json: is not a plain file"):
        load(folder)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
#: Keys that the readers look at, with values that they do not expect.
ODD_OBJECTS = st.dictionaries(
    st.sampled_from(["architectures", "model_type", "text_config", "num_hidden_layers", "n_layer"])
    | st.sampled_from(["weight_map", "metadata", "total_size", "transformers_weights", "quantization"]),
    JSON_VALUES,
    max_size=6,
)


@settings(deadline=None, max_examples=150)
@given(
    name=st.sampled_from(["config.json", "model.safetensors.index.json", SHARD, "hf_quant_config.json"]),
    content=st.binary(max_size=200)
    | JSON_VALUES.map(json.dumps).map(str.encode)
    | ODD_OBJECTS.map(json.dumps).map(str.encode),
)
def test_whatever_a_file_holds_only_our_own_errors_come_out(name: str, content: bytes) -> None:
    try:
        with TemporaryDirectory() as folder:
            snapshot = load(write_folder(Path(folder), {**sharded_repo(shards=3), name: content}))
    except ModelError as error:
        assert error.hint
        return
    assert snapshot.kind in RepoKind
