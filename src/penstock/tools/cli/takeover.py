"""`penstock takeover`: shows the takeover from another application of the same group before a start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.client.api import MemberDescription
from penstock.errors import counted
from penstock.host.threads.takeover import WATCH_SECONDS, InputOffset, Takeover, plan_takeover, remove_dead_members
from penstock.plan.topology import built_topology
from penstock.record import NO_TIMESTAMP
from penstock.tools.cli.clients import ProgramOptions
from penstock.tools.cli.common import FAILED, AsJson, option_groups, out, print_json, print_table
from penstock.tools.cli.program import load_program


@option_groups
def takeover(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A program that defines `topology` and `config`.")],
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Remove the members that the other application left in the group, instead of waiting for "
            "session.timeout.ms. You assert that all of its instances have ended: nothing can prove it. The command "
            f"fails if a removed member joins again within {WATCH_SECONDS:.0f} s. An instance that is stuck for longer "
            "is not found; it cannot commit any more, but with at_least_once it may still write records.",
        ),
    ] = False,
    as_json: AsJson = False,
    *,
    options: ProgramOptions,
) -> None:
    """Show which offsets and stores `penstock run --host threads` would take over from another application with this
    application.id, such as one of Kafka Streams in Java, or why it cannot. Changes nothing without --force.

    The exit code is 1 if something prevents it.
    """
    program = load_program(file)
    configured = program.configured(options.overrides())
    built = built_topology(program.topology, configured.required("application.id"))
    configured = configured.overridden(built.config_overrides)
    removed = remove_dead_members(configured, WATCH_SECONDS) if force else ()
    plan = plan_takeover(built, configured)
    if as_json:
        print_json(_as_json(plan, removed))
    else:
        if removed:
            out.print(f"Removed from the group: {', '.join(each.member_id for each in removed)}", markup=False)
        _show(plan)
    if plan.obstacles:
        raise typer.Exit(FAILED)


def _as_json(plan: Takeover, removed: Sequence[MemberDescription]) -> dict[str, Any]:
    group = plan.group
    return {
        "removed": _members(removed),
        "group": {
            "id": group.group_id,
            "type": group.group_type,
            "state": group.state,
            "members": _members(group.members),
        },
        **taken_over(plan),
        "obstacles": list(plan.obstacles),
    }


def taken_over(plan: Takeover) -> dict[str, Any]:
    """Return offsets, stores and warnings of a takeover, for JSON."""
    return {
        "inputs": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed": each.committed,
                "end": each.end,
                "time": None if each.partition_time == NO_TIMESTAMP else each.partition_time,
            }
            for each in plan.inputs
        ],
        "stores": [each._asdict() for each in plan.stores],
        "warnings": list(plan.warnings),
    }


def _members(members: Sequence[MemberDescription]) -> list[dict[str, str]]:
    return [{"member": one.member_id, "client": one.client_id, "host": one.host} for one in members]


def _show(plan: Takeover) -> None:
    members = counted(len(plan.group.members), "member")
    out.print(f"Group {plan.group.group_id}: {plan.group.state}, {members}", markup=False)
    if plan.inputs:
        table = Table("topic", "partition", "offset", "end", "time", box=None, pad_edge=False)
        for each in plan.inputs:
            offset = "none" if each.committed is None else str(each.committed)
            table.add_row(each.partition.topic, str(each.partition.partition), offset, str(each.end), _time(each))
        print_table(table)
    for store in plan.stores:
        out.print(f"Store {store.name}: at most {counted(store.records, 'record')} of {store.changelog}", markup=False)
    for warning in plan.warnings:
        out.print(f"Note: {warning}", markup=False)
    for obstacle in plan.obstacles:
        out.print(f"Problem: {obstacle}", markup=False)
    if not plan.obstacles:
        out.print(
            "A start continues from there. Make sure that the serdes, and the operators of the same names, do the same "
            "as in the other application: this command cannot check that.",
            markup=False,
        )


def _time(each: InputOffset) -> str:
    if each.partition_time == NO_TIMESTAMP:
        return "unknown"
    return datetime.fromtimestamp(each.partition_time / 1000, UTC).isoformat(timespec="milliseconds")
