"""What fits, on which device, and how sure we are. ``from planner import plan`` is the way in from Python."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.api import FitResult, HardwareError, ModelError, NetworkError, SpecplanError, UsageError, plan

__version__ = "0.1.0"

__all__ = [
    "FitResult",
    "HardwareError",
    "ModelError",
    "NetworkError",
    "SpecplanError",
    "UsageError",
    "__version__",
    "plan",
]


def __getattr__(name: str) -> object:
    """Open the door when somebody knocks: the command line's help must not wait for all of the planner."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - only with the rest

    value: object = getattr(importlib.import_module("planner.api"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
