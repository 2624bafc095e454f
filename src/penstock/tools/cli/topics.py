"""`penstock topics create | list | describe | configs | alter | delete`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.errors import KafkaError, TopicExistsError, UnknownTopicOrPartitionError, counted
from penstock.record import TopicPartition
from penstock.tools.cli.clients import TIMEOUT_MS, BrokerOptions
from penstock.tools.cli.common import (
    FAILED,
    AsJson,
    option_groups,
    out,
    parsed_settings,
    print_json,
    print_table,
    report,
)

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Create, list, describe, change and delete topics.")

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="One or more topics.")]


@app.command()
@option_groups
def create(
    topics: Names,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="Partitions of each.")] = 1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", help="Replicas of each; -1 for the broker's default.")
    ] = -1,
    topic_config: Annotated[
        list[str] | None, typer.Option("--topic-config", metavar="KEY=VALUE", help="A configuration of the topics.")
    ] = None,
    as_json: AsJson = False,
    *,
    brokers: BrokerOptions,
) -> None:
    """Create topics."""
    configs = parsed_settings(topic_config, "--topic-config")
    admin = ConfluentAdmin(brokers.client_config(), TIMEOUT_MS)

    def create_one(name: str) -> None:
        admin.create_topics([NewTopic(name, partitions, replication_factor, configs)])
        if not as_json:
            out.print(f"Created topic {name} with {counted(partitions, 'partition')}.")

    _for_each(topics, create_one, TopicExistsError, "created", as_json)


@app.command("list")
@option_groups
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Show Kafka's own topics too.")] = False,
    as_json: AsJson = False,
    *,
    brokers: BrokerOptions,
) -> None:
    """List topics, their partitions and how many records they hold (counted by offset, so deleted records and
    transaction markers count too)."""
    admin = ConfluentAdmin(brokers.client_config(), TIMEOUT_MS)
    found = {name: count for name, count in sorted(admin.topics().items()) if internal or not name.startswith("__")}
    partitions = [TopicPartition(name, number) for name, count in found.items() for number in range(count)]
    first, last = admin.beginning_offsets(partitions), admin.end_offsets(partitions)
    records = dict.fromkeys(found, 0)
    for each in partitions:
        records[each.topic] += last[each] - first[each]
    if as_json:
        print_json([{"topic": name, "partitions": count, "records": records[name]} for name, count in found.items()])
        return
    table = Table("topic", "partitions", "records", box=None, pad_edge=False)
    for name, count in found.items():
        table.add_row(name, str(count), f"{records[name]:,}")
    print_table(table)


@app.command()
@option_groups
def describe(topics: Names, as_json: AsJson = False, *, brokers: BrokerOptions) -> None:
    """Show partitions, offsets and configuration of topics."""
    admin = ConfluentAdmin(brokers.client_config(), TIMEOUT_MS)
    described = [_described(admin, name) for name in topics]
    if as_json:
        print_json(described)
        return
    for one in described:
        overrides = ", ".join(f"{key}={value}" for key, value in one["configs"].items())
        count = counted(len(one["partitions"]), "partition")
        out.print(f"{one['topic']}: {count}; configuration: {overrides or 'the defaults of the broker'}")
        table = Table("partition", "leader", "replicas", "in sync", "first", "end", box=None, pad_edge=False)
        for row in one["partitions"]:
            shown = (",".join(map(str, cell)) if isinstance(cell, list) else str(cell) for cell in row.values())
            table.add_row(*shown)
        print_table(table)


def _described(admin: ConfluentAdmin, name: str) -> dict[str, Any]:
    found = admin.describe_topic(name)
    partitions = [TopicPartition(name, each.partition) for each in found.partitions]
    first, end = admin.beginning_offsets(partitions), admin.end_offsets(partitions)
    return {
        "topic": name,
        "configs": {key: found.config[key] for key in sorted(found.overrides & set(found.config))},
        "partitions": [
            {
                "partition": info.partition,
                "leader": info.leader,
                "replicas": list(info.replicas),
                "in_sync": list(info.isr),
                "first": first[at],
                "end": end[at],
            }
            for info, at in zip(found.partitions, partitions, strict=True)
        ],
    }


@app.command()
@option_groups
def configs(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    all_keys: Annotated[bool, typer.Option("--all", help="Also show inherited settings.")] = False,
    as_json: AsJson = False,
    *,
    brokers: BrokerOptions,
) -> None:
    """Show the configuration of a topic."""
    found = ConfluentAdmin(brokers.client_config(), TIMEOUT_MS).describe_topic(topic)
    shown = {key: value for key, value in sorted(found.config.items()) if all_keys or key in found.overrides}
    if as_json:
        print_json({"topic": topic, "configs": shown})
        return
    for key, value in shown.items():
        out.print(f"{key}={value}", markup=False)


@app.command()
@option_groups
def alter(
    topics: Names,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A configuration; may be given again.")
    ] = None,
    deletions: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="A key to set back to its default.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="A larger number of partitions.")
    ] = None,
    as_json: AsJson = False,
    *,
    brokers: BrokerOptions,
) -> None:
    """Change the configuration of topics, or give them more partitions."""
    if not (changes or deletions or partitions):
        raise typer.BadParameter("nothing to change: give --set, --unset or --partitions")
    changed = parsed_settings(changes, "--set")
    admin = ConfluentAdmin(brokers.client_config(), TIMEOUT_MS)

    def alter_one(name: str) -> None:
        if changes or deletions:
            admin.alter_topic_configs([name], changed, deletions or ())
        if partitions is not None:
            admin.create_partitions(name, partitions)
        if not as_json:
            out.print(f"Changed topic {name}.")

    _for_each(topics, alter_one, UnknownTopicOrPartitionError, "changed", as_json)


@app.command()
@option_groups
def delete(topics: Names, as_json: AsJson = False, *, brokers: BrokerOptions) -> None:
    """Delete topics with all their records."""
    admin = ConfluentAdmin(brokers.client_config(), TIMEOUT_MS)

    def delete_one(name: str) -> None:
        admin.delete_topics([name])
        if not as_json:
            out.print(f"Deleted topic {name}.")

    _for_each(topics, delete_one, UnknownTopicOrPartitionError, "deleted", as_json)


def _for_each(
    topics: list[str], change: Callable[[str], None], refused: type[KafkaError], what: str, as_json: bool
) -> None:
    """Call `change` for each of `topics`, continuing after `refused` errors.

    Exits with 1 if a call was refused.

    Args:
        topics: the names.
        change: the call for a name.
        refused: the class of errors after which the command continues.
        what: name of the list of changed topics in JSON.
        as_json: whether to print that list.
    """
    done = []
    try:
        for name in topics:
            try:
                change(name)
            except refused as error:
                report(error)
            else:
                done.append(name)
    finally:  # another error ends it; changes made so far stay
        if as_json:
            print_json({what: done})
    if len(done) < len(topics):
        raise typer.Exit(FAILED)
