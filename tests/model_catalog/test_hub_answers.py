import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog import hub_answers
from model_catalog.errors import HubServerError, WeightsError
from model_catalog.hub_answers import BodyPart, Wanted, read_description

COMMIT = "a" * 40
GOOD = {
    "sha": COMMIT,
    "siblings": [
        {"rfilename": "tokenizer.json", "size": 5, "blobId": "b" * 40, "lfs": {"sha256": "c" * 64, "size": 5}},
        {"rfilename": "config.json", "size": 7, "blobId": "d" * 40},
        {"rfilename": "unsized"},
    ],
    "safetensors": {"parameters": {"BF16": 9}, "total": 9},
}


def test_a_description_is_read() -> None:
    description = read_description(json.dumps(GOOD).encode(), revision="main")
    assert description.commit == COMMIT
    assert [(file.path, file.size_bytes) for file in description.files] == [
        ("tokenizer.json", 5),
        ("config.json", 7),
        ("unsized", None),
    ]
    assert description.parameters == 9
    assert description.tokenizer is not None
    assert description.tokenizer.file_hash == f"sha256:{'c' * 64}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha": None}, "no commit"),
        ({"sha": "main"}, "no commit"),
        ({"sha": 5}, "no commit"),
        ({"siblings": None}, "no list of files"),
        ({"siblings": {}}, "no list of files"),
    ],
)
def test_what_is_no_description_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_description(json.dumps({**GOOD, **change}).encode(), revision="main")


def test_a_description_of_another_commit_is_refused() -> None:
    with pytest.raises(ValueError, match="another commit"):
        read_description(json.dumps(GOOD).encode(), revision="b" * 40)


def test_too_many_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_answers, "MAX_FILES", 2)
    with pytest.raises(ValueError, match="too long"):
        read_description(json.dumps(GOOD).encode(), revision="main")


@pytest.mark.parametrize(
    "row",
    [{"rfilename": "a\x1b[2J"}, {"rfilename": ""}, {"rfilename": 5}, {}, "config.json", None],
    ids=["control", "empty", "number", "nameless", "text", "null"],
)
def test_files_without_a_usable_name_are_left_out(row: object) -> None:
    description = read_description(json.dumps({**GOOD, "siblings": [row]}).encode(), revision="main")
    assert description.files == ()
    assert description.tokenizer is None


@pytest.mark.parametrize("size", [-1, True, "5", 1.5, 2**70, None])
def test_odd_sizes_are_unknown_sizes(size: object) -> None:
    document = {**GOOD, "siblings": [{"rfilename": "a", "size": size}], "safetensors": {"total": size}}
    description = read_description(json.dumps(document).encode(), revision="main")
    assert (description.files[0].size_bytes, description.parameters) == (None, None)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_description_or_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError):
        read_description(raw, revision="main")


RANGE = Wanted(file="model.safetensors", start=10, length=100, ranged=True, file_size_bytes=1000)
WHOLE = Wanted(file="config.json", length=100)


@pytest.mark.parametrize(
    ("wanted", "status", "headers", "part"),
    [
        (RANGE, 206, {"Content-Range": "bytes 10-109/1000"}, BodyPart(skip=0, take=100, to_the_end=True)),
        (RANGE, 206, {"Content-Range": "bytes 10-59/1000"}, BodyPart(skip=0, take=50, to_the_end=True)),
        (RANGE, 206, {"Content-Range": "bytes 10-109/*"}, BodyPart(skip=0, take=100, to_the_end=True)),
        (RANGE, 200, {"Content-Length": "1000"}, BodyPart(skip=10, take=100, to_the_end=False)),
        (RANGE, 200, {}, BodyPart(skip=10, take=100, to_the_end=False)),
        (WHOLE, 200, {"Content-Encoding": "identity"}, BodyPart(skip=0, take=100, to_the_end=True)),
    ],
)
def test_the_part_of_a_body_to_take(wanted: Wanted, status: int, headers: dict[str, str], part: BodyPart) -> None:
    assert wanted.judge(status, headers, "org/name") == part


@pytest.mark.parametrize(
    ("wanted", "status", "headers", "kind"),
    [
        (WHOLE, 200, {"Content-Encoding": "gzip"}, HubServerError),
        (WHOLE, 204, {}, HubServerError),
        (WHOLE, 304, {}, HubServerError),
        (RANGE, 206, {}, HubServerError),
        (RANGE, 206, {"Content-Range": "bytes 0-99/1000"}, HubServerError),
        (RANGE, 206, {"Content-Range": "bytes 10-110/1000"}, HubServerError),
        (RANGE, 206, {"Content-Range": "bytes 10-9/1000"}, HubServerError),
        (RANGE, 206, {"Content-Range": "items 10-109/1000"}, HubServerError),
        (RANGE, 206, {"Content-Range": "bytes ²-109/1000"}, HubServerError),
        (RANGE, 206, {"Content-Range": "bytes 10-109/999"}, WeightsError),
        (RANGE, 206, {"Content-Range": "bytes 10-109/1000", "Content-Length": "99"}, WeightsError),
        (RANGE, 200, {"Content-Length": "999"}, WeightsError),
    ],
)
def test_answers_that_are_not_to_this_request(
    wanted: Wanted, status: int, headers: dict[str, str], kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=wanted.file):
        wanted.judge(status, headers, "org/name")
