"""Names of models as commands have them: repos, folders of another machine, GGUF files. Opens nothing."""

import re
from typing import Final

from model_catalog.catalogue import lookup
from model_catalog.snapshot import expanded

_CACHED: Final = re.compile(r"models--([\w.-]{1,96}?)--([\w.-]{1,96})/snapshots/", re.ASCII)
#: A file type at the end of a GGUF file's name, with the part number of a split file.
_TYPE: Final = re.compile(
    r"[._-](?:UD-)?((?:I?Q\d(?:_[A-Z0-9]{1,3}){0,2}|F16|BF16|F32|MXFP4))(?:-\d{5}-of-\d{5})?$",
    re.ASCII | re.IGNORECASE,
)
_SUFFIXES: Final = ("-gguf", "_gguf", ".gguf")


def local_name(name: str, revision: str | None) -> str:
    """The name to look up here: a repo at its revision, a folder, or what a folder's last parts say."""
    cached = _CACHED.search(name)
    if cached is not None:
        return f"{cached[1]}/{cached[2]}"
    if name.startswith(("/", ".", "~")):
        if expanded(name).is_dir():
            return name
        short = "/".join(name.rstrip("/").split("/")[-2:])
        rows = (lookup(guess) for guess in (short, short.rpartition("/")[2]) if guess)
        return next((row.repo_id for row in rows if row is not None), name)
    return f"{name}@{revision}" if revision and "@" not in name else name


def gguf_model(text: str) -> tuple[str, str | None]:
    """(model, file type) of a GGUF file's path or ``repo:TYPE``: the catalogue's name where it is known there."""
    name, _, tag = text.partition(":") if not text.startswith("/") else (text, "", "")
    kind = tag or None
    last = name.rstrip("/").rpartition("/")[2]
    if last.lower().endswith(".gguf"):
        last = last[:-5]
        found = _TYPE.search(last)
        if found is not None:
            kind, last = found[1], last[: found.start()]
        name = last
    for suffix in _SUFFIXES:
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    for guess in (name, name.rpartition("/")[2]):
        row = lookup(guess) if guess else None
        if row is not None:
            return row.repo_id, kind.lower() if kind else None
    return name, kind.lower() if kind else None
