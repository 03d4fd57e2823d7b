"""`specplan schema`: the JSON Schema of the report."""

import json
import sys

import click


@click.command("schema")
def command() -> int:
    """Print the JSON Schema of what `specplan fit TARGET --json -` writes, on success and on failure.

    Exit code 0: it is printed.
    """
    from planner.report.document import report_json_schema  # noqa: PLC0415 - pydantic is slow to import

    sys.stdout.write(json.dumps(report_json_schema(), indent=2) + "\n")
    return 0
