"""The statistics and properties of a RocksDB database, by Kafka's metric names (KIP-471, KIP-607).

Properties are current values; statistics cover the time since their previous reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from penstock.metrics import rocksdb_names as names
from penstock.metrics.measurements import Measurement, measured_once

_LINE = re.compile(r"^(rocksdb\.[\w.]+) (?:.*P100 : (?P<most>[\d.]+) )?COUNT : (?P<count>\d+)(?: SUM : (?P<sum>\d+))?")

_TICKERS: Mapping[str, str] = {
    "rocksdb.bytes.written": names.BYTES_WRITTEN,
    "rocksdb.bytes.read": names.BYTES_READ,
    "rocksdb.flush.write.bytes": names.MEMTABLE_BYTES_FLUSHED,
    "rocksdb.compact.write.bytes": names.BYTES_WRITTEN_COMPACTION,
    "rocksdb.compact.read.bytes": names.BYTES_READ_COMPACTION,
    "rocksdb.no.file.errors": names.FILE_ERRORS,
}
_TIMES: Mapping[str, str] = {
    "rocksdb.db.flush.micros": names.MEMTABLE_FLUSH_TIME,
    "rocksdb.compaction.times.micros": names.COMPACTION_TIME,
    "rocksdb.db.write.stall": names.WRITE_STALL_DURATION,
}
_RATIOS: Mapping[str, str] = {
    "memtable-hit-ratio": "rocksdb.memtable",
    "block-cache-data-hit-ratio": "rocksdb.block.cache.data",
    "block-cache-index-hit-ratio": "rocksdb.block.cache.index",
    "block-cache-filter-hit-ratio": "rocksdb.block.cache.filter",
}
_NO_MORE = 0, 0
assert _RATIOS.keys() == names.ROCKSDB_RATIOS.keys()


def properties(read: Callable[[str], int | None]) -> Iterator[tuple[str, Measurement]]:
    """Yield the properties of a database.

    read: returns a property by name, or None if absent.
    """
    for name in names.ROCKSDB_PROPERTIES:
        value = read(f"rocksdb.{name}")
        if value is not None:
            yield name, measured_once(value)


class Statistics:
    """The statistics of a database, accumulated by RocksDB while it is open."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[int, int]] = {}

    def since(self, text: str) -> Iterator[tuple[str, Measurement]]:
        """Yield the increases of the statistics since the last call; times in ms.

        text: the statistics as written by RocksDB. The longest time is over the whole lifetime: RocksDB keeps no other.
        """
        found = {match[1]: match for match in map(_LINE.match, text.splitlines()) if match is not None}
        now = {name: (int(match["count"]), int(match["sum"] or 0)) for name, match in found.items()}
        before, self._read = self._read, now
        more = {
            name: tuple(new - old for new, old in zip(counted, before.get(name, (0, 0)), strict=True))
            for name, counted in now.items()
        }
        for ticker, name in _TICKERS.items():
            if count := more.get(ticker, _NO_MORE)[0]:
                yield name, measured_once(count)
        for histogram, name in _TIMES.items():
            count, total = more.get(histogram, _NO_MORE)
            if count:
                took = total / 1000
                yield name, Measurement(count, took, took / count, float(found[histogram]["most"]) / 1000)
        for name, ticker in _RATIOS.items():
            hits, misses = (more.get(f"{ticker}.{end}", _NO_MORE)[0] for end in ("hit", "miss"))
            if hits + misses:
                yield name, measured_once(hits / (hits + misses))
