"""Reading tokenizer.json: what is in it, and that no malformed file is taken for a vocabulary."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_catalog.tokenizer_files import MAX_ID, TOKENIZER_LIMIT_BYTES, file_hashes, read_vocabulary


def content(model: object, added: object = None) -> bytes:
    return json.dumps({"version": "1.0", "model": model, "added_tokens": added}).encode()


def test_bpe_with_added_tokens() -> None:
    """The format's own: added tokens extend the base table, as get_vocab() of transformers does."""
    raw = content(
        {"type": "BPE", "vocab": {"a": 0, "b": 1, "</s>": 2}, "merges": []},
        [{"id": 2, "content": "</s>", "special": True}, {"id": 3, "content": "<tool>", "special": False}],
    )
    vocabulary = read_vocabulary(raw)
    assert dict(vocabulary.ids) == {"a": 0, "b": 1, "</s>": 2, "<tool>": 3}
    assert dict(vocabulary.added) == {"</s>": 2, "<tool>": 3}
    assert vocabulary.model_type == "BPE"
    assert vocabulary.max_id_plus_1 == 4
    assert vocabulary.token(3) == "<tool>"
    assert vocabulary.token(4) is None


def test_unigram_ids_are_positions() -> None:
    vocabulary = read_vocabulary(content({"vocab": [["<unk>", 0.0], ["▁the", -3.1]], "unk_id": 0}))
    assert dict(vocabulary.ids) == {"<unk>": 0, "▁the": 1}
    assert vocabulary.model_type == "Unigram"


def test_old_files_leave_the_type_out() -> None:
    assert read_vocabulary(content({"vocab": {"a": 0}, "merges": []})).model_type == "BPE"
    assert read_vocabulary(content({"vocab": {"a": 0}})).model_type is None


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1, 2]", "not a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git-lfs pointer"),
        (b'{"version": "1.0"}', "no model"),
        (content({}), "no vocab"),
        (content({"vocab": {}}), "empty"),
        (content({"vocab": "abc"}), "no vocab"),
        (content({"vocab": {"a": "0"}}), "not a number in range"),
        (content({"vocab": {"a": True}}), "not a number in range"),
        (content({"vocab": {"a": -1}}), "not a number in range"),
        (content({"vocab": {"a": MAX_ID}}), "not a number in range"),
        (content({"vocab": {"a": 1.5}}), "not a number in range"),
        (content({"vocab": [[], ["a", 0.0]]}), "not a text"),
        (content({"vocab": [1, 2]}), "not a text"),
        (content({"vocab": {"a" * 70_000: 0}}), "not a text"),
        (content({"vocab": {"a": 0}}, {"id": 1}), "added_tokens"),
        (content({"vocab": {"a": 0}}, ["b"]), "added_tokens"),
        (content({"vocab": {"a": 0}}, [{"content": "b"}]), "not a number in range"),
        (b" " * (TOKENIZER_LIMIT_BYTES + 1), "longer than"),
    ],
)
def test_malformed_files_are_named(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_vocabulary(raw)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(st.sampled_from(["model", "vocab", "added_tokens", "content", "id", "a"]), x)
        ),
        max_leaves=12,
    )
)
def test_any_json_is_read_or_refused(document: object) -> None:
    """No JSON document makes the reader fail in another way than by ValueError."""
    try:
        vocabulary = read_vocabulary(json.dumps(document).encode())
    except ValueError:
        return
    assert vocabulary.ids


@given(st.dictionaries(st.text(), st.integers(0, 50), min_size=1))
def test_the_digest_tells_vocabularies_apart(table: dict[str, int]) -> None:
    """Independent of the order in the file; changed by any id."""
    ours = read_vocabulary(content({"vocab": table}))
    turned = read_vocabulary(content({"vocab": dict(reversed(table.items()))}))
    assert ours.digest() == turned.digest()
    token = next(iter(table))
    moved = read_vocabulary(content({"vocab": {**table, token: table[token] + 1}}))
    assert ours.digest() != moved.digest()


def test_hashes_are_those_of_the_hub() -> None:
    """Git's well-known object name of an empty blob, and of "hello\\n" (``git hash-object``)."""
    assert file_hashes(b"")[1] == "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert file_hashes(b"hello\n")[1] == "git:ce013625030ba8dba906f756967f9e9ca394464a"
    assert file_hashes(b"abc")[0] == f"sha256:{hashlib.sha256(b'abc').hexdigest()}"
