"""Reading an untrusted tokenizer.json: every token with its id, within caps.

Owns the file's format (Hugging Face ``tokenizers``: ``model.vocab`` and ``added_tokens``). Fetches nothing and
compares nothing.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

TOKENIZER_JSON: Final = "tokenizer.json"
#: Ours. The largest published tokenizer.json is about 35 MB (262,145 tokens with merges).
TOKENIZER_LIMIT_BYTES: Final = 64_000_000
#: Ours. The largest published vocabulary has some 262,000 tokens.
MAX_TOKENS: Final = 2_000_000
MAX_ID: Final = 2**24
_MAX_TOKEN_CHARACTERS: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFile:
    """A tokenizer.json as far as it could be had: its content, or a note that says why there is none."""

    content: bytes | None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vocabulary:
    """Every token and its id, added tokens included, as ``get_vocab()`` of transformers gives them.

    ``added`` are those outside the base model's table. ``model_type`` is BPE, Unigram, WordPiece or WordLevel.
    """

    ids: Mapping[str, int]
    added: Mapping[str, int]
    model_type: str | None

    @property
    def max_id_plus_1(self) -> int:
        """The least number of rows that an embedding of these tokens needs."""
        return max(self.ids.values()) + 1

    def token(self, wanted: int) -> str | None:
        """The token of an id; an added token goes before the base table's."""
        found = [token for table in (self.added, self.ids) for token, number in table.items() if number == wanted]
        return found[0] if found else None

    def digest(self) -> str:
        """SHA-256 over all (id, token) pairs in order: equal for equal vocabularies, whatever their files."""
        hasher = hashlib.sha256()
        for token, number in sorted(self.ids.items(), key=lambda item: (item[1], item[0])):
            hasher.update(f"{number}\0{token}\0".encode("utf-8", "surrogatepass"))
        return hasher.hexdigest()


def file_hashes(content: bytes) -> tuple[str, str]:
    """The two hashes by which the Hub may list a file: of its content (large files), and of its git blob."""
    # Git's object name: SHA-1 over "blob <length>\0" and the content (gitformat-pack; identity, not security).
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return f"sha256:{hashlib.sha256(content).hexdigest()}", f"git:{blob}"


def read_vocabulary(content: bytes) -> Vocabulary:
    """The vocabulary of a tokenizer.json.

    Raises:
        ValueError: it is not JSON, not of this format, or beyond the caps; the message says which.
    """
    document = _document(content)
    model = document.get("model")
    if not isinstance(model, Mapping):
        raise ValueError("it has no model")  # noqa: TRY004 - one class for every way of being malformed
    base = _base(model.get("vocab"))
    added = _added(document.get("added_tokens"))
    if not base and not added:
        raise ValueError("its vocabulary is empty")
    return Vocabulary(ids={**base, **added}, added=added, model_type=_model_type(model))


def _document(content: bytes) -> Mapping[str, Any]:
    if len(content) > TOKENIZER_LIMIT_BYTES:
        raise ValueError(f"it is longer than {TOKENIZER_LIMIT_BYTES} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as cause:
        pointer = content.startswith(b"version https://git-lfs")
        raise ValueError("it is a git-lfs pointer, not the file" if pointer else "it is not JSON") from cause
    if not isinstance(document, Mapping):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - one class for every way of being malformed
    return document


def _base(vocab: object) -> dict[str, int]:
    """``{token: id}`` of BPE, WordPiece and WordLevel, or ``[[token, score], ...]`` of Unigram."""
    if isinstance(vocab, list):
        pieces = [row[0] if isinstance(row, list) and row else None for row in vocab[: MAX_TOKENS + 1]]
        return _checked((piece, number) for number, piece in enumerate(pieces))
    if isinstance(vocab, Mapping):
        return _checked(vocab.items())
    raise ValueError("its model has no vocab")


def _added(rows: object) -> dict[str, int]:
    if rows is None:
        return {}
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise ValueError("its added_tokens are not a list of objects")
    return _checked((row.get("content"), row.get("id")) for row in rows)


def _checked(pairs: Iterable[tuple[object, object]]) -> dict[str, int]:
    checked: dict[str, int] = {}
    for token, number in pairs:
        if not isinstance(token, str) or len(token) > _MAX_TOKEN_CHARACTERS:
            raise ValueError("it has a token that is not a text")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < MAX_ID:
            raise ValueError("it has a token id that is not a number in range")
        checked[token] = number
        if len(checked) > MAX_TOKENS:
            raise ValueError(f"it has more than {MAX_TOKENS} tokens")
    return checked


def _model_type(model: Mapping[str, Any]) -> str | None:
    """As stated; files of old versions leave it out, and then its tables tell."""
    stated = model.get("type")
    if isinstance(stated, str) and stated.isalnum() and len(stated) < 40:
        return stated
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "BPE" if "merges" in model else None
