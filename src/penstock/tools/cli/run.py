"""`penstock run FILE` and `penstock describe FILE`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.application.life import ApplicationLife
from penstock.background import in_background
from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import counted
from penstock.host.api import HostStatistics, StreamThreadExceptionResponse
from penstock.host.deployment.layout import own_topics
from penstock.host.deployment.topics import named_topics
from penstock.host.open import check_host
from penstock.host.supervision.switching import switch_threads_often
from penstock.termination import terminating
from penstock.tools.cli.broker import EmbeddedBrokerOptions
from penstock.tools.cli.clients import ProgramOptions
from penstock.tools.cli.common import (
    AsJson,
    Verbose,
    err,
    option_groups,
    out,
    print_json,
    set_verbose,
)
from penstock.tools.cli.program import LoadedProgram, ProgramError, load_program
from penstock.tools.cli.saved_program import streams_of
from penstock_broker.errors import BrokerError
from penstock_broker.process import BrokerProcess

DEFAULT_UI_PORT: Final = 8090
"""The port of `penstock run --ui`."""


class HostName(StrEnum):
    """The hosts that `penstock run` accepts."""

    spark = "spark"
    threads = "threads"


_PROGRESS_SECONDS: Final = 5.0

HostOption = Annotated[
    HostName | None, typer.Option("--host", help="Where tasks run: the configuration penstock.host.")
]
File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="A Python program that defines `topology` or `topologies`, and `config`."),
]


@option_groups
def run(
    file: File,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Process what the topics hold now, then stop.")
    ] = False,
    host: HostOption = None,
    *,
    embedded: EmbeddedBrokerOptions,
    ui: Annotated[bool, typer.Option("--ui", help="Show the application over HTTP while it runs.")] = False,
    ui_port: Annotated[
        int | None,
        typer.Option("--ui-port", min=0, max=65535, help="Port for --ui, which it implies; 0 for a free one."),
    ] = None,
    options: ProgramOptions,
    verbose: Verbose = False,
) -> None:
    """Run the topologies of a program. If it names no bootstrap.servers, an embedded broker runs with it."""
    overrides = options.overrides()
    if host is not None:
        overrides["penstock.host"] = host.value
    if verbose:
        set_verbose(True)
    if ui_port is not None:
        overrides["penstock.ui.port"] = ui_port
    program = load_program(file)
    configured = program.configured(overrides)
    if ui and configured["penstock.ui.port"] is None:
        overrides["penstock.ui.port"] = DEFAULT_UI_PORT
    check_host(configured)
    if verbose and configured["penstock.host"] == HostName.spark:
        overrides.setdefault("penstock.spark.log.level", "info")
    configured = program.configured(overrides)
    with terminating(), with_broker(configured, embedded) as settings:
        if configured["bootstrap.servers"] is None:
            create_missing_topics(program, settings)
        run_program(program, {**overrides, "bootstrap.servers": settings["bootstrap.servers"]}, until_end)


def run_program(program: LoadedProgram, overrides: Mapping[str, Any], until_end: bool = False) -> None:
    """Run the topologies of a program until it ends, or the topics do.

    Raises the error that ends it.

    Args:
        program: the program.
        overrides: of the configuration in its file.
        until_end: whether to stop at the current ends of the topics.
    """
    if program.configured(overrides)["penstock.host"] == HostName.threads:
        switch_threads_often()
    streams = streams_of(program, overrides)
    # The command reports the error that ends it, once.
    streams.set_uncaught_exception_handler(lambda error: StreamThreadExceptionResponse.SHUTDOWN_CLIENT)
    try:
        if until_end:
            with showing_progress(streams.host_statistics):
                streams.run_to_end()
        else:
            with streams:
                streams.await_termination()
    finally:
        _tell_what_was_done(streams)


@contextmanager
def showing_progress(statistics: Callable[[], HostStatistics], seconds: float = _PROGRESS_SECONDS) -> Iterator[None]:
    """Show the number of records read and left, every few seconds during the block."""
    has_ended = threading.Event()

    def show() -> None:
        while not has_ended.wait(seconds):
            figures = statistics()
            left = "" if figures.lag is None else f", {figures.lag:,} left"
            err.print(f"{counted(figures.records_in, 'record')} read{left}.")

    in_background("penstock-progress", show)
    try:
        yield
    finally:
        has_ended.set()


def _tell_what_was_done(streams: ApplicationLife[Any]) -> None:
    figures = streams.host_statistics()
    if figures.records_in:
        dropped = sum(sum(of_one.dropped.values()) for of_one in figures.by_topology().values())
        lost = f", {dropped:,} dropped" if dropped else ""
        answers = f", {counted(figures.answers_in, 'answer')} of calls" if figures.answers_in else ""
        err.print(f"{counted(figures.records_in, 'record')} read{answers}, {figures.records_out:,} written{lost}.")


class Format(StrEnum):
    """The formats of `penstock describe`."""

    text = "text"
    mermaid = "mermaid"
    svg = "svg"


def describe(
    file: File,
    format: Annotated[
        Format, typer.Option("--format", "-f", help="Kafka's text, a mermaid flowchart or an SVG picture.")
    ] = Format.text,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the line of the program that made each node.")
    ] = False,
    topology: Annotated[
        str | None, typer.Option("--topology", metavar="NAME", help="One of the named topologies of the program.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the topologies of a program in Kafka's text, or draw one."""
    if as_json and format is not Format.text:
        raise typer.BadParameter("cannot be used together with --format", param_hint="--json")
    program = load_program(file)
    chosen = program.topologies if topology is None else {topology: program.topology_named(topology)}
    if as_json:
        print_json({"topologies": [{"name": name, **each.describe().to_dict()} for name, each in chosen.items()]})
        return
    if len(chosen) > 1 and format is not Format.text:
        raise ProgramError(f"{file} has several topologies. Draw one of them: --topology {'|'.join(chosen)}.")
    for name, each in chosen.items():
        description = each.describe()
        match format:
            case Format.text:
                text = description.with_lines() if verbose else str(description)
                shown = text.replace("Topologies:", f"Topology: {name}:", 1) if name else text
            case Format.mermaid:
                shown = description.to_mermaid()
            case Format.svg:
                shown = description.to_svg()
        out.print(shown, markup=False, end="")


@contextmanager
def with_broker(config: StreamsConfig, embedded: EmbeddedBrokerOptions) -> Iterator[StreamsConfig]:
    """Yield `config`, with an embedded broker for the block if necessary.

    It is necessary if `config` names no brokers.

    Args:
        config: the configuration of a program.
        embedded: port and data directory of the broker.

    Raises:
        BrokerError: the broker cannot start, for example because another one uses the port or the directory.
    """
    if config["bootstrap.servers"] is not None:
        yield config
        return
    directory = embedded.directory(config)
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(BrokerProcess(directory, port=embedded.port))
        except BrokerError as error:
            error.add_note(
                "The command starts a broker because the program names none. To use one that already runs, "
                "add --config bootstrap.servers=HOST:PORT; --port and --data-dir choose where the new one listens and "
                "keeps its data."
            )
            raise
        err.print(f"A broker runs at {broker.bootstrap_servers} for this run; its data is in {directory}.")
        yield StreamsConfig({**config.given(), "bootstrap.servers": broker.bootstrap_servers})


def create_missing_topics(program: LoadedProgram, config: StreamsConfig) -> None:
    """Create the missing topics that the application names and uses.

    Brokers for development do the same.
    """
    wanted: set[str] = set()
    for name, topology in program.topologies.items():
        built = topology.build(config.required("application.id") + (f"-{name}" if name else ""))
        wanted |= named_topics(built, config) - own_topics(built)
    admin = ConfluentAdmin(config)
    missing = sorted(wanted - admin.topics().keys())
    if missing:
        admin.create_topics([NewTopic(name, config["num.partitions"]) for name in missing])
        err.print(f"Created topics {', '.join(missing)}.")
    admin.close()
