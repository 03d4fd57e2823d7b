"""Turns what the Hub's client raises into our own errors: the one place where foreign exceptions are judged.

Pure: it knows the foreign classes by name only, so it imports neither the client nor its HTTP library, and the
same table serves the client's releases on httpx and on httpx2. The most specific class wins, because the
exception's own method resolution order is walked.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from model_catalog.errors import (
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

_TOKEN_LIKE: Final = re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}")
_RETRY_AFTER: Final = re.compile(r"\d{1,6}")

#: An address that does not answer at all will not answer in a second either: fall back to the disk at once.
_LASTING: Final = frozenset({"ConnectError", "ConnectTimeout", "OfflineModeIsEnabled"})
_PASSING: Final = frozenset(
    {"TimeoutException", "NetworkError", "ProtocolError", "TimeoutError", "ConnectionError"}
)
#: As the client's own ``http_backoff``.
_PASSING_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})

OFFLINE_HINT: Final = (
    "add --offline to use only what is on disk, give a local folder, or a name from `specplan models`"
)
_SERVER_HINT: Final = "try again in a minute; HF_ENDPOINT, if set, must name a Hub; --offline uses what is on disk"
_NAME_HINT: Final = "check the spelling of org/name on the Hub; `specplan models` lists the built-in names"


class BodyBreaksOffError(Exception):
    """A body that ended before the length announced for it; raised from the HTTP library's own error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubCall:
    """What was asked when the error came: the words for its message."""

    repo_id: str
    revision: str
    file: str | None = None
    token: str | None = None
    site: str = "https://huggingface.co"

    @property
    def subject(self) -> str:
        return f"{self.repo_id}@{self.revision}"

    @property
    def what(self) -> str:
        """The file, or the repo's description."""
        return self.file or "the repo's description"


def translate(error: BaseException, call: HubCall) -> SpecplanError:
    """Our error for a foreign one, with the foreign one as its cause.

    An error of our own passes unchanged. The message never holds a token.
    """
    if isinstance(error, SpecplanError):
        return error
    names = (foreign.__name__ for foreign in type(error).__mro__)
    judge = next((_JUDGES[name] for name in names if name in _JUDGES), _UNKNOWN)
    own = judge(error, call)
    own.message, own.hint = redact(own.message, call.token), redact(own.hint, call.token)
    own.args = (own.message,)
    own.__cause__ = error
    return own


def redact(text: str, token: str | None = None) -> str:
    """The text without access tokens: anything shaped like one, and the one in use."""
    if token and len(token) >= 4:
        text = text.replace(token, "***")
    return _TOKEN_LIKE.sub("***", text)


def ascii_only(text: str) -> str:
    """A header's value as the client can take it back: a proxy may send any byte."""
    return text.encode("ascii", "replace").decode("ascii")


def may_pass(error: BaseException) -> bool:
    """Whether asking again soon may help: time-outs, breaks, 429 and 5xx, but no dead address or refusal."""
    names = {foreign.__name__ for foreign in type(error).__mro__}
    if isinstance(error, SpecplanError) or names & _LASTING:
        return False
    status = _status(error)
    return bool(names & _PASSING) if status is None else status in _PASSING_STATUSES


def asked_to_wait(error: BaseException) -> int | None:
    """Seconds that a refusal asks to wait before the next request, or None."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    return None if headers is None else retry_after_seconds(headers)


def retry_after_seconds(headers: Mapping[str, str]) -> int | None:
    """Seconds that a ``Retry-After`` header asks to wait; None where absent or given as a date (RFC 9110)."""
    value = str(headers.get("Retry-After") or headers.get("retry-after") or "").strip()
    return int(value) if _RETRY_AFTER.fullmatch(value) else None


_Judge = Callable[[BaseException, HubCall], SpecplanError]


def _says(kind: type[SpecplanError], message: str, hint: str) -> _Judge:
    """A judge with a fixed verdict; the words in braces are filled in from the call."""

    def judge(error: BaseException, call: HubCall) -> SpecplanError:
        words = {
            "what": call.what,
            "site": call.site,
            "repo": call.repo_id,
            "revision": call.revision,
            "name": type(error).__name__,
        }
        return kind(message.format(**words), subject=call.subject, hint=hint.format(**words))

    return judge


def _by_token(*, without: _Judge, having: _Judge) -> _Judge:
    return lambda error, call: (having if call.token else without)(error, call)


def _status(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _by_status(error: BaseException, call: HubCall) -> SpecplanError:
    status = _status(error)
    judge = _STATUS_JUDGES.get(status or 0)
    if judge is not None:
        return judge(error, call)
    answered = "failed ({name})" if status is None else f"answered {status}"
    return _says(HubServerError, f"the Hub {answered} for {{what}}", _SERVER_HINT)(error, call)


def _rate_limited(error: BaseException, call: HubCall) -> SpecplanError:
    waited = asked_to_wait(error)
    when = "" if waited is None else f"; it asks to wait {waited} s"
    hint = "wait and try again" if waited is None else f"try again after {waited} s"
    hint += "" if call.token else "; logging in with `hf auth login` raises the limit"
    message = f"the Hub refuses more requests for now (429) for {{what}}{when}"
    return _says(HubRateLimitedError, message, f"{hint}; --offline uses what is on disk")(error, call)


def _broken_body(error: BaseException, call: HubCall) -> SpecplanError:
    kind = WeightsError if (call.file or "").endswith(".safetensors") else HubServerError
    hint = "try again; if it stays so, a proxy or mirror on the way damages it"
    return _says(kind, "{what}: its body breaks off before the length that was announced", hint)(error, call)


def _missing(error: BaseException, call: HubCall) -> SpecplanError:
    return (_HIDDEN if _status(error) == 401 else _NO_REPO)(error, call)


#: A missing, a private and a gated repo look the same (401) to someone without a token.
_HIDDEN: Final = _by_token(
    without=_says(
        ModelNotFoundError,
        "no such repo, or it is private or gated: without a token the Hub does not say which",
        "if it is private or gated, run `hf auth login` or set HF_TOKEN; else check the spelling",
    ),
    having=_says(
        ModelNotFoundError,
        "the Hub does not accept the token, or the repo does not exist",
        "run `hf auth whoami` to test the token, `hf auth login` to renew it; then check the spelling",
    ),
)
_NO_REPO: Final = _by_token(
    without=_says(ModelNotFoundError, "no such repo on the Hub, or it is private", _NAME_HINT),
    having=_says(ModelNotFoundError, "no such repo on the Hub, or the token may not see it", _NAME_HINT),
)
_GATED: Final = _by_token(
    without=_says(
        ModelGatedError,
        "access is restricted to accounts that accepted its licence",
        "accept the licence on its page, {site}/{repo}, then run `hf auth login` or set HF_TOKEN",
    ),
    having=_says(
        ModelGatedError,
        "access is restricted, and the account of the token in use has not been granted it",
        "accept the licence on its page, {site}/{repo}, with that account, then try again",
    ),
)
#: The Hub says that a repo is gated in a header; a proxy that forbids the Hub says 403 without it.
_REFUSED: Final = _by_token(
    without=_says(
        ModelGatedError,
        "access is refused (403): the repo may be gated, or a proxy on the way forbids it",
        "see its page, {site}/{repo}; if that asks for it, run `hf auth login` or set HF_TOKEN",
    ),
    having=_says(
        ModelGatedError,
        "access is refused (403): the token may lack a permission, or a proxy on the way forbids it",
        "see its page, {site}/{repo}, with the token's account, and the token's permissions on gated repos",
    ),
)
_NO_FILE: Final = _says(
    ModelNotFoundError,
    "the repo has no {what}",
    "the repo may have changed a moment ago: try again; or name a commit with org/name@commit",
)
_NOT_CACHED: Final = _says(
    HubUnreachableError,
    "offline, and nothing about it is on disk",
    "unset HF_HUB_OFFLINE or leave --offline out; or give a local folder, or a name from `specplan models`",
)
_TOO_SLOW: Final = _says(
    HubTimeoutError, "the Hub answered too slowly for {what}", f"try again; or {OFFLINE_HINT}"
)
_UNREACHABLE: Final = _says(HubUnreachableError, "the Hub at {site} cannot be reached ({name})", OFFLINE_HINT)
_BAD_ADDRESS: Final = _says(
    HubUnreachableError,
    "the address of the Hub or of the proxy is not usable ({name})",
    "check HF_ENDPOINT and HTTPS_PROXY, or unset them",
)
_ODD_ANSWER: Final = _says(
    HubServerError, "the Hub's answer for {what} breaks off or is not readable ({name})", _SERVER_HINT
)
_BAD_NAME: Final = _says(UsageError, "not a Hub repo id", "write org/name or org/name@revision")
_BAD_WEIGHTS: Final = _says(WeightsError, "{what}: not a safetensors file", "check the repo's files on the Hub")
_UNKNOWN: Final = _says(HubServerError, "the Hub client failed for {what} ({name})", _SERVER_HINT)

_STATUS_JUDGES: Final[Mapping[int, _Judge]] = {
    401: _HIDDEN,
    403: _REFUSED,
    404: _says(ModelNotFoundError, "the Hub has no {what}", _NAME_HINT),
    408: _TOO_SLOW,
    410: _says(ModelNotFoundError, "the Hub no longer has {what}", _NAME_HINT),
    429: _rate_limited,
    504: _TOO_SLOW,
}
#: Foreign class name -> judge. Bases stand beside their special cases; the special case is met first.
_JUDGES: Final[Mapping[str, _Judge]] = {
    # huggingface_hub.errors
    "GatedRepoError": _GATED,
    "RepositoryNotFoundError": _missing,
    "DisabledRepoError": _says(ModelNotFoundError, "the repo has been disabled on the Hub", "choose another repo"),
    "RevisionNotFoundError": _says(
        ModelNotFoundError,
        "the repo has no branch, tag or commit {revision}",
        "see {site}/{repo}/commits, or leave @{revision} out",
    ),
    "RemoteEntryNotFoundError": _NO_FILE,
    "EntryNotFoundError": _NO_FILE,
    "LocalEntryNotFoundError": _NOT_CACHED,
    "OfflineModeIsEnabled": _NOT_CACHED,
    "RevisionResolutionError": _NOT_CACHED,
    "CacheNotFound": _NOT_CACHED,
    "CachedRepoTreeNotFoundError": _NOT_CACHED,
    "HFValidationError": _BAD_NAME,
    "HfUriError": _BAD_NAME,
    "LocalTokenNotFoundError": _says(
        ModelGatedError, "a token is needed and none is stored", "run `hf auth login` or set HF_TOKEN"
    ),
    "SafetensorsParsingError": _BAD_WEIGHTS,
    "NotASafetensorsRepoError": _BAD_WEIGHTS,
    "FileMetadataError": _ODD_ANSWER,
    "HfHubHTTPError": _by_status,
    # httpx and httpx2
    "HTTPStatusError": _by_status,
    "TimeoutException": _TOO_SLOW,
    "NetworkError": _UNREACHABLE,
    "ProxyError": _BAD_ADDRESS,
    "UnsupportedProtocol": _BAD_ADDRESS,
    "InvalidURL": _BAD_ADDRESS,
    "ProtocolError": _ODD_ANSWER,
    "DecodingError": _ODD_ANSWER,
    "TooManyRedirects": _ODD_ANSWER,
    "StreamError": _ODD_ANSWER,
    "CookieConflict": _ODD_ANSWER,
    "RequestError": _UNREACHABLE,
    # ours
    "BodyBreaksOffError": _broken_body,
    # the standard library's, which the client lets through
    "TimeoutError": _TOO_SLOW,
    "ConnectionError": _UNREACHABLE,
    "SSLError": _UNREACHABLE,
    "gaierror": _UNREACHABLE,
    "JSONDecodeError": _ODD_ANSWER,
}
