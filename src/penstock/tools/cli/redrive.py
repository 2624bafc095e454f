"""`penstock redrive`: writes dead letters and dropped records back to their original topics."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.errors import counted
from penstock.serdes.texts import SerdeName, from_text
from penstock.tools.cli.clients import BrokerOptions
from penstock.tools.cli.common import AsJson, option_groups, out, parsed_time, print_json, print_table
from penstock.tools.transfers.redrive import LetterSelection, Redrive, RedriveOptions, plan_redrive
from penstock.tools.transfers.redrive import redrive as redrive_letters


@dataclass(frozen=True)
class _Filters:
    """The options that select the dead letters to write back."""

    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the dead letters, or of dropped records.")]
    source_topics: Annotated[
        list[str] | None, typer.Option("--source-topic", metavar="TOPIC", help="Only what came from this topic.")
    ] = None
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Only what came from this partition.")
    ] = None
    offsets: Annotated[
        list[int] | None, typer.Option("--offset", min=0, help="Only what came from this offset of its source.")
    ] = None
    exceptions: Annotated[
        list[str] | None,
        typer.Option(
            "--exception",
            metavar="CLASS",
            help="Only this class of errors or reason: builtins.ValueError, late.",
        ),
    ] = None
    keys: Annotated[list[str] | None, typer.Option("--key", help="Only records of this key.")] = None
    key_serde: Annotated[SerdeName, typer.Option("--key-serde", help="How keys are written as bytes.")] = (
        SerdeName.string
    )
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only records from this time on: 2030-01-31T12:00.")
    ] = None
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only records before this time.")] = None

    def selection(self) -> LetterSelection:
        """Return the selection of letters; ends with wrong usage for an invalid time."""
        return LetterSelection(
            frozenset(self.source_topics or ()),
            frozenset(self.partitions or ()),
            frozenset(self.exceptions or ()),
            frozenset(from_text(self.key_serde, self.topic, key) for key in self.keys or ()),
            _time(self.since, "--since"),
            _time(self.until, "--until"),
            frozenset(self.offsets or ()),
        )


@option_groups
def redrive(
    *,
    filters: _Filters,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Write to this topic, partitioned by key.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="The most records to write.")] = None,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Skip records that are not dead letters.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, and write nothing.")] = False,
    as_json: AsJson = False,
    brokers: BrokerOptions,
) -> None:
    """Write dead letters, and records that operators dropped, back to the topic and partition that they came from, each
    once, without the headers of the error or the reason.

    A filter may be given again, and selects any of its values. What one run does not select, another run may. The topic
    penstock-redrive-TOPIC keeps what was written.
    """
    options = RedriveOptions(filters.selection(), to, limit, skip_invalid)
    done = (plan_redrive if dry_run else redrive_letters)(brokers.client_config(), filters.topic, options)
    if as_json:
        print_json({**asdict(done), "records": done.records, "dry_run": dry_run})
    else:
        _show(done, dry_run)


def _time(text: str | None, option: str) -> int | None:
    try:
        return None if text is None else parsed_time(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"expected a time such as 2030-01-31T12:00, got {text!r}", param_hint=option
        ) from error


def _show(done: Redrive, dry_run: bool) -> None:
    if done.letters:
        table = Table("from", "to", "error", "records", "first message", box=None, pad_edge=False)
        for each in done.letters:
            name = each.exception.rpartition(".")[2]
            message = Text(f"{each.message:.80}")  # brackets in it are not a style
            table.add_row(f"{each.topic}-{each.partition}", each.target, name, f"{each.records:,}", message)
        print_table(table)
    doing = "Would redrive" if dry_run else "Redrove"
    out.print(f"{doing} {counted(done.records, 'record')} of {done.dead_letter_topic}.", markup=False)
    for count, what in (
        (done.not_selected, "not selected"),
        (done.without_source, "without a source record (such as errors of punctuators)"),
        (done.invalid, "not dead letters"),
    ):
        if count:
            out.print(f"Skipped {counted(count, 'record')}: {what}.")
    if done.redriven_before:
        out.print(f"Left out what earlier runs have written: {counted(done.redriven_before, 'offset')}.")
