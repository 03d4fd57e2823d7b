"""Names of the JSON documents that commands write, and how each begins. A new major number breaks readers."""

from collections.abc import Mapping
from typing import Final

from planner import __version__

REPORT_SCHEMA: Final = "specplan.report/1"
#: By command; the others write the report.
SCHEMA_OF_COMMAND: Final[Mapping[str, str]] = {
    "check": "specplan.check/1",
    "devices": "specplan.devices/1",
    "gpus": "specplan.gpus/1",
    "models": "specplan.models/1",
    "doctor": "specplan.doctor/1",
    "trial": "specplan.trial/1",
    "explain-log": "specplan.explain_log/1",
    "check-command": "specplan.check_command/1",
}


def document_head(command: str, exit_code: int) -> dict[str, object]:
    """The first keys of the document of one of these commands."""
    return {"schema": SCHEMA_OF_COMMAND[command], "specplan_version": __version__, "exit_code": exit_code}
