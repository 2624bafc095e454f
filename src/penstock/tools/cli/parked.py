"""`penstock parked list FILE [STORE]`: the keys whose records wait for another attempt, as of the newest commit."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
import typer
from rich.table import Table

from penstock.application.parked_records import ParkedKey, ParkedRecords
from penstock.application.store_entries import plain
from penstock.host.open import open_durable_state
from penstock.tools.cli.clients import ProgramOptions
from penstock.tools.cli.common import AsJson, err, option_groups, print_table
from penstock.tools.cli.program import load_program, with_servers_of_state
from penstock.tools.cli.run import File

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Show the records that wait because a function failed on them."
)


@app.callback()
def _group() -> None:
    """Show the records that wait because a function failed on them."""


@app.command("list")
@option_groups
def list_parked(
    file: File,
    store: Annotated[
        str | None, typer.Argument(metavar="STORE", help="A store of parked records; without one, all of them.")
    ] = None,
    as_json: AsJson = False,
    *,
    options: ProgramOptions,
) -> None:
    """List the keys whose records wait, with the attempts, the first error and the next attempt of the first record, as
    of the newest commit in the checkpoint, or on threads as of the end of the changelog topics. The program may run or
    not."""
    program = load_program(file)
    settings = with_servers_of_state(program.configured(options.overrides()))
    with open_durable_state(program.topology, settings) as state:
        found = list(ParkedRecords(state, state.stores(), settings).keys(store))
    if as_json:
        for each in found:
            sys.stdout.write(orjson.dumps(asdict(each), default=plain).decode() + "\n")
        sys.stdout.flush()
        return
    if not found:
        err.print("No records are parked.")
        return
    table = Table("store", "partition", "key", "records", "attempts", "next attempt", "first error", box=None)
    for each in found:
        table.add_row(*_row(each))
    print_table(table)


def _row(parked: ParkedKey) -> tuple[str, ...]:
    due = datetime.fromtimestamp(parked.due_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return (
        parked.store,
        str(parked.partition),
        _text(parked.key),
        str(parked.records),
        str(parked.attempts),
        due if parked.due_ms else "now",
        parked.failure.partition("\n")[0][:100].replace("[", r"\["),
    )


def _text(key: Any) -> str:
    text = key if isinstance(key, str) else orjson.dumps(key, default=plain).decode()
    return text[:100].replace("[", r"\[")
