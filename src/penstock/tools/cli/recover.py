"""`penstock recover`: repairs an application whose changelog or repartition topics were deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.errors import StreamsError
from penstock.host.threads.recovering import Recovery, accept_topics, plan_recovery, recover_from_state
from penstock.tools.cli.clients import ProgramOptions
from penstock.tools.cli.common import FAILED, AsJson, option_groups, out, print_json
from penstock.tools.cli.program import load_program


@option_groups
def recover(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A program that defines `topology` and `config`.")],
    from_state: Annotated[
        bool,
        typer.Option(
            "--from-state",
            help="Write the changelogs that were deleted again, from the state on this machine. Of an application on "
            "several machines, run it on each.",
        ),
    ] = False,
    as_they_are: Annotated[
        bool,
        typer.Option(
            "--as-they-are",
            help="Create the missing topics empty, and take those that were created again as they are. Records that "
            "only the deleted topics had are lost.",
        ),
    ] = False,
    as_json: AsJson = False,
    *,
    options: ProgramOptions,
) -> None:
    """Show which changelog and repartition topics of an application on the threads host were deleted after it had used
    them, or make them again. Stop all instances first.

    The exit code is 1 if topics are left that prevent a start.
    """
    if from_state and as_they_are:
        raise typer.BadParameter("give one of the options --from-state and --as-they-are", param_hint="recover")
    program = load_program(file)
    configured = program.configured(options.overrides())
    if configured["penstock.host"] == "spark" and not configured["penstock.changelog.topics"]:
        raise StreamsError("An application on Spark has its state in its checkpoint, and no topics to recover.")
    act = recover_from_state if from_state else accept_topics if as_they_are else plan_recovery
    done = act(program.topology, configured)
    if as_json:
        print_json(_as_json(done))
    else:
        _show(done)
    if done.left or (done.lost and act is plan_recovery):
        raise typer.Exit(FAILED)


def _as_json(done: Recovery) -> dict[str, Any]:
    return {
        "application_id": done.application_id,
        "lost": [{"topic": each.name, "store": each.store, "exists": each.exists} for each in done.lost],
        "tasks": [str(task) for task in done.tasks],
        "records": done.records,
        "left": {str(task): why for task, why in done.left.items()},
    }


def _show(done: Recovery) -> None:
    if not done.lost:
        out.print(f"No internal topic of {done.application_id} was deleted.", markup=False)
    for each in done.lost:
        what = "repartition topic" if each.store is None else f"changelog of store {each.store}"
        state = "created again" if each.exists else "deleted"
        out.print(f"{each.name}  {what}, {state}", markup=False)
    if done.tasks:
        out.print(f"Mended for tasks {', '.join(map(str, done.tasks))}: {done.records} records written.", markup=False)
    for task, why in done.left.items():
        out.print(f"Left for task {task}: {why}.", markup=False)
