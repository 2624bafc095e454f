"""`penstock parked list|retry|drop FILE [STORE [KEY]]`: the records that wait for another attempt.

`list` shows their keys, as of the newest commit. `retry` and `drop` write requests to a topic of the application, which
its tasks take as part of a commit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import orjson
import typer
from rich.table import Table

from penstock.application.parked_records import ParkedKey, ParkedRecords, PartitionRequest, parked_stores
from penstock.application.store_entries import plain
from penstock.client.confluent import ConfluentAdmin, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, counted
from penstock.host.open import open_durable_state
from penstock.plan.internal_topics import full_name, requests_topic_name
from penstock.plan.topology import Topology, built_topology
from penstock.processor.parked_requests import ParkedAction, ParkedRequestSerde
from penstock.tools.cli.clients import TIMEOUT_MS, ProgramOptions, with_default_servers
from penstock.tools.cli.common import AsJson, err, option_groups, print_table
from penstock.tools.cli.program import load_program, with_servers_of_state
from penstock.tools.cli.run import File
from penstock_broker.common.clock import SystemClock

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show, retry or drop the records that wait because a function failed on them.",
)


class _Loaded(NamedTuple):
    """A program's topology and configuration."""

    topology: Topology
    settings: StreamsConfig

    @staticmethod
    def of(file: Path, options: ProgramOptions) -> _Loaded:
        """Load a program, whose configuration the options override."""
        program = load_program(file)
        return _Loaded(program.topology, with_servers_of_state(program.configured(options.overrides())))

    @contextmanager
    def parked_records(self) -> Iterator[ParkedRecords]:
        """Open the parked records of the newest commit."""
        parked = parked_stores(built_topology(self.topology, self.settings.required("application.id")))
        with open_durable_state(self.topology, self.settings) as state:
            stores = {name: builder for name, builder in state.stores().items() if name in parked}
            yield ParkedRecords(state, stores, self.settings)


@app.callback()
def _group() -> None:
    """Show, retry or drop the records that wait because a function failed on them."""


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
    loaded = _Loaded.of(file, options)
    with loaded.parked_records() as parked:
        found = list(parked.keys(store))
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


_StoreName = Annotated[str, typer.Argument(metavar="STORE", help="A store of parked records.")]
_Key = Annotated[str | None, typer.Argument(metavar="KEY", help="A key, as the list shows it.")]
_All = Annotated[bool, typer.Option("--all", help="All keys of the store.")]


@app.command()
@option_groups
def retry(file: File, store: _StoreName, key: _Key = None, every: _All = False, *, options: ProgramOptions) -> None:
    """Try the parked records of a key, or of all keys, again at once. Their attempts begin again.

    The application does so with its next commit, or when it starts again.
    """
    _request(_Loaded.of(file, options), store, ParkedAction.RETRY, _chosen(key, every, "retry"))


@app.command()
@option_groups
def drop(file: File, store: _StoreName, key: _Key = None, every: _All = False, *, options: ProgramOptions) -> None:
    """Drop the parked records of a key, or of all keys. If the operator has a topic for dead letters, they go there.

    The application does so with its next commit, or when it starts again. Records that are parked later stay.
    """
    _request(_Loaded.of(file, options), store, ParkedAction.DROP, _chosen(key, every, "drop"))


def _chosen(key: str | None, every: bool, command: str) -> Callable[[Any], bool] | None:
    """Return whether a key is chosen; None stands for all keys."""
    if (key is None) is not every:
        raise typer.BadParameter("give either a KEY or --all", param_hint=command)
    return None if key is None else lambda found: _text(found) == key


def _request(loaded: _Loaded, store: str, action: ParkedAction, chosen: Callable[[Any], bool] | None) -> None:
    with loaded.parked_records() as parked:
        requests = parked.requests(store, action, chosen)
    if not requests:
        which = "No records" if chosen is None else "No records of this key"
        raise StreamsError(f"{which} are parked in {store}: `penstock parked list` shows the keys that wait.")
    _write(with_default_servers(loaded.settings), store, requests)
    keys, records = sum(each.keys for each in requests), sum(each.records for each in requests)
    err.print(
        f"Requested the {action.value} of {counted(records, 'record')} of {counted(keys, 'key')} in {store}. The "
        "application does it with its next commit, or when it starts again."
    )


def _write(settings: StreamsConfig, store: str, requests: Sequence[PartitionRequest]) -> None:
    """Write requests to their topic; raises StreamsError if it does not exist, KafkaError if a write fails."""
    application_id = str(settings.required("application.id"))
    topic = full_name(application_id, requests_topic_name(store))
    with closing(ConfluentAdmin(settings, TIMEOUT_MS)) as admin:
        if topic not in admin.topics():
            raise StreamsError(
                f"Topic {topic} does not exist: {application_id} creates it when it starts. Start the application "
                "first."
            )
    serde, now = ParkedRequestSerde(), SystemClock().milliseconds()
    with closing(ConfluentProducer(settings)) as producer:
        for each in requests:
            producer.send(topic, None, serde.serialize(topic, each.request), each.partition, now)


def _row(parked: ParkedKey) -> tuple[str, ...]:
    due = datetime.fromtimestamp(parked.due_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return (
        parked.store,
        str(parked.partition),
        _shown(parked.key),
        str(parked.records),
        str(parked.attempts),
        due if parked.due_ms else "now",
        parked.failure.partition("\n")[0][:100].replace("[", r"\["),
    )


def _shown(key: Any) -> str:
    return _text(key)[:100].replace("[", r"\[")


def _text(key: Any) -> str:
    return key if isinstance(key, str) else orjson.dumps(key, default=plain).decode()
