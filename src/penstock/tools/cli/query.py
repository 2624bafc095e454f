"""`penstock query FILE [STORE [KEY]]`: the content of stores as of the newest commit.

On the threads host it reads the changelog topics.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

import orjson
import typer
from rich.table import Table

from penstock.application.store_entries import Entry, EntrySelection, StoreEntries, plain
from penstock.config import StreamsConfig
from penstock.host.api import Staleness, StateQueries
from penstock.host.open import keeps_checkpoint, open_durable_state, open_state
from penstock.plan.topology import Topology
from penstock.serdes.texts import NULL
from penstock.tools.cli.clients import ProgramOptions
from penstock.tools.cli.common import err, option_groups, parsed_commit, print_table
from penstock.tools.cli.program import load_program, with_servers_of_state
from penstock.tools.cli.run import File
from penstock.windows import LONG_MAX

DEFAULT_LIMIT = 100


@dataclass(frozen=True)
class _Filter:
    """The options that select the entries to show."""

    store: Annotated[str | None, typer.Argument(metavar="STORE", help="A store; without one, lists the stores.")] = None
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="A key, as text; without one, shows all entries.")
    ] = None
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")] = None
    from_time: Annotated[int, typer.Option("--from-time", min=0, help="Windows and versions from this time (ms).")] = 0
    to_time: Annotated[int, typer.Option("--to-time", min=0, help="Windows and versions up to this time (ms).")] = (
        LONG_MAX
    )

    def selection(self) -> EntrySelection:
        """Return the selection of entries within the store."""
        return EntrySelection(self.key, partition=self.partition, from_time=self.from_time, to_time=self.to_time)


@option_groups
def query(
    file: File,
    *,
    shown: _Filter,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many entries.")] = DEFAULT_LIMIT,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME|COMMIT", help="On Spark, a retained commit: its epoch, or the last at a time."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Show one line of JSON per entry, with its times.")] = False,
    options: ProgramOptions,
) -> None:
    """Show what a store of a program holds, one line per entry with key and value, as of the newest commit in the
    checkpoint, or on threads as of the end of the changelog topics. The program may run or not."""
    program = load_program(file)
    settings = with_servers_of_state(program.configured(options.overrides()))
    with _opened(program.topology, settings, as_of) as state:
        staleness = state.staleness()
        if shown.store is None:
            _list(state)
        else:
            entries = StoreEntries(state, state.stores(), settings).of(shown.store, shown.selection())
            _show(entries, limit, _json_line if json else _line)
    err.print(_as_of(staleness) if keeps_checkpoint(settings) else "As of the present end of the changelog topics.")


def _opened(topology: Topology, settings: StreamsConfig, as_of: str | None) -> StateQueries:
    """Return the state as of a commit, or as of now."""
    if as_of is None:
        return open_durable_state(topology, settings)
    if not keeps_checkpoint(settings):
        raise typer.BadParameter("the threads host keeps no earlier commits; the Spark host does", param_hint="--as-of")
    return open_state(topology, settings, parsed_commit(as_of, "--as-of"))


def _as_of(staleness: Staleness) -> str:
    if staleness.age_ms is None:
        return "The application has not committed an epoch yet, so its stores are empty."
    return f"As of epoch {staleness.epoch} (committed {staleness.age_ms / 1000:.1f} s ago)."


def _list(state: StateQueries) -> None:
    table = Table("store", "kind", box=None, pad_edge=False)
    for name, builder in sorted(state.stores().items()):
        table.add_row(name, builder.kind.replace("_", " "))
    print_table(table)


def _show(entries: Iterator[Entry], limit: int, line: Callable[[Mapping[str, Any]], str]) -> None:
    shown = 0
    for entry in islice(entries, limit):
        sys.stdout.write(line(entry) + "\n")
        shown += 1
    sys.stdout.flush()
    if shown == limit and next(entries, None) is not None:
        err.print(f"There are more than {limit} entries; --limit shows more.")


def _line(entry: Mapping[str, Any]) -> str:
    times = [str(entry[name]) for name in ("window_start", "window_end", "valid_to") if name in entry]
    return "\t".join([_text(entry["key"]), *times, _text(entry["value"])])


def _text(value: Any) -> str:
    if value is None:
        return NULL
    return value if isinstance(value, str) else orjson.dumps(value, default=plain).decode()


def _json_line(entry: Mapping[str, Any]) -> str:
    return orjson.dumps(entry, default=plain).decode()
