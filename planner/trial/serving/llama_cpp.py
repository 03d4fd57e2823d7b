"""Where llama.cpp's server is found. It is no Python package, so asking for packages does not tell.

Standard library only: the parent, which says whether a trial can run in llama.cpp, and the child both ask here.
"""

import os
import shutil
from typing import Final

SERVER_VARIABLE: Final = "SPECPLAN_LLAMA_SERVER"
SERVER_NAME: Final = "llama-server"
#: What a server may take to load its files; a trial starts two.
START_SECONDS: Final = 300.0
SERVER_HINT: Final = f"install llama.cpp so that {SERVER_NAME} is on PATH, or set {SERVER_VARIABLE} to its path"


def find_server(named: str | None = None) -> str | None:
    """The path of ``llama-server``: as named, else as the environment names it, else from PATH.

    None where that one is no program; a wrong name does not fall back to another server.
    """
    return shutil.which(named or os.environ.get(SERVER_VARIABLE) or SERVER_NAME)


def lacks_server() -> str | None:
    """None where a server is found, else the reason in words. Nothing is started."""
    if find_server() is not None:
        return None
    named = os.environ.get(SERVER_VARIABLE)
    if named:
        return f"{SERVER_VARIABLE} names {named}, which is no program"
    return f"{SERVER_NAME} was not found: {SERVER_HINT}"
