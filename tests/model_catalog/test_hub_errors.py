"""Every exception that the client and its HTTP library define becomes the most specific error of our own."""

import importlib
import inspect
import json
from types import ModuleType

import huggingface_hub.errors
import pytest

from model_catalog import errors
from model_catalog.errors import (
    HubRateLimitedError,
    HubServerError,
    HubTimeoutError,
    HubUnreachableError,
    ModelGatedError,
    ModelNotFoundError,
    NetworkError,
    SpecplanError,
    UsageError,
    WeightsError,
)
from model_catalog.hub_errors import HubCall, may_pass, redact, retry_after_seconds, translate

#: httpx or httpx2, whichever this client is built on.
HTTP_LIBRARY = importlib.import_module(
    huggingface_hub.errors.HfHubHTTPError.__mro__[1].__module__.partition(".")[0]
)
CALL = HubCall(repo_id="org/name", revision="main", file="config.json")

EXPECTED: dict[str, type[SpecplanError]] = {
    "GatedRepoError": ModelGatedError,
    "LocalTokenNotFoundError": ModelGatedError,
    "RepositoryNotFoundError": ModelNotFoundError,
    "DisabledRepoError": ModelNotFoundError,
    "RevisionNotFoundError": ModelNotFoundError,
    "RemoteEntryNotFoundError": ModelNotFoundError,
    "EntryNotFoundError": ModelNotFoundError,
    "LocalEntryNotFoundError": HubUnreachableError,
    "IncompleteSnapshotError": HubUnreachableError,
    "OfflineModeIsEnabled": HubUnreachableError,
    "RevisionResolutionError": HubUnreachableError,
    "CacheNotFound": HubUnreachableError,
    "HFValidationError": UsageError,
    "HfUriError": UsageError,
    "SafetensorsParsingError": WeightsError,
    "NotASafetensorsRepoError": WeightsError,
    "HfHubHTTPError": HubServerError,
    "BadRequestError": HubServerError,
    "InferenceTimeoutError": HubTimeoutError,
    "TimeoutException": HubTimeoutError,
    "ConnectTimeout": HubTimeoutError,
    "ReadTimeout": HubTimeoutError,
    "PoolTimeout": HubTimeoutError,
    "ConnectError": HubUnreachableError,
    "ReadError": HubUnreachableError,
    "ProxyError": HubUnreachableError,
    "UnsupportedProtocol": HubUnreachableError,
    "InvalidURL": HubUnreachableError,
    "RemoteProtocolError": HubServerError,
    "DecodingError": HubServerError,
    "TooManyRedirects": HubServerError,
}


def exceptions_of(module: ModuleType) -> list[type[Exception]]:
    found = [value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, Exception)]
    return [kind for kind in found if not issubclass(kind, Warning)]


FOREIGN = {
    kind.__name__: kind for module in (huggingface_hub.errors, HTTP_LIBRARY) for kind in exceptions_of(module)
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_every_foreign_class_is_mapped(foreign: type[Exception]) -> None:
    error = foreign.__new__(foreign)  # constructors differ; the class is what is judged
    own = translate(error, CALL)
    assert type(own) is EXPECTED.get(foreign.__name__, type(own))
    assert type(own) not in {SpecplanError, NetworkError, errors.ModelError}
    assert own.__cause__ is error
    assert own.message
    assert own.hint
    assert own.subject == "org/name@main"


def test_the_table_names_real_classes() -> None:
    assert len(FOREIGN) > 60
    optional = {"IncompleteSnapshotError", "RevisionResolutionError", "HfUriError"}  # newer than the oldest client
    assert set(EXPECTED) - set(FOREIGN) <= optional


def answered(status: int, **headers: str) -> Exception:
    request = HTTP_LIBRARY.Request("GET", "https://huggingface.co/api/models/org/name")
    response = HTTP_LIBRARY.Response(
        status, headers={k.replace("_", "-"): v for k, v in headers.items()}, request=request
    )
    return huggingface_hub.errors.HfHubHTTPError("refused", response=response)


@pytest.mark.parametrize(
    ("status", "kind", "passing"),
    [
        (400, HubServerError, False),
        (401, ModelNotFoundError, False),
        (403, ModelGatedError, False),
        (404, ModelNotFoundError, False),
        (408, HubTimeoutError, True),
        (410, ModelNotFoundError, False),
        (416, HubServerError, False),
        (418, HubServerError, False),
        (429, HubRateLimitedError, True),
        (500, HubServerError, True),
        (503, HubServerError, True),
        (504, HubTimeoutError, True),
    ],
)
def test_statuses(status: int, kind: type[SpecplanError], passing: bool) -> None:
    error = answered(status)
    assert type(translate(error, CALL)) is kind
    assert may_pass(error) is passing


def test_a_gated_repo_is_not_taken_for_a_missing_one() -> None:
    """The client's GatedRepoError is a RepositoryNotFoundError."""
    gated = huggingface_hub.errors.GatedRepoError
    assert issubclass(gated, huggingface_hub.errors.RepositoryNotFoundError)
    assert type(translate(gated.__new__(gated), CALL)) is ModelGatedError


@pytest.mark.parametrize(
    ("error", "kind", "passing"),
    [
        (TimeoutError(), HubTimeoutError, True),
        (ConnectionResetError(), HubUnreachableError, True),
        (json.JSONDecodeError("x", "", 0), HubServerError, False),
        (RuntimeError("odd"), HubServerError, False),
        (HTTP_LIBRARY.ConnectError("refused"), HubUnreachableError, False),
        (HTTP_LIBRARY.ReadTimeout("slow"), HubTimeoutError, True),
        (HTTP_LIBRARY.RemoteProtocolError("cut"), HubServerError, True),
    ],
)
def test_other_errors(error: Exception, kind: type[SpecplanError], passing: bool) -> None:
    assert type(translate(error, CALL)) is kind
    assert may_pass(error) is passing


def test_our_own_errors_pass_unchanged() -> None:
    own = WeightsError("damaged", subject="org/name", hint="again")
    assert translate(own, CALL) is own
    assert may_pass(own) is False


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "120"}, 120),
        ({"retry-after": " 5 "}, 5),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),  # a date: RFC 9110, 10.2.3
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "9" * 30}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: int | None) -> None:
    assert retry_after_seconds(headers) == seconds


@pytest.mark.parametrize(
    ("text", "token", "clean"),
    [
        (f"see hf_{'a' * 34}!", None, "see ***!"),
        ("my secret is short", "secret", "my *** is short"),
        ("hf_quant_config.json, hf_transfer", None, "hf_quant_config.json, hf_transfer"),
        ("nothing", "", "nothing"),
    ],
)
def test_tokens_are_redacted_and_file_names_are_not(text: str, token: str | None, clean: str) -> None:
    assert redact(text, token) == clean


def test_a_token_in_a_repo_name_does_not_reach_the_message() -> None:
    call = HubCall(repo_id="org/name", revision="main", file=f"hf_{'b' * 34}.json")
    assert "hf_bbb" not in translate(HTTP_LIBRARY.ReadTimeout("slow"), call).message
