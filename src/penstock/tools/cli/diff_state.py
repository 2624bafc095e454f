"""`penstock diff-state`: the entries that differ between two commits."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from penstock import savepoints
from penstock.host.spark.checkpoints.state_difference import EntryDifference
from penstock.tools.cli.common import AsJson, out, parsed_commit, print_json, print_table

_HELP = "The directory of a checkpoint or a savepoint; DIRECTORY@COMMIT for a retained commit, by epoch or time."

Before = Annotated[str, typer.Argument(metavar="A", help=_HELP)]
After = Annotated[str, typer.Argument(metavar="B", help=_HELP)]


def diff_state(before: Before, after: After, as_json: AsJson = False) -> None:
    """Show for each store how many entries were added, removed and changed from A to B, and the first of them."""
    (one, one_commit), (other, other_commit) = (_place(each) for each in (before, after))
    found = savepoints.diff_state(
        one,
        other,
        None if one_commit is None else parsed_commit(one_commit, "A"),
        None if other_commit is None else parsed_commit(other_commit, "B"),
    )
    if as_json:
        print_json({"stores": found})
        return
    table = Table("store", "added", "removed", "changed", "same", box=None, pad_edge=False)
    for each in found:
        numbers = each.added, each.removed, each.changed, each.same
        table.add_row(each.name, *(f"{number:,}" for number in numbers))
    print_table(table)
    for each in found:
        for entry in each.first:
            out.print(f"{each.name} {_line(entry)}", markup=False)


def _place(text: str) -> tuple[str, str | None]:
    directory, at, commit = text.rpartition("@")
    return (directory, commit) if at and "/" not in commit else (text, None)


def _line(entry: EntryDifference) -> str:
    if entry.before is None:
        return f"+ {entry.key}: {entry.after}"
    if entry.after is None:
        return f"- {entry.key}: {entry.before}"
    return f"~ {entry.key}: {entry.before} -> {entry.after}"
