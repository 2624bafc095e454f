"""Writes the tables of docs/coming-from for those who come from Faust, Quix Streams and Spark.

python scripts/coming_from.py           write the tables
python scripts/coming_from.py --check   fail if a page is not what would be written

A file in scripts/coming_from lists the public names of a library, the rows of its table with the names that they cover,
and the names that are left out, by reason. A name that is in neither place is an error. scripts/coverage.py does the
same for Kafka Streams in Java.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
LIBRARIES: Final = sorted((ROOT / "scripts" / "coming_from").glob("*.toml"))


class DecisionError(Exception):
    """Names of a library without a decision, with two, or decisions about unknown names."""


@dataclass(frozen=True)
class Row:
    """A row of a table: how the other library says it, how Penstock does, and the names that it covers."""

    theirs: str
    ours: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Library:
    """A library: the heading of its column, its page, the names of each class, the rows, and what they leave out."""

    heading: str
    page: Path
    names: Mapping[str, tuple[str, ...]]
    rows: tuple[Row, ...]
    left_out: Mapping[str, tuple[str, ...]]


def library(file: Path) -> Library:
    """Return what a file says of a library; raises DecisionError."""
    read: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    found = Library(
        read["library"],
        ROOT / read["page"],
        {name: tuple(names.split()) for name, names in read["names"].items()},
        tuple(Row(row["theirs"], row["ours"], tuple(row.get("names", "").split())) for row in read["rows"]),
        {reason: tuple(names.split()) for reason, names in read["left_out"].items()},
    )
    decided = Counter(name for each in found.rows for name in each.names)
    decided.update(name for names in found.left_out.values() for name in names)
    known = {f"{owner}.{name}" for owner, names in found.names.items() for name in names}
    faults = [
        *(f"without a decision: {name}" for name in sorted(known - decided.keys())),
        *(f"no such name: {name}" for name in sorted(decided.keys() - known)),
        *(f"decided twice: {name}" for name, count in sorted(decided.items()) if count > 1),
    ]
    if faults:
        raise DecisionError("\n".join([f"{file.name}:", *faults]))
    return found


def page(of: Library) -> str:
    """Return the page of a library with the table as its file has it."""
    rows = "".join(f"| {each.theirs} | {each.ours} |\n" for each in of.rows)
    heading = re.escape(f"| {of.heading} | Penstock |\n|---|---|\n")
    text = of.page.read_text(encoding="utf-8")
    if len(re.findall(heading, text)) != 1:
        raise DecisionError(f"{of.page.name} has no table {of.heading} | Penstock")
    return re.sub(rf"({heading})(?:\|[^\n]*\n)*", lambda match: match[1] + rows, text)


def main() -> int:
    """Write the pages, or with `--check` compare them; return the exit code."""
    for file in LIBRARIES:
        try:
            of = library(file)
            written = page(of)
        except DecisionError as error:
            print(error, file=sys.stderr)
            return 1
        if "--check" not in sys.argv[1:]:
            of.page.write_text(written, encoding="utf-8")
        elif of.page.read_text(encoding="utf-8") != written:
            print(f"{of.page.name} is out of date: run python scripts/coming_from.py.", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
