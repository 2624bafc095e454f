"""`penstock savepoint take | restore | list | inspect | drop | import | export`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock import savepoints
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, counted
from penstock.host.spark.checkpoints.entry_map import MapFunction
from penstock.host.spark.checkpoints.savepoint import SavepointDescription
from penstock.plan.topology import Topology
from penstock.tools.cli.clients import ServersOfProgram
from penstock.tools.cli.common import (
    FAILED,
    AsJson,
    Settings,
    err,
    option_groups,
    out,
    parsed_settings,
    print_json,
    print_table,
)
from penstock.tools.cli.map_functions import map_functions, print_mapped
from penstock.tools.cli.program import LoadedProgram, load_program
from penstock.tools.cli.takeover import taken_over

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Take, restore and inspect savepoints of an application."
)

Where = Annotated[
    str,
    typer.Argument(metavar="APPLICATION", help="A program that defines `config`, or the directory of a checkpoint."),
]
Directory = Annotated[str, typer.Argument(metavar="SAVEPOINT", help="The directory of the savepoint.")]


@app.command()
def take(
    application: Where,
    savepoint: Directory,
    as_json: AsJson = False,
    config: Settings = None,
    servers: ServersOfProgram = None,
) -> None:
    """Copy the state of the last commit of an application, running or not."""
    taken = savepoints.take(_application(application, parsed_settings(config, servers=servers)), savepoint)
    if as_json:
        print_json(taken)
        return
    out.print(f"Took savepoint {taken.location}: {_summary(taken)}.")


@dataclass(frozen=True)
class _Rescaling:
    """The options that re-partition the keys of stores."""

    rescale: Annotated[
        bool, typer.Option("--rescale", help="Re-partition the keys by the current partitions of the program's topics.")
    ] = False
    partitions: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N|STORE=N", help="Re-partition the keys of all stores, or of one, into N partitions (tasks)."
        ),
    ] = None

    def counts(
        self, savepoint: str, program: LoadedProgram | None, settings: Mapping[str, Any]
    ) -> int | dict[str, int] | None:
        """Return the new numbers of partitions; None keeps them."""
        wanted = _partitions(self.partitions)
        if not self.rescale:
            return wanted
        if program is None:
            raise typer.BadParameter(
                "needs a program, whose topics give the numbers of partitions", param_hint="--rescale"
            )
        counts = savepoints.partitions_of_stores(program.topology, program.configured(settings))
        held = {store.name for store in savepoints.inspect(savepoint).stores if store.in_program}
        return {name: count for name, count in counts.items() if name in held}


@app.command()
@option_groups
def restore(
    savepoint: Directory,
    application: Where,
    *,
    rescaling: _Rescaling,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="STORE=MODULE:FUNCTION",
            help="Rewrite the entries of a store: the function takes key and value, and returns the new ones.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Apply the functions of --map to all entries, and restore nothing.")
    ] = False,
    as_json: AsJson = False,
    config: Settings = None,
    servers: ServersOfProgram = None,
) -> None:
    """Create the checkpoint of an application from a savepoint; its next start continues from there."""
    settings = parsed_settings(config, servers=servers)
    program = _program(application)
    functions = map_functions(maps or [], Path(application))
    configured = application if program is None else program.configured(settings)
    topology = None if program is None or not functions else program.topology
    if dry_run:
        _try(savepoint, functions, topology, None if isinstance(configured, str) else configured, as_json)
        return
    counts = rescaling.counts(savepoint, program, settings)
    restored = savepoints.restore(savepoint, configured, counts, maps=functions, topology=topology)
    if as_json:
        print_json(restored)
        return
    if restored.mapped:
        print_mapped(restored.mapped)
    out.print(f"Restored {restored.location}: {_summary(restored)}. Start the application to continue.")


def _try(
    savepoint: str,
    functions: Mapping[str, MapFunction],
    topology: Topology | None,
    config: StreamsConfig | None,
    as_json: bool,
) -> None:
    if not functions:
        raise typer.BadParameter("needs functions to try: --map STORE=MODULE:FUNCTION", param_hint="--dry-run")
    tried = savepoints.try_maps(savepoint, functions, topology, config)
    if as_json:
        print_json({"mapped": tried})
    else:
        print_mapped(tried)
    if any(each.failed for each in tried):
        raise typer.Exit(FAILED)


@app.command("list")
def list_savepoints(
    directory: Annotated[str, typer.Argument(metavar="DIRECTORY", help="Where savepoints are.")],
    as_json: AsJson = False,
) -> None:
    """List the savepoints in a directory."""
    found = savepoints.list_savepoints(directory)
    if not found:
        raise StreamsError(
            f"There is no savepoint in {directory}: name the directory that contains the savepoints, or take one: "
            "penstock savepoint take APPLICATION SAVEPOINT."
        )
    if as_json:
        print_json(found)
        return
    table = Table("savepoint", "application", "epoch", "taken", "stores", "bytes", box=None, pad_edge=False)
    for each in found:
        table.add_row(
            each.location.rpartition("/")[2], each.application_id, str(each.epoch), _time(each.taken_ms),
            ", ".join(store.name for store in each.stores), f"{each.bytes:,}",
        )  # fmt: skip
    print_table(table)


@app.command()
def inspect(savepoint: Directory, as_json: AsJson = False) -> None:
    """Show what a savepoint holds."""
    held = savepoints.inspect(savepoint)
    if as_json:
        print_json(held)
        return
    out.print(f"{held.location}: {_summary(held)}, taken {_time(held.taken_ms)}.")
    table = Table("store", "layout", "partitions", "", box=None, pad_edge=False)
    for store in held.stores:
        note = "" if store.in_program else "removed from the program, state kept"
        table.add_row(store.name, store.layout, str(store.partitions), note)
    print_table(table)
    positions = Table("topic", "next offsets", box=None, pad_edge=False)
    for topic, offsets in sorted(held.offsets.items()):
        positions.add_row(topic, ", ".join(map(str, offsets)))
    print_table(positions)


@app.command()
def drop(
    application: Where,
    store: Annotated[str, typer.Argument(metavar="STORE", help="A store that the program no longer has.")],
    as_json: AsJson = False,
    config: Settings = None,
    servers: ServersOfProgram = None,
) -> None:
    """Delete the state of a store that the program no longer has."""
    savepoints.drop(_application(application, parsed_settings(config, servers=servers)), store)
    if as_json:
        print_json({"dropped": [store]})
        return
    out.print(f"Dropped the state of store {store}.")


ProgramFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A Python program that defines `topology` and `config`.")
]


@app.command("import")
def import_state(
    file: ProgramFile,
    from_kafka: Annotated[
        bool, typer.Option("--from-kafka", help="Take the offsets of the group and the changelog topics.")
    ] = False,
    as_json: AsJson = False,
    config: Settings = None,
    servers: ServersOfProgram = None,
) -> None:
    """Create the checkpoint of a program from the offsets and changelog topics of a Kafka Streams application; the next
    start continues from there."""
    if not from_kafka:
        raise typer.BadParameter("say where the state is: --from-kafka", param_hint="import")
    program = load_program(file)
    checked = program.configured(parsed_settings(config, servers=servers))
    taken = savepoints.import_from_kafka(program.topology, checked)
    if as_json:
        checkpoint = checked.checkpoint_directory()
        print_json({"application_id": checked["application.id"], "checkpoint": checkpoint, **taken_over(taken)})
        return
    for warning in taken.warnings:
        err.print(warning, markup=False)
    stores = ", ".join(f"{store.name} ({counted(store.records, 'record')})" for store in taken.stores) or "none"
    out.print(f"Imported {checked['application.id']} into {checked.checkpoint_directory()}, stores {stores}. Start it.")


@app.command("export")
def export_state(
    savepoint: Directory,
    file: ProgramFile,
    to_kafka: Annotated[
        bool, typer.Option("--to-kafka", help="Write the offsets of the group and the changelog topics.")
    ] = False,
    as_json: AsJson = False,
    config: Settings = None,
    servers: ServersOfProgram = None,
) -> None:
    """Write the state of a savepoint to Kafka, so that Kafka Streams continues from there."""
    if not to_kafka:
        raise typer.BadParameter("say where to: --to-kafka", param_hint="export")
    program = load_program(file)
    checked = program.configured(parsed_settings(config, servers=servers))
    written = savepoints.export_to_kafka(savepoint, program.topology, checked)
    group = checked["application.id"]
    if as_json:
        print_json({"savepoint": savepoint, "group": group, "records": written})
        return
    out.print(f"Exported {savepoint}: wrote {counted(written, 'record')}, and the offsets of the group {group}.")


def _program(application: str) -> LoadedProgram | None:
    path = Path(application)
    return load_program(path) if path.is_file() else None


def _application(application: str, settings: Mapping[str, Any]) -> StreamsConfig | str:
    """Return the configuration of a program, or the directory of a checkpoint."""
    program = _program(application)
    return application if program is None else program.configured(settings)


def _partitions(texts: list[str] | None) -> int | dict[str, int] | None:
    if not texts:
        return None
    if len(texts) == 1 and texts[0].isdigit():
        return int(texts[0])
    counts: dict[str, int] = {}
    for text in texts:
        name, equals, count = text.rpartition("=")
        if not (name and equals and count.isdigit()):
            raise typer.BadParameter(
                f"expected a number, or STORE=N for each store, got {text!r}", param_hint="--partitions"
            )
        counts[name] = int(count)
    return counts


def _summary(held: SavepointDescription) -> str:
    stores = ", ".join(store.name for store in held.stores) or "none"
    return (
        f"{held.application_id} as of epoch {held.epoch}, stores {stores}, {held.bytes:,} bytes in {held.segments} "
        "segments"
    )


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
