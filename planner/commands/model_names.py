"""How a model and a setting are written on another program's command line, and what never gets there.

``RepoRef`` already refuses odd names; this is the last gate before a command, so it trusts nobody.
"""

import re
from typing import Final

from model_catalog.errors import UsageError
from model_catalog.model import Model
from model_catalog.snapshot import as_text

_DEFAULT_BRANCH: Final = "main"
_WORD: Final = re.compile(r"[A-Za-z0-9][\w.:+-]{0,63}", re.ASCII)


def model_name(model: Model) -> str:
    """The Hub repo id, or the absolute path of a local folder.

    Raises:
        UsageError: a name that a command line would read as an option, or that holds control characters.
    """
    name = as_text(model.snapshot.folder or model.snapshot.repo_id)
    return _safe(name, subject=repr(name))


def model_revision(model: Model) -> str | None:
    """The revision to ask the Hub for; None for a folder or the default branch.

    Raises:
        UsageError: as ``model_name``.
    """
    revision = model.snapshot.revision
    if model.snapshot.folder is not None or revision in {None, "", _DEFAULT_BRANCH}:
        return None
    return _safe(str(revision), subject=model.snapshot.repo_id)


def setting(value: str, option: str) -> str:
    """A name as engines spell them (``fp8_e4m3``, ``bfloat16``), checked.

    Raises:
        UsageError: anything but letters, digits and ``_.:+-``, or a leading dash.
    """
    if _WORD.fullmatch(value) is None:
        raise UsageError(
            f"{value!r} is not a name that an engine would take",
            subject=option,
            hint="write it as the engine does",
        )
    return value


def _safe(name: str, *, subject: str) -> str:
    if not name or name.startswith("-") or not name.isprintable():
        raise UsageError(
            "cannot be written into a command: it starts with a dash or holds control characters",
            subject=subject,
            hint="rename the folder, or name the model as org/name",
        )
    return name
