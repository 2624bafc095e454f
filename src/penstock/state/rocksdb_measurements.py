"""The statistics and properties of a RocksDB database, as measurements by Kafka's names (KIP-471, KIP-607).

It is read once a database is done with: properties as it ends, statistics of all the time that it was open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from penstock.metrics import host_metrics as names
from penstock.metrics.measurements import Measurement

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
assert _RATIOS.keys() == names.ROCKSDB_RATIOS.keys()


def properties(read: Callable[[str], int | None]) -> Iterator[tuple[str, Measurement]]:
    """Yield the properties of a database; read: returns one by its name, None if there is none."""
    for name in names.ROCKSDB_PROPERTIES:
        value = read(f"rocksdb.{name}")
        if value is not None:
            yield name, Measurement(1, value, value, value)


def statistics(text: str) -> Iterator[tuple[str, Measurement]]:
    """Yield what the statistics of a database say, given as RocksDB writes them; times in ms."""
    found = {match[1]: match for match in map(_LINE.match, text.splitlines()) if match is not None}
    for ticker, name in _TICKERS.items():
        if ticker in found and (count := int(found[ticker]["count"])):
            yield name, Measurement(1, count, count, count)
    for histogram, name in _TIMES.items():
        if histogram in found and (count := int(found[histogram]["count"])):
            total = int(found[histogram]["sum"]) / 1000
            yield name, Measurement(count, total, total / count, float(found[histogram]["most"]) / 1000)
    for name, ticker in _RATIOS.items():
        hits, misses = (
            int(found[each]["count"]) if each in found else 0 for each in (f"{ticker}.hit", f"{ticker}.miss")
        )
        if hits + misses:
            ratio = hits / (hits + misses)
            yield name, Measurement(1, ratio, ratio, ratio)
