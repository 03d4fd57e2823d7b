"""`specplan drafts`: only the candidates of a target, accepted and rejected, with reasons."""

import click

from planner.cli.fit import fit
from planner.cli.options import (
    apply,
    demand_options,
    draft_options,
    engine_options,
    offline_option,
    output_options,
    split_options,
    where_options,
    workload_options,
)
from planner.cli.typed_names import complete_model


@click.command("drafts")
@click.argument("target", shell_complete=complete_model)
@apply(
    workload_options(),
    draft_options(),
    demand_options(),
    where_options(),
    engine_options(),
    offline_option(),
    output_options(),
)
def command(target: str, **given: object) -> int:
    """Which drafts could serve TARGET, how much faster, and why the others will not do?

    The same search and judgement as `specplan fit`, without the memory table.

    Exit code 0: a draft will do. 3: none will. 4: it cannot be told. 5: the model cannot be read. 6: the devices
    cannot be read. 8: the Hub cannot be asked.
    """
    options, output = split_options(given)
    return fit(target, options, output, drafts_only=True)
