"""`penstock transactions list | describe | producers | terminate | find-hanging | abort`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.transactions import TransactionAdmin
from penstock.record import TopicPartition
from penstock.tools.cli.clients import TIMEOUT_MS, BrokerOptions
from penstock.tools.cli.common import AsJson, option_groups, out, print_json, print_table

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="List, describe and abort transactions, and find those that hang.",
)

_MINUTE_MS = 60_000

Id = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
Partition = Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="The partition.")]


@app.command("list")
@option_groups
def list_transactions(
    states: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only those in this state, such as Ongoing; may be given again."),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", help="Only that of this producer; may be given again."),
    ] = None,
    duration: Annotated[
        int | None, typer.Option("--longer-than", metavar="MS", min=0, help="Only those open for longer, in ms.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="REGEX", help="Only ids that match a regular expression of RE2.")
    ] = None,
    as_json: AsJson = False,
    *,
    brokers: BrokerOptions,
) -> None:
    """List transactional ids, their producers and states."""
    with _admin(brokers) as admin:
        found = admin.transactions(states or (), producer_ids or (), duration, pattern)
    rows = [
        {"transactional_id": one.transactional_id, "producer_id": one.producer_id, "state": one.state} for one in found
    ]
    _show(rows, as_json, ("transactional id", "producer id", "state"))


@app.command()
@option_groups
def describe(transactional_id: Id, as_json: AsJson = False, *, brokers: BrokerOptions) -> None:
    """Show the state of a transactional id, and the partitions of its open transaction."""
    with _admin(brokers) as admin:
        found = admin.describe(transactional_id)
    duration = None if found.start_ms is None else max(round(time.time() * 1000) - found.start_ms, 0)
    row = {
        "transactional_id": found.transactional_id,
        "coordinator": found.coordinator,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_ms": found.start_ms,
        "duration_ms": duration,
        "partitions": [{"topic": each.topic, "partition": each.partition} for each in found.partitions],
    }
    if as_json:
        print_json(row)
        return
    for key, value in row.items():
        shown = ", ".join(map(str, found.partitions)) if key == "partitions" else value
        out.print(f"{key.replace('_', ' ')}: {'-' if shown in (None, '') else shown}", markup=False)


@app.command()
@option_groups
def producers(
    topic: Topic,
    partition: Partition,
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="ID", help="The replica to ask; default: the leader.")
    ] = None,
    as_json: AsJson = False,
    *,
    brokers: BrokerOptions,
) -> None:
    """Show the producers that a partition knows, and where their open transactions begin."""
    with _admin(brokers) as admin:
        found = admin.producers(TopicPartition(topic, partition), broker)
    rows = [
        {
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "coordinator_epoch": one.coordinator_epoch,
            "last_sequence": one.last_sequence,
            "last_timestamp": one.last_timestamp,
            "transaction_start": one.transaction_start,
        }
        for one in sorted(found)
    ]
    heads = "producer id", "epoch", "coordinator epoch", "last sequence", "last timestamp", "transaction start"
    _show(rows, as_json, heads)


@app.command()
@option_groups
def terminate(transactional_id: Id, as_json: AsJson = False, *, brokers: BrokerOptions) -> None:
    """Abort the open transaction of a transactional id, and fence the producer that uses the id."""
    with _admin(brokers) as admin:
        before = admin.terminate(transactional_id)
    if as_json:
        print_json({"transactional_id": transactional_id, "producer_id": before.producer_id, "state": before.state})
        return
    out.print(f"Fenced the producer of {transactional_id}; its transaction was {before.state}.", markup=False)


@app.command("find-hanging")
@option_groups
def find_hanging(
    topic: Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only in this topic.")] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="ID", help="Only in partitions with a replica at this broker.")
    ] = None,
    most_minutes: Annotated[
        float,
        typer.Option(
            "--max-transaction-timeout",
            metavar="MINUTES",
            min=0,
            help="transaction.max.timeout.ms of the brokers; younger transactions are left out.",
        ),
    ] = 15,
    as_json: AsJson = False,
    *,
    brokers: BrokerOptions,
) -> None:
    """Find transactions that partitions hold open and no coordinator knows; `abort` ends them."""
    with _admin(brokers) as admin:
        found = admin.hanging(round(most_minutes * _MINUTE_MS), broker, topic)
    now = round(time.time() * 1000)
    rows = [
        {
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "producer_id": one.producer.producer_id,
            "producer_epoch": one.producer.producer_epoch,
            "transaction_start": one.producer.transaction_start,
            "idle_ms": now - one.producer.last_timestamp,
            "transactional_id": one.transactional_id,
        }
        for one in found
    ]
    heads = "topic", "partition", "producer id", "epoch", "transaction start", "idle ms", "transactional id"
    _show(rows, as_json, heads)


@app.command()
@option_groups
def abort(
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", metavar="OFFSET", min=0, help="Where the transaction begins in the partition."),
    ] = None,
    producer_id: Annotated[int | None, typer.Option("--producer-id", metavar="ID", help="Its producer.")] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", metavar="EPOCH", help="The epoch of its producer.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option("--coordinator-epoch", metavar="EPOCH", help="The coordinator epoch of the marker."),
    ] = None,
    as_json: AsJson = False,
    *,
    brokers: BrokerOptions,
) -> None:
    """Abort a transaction that hangs in a partition: what it wrote there is lost.

    Give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch.
    """
    at = TopicPartition(topic, partition)
    with _admin(brokers) as admin:
        match start_offset, producer_id, producer_epoch, coordinator_epoch:
            case int(offset), None, None, None:
                producer_id = admin.abort_from(at, offset).producer_id
            case None, int(of_producer), int(epoch), int(of_coordinator):
                admin.abort(at, of_producer, epoch, of_coordinator)
            case _:
                raise typer.BadParameter(
                    "give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch"
                )
    if as_json:
        print_json({"topic": topic, "partition": partition, "producer_id": producer_id})
        return
    out.print(f"Aborted the transaction of producer {producer_id} in {at}.")


@contextmanager
def _admin(brokers: BrokerOptions) -> Iterator[TransactionAdmin]:
    with Cluster(brokers.client_config(), TIMEOUT_MS) as cluster:
        yield TransactionAdmin(cluster)


def _show(rows: Sequence[dict[str, Any]], as_json: bool, heads: tuple[str, ...]) -> None:
    if as_json:
        print_json(rows)
        return
    # A truncated name would be useless for the next command.
    table = Table(*(Column(head, overflow="fold") for head in heads), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    print_table(table)
