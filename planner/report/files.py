"""Writes an answer to a file, as a whole or not at all: a document, a page, a picture."""

import os
from pathlib import Path

from model_catalog.errors import UsageError


def write_file(content: str | bytes, target: str, *, option: str, what: str) -> None:
    """Write a text or bytes to a path, as a whole or not at all.

    Raises:
        UsageError: the path that ``option`` gave cannot be written.
    """
    path = Path(target)
    content = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # a pipe or /dev/stderr cannot be replaced, only written
        else:
            _replace(path.resolve(), content)  # a link keeps pointing where it points
    except OSError as cause:
        or_stdout = ", or - for stdout" if option == "--json" else ""
        raise UsageError(
            f"the {what} cannot be written: {cause.strerror or cause}",
            subject=str(path),
            hint=f"give {option} a path in a folder that exists and may be written{or_stdout}",
        ) from cause


def _replace(path: Path, content: bytes) -> None:
    import tempfile  # noqa: PLC0415 - slow to import, and only an answer in a file needs it

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        # mkstemp makes files for the owner alone; a report is an ordinary file.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
