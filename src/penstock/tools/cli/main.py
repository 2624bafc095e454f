"""The `penstock` command: collects the commands, and turns errors into exit codes.

It reports an error in one line. A command is imported when it is called: `penstock --help` does not load Kafka's
clients or Spark.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

import penstock
from penstock.errors import StreamsError
from penstock.extras import load
from penstock.tools.cli.common import FAILED, Verbose, out, report, set_verbose

COMMANDS: Final = {
    "new": "Create a project: a program, its test, and what they need.",
    "run": "Run the topology of a program, with an embedded broker if it names no brokers.",
    "dev": "Run a program, and continue with its state whenever the file is saved.",
    "describe": "Show the topology of a program in Kafka's text, or draw it.",
    "lineage": "Show the topics and stores from which each output of a program comes, with their fields.",
    "query": "Show what a store of a program holds, whether the program runs or not.",
    "parked": "Show the records that wait because a function failed on them.",
    "ui": "Serve pages about an application that runs in another process, and show what a changed program would do.",
    "diff": "Show what happens to each store when a changed program starts; fails if it cannot start.",
    "diff-state": "Show which entries of stores differ between two commits, of checkpoints or savepoints.",
    "shadow": "Compare two versions of a program on the same input, or switch a running application to the other.",
    "savepoint": "Take, restore and inspect savepoints of an application.",
    "takeover": "Show what the threads host would take over from another application, such as one in Java.",
    "reset": "Delete positions, state, markers and internal topics of an application that is not running.",
    "recover": "Let an application go on whose changelog or repartition topics were deleted.",
    "redrive": "Write dead letters back to where they came from, each once.",
    "replay": "Replay an epoch of an application on Spark, optionally in a debugger. Writes nothing.",
    "mirror": "Copy topics to another cluster, each record once.",
    "broker": "Run an embedded Kafka broker on this machine until Ctrl-C, optionally with a schema registry.",
    "topics": "Create, list, describe, change and delete topics.",
    "groups": "List, describe, reset and delete consumer groups.",
    "transactions": "List, describe and abort transactions, and find those that hang.",
    "produce": "Write each line of standard input to a topic as a record.",
    "consume": "Show the records of a topic, one per line.",
    "demo": "Count the words of a real text, and watch the counts grow.",
}
"""The commands in the order of `--help`, with their purpose."""

_MODULES: Final = {"describe": "run", "diff-state": "diff_state", "produce": "records", "consume": "records"}
"""The module of penstock.tools.cli with a command, if its name differs."""


class _UnloadedCommand(TyperCommand):
    """Represents a command until it is called."""

    def __init__(self, name: str, short_help: str) -> None:
        super().__init__(name, help=short_help)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of the command itself."""
        return command(str(self.name)).make_context(info_name, args, parent, **extra)


class _Commands(TyperGroup):
    """Lists the commands without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """Return the command `cmd_name`, None if absent."""
        return _UnloadedCommand(cmd_name, COMMANDS[cmd_name]) if cmd_name in COMMANDS else None


def command(name: str) -> Any:
    """Import the command `name` and return it with its options."""
    module = load(f"penstock.tools.cli.{_MODULES.get(name, name)}", f"penstock {name}")
    found = getattr(module, name.replace("-", "_"), None)
    if found is None:
        return typer.main.get_command(module.app)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(found)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="penstock",
    cls=_Commands,
    help="Kafka Streams for Python, on Spark or in an ordinary process.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        out.print(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Kafka Streams for Python, on Spark or in an ordinary process."""
    set_verbose(verbose)


def main() -> None:
    """Run the command line of this process and exit with the command's exit code."""
    try:
        app()
    except (StreamsError, OSError, RuntimeError, ValueError) as error:
        report(error)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
