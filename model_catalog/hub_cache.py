"""Where the Hub's own cache on disk keeps which commit: ``refs/BRANCH``, ``snapshots/COMMIT``. Reads no model."""

from pathlib import Path

from model_catalog.snapshot import is_commit


def cached_commit(base: Path, revision: str) -> str:
    """The commit that the cache's ``refs`` give for a branch, or an empty string."""
    try:
        place = (base / "refs" / revision).resolve()
        inside = place.is_relative_to(base.resolve()) and place.is_file() and place.stat().st_size < 100
        return place.read_text(encoding="ascii").strip() if inside else ""
    except (OSError, ValueError):
        return ""


def newest_snapshot(snapshots: Path) -> str:
    """The commit that was written last, or an empty string."""
    try:
        folders = [folder for folder in snapshots.iterdir() if is_commit(folder.name)]
        return max(folders, key=lambda folder: folder.stat().st_mtime).name if folders else ""
    except OSError:
        return ""
