"""`penstock groups list | describe | reset | delete`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from penstock.client.api import OffsetAndMetadata
from penstock.client.confluent import ConfluentAdmin
from penstock.errors import KafkaError, counted
from penstock.host.api import STATE_ELSEWHERE
from penstock.record import TopicPartition
from penstock.tools.cli.clients import TIMEOUT_MS, BrokerOptions
from penstock.tools.cli.common import AsJson, option_groups, out, parsed_time, print_json, print_table

app = typer.Typer(no_args_is_help=True, add_completion=False, help="List, describe, reset and delete consumer groups.")

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]
Names = Annotated[list[str], typer.Argument(metavar="GROUP...", help="One or more groups.")]


@app.command("list")
@option_groups
def list_groups(as_json: AsJson = False, *, brokers: BrokerOptions) -> None:
    """List groups, their protocols and states."""
    found = ConfluentAdmin(brokers.client_config(), TIMEOUT_MS).groups()
    if as_json:
        print_json([{"group": one.group_id, "type": one.group_type, "state": one.state} for one in found])
        return
    table = Table("group", "type", "state", box=None, pad_edge=False)
    for one in found:
        table.add_row(one.group_id, one.group_type, one.state)
    print_table(table)


@app.command()
@option_groups
def describe(group: Group, as_json: AsJson = False, *, brokers: BrokerOptions) -> None:
    """Show the members of a group, what it has committed, and how many records it has yet to read."""
    admin = ConfluentAdmin(brokers.client_config(), TIMEOUT_MS)
    found = admin.describe_group(group)
    committed = _committed(admin, group)
    if not found.members and not committed and not found.exists:
        raise _no_group(group)
    owners = {partition: member for member in found.members for partition in member.partitions}
    partitions = sorted({*committed, *owners})
    end = admin.end_offsets(partitions)
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "committed": committed[each].offset if each in committed else None,
            "end": end[each],
            "lag": end[each] - committed[each].offset if each in committed else None,
            "member": owners[each].member_id if each in owners else None,
        }
        for each in partitions
    ]
    if as_json:
        members = [{"member": one.member_id, "client": one.client_id, "host": one.host} for one in found.members]
        of_group = {"group": group, "type": found.group_type, "state": found.state, "assignor": found.assignor}
        print_json({**of_group, "members": members, "partitions": rows})
        return
    out.print(f"{group}: {found.state}, {counted(len(found.members), 'member')}")
    table = Table("topic", "partition", "committed", "end", "lag", "member", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    print_table(table)


@app.command()
@option_groups
def reset(
    group: Group,
    topics: Annotated[list[str], typer.Option("--topic", "-t", help="A topic; may be given again.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="earliest|latest|OFFSET|TIME", help="Where to continue; TIME is ISO 8601, local."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the positions, and change nothing.")] = False,
    as_json: AsJson = False,
    *,
    brokers: BrokerOptions,
) -> None:
    """Set the positions of a group without members in all partitions of topics."""
    admin = ConfluentAdmin(brokers.client_config(), TIMEOUT_MS)
    partitions = [
        TopicPartition(name, each.partition) for name in topics for each in admin.describe_topic(name).partitions
    ]
    positions = _positions(admin, partitions, to)
    if not dry_run:
        members = admin.describe_group(group).members
        if members:
            raise KafkaError(
                f"The group {group!r} has {counted(len(members), 'member')}, which would overwrite its positions: "
                "stop the programs that use it first."
            )
        known = admin.committed_offsets(group, partitions, stable=False)
        admin.commit_offsets(group, {each: _moved(known.get(each), offset) for each, offset in positions.items()})
    if as_json:
        rows = [{"topic": at.topic, "partition": at.partition, "offset": offset} for at, offset in positions.items()]
        print_json({"group": group, "dry_run": dry_run, "positions": rows})
        return
    out.print(f"{'Would reset' if dry_run else 'Reset'} {group}:")
    table = Table("topic", "partition", "offset", box=None, pad_edge=False)
    for at, offset in positions.items():
        table.add_row(at.topic, str(at.partition), str(offset))
    print_table(table)


@app.command()
@option_groups
def delete(groups: Names, as_json: AsJson = False, *, brokers: BrokerOptions) -> None:
    """Delete groups without members, with what they have committed."""
    admin = ConfluentAdmin(brokers.client_config(), TIMEOUT_MS)
    known = {one.group_id for one in admin.groups()}
    existing = [name for name in groups if name in known]
    deleted = []
    try:
        for name in existing:
            admin.delete_groups([name])
            deleted.append(name)
            if not as_json:
                out.print(f"Deleted group {name}.")
    finally:  # a group with members ends it, and the groups before it stay deleted
        if as_json:
            print_json({"deleted": deleted})
    for name in groups:
        if name not in known:
            raise _no_group(name)


def _no_group(name: str) -> KafkaError:
    return KafkaError(f"There is no group {name!r}; `penstock groups list` shows those there are.")


def _committed(admin: ConfluentAdmin, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    partitions = [TopicPartition(name, number) for name, count in admin.topics().items() for number in range(count)]
    return admin.committed_offsets(group, partitions, stable=False)


def _moved(known: OffsetAndMetadata | None, offset: int) -> OffsetAndMetadata:
    """Return an offset without the metadata of the previous one.

    Exception: metadata that says that changelog topics are older than the state on Spark is kept: another host must
    still not continue from them.
    """
    stays = known is not None and known.metadata == STATE_ELSEWHERE
    return OffsetAndMetadata(offset, STATE_ELSEWHERE if stays else "")


def _positions(admin: ConfluentAdmin, partitions: list[TopicPartition], to: str) -> dict[TopicPartition, int]:
    if to == "earliest":
        return admin.beginning_offsets(partitions)
    end = admin.end_offsets(partitions)
    if to == "latest":
        return end
    if to.isdecimal():
        first = admin.beginning_offsets(partitions)
        return {each: min(max(int(to), first[each]), end[each]) for each in partitions}
    try:
        timestamp = parsed_time(to)
    except ValueError as error:
        raise typer.BadParameter(
            f"expected earliest, latest, an offset or a time such as 2030-01-31T12:00, got {to!r}", param_hint="--to"
        ) from error
    return {**end, **admin.offsets_for_time(partitions, timestamp)}
