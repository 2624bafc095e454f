"""`penstock reset`: deletes an application's progress, so that it starts afresh."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.extras import load
from penstock.host.api import ApplicationReset
from penstock.termination import terminating
from penstock.tools.cli.broker import EmbeddedBrokerOptions
from penstock.tools.cli.clients import ProgramOptions
from penstock.tools.cli.common import AsJson, option_groups, out, print_json
from penstock.tools.cli.program import load_program
from penstock.tools.cli.run import HostOption, with_broker

_MODULES: Final = {"spark": "penstock.spark", "threads": "penstock.host.threads.resetting"}
"""The module that resets an application, by host."""


@option_groups
def reset(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A program that defines `topology` and `config`.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")] = False,
    host: HostOption = None,
    *,
    embedded: EmbeddedBrokerOptions,
    as_json: AsJson = False,
    options: ProgramOptions,
) -> None:
    """Delete positions, state, markers and internal topics of an application that is not running.

    Its next start reads its input from the position that auto.offset.reset gives, and writes its output again. The
    topics that it reads and writes stay as they are. If the program names no bootstrap.servers, the embedded broker of
    `penstock run` runs meanwhile.
    """
    overrides = options.overrides()
    if host is not None:
        overrides["penstock.host"] = host.value
    program = load_program(file)
    configured = program.configured(overrides)
    module = load(_MODULES[configured["penstock.host"]], f"penstock.host={configured['penstock.host']}")
    with terminating(), with_broker(configured, embedded) as settings:
        plan: ApplicationReset = (module.plan_reset if dry_run else module.reset)(program.topology, settings)
    if as_json:
        print_json({**asdict(plan), "dry_run": dry_run})
        return
    if plan.is_empty:
        out.print(f"There is nothing to delete of {plan.application_id}.", markup=False)
        return
    out.print(f"{'Would delete' if dry_run else 'Deleted'} of {plan.application_id}:", markup=False)
    for what, names in {
        "checkpoint": [] if plan.checkpoint is None else [f"{plan.checkpoint} (as of epoch {plan.epoch})"],
        "state": [] if plan.state_directory is None else [plan.state_directory],
        "groups": plan.groups,
        "topics": plan.topics,
    }.items():
        out.print(f"  {what:<10}  {', '.join(names) or 'none'}", markup=False)
