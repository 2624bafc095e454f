"""The records and entries of both versions, in a temporary database on disk.

Each topic or store is a table. It is compared by sorted queries, so memory does not grow with the number of records.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from itertools import chain, groupby, islice
from pathlib import Path
from typing import NamedTuple

from penstock.shadow.comparison import Counts

_DIGEST_BYTES = 16


class Side(IntEnum):
    """A version."""

    OLD = 0
    NEW = 1


class ContentRow(NamedTuple):
    """A record or an entry.

    Args:
        key: None for a record without a key.
        timestamp: together with the key, it finds the counterpart.
        value: None for a deletion.
        extra: a further part of the content, such as encoded headers.
    """

    key: bytes | None
    timestamp: int
    value: bytes | None
    extra: bytes = b""


class Pair(NamedTuple):
    """A difference: the rows of both versions, None on the side without one."""

    old: ContentRow | None
    new: ContentRow | None


@dataclass(frozen=True)
class PartContent:
    """The comparison of one part. other_final_values: the number of keys whose last value differs."""

    counts: Counts
    other_final_values: int
    examples: tuple[Pair, ...]


class _Rest(NamedTuple):
    """The rows of one key and time without an equal counterpart. rows: the ids of the first."""

    number: int
    rows: list[int]


class Content:
    """The rows of both versions by part; a part is a topic or a store.

    Args:
        path: the file of the database, which must not exist.
    """

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        # A crash loses the file, which is of no use without its run: nothing is ever committed.
        for setting in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute("BEGIN")
        self._tables: dict[str, str] = {}

    def add(self, part: str, side: Side, rows: Iterable[ContentRow]) -> None:
        """Add rows of a version to a part, in the order of its writes."""
        table = self._table(part)
        values = ((side, row.key, row.timestamp, _digest(row), row.value, row.extra) for row in rows)
        self._database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?)", values)

    def compared(self, part: str, limit: int) -> PartContent:
        """Return the comparison of a part, with up to `limit` differences."""
        table = self._table(part)
        equal = different = only_old = only_new = 0
        examples: list[Pair] = []
        for is_equal, old, new in self._groups(table, limit):
            equal += is_equal
            pairs = min(old.number, new.number)
            different, only_old, only_new = (
                different + pairs,
                only_old + old.number - pairs,
                only_new + new.number - pairs,
            )
            shown = range(min(max(len(old.rows), len(new.rows)), limit - len(examples)))
            examples += [Pair(self._row(table, old.rows, each), self._row(table, new.rows, each)) for each in shown]
        counts = Counts(equal, different, only_old, only_new)
        return PartContent(counts, self._other_final_values(table), tuple(examples))

    def close(self) -> None:
        """Release the database."""
        with suppress(sqlite3.Error):
            self._database.close()

    def _table(self, part: str) -> str:
        if part not in self._tables:
            self._tables[part] = table = f"part_{len(self._tables)}"
            columns = "side INTEGER, key BLOB, timestamp INTEGER, digest BLOB, value BLOB, extra BLOB"
            self._database.execute(f"CREATE TABLE {table} ({columns})")
        return self._tables[part]

    def _groups(self, table: str, limit: int) -> Iterator[tuple[int, _Rest, _Rest]]:
        """Yield the equal rows of each key and time, as a number, and the others of each version, as written."""
        contents = self._database.execute(
            "SELECT key, timestamp, SUM(side = 0), SUM(side = 1), "
            "MIN(CASE side WHEN 0 THEN rowid END), MIN(CASE side WHEN 1 THEN rowid END) "
            f"FROM {table} GROUP BY key, timestamp, digest ORDER BY key, timestamp, MIN(rowid)"
        )
        for _, group in groupby(contents, lambda row: row[:2]):
            equal = 0
            rests = [0, 0]
            rows: list[list[int]] = [[], []]
            for _, _, *counts, old_row, new_row in group:
                shared = min(counts)
                equal += shared
                for side, row in ((Side.OLD, old_row), (Side.NEW, new_row)):
                    rest = counts[side] - shared
                    rests[side] += rest
                    rows[side] += [row] * min(rest, limit - len(rows[side]))
            yield equal, _Rest(rests[Side.OLD], rows[Side.OLD]), _Rest(rests[Side.NEW], rows[Side.NEW])

    def _row(self, table: str, rows: list[int], index: int) -> ContentRow | None:
        if index >= len(rows):
            return None
        query = f"SELECT key, timestamp, value, extra FROM {table} WHERE rowid = ?"
        return ContentRow(*self._database.execute(query, (rows[index],)).fetchone())

    def _other_final_values(self, table: str) -> int:
        """Return the number of keys whose last value differs. A deleted key equals one that was never written."""
        # SQLite takes the other columns from the row with the maximum.
        last = self._database.execute(
            f"SELECT key, value, MAX(rowid) FROM {table} WHERE key IS NOT NULL GROUP BY key, side ORDER BY key, side"
        )
        count = 0
        for _, versions in groupby(last, lambda row: row[0]):
            first, second = islice(chain((value for _, value, _ in versions), (None,)), 2)
            count += first != second
        return count


def _digest(row: ContentRow) -> bytes:
    # The length and the flag keep other splits of the same bytes apart.
    found = blake2b(b"%d:%d:" % (len(row.extra), row.value is None), digest_size=_DIGEST_BYTES)
    found.update(row.extra)
    found.update(row.value or b"")
    return found.digest()
