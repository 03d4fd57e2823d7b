"""Errors that a user can act on, and the catalogue's branch of their tree.

::

    SpecplanError                      what failed, on which subject, what to type next
    ├── UsageError                     the request itself is wrong (exit 2)
    ├── ModelError                     the model cannot be read (exit 5)
    │   ├── ModelNotFoundError         no such repo, folder or catalogue name
    │   ├── ModelGatedError            the Hub wants a token or an accepted licence
    │   ├── NotAModelError             adapter, GGUF-only, pickle-only or draft head where a model is needed
    │   ├── ConfigError                config.json is malformed; names the key
    │   │   └── UnsupportedConfigError well-formed, but with memory-relevant keys we do not understand
    │   └── WeightsError               a safetensors header or index is malformed or contradicts its file
    └── NetworkError                   the Hub cannot be asked and nothing is cached (exit 8)
        ├── HubUnreachableError        no route, name or connection
        ├── HubTimeoutError            it answered too slowly
        ├── HubRateLimitedError        429
        └── HubServerError             5xx, or an answer that is not the Hub's protocol

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
    code = "usage"


class ModelError(SpecplanError):
    code = "model"


class ModelNotFoundError(ModelError):
    code = "model_not_found"


class ModelGatedError(ModelError):
    code = "model_gated"


class NotAModelError(ModelError):
    code = "not_a_model"


class ConfigError(ModelError):
    """A value in config.json is missing or impossible; ``key_path`` names it (``text_config.num_heads``)."""

    code = "config"

    def __init__(self, message: str, *, subject: str, hint: str, key_path: str = "") -> None:
        super().__init__(message, subject=subject, hint=hint)
        self.key_path = key_path


class UnsupportedConfigError(ConfigError):
    code = "config_unsupported"


class WeightsError(ModelError):
    code = "weights"


class NetworkError(SpecplanError):
    code = "network"


class HubUnreachableError(NetworkError):
    code = "hub_unreachable"


class HubTimeoutError(NetworkError):
    code = "hub_timeout"


class HubRateLimitedError(NetworkError):
    code = "hub_rate_limited"


class HubServerError(NetworkError):
    code = "hub_server"
