"""`penstock mirror`: copies topics of one cluster to another."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from penstock.config import StreamsConfig
from penstock.errors import StreamsError, counted
from penstock.termination import terminating
from penstock.tools.cli.common import (
    INTERRUPTED,
    err,
    interruptible,
    option_groups,
    out,
    parsed_settings,
    print_json,
    print_table,
)
from penstock.tools.transfers.mirror import Mirror, MirroredTopic, MirrorOptions

_STATUS_SECONDS: Final = 10.0


@dataclass(frozen=True)
class _Arguments:
    """The clusters, topics and options of a mirror."""

    source: Annotated[str, typer.Option("--from", metavar="HOST:PORT", help="Brokers of the cluster to read.")]
    target: Annotated[str, typer.Option("--to", metavar="HOST:PORT", help="Brokers of the cluster to write.")]
    topics: Annotated[
        list[str],
        typer.Option("--topics", "-t", metavar="NAME|PATTERN", help="Topics to mirror; may be given again."),
    ]
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="NAME|PATTERN", help="Topics to leave out.")
    ] = None
    prefix: Annotated[str, typer.Option("--prefix", help="Prefix of the names in the target.")] = ""
    renames: Annotated[
        list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="The name of a topic in the target.")
    ] = None
    until_end: Annotated[bool, typer.Option("--until-end", help="Mirror what the topics hold now, then stop.")] = False
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of this mirror, if several copy from one cluster; default: the cluster's id."
        ),
    ] = None
    replication_factor: Annotated[
        int,
        typer.Option("--replication-factor", "-r", help="Replicas of new topics; -1: the target's default."),
    ] = -1
    exclude_configs: Annotated[
        list[str] | None,
        typer.Option("--exclude-config", metavar="KEY", help="A configuration not to copy."),
    ] = None
    refresh: Annotated[
        float, typer.Option("--refresh", min=0.1, metavar="SECONDS", help="How often to look for new topics.")
    ] = 30.0
    source_config: Annotated[
        list[str] | None,
        typer.Option("--from-config", metavar="KEY=VALUE", help="A key of the clients that read; may be given again."),
    ] = None
    target_config: Annotated[
        list[str] | None,
        typer.Option("--to-config", metavar="KEY=VALUE", help="A key of the clients that write; may be given again."),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Show the status every ten seconds and at the end, each as a line of JSON.")
    ] = False

    def mirror(self) -> Mirror:
        """Return the mirror; ends with wrong usage for invalid texts."""
        options = MirrorOptions(
            topics=tuple(self.topics),
            exclude=tuple(self.exclude or ()),
            prefix=self.prefix,
            renames=parsed_settings(self.renames, "--rename"),
            name=self.name,
            replication_factor=self.replication_factor,
            exclude_configs=frozenset(self.exclude_configs or ()),
            refresh_ms=round(self.refresh * 1000),
        )
        source = parsed_settings(self.source_config, "--from-config", self.source)
        target = parsed_settings(self.target_config, "--to-config", self.target)
        return Mirror(StreamsConfig(source), StreamsConfig(target), options)


@option_groups
def mirror(given: _Arguments) -> None:
    """Mirror topics to another cluster: each record once, with its partition, key, timestamp and headers.

    Runs until Ctrl-C or --until-end. A topic is created in the target if it is missing there.
    """
    copying = given.mirror()
    status = _Status(copying, given.as_json)
    failure: StreamsError | None = None
    with terminating(), interruptible() as interrupted:

        def should_stop() -> bool:
            status.show()
            return interrupted()

        try:
            (copying.run_to_end if given.until_end else copying.run)(should_stop)
        except StreamsError as error:
            failure = error
            raise
        finally:
            _show(copying.topics(), given.as_json, failure)
        if interrupted():
            raise typer.Exit(INTERRUPTED)


class _Status:
    """Reports the progress of a mirror periodically.

    It writes text to standard error, or JSON to standard output.
    """

    def __init__(self, copying: Mirror, as_json: bool) -> None:
        self._copying, self._as_json = copying, as_json
        self._next = time.monotonic() + _STATUS_SECONDS

    def show(self) -> None:
        """Report the progress, if it is time."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _STATUS_SECONDS
            topics = self._copying.topics()
            if self._as_json:
                print_json(_answer(topics))
                return
            records, lag = sum(each.records for each in topics), sum(each.lag for each in topics)
            err.print(f"{counted(records, 'record')} of {counted(len(topics), 'topic')} mirrored, {lag:,} behind.")


def _answer(topics: list[MirroredTopic]) -> dict[str, Any]:
    return {"topics": [asdict(each) for each in topics], "records": sum(each.records for each in topics)}


def _show(topics: list[MirroredTopic], as_json: bool, failure: StreamsError | None) -> None:
    """Show the last status; failure: the error that ended the mirror, if any."""
    if as_json:
        print_json({**_answer(topics), **({} if failure is None else {"error": str(failure)})})
        return
    records = sum(each.records for each in topics)
    if topics:
        table = Table("from", "to", "partitions", "records", "behind", box=None, pad_edge=False)
        for each in topics:
            table.add_row(each.source, each.target, str(each.partitions), f"{each.records:,}", f"{each.lag:,}")
        print_table(table)
    out.print(f"Mirrored {counted(records, 'record')} of {counted(len(topics), 'topic')}.")
