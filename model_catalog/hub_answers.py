"""What the Hub answers: its description of a repo, and the headers that come with a body. Pure.

Source of the field names: the Hub's API, ``GET /api/models/{repo}/revision/{revision}?blobs=true``
(https://huggingface.co/docs/hub/api), as ``huggingface_hub.ModelInfo`` reads it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from model_catalog.errors import HubServerError, WeightsError
from model_catalog.snapshot import RepoFile, TokenizerFingerprint, is_commit

#: A description lists every file in a few hundred bytes; the largest repos have some ten thousand.
DESCRIPTION_LIMIT_BYTES: Final = 32_000_000
MAX_FILES: Final = 50_000
_MAX_SIZE: Final = 2**60
_TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoDescription:
    """A repo at one commit. ``parameters`` is the Hub's own count, which takes packed words for parameters."""

    commit: str
    files: tuple[RepoFile, ...]
    parameters: int | None
    tokenizer: TokenizerFingerprint | None


def read_description(raw: bytes, *, revision: str) -> RepoDescription:
    """The description of a repo.

    Raises:
        ValueError: it is not what the Hub answers (no JSON, no commit, no list of files).
    """
    try:
        document = json.loads(raw)
    except RecursionError as cause:
        raise ValueError("nested too deeply") from cause
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one class for every way of not being an answer
    commit = document.get("sha")
    if not isinstance(commit, str) or not is_commit(commit):
        raise ValueError("no commit in it")
    if is_commit(revision) and commit != revision:
        raise ValueError("it is about another commit")
    siblings = document.get("siblings")
    if not isinstance(siblings, list) or len(siblings) > MAX_FILES:
        raise ValueError("no list of files in it, or one that is too long")
    rows = [row for row in siblings if isinstance(row, dict) and _is_name(row.get("rfilename"))]
    published = document.get("safetensors")
    return RepoDescription(
        commit=commit,
        files=tuple(RepoFile(path=row["rfilename"], size_bytes=_size(row.get("size"))) for row in rows),
        parameters=_size(published.get("total")) if isinstance(published, dict) else None,
        tokenizer=_tokenizer(rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A body, or a range of one, that was asked for. ``file`` None is the repo's description."""

    file: str | None
    length: int
    start: int = 0
    ranged: bool = False
    file_size_bytes: int | None = None

    def judge(self, status: int, headers: Mapping[str, str], subject: str) -> "BodyPart":
        """Which part of the answer's body to take, seen from its status and headers.

        Raises:
            HubServerError: the answer is not one to this request.
            WeightsError: its lengths contradict each other or the repo's list of files.
        """
        encoding = headers.get("Content-Encoding", "identity").strip().lower()
        if status not in {200, 206} or encoding not in {"", "identity"}:
            raise self._not_an_answer(f"status {status}, content encoding {encoding[:20]!r}", subject)
        announced = headers.get("Content-Length", "")
        body_bytes = (
            int(announced) if announced.isascii() and announced.isdigit() and len(announced) < 20 else None
        )
        if not self.ranged:
            return BodyPart(skip=0, take=self.length, to_the_end=True)
        if status == 200:  # the range was ignored: the whole file is on its way
            self._compare("the server's copy is", body_bytes, self.file_size_bytes, subject)
            return BodyPart(skip=self.start, take=self.length, to_the_end=False)
        span = _content_range(headers.get("Content-Range", ""))
        if span is None or span[0] != self.start or not 0 < span[1] - span[0] + 1 <= self.length:
            raise self._not_an_answer("a range other than the one asked for", subject)
        self._compare("the server's copy is", span[2], self.file_size_bytes, subject)
        self._compare("the answer's body is", body_bytes, span[1] - span[0] + 1, subject)
        return BodyPart(skip=0, take=span[1] - span[0] + 1, to_the_end=True)

    def _compare(self, what: str, found: int | None, expected: int | None, subject: str) -> None:
        if found is None or expected is None or found == expected:
            return
        message = f"{self.file}: {what} {found} bytes long, but {expected} were announced"
        hint = "try again; if it stays so, the repo's file or a mirror's copy of it is damaged"
        raise WeightsError(message, subject=subject, hint=hint)

    def _not_an_answer(self, what: str, subject: str) -> HubServerError:
        message = f"the Hub's answer for {self.file or 'the repo'} is not usable ({what})"
        hint = "HF_ENDPOINT, if set, must name a Hub; a login page or proxy may stand between"
        return HubServerError(message, subject=subject, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyPart:
    """Bytes to skip, bytes to take, and whether the body ends there of itself."""

    skip: int
    take: int
    to_the_end: bool


def _content_range(value: str) -> tuple[int, int, int | None] | None:
    """First byte, last byte and file size of a ``Content-Range`` header (RFC 9110, 14.4), or None."""
    unit, _, rest = value.strip().partition(" ")
    span, _, total = rest.partition("/")
    first, _, last = span.partition("-")
    known = total.isascii() and total.isdigit() and len(total) < 20
    numbers = all(part.isascii() and part.isdigit() and len(part) < 20 for part in (first, last))
    if unit.lower() != "bytes" or not numbers:
        return None
    return int(first), int(last), int(total) if known else None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 1000 and value.isprintable()


def _size(value: object) -> int | None:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_SIZE
    return value if usable and isinstance(value, int) else None


def _tokenizer(rows: list[dict[str, Any]]) -> TokenizerFingerprint | None:
    """The hash by which the Hub stores the tokenizer: of the content (LFS), else of the git blob."""
    by_name: Mapping[str, dict[str, Any]] = {row["rfilename"]: row for row in rows}
    for name in _TOKENIZER_FILES:
        row = by_name.get(name)
        if row is None:
            continue
        large = row.get("lfs")
        content = large.get("sha256") if isinstance(large, dict) else None
        for kind, value in (("sha256", content), ("git", row.get("blobId"))):
            if _is_name(value):
                return TokenizerFingerprint(file_hash=f"{kind}:{value}")
    return None
