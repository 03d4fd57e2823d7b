"""One fault that the suite injects: what is done, and what the user has to be told of it.

The lists beside this module feed the tests as well as ``docs/reference/faults.md``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fault:
    """``code`` None: an answer comes all the same, with ``exit_code``. ``says``: words of what is told."""

    id: str
    what: str
    exit_code: int
    code: str | None
    says: str = ""
