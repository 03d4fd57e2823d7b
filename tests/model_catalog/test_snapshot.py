import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog.architecture import Component, Role
from model_catalog.errors import UsageError
from model_catalog.snapshot import (
    ModelSnapshot,
    RepoFile,
    RepoKind,
    RepoRef,
    SnapshotSource,
    TokenizerFingerprint,
    WeightGroup,
    WeightsKnownFrom,
    expanded,
)

GROUPS = st.builds(
    WeightGroup,
    component=st.sampled_from(Component),
    layer=st.none() | st.integers(0, 200),
    role=st.sampled_from(Role),
    dtype=st.sampled_from(["BF16", "F32", "U8"]),
    parameters=st.integers(0, 2**40),
    stored_bytes=st.integers(0, 2**42),
    tensors=st.integers(1, 100_000),
)
SNAPSHOTS = st.builds(
    ModelSnapshot,
    repo_id=st.just("org/name"),
    revision=st.none() | st.just("main"),
    commit=st.none() | st.just("0" * 40),
    source=st.sampled_from(SnapshotSource),
    kind=st.sampled_from(RepoKind),
    config=st.dictionaries(st.text(max_size=8), st.integers() | st.booleans() | st.none() | st.text(max_size=8)),
    quantization_file=st.none() | st.just({"quantization": {"quant_algo": "FP8"}}),
    files=st.lists(
        st.builds(RepoFile, path=st.text(min_size=1, max_size=20), size_bytes=st.none() | st.integers(0, 2**40)),
        max_size=3,
    ).map(tuple),
    weights_from=st.sampled_from(WeightsKnownFrom),
    weight_groups=st.lists(GROUPS, max_size=4).map(tuple),
    index_total_bytes=st.none() | st.integers(0, 2**42),
    published_parameters=st.none() | st.integers(0, 2**42),
    published_bytes=st.none() | st.integers(0, 2**42),
    tokenizer=st.none() | st.just(TokenizerFingerprint(file_hash="abc", tokenizer_class="GPT2Tokenizer")),
    facts_source=st.text(max_size=10),
    notes=st.lists(st.text(max_size=10), max_size=2).map(tuple),
)


@given(SNAPSHOTS)
def test_a_snapshot_survives_json(snapshot: ModelSnapshot) -> None:
    assert ModelSnapshot.from_json(json.loads(json.dumps(snapshot.to_json()))) == snapshot


@pytest.mark.parametrize(
    "document", [{}, {"schema": "specplan.snapshot/0"}, {"schema": "specplan.snapshot/1", "repo_id": "a/b"}]
)
def test_a_foreign_document_is_refused(document: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"specplan\.snapshot"):
        ModelSnapshot.from_json(document)


@pytest.mark.parametrize(
    ("text", "repo_id", "revision"),
    [
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B", None),
        ("Qwen/Qwen3-32B@main", "Qwen/Qwen3-32B", "main"),
        ("org/name@refs/pr/3", "org/name", "refs/pr/3"),
        ("gpt2", "gpt2", None),
    ],
)
def test_how_models_are_named(text: str, repo_id: str, revision: str | None) -> None:
    ref = RepoRef.parse(text)
    assert (ref.repo_id, ref.revision, ref.folder) == (repo_id, revision, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-rf",
        "a/b/c",
        "org/../name",
        "org/name@../x",
        "org/na me",
        "org/name@",
        "a\nb",
        "./no-such-folder",
        "org/n@-x",
    ],
)
def test_what_is_no_model_name(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        RepoRef.parse(text)
    assert "org/name" in caught.value.hint


@pytest.mark.parametrize(
    "text", ["https://huggingface.co/org/name", "huggingface.co/org/name/tree/main", "https://hf.co/org/name?x=1"]
)
def test_the_address_of_a_page_is_told_as_a_name(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        RepoRef.parse(text)
    assert caught.value.hint == "write org/name"


def test_a_folder_is_a_model_name(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    ref = RepoRef.parse(str(folder))
    assert ref.folder == folder
    assert ref.repo_id == "my-model"


def test_the_home_of_nobody_is_no_folder() -> None:
    """Python raises for a user that is not there; a user of ours gets the sentence for a folder that is not."""
    with pytest.raises(UsageError, match="no such folder"):
        RepoRef.parse("~nobody-of-that-name/model")
    assert expanded("~nobody-of-that-name/x") == Path("~nobody-of-that-name/x")
