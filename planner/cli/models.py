"""`specplan models`: the embedded catalogue and what the user added to it: list, show, add."""

import json

import click

from model_catalog.catalogue import lookup, near_names, rows
from model_catalog.errors import ModelNotFoundError, UsageError
from model_catalog.model import Model, describe
from model_catalog.snapshot import ModelSnapshot
from model_catalog.snapshot_store import add_user_snapshot, user_snapshots
from planner.cli.options import apply, offline_option, output_options, read_output
from planner.cli.output import Output
from planner.cli.typed_names import complete_model
from planner.report.facts import stored_bytes, target_facts
from planner.report.plain import safe_line
from planner.report.schemas import document_head
from planner.report.tables import table
from planner.report.words import need, parameters, wrapped
from planner.service.exit_codes import EXIT_OK
from planner.service.model_source import find_snapshot
from planner.workload import Workload


@click.command("models")
@click.argument("name", required=False, shell_complete=complete_model)
@click.option("--add", "added", metavar="REPO", help="Read this model and keep it for use without a network.")
@apply(offline_option(), output_options())
def command(name: str | None, added: str | None, **given: object) -> int:
    """List the models that need no network, show the one with this NAME, or add one.

    Exit code 0: it is done. 5: there is no such model, or it cannot be read. 8: the Hub cannot be asked.
    """
    output = read_output(given)
    if added is not None and name is not None:
        raise UsageError("NAME and --add were both given", subject="models", hint="show and add one at a time")
    if added is not None:
        _add(added, output, offline=bool(given["offline"]))
    elif name is not None:
        _show(name, output)
    else:
        _list(output)
    return EXIT_OK


def _list(output: Output) -> None:
    own = {row.repo_id: row for row in user_snapshots()}
    known = sorted(({row.repo_id: row for row in rows()} | own).values(), key=lambda row: row.repo_id.lower())
    entries = [
        {
            "repo_id": row.repo_id,
            "parameters": row.published_parameters,
            "stored_bytes": stored_bytes(row),
            "facts_source": row.facts_source,
        }
        for row in known
    ]
    output.document({**document_head("models", EXIT_OK), "models": entries})
    if output.quiet:
        output.answer("\n".join(safe_line(row.repo_id) for row in known))
        return
    cells = [
        (safe_line(row.repo_id), "" if row.published_parameters is None else parameters(row.published_parameters))
        for row in known
    ]
    output.answer(table(cells, ["Model", "Parameters"], "lr"))


def _show(name: str, output: Output) -> None:
    row = lookup(name)
    if row is None:
        near = near_names(name)
        hint = f"did you mean {', '.join(near)}?" if near else "`specplan models` lists them."
        raise ModelNotFoundError(
            "not in the built-in catalogue", subject=name, hint=f"{hint} To add one: specplan models --add REPO"
        )
    model = describe(row)
    output.document({**document_head("models", EXIT_OK), "models": [row.to_json()]})
    output.answer(_shown(model))


def _add(name: str, output: Output, *, offline: bool) -> None:
    snapshot = find_snapshot(name, offline=offline, output=output)
    describe(snapshot)  # what cannot be read would be of no use in the catalogue
    place = add_user_snapshot(snapshot)
    output.document({**document_head("models", EXIT_OK), "added": snapshot.repo_id, "path": str(place)})
    output.answer(f"Added {safe_line(snapshot.repo_id)}: {place}")


def _shown(model: Model) -> str:
    facts = target_facts(model, Workload())
    snapshot: ModelSnapshot = model.snapshot
    architecture = model.architecture
    limit = architecture.max_context_tokens
    per_token, state = facts.kv_per_token, facts.state_per_sequence.high_bytes
    low = "" if per_token.low_bytes == per_token.high_bytes else f"{per_token.low_bytes:,} – "
    rows = [
        ("Model", snapshot.repo_id),
        ("Architecture", f"{facts.architecture}, {len(architecture.decoder_layers)} layers"),
        ("Parameters", "unknown" if facts.parameters is None else f"{facts.parameters:,}"),
        ("Stored", need(facts.stored)),
        ("Resident", need(facts.resident)),
        ("KV cache", f"{low}{per_token.high_bytes:,} B per token"),
        *([("State", f"{state:,} B per sequence")] if state else []),
        ("Context", "no limit stated" if limit is None else f"{limit:,} tokens"),
        ("Weights", f"known from {snapshot.weights_from.value}"),
        ("Source", snapshot.facts_source or snapshot.source.value),
    ]
    lines = [piece for label, text in rows for piece in wrapped(f"{label:<14}{safe_line(text)}", indent=14)]
    if snapshot.config.get("quantization_config"):
        lines.append(f"{'Quantisation':<14}{safe_line(json.dumps(snapshot.config['quantization_config']))[:64]}")
    return "\n".join(lines)
