"""The `penstock` command: gathers the commands, and turns what they raise into one line and an exit code."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import penstock
from penstock.broker.errors import BrokerError
from penstock.cli import broker, demo, diff, query, records, reset, run, savepoint, topics
from penstock.cli.common import FAILED, Verbose, out, report, set_verbose
from penstock.errors import StreamsError

app = typer.Typer(
    name="penstock",
    help="Kafka Streams for Python, run on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run.run)
app.command()(run.describe)
app.command()(query.query)
app.command()(diff.diff)
app.add_typer(savepoint.app, name="savepoint")
app.command()(reset.reset)
app.command()(broker.broker)
app.add_typer(topics.app, name="topics")
app.command()(records.produce)
app.command()(records.consume)
app.command()(demo.demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        out.print(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Kafka Streams for Python, run on Spark."""
    set_verbose(verbose)


def main() -> None:
    """Run the command line of this process and end it with the exit code of the command."""
    try:
        app()
    except (StreamsError, BrokerError, OSError, RuntimeError, ValueError) as error:
        report(error)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
