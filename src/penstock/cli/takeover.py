"""`penstock takeover`: shows what a start would take over from another application of the same group."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.cli.common import FAILED, AsJson, Settings, out, parsed_settings, print_json
from penstock.cli.program import load_program
from penstock.errors import counted
from penstock.host.threads.takeover import Input, Takeover, plan_takeover
from penstock.plan.topology import built_topology
from penstock.record import NO_TIMESTAMP


def takeover(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A program that defines `topology` and `config`.")],
    as_json: AsJson = False,
    config: Settings = None,
) -> None:
    """Show which offsets and stores `penstock run --host threads` would take over from another application with this
    application.id, such as one of Kafka Streams in Java, or why it cannot. Changes nothing.

    The exit code is 1 if something prevents it.
    """
    program = load_program(file)
    configured = program.configured(parsed_settings(config))
    built = built_topology(program.topology, configured.required("application.id"))
    plan = plan_takeover(built, configured.overridden(built.config_overrides))
    if as_json:
        print_json(_as_json(plan))
    else:
        _show(plan)
    if plan.obstacles:
        raise typer.Exit(FAILED)


def _as_json(plan: Takeover) -> dict[str, Any]:
    group = plan.group
    members = [{"member": one.member_id, "client": one.client_id, "host": one.host} for one in group.members]
    return {
        "group": {"id": group.group_id, "type": group.group_type, "state": group.state, "members": members},
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
        "obstacles": list(plan.obstacles),
        "warnings": list(plan.warnings),
    }


def _show(plan: Takeover) -> None:
    members = counted(len(plan.group.members), "member")
    out.print(f"Group {plan.group.group_id}: {plan.group.state}, {members}", markup=False)
    if plan.inputs:
        table = Table("topic", "partition", "offset", "end", "time", box=None, pad_edge=False)
        for each in plan.inputs:
            offset = "none" if each.committed is None else str(each.committed)
            table.add_row(each.partition.topic, str(each.partition.partition), offset, str(each.end), _time(each))
        out.print(table)
    for store in plan.stores:
        out.print(f"Store {store.name}: at most {counted(store.records, 'record')} of {store.changelog}", markup=False)
    for warning in plan.warnings:
        out.print(f"Note: {warning}", markup=False)
    for obstacle in plan.obstacles:
        out.print(f"In the way: {obstacle}", markup=False)
    if not plan.obstacles:
        out.print(
            "A start continues from there. Make sure that the serdes, and the operators of the same names, do the same "
            "as in the other application: this command cannot check that.",
            markup=False,
        )


def _time(each: Input) -> str:
    if each.partition_time == NO_TIMESTAMP:
        return "unknown"
    return datetime.fromtimestamp(each.partition_time / 1000, UTC).isoformat(timespec="milliseconds")
