"""`penstock diff`: the effects of a changed program on state, before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock import savepoints
from penstock.tools.cli.clients import ProgramOptions
from penstock.tools.cli.common import FAILED, AsJson, option_groups, out, print_json
from penstock.tools.cli.program import load_program, with_servers_of_state

ProgramFile = Annotated[Path, typer.Argument(metavar="FILE", help="A program that defines `topology` and `config`.")]

_IN_JSON: Final = ("kept", "moved", "new", "removed", "restored", "still_removed", "refused", "differences")
"""The fields of an evolution in JSON: names of stores by their change, and texts."""


@option_groups
def diff(
    file: ProgramFile,
    new: Annotated[
        Path | None,
        typer.Argument(metavar="[NEW]", help="The changed program; without it FILE is compared with its state."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Another checkpoint, or a savepoint, to compare with.")
    ] = None,
    as_json: AsJson = False,
    *,
    options: ProgramOptions,
) -> None:
    """Show what happens to each store when a changed program starts; fails if it cannot start.

    The state is that of the checkpoint, and on the threads host that of the changelog topics and of the group.
    """
    overrides = options.overrides()
    program = load_program(file)
    configured = program.configured(overrides)
    if new is None:
        configured = with_servers_of_state(configured)
        evolution = savepoints.diff(program.topology, checkpoint or configured, configured)
    else:
        changed = load_program(new)
        evolution = savepoints.diff_programs(
            (program.topology, configured), (changed.topology, changed.configured(overrides))
        )
    if as_json:
        print_json({name: getattr(evolution, name) for name in _IN_JSON})
    else:
        for line in evolution.lines() if evolution.differences else ["nothing changes"]:
            out.print(line, markup=False)
    if evolution.refused:
        raise typer.Exit(FAILED)
