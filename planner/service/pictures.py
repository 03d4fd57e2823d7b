"""Whether pictures can be drawn here: matplotlib is an extra."""

from model_catalog.errors import UsageError


def require_pictures(subject: str) -> None:
    """Load what draws; ``subject`` is the option or the argument that a picture was asked for with.

    Raises:
        UsageError: matplotlib is not installed, or does not load.
    """
    try:
        import planner.pictures  # noqa: F401, PLC0415 - matplotlib is an extra, and slow to import
    except ImportError as cause:
        raise UsageError(
            f"pictures need matplotlib, which does not load here: {cause}",
            subject=subject,
            hint="pip install 'specplan[plot]'",
        ) from cause
