"""Errors that a user can act on, and the catalogue's branch of their tree.

::

    SpecplanError                      what failed, on which subject, what to type next
    ├── UsageError                     exit 2
    ├── ModelError                     exit 5
    │   ├── ModelNotFoundError
    │   ├── ModelGatedError
    │   ├── NotAModelError
    │   ├── ConfigError
    │   │   └── UnsupportedConfigError
    │   └── WeightsError
    └── NetworkError                   exit 8
        ├── HubUnreachableError
        ├── HubTimeoutError
        ├── HubRateLimitedError
        └── HubServerError

Each class says what it means in its first line: ``docs/reference/exit-codes.md`` is made of these lines.
The planner adds its own branches in ``planner.errors``.
"""

from typing import ClassVar


class SpecplanError(Exception):
    """An error with its subject and a hint. ``message`` is one sentence without a trailing full stop."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, subject: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}"


class UsageError(SpecplanError):
    """The request itself is wrong."""

    code = "usage"


class ModelError(SpecplanError):
    """The model cannot be read."""

    code = "model"


class ModelNotFoundError(ModelError):
    """There is no such repository, folder or name in the catalogue."""

    code = "model_not_found"


class ModelGatedError(ModelError):
    """The Hub wants a token, or a licence to be accepted first."""

    code = "model_gated"


class NotAModelError(ModelError):
    """An adapter, GGUF files or pickles alone, or a draft head where a model is needed."""

    code = "not_a_model"


class ConfigError(ModelError):
    """A value in config.json is missing or impossible; the message names its key.

    ``key_path`` holds it: ``text_config.num_heads``.
    """

    code = "config"

    def __init__(self, message: str, *, subject: str, hint: str, key_path: str = "") -> None:
        super().__init__(message, subject=subject, hint=hint)
        self.key_path = key_path


class UnsupportedConfigError(ConfigError):
    """A configuration that is well formed, but with keys that move memory and are not understood."""

    code = "config_unsupported"


class WeightsError(ModelError):
    """A safetensors header or index is malformed, or contradicts its file."""

    code = "weights"


class NetworkError(SpecplanError):
    """The Hub cannot be asked, and nothing is cached."""

    code = "network"


class HubUnreachableError(NetworkError):
    """There is no route, name or connection to the Hub, or the network is off."""

    code = "hub_unreachable"


class HubTimeoutError(NetworkError):
    """The Hub answered too slowly."""

    code = "hub_timeout"


class HubRateLimitedError(NetworkError):
    """The Hub asks to be asked less often (429)."""

    code = "hub_rate_limited"


class HubServerError(NetworkError):
    """The Hub failed (5xx), or its answer is not the Hub's protocol."""

    code = "hub_server"
