"""Names of the metrics of RocksDB databases (KIP-471, KIP-607)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.metrics.sensors import MeasurableStat

ROCKSDB_PROPERTIES: Final[Mapping[str, str]] = {
    "num-immutable-mem-table": "The number of memtables that are full and not yet flushed",
    "cur-size-active-mem-table": "The bytes of the active memtable",
    "cur-size-all-mem-tables": "The bytes of the active memtable and of those that are not yet flushed",
    "size-all-mem-tables": "The bytes of all memtables, those that iterators hold too",
    "num-entries-active-mem-table": "The number of entries in the active memtable",
    "num-entries-imm-mem-tables": "The number of entries in memtables that are not yet flushed",
    "num-deletes-active-mem-table": "The number of deletes in the active memtable",
    "num-deletes-imm-mem-tables": "The number of deletes in memtables that are not yet flushed",
    "mem-table-flush-pending": "1 if a flush of a memtable is pending, else 0",
    "num-running-flushes": "The number of flushes that run",
    "compaction-pending": "1 if a compaction is pending, else 0",
    "num-running-compactions": "The number of compactions that run",
    "estimate-pending-compaction-bytes": "The estimated bytes that compaction has to write",
    "total-sst-files-size": "The bytes of all SST files",
    "live-sst-files-size": "The bytes of the SST files of the newest version",
    "num-live-versions": "The number of live versions",
    "block-cache-capacity": "The capacity of the block cache in bytes",
    "block-cache-usage": "The bytes of the entries in the block cache",
    "block-cache-pinned-usage": "The bytes of the entries that are pinned in the block cache",
    "estimate-num-keys": "The estimated number of keys",
    "estimate-table-readers-mem": "The estimated bytes of memory of table readers, beside the block cache",
    "background-errors": "The number of errors of background work",
}
"""The properties of a RocksDB database (KIP-607) as of their last read."""

BYTES_WRITTEN: Final = "bytes-written"
BYTES_READ: Final = "bytes-read"
MEMTABLE_BYTES_FLUSHED: Final = "memtable-bytes-flushed"
MEMTABLE_FLUSH_TIME: Final = "memtable-flush-time"
COMPACTION_TIME: Final = "compaction-time"
WRITE_STALL_DURATION: Final = "write-stall-duration"
BYTES_WRITTEN_COMPACTION: Final = "bytes-written-compaction"
BYTES_READ_COMPACTION: Final = "bytes-read-compaction"
FILE_ERRORS: Final = "number-file-errors"
ROCKSDB_STATISTICS: Final[Mapping[str, Mapping[str, tuple[MeasurableStat, str]]]] = {
    BYTES_WRITTEN: {
        "-rate": (MeasurableStat.RATE, "The bytes that are written to the database a second"),
        "-total": (MeasurableStat.CUMULATIVE_SUM, "The bytes that were written to the database"),
    },
    BYTES_READ: {
        "-rate": (MeasurableStat.RATE, "The bytes that are read from the database a second"),
        "-total": (MeasurableStat.CUMULATIVE_SUM, "The bytes that were read from the database"),
    },
    MEMTABLE_BYTES_FLUSHED: {
        "-rate": (MeasurableStat.RATE, "The bytes that flushes of memtables write a second"),
        "-total": (MeasurableStat.CUMULATIVE_SUM, "The bytes that flushes of memtables have written"),
    },
    MEMTABLE_FLUSH_TIME: {
        "-avg": (MeasurableStat.AVG, "The average time of a flush of a memtable in ms"),
        "-max": (MeasurableStat.MAX, "The longest time of a flush of a memtable in ms"),
    },
    COMPACTION_TIME: {
        "-avg": (MeasurableStat.AVG, "The average time of a compaction in ms"),
        "-max": (MeasurableStat.MAX, "The longest time of a compaction in ms"),
    },
    WRITE_STALL_DURATION: {
        "-avg": (MeasurableStat.AVG, "The average time in ms for which a write was stalled"),
        "-total": (MeasurableStat.CUMULATIVE_SUM, "The time in ms for which writes were stalled"),
    },
    BYTES_WRITTEN_COMPACTION: {"-rate": (MeasurableStat.RATE, "The bytes that compactions write a second")},
    BYTES_READ_COMPACTION: {"-rate": (MeasurableStat.RATE, "The bytes that compactions read a second")},
    FILE_ERRORS: {"-total": (MeasurableStat.CUMULATIVE_SUM, "The number of errors of files")},
}
"""The statistics of a RocksDB database (KIP-471): the endings of their metrics, with descriptions."""

ROCKSDB_RATIOS: Final[Mapping[str, str]] = {
    "memtable-hit-ratio": "The part of the reads that memtables have answered",
    "block-cache-data-hit-ratio": "The part of the reads of data blocks that the block cache has answered",
    "block-cache-index-hit-ratio": "The part of the reads of index blocks that the block cache has answered",
    "block-cache-filter-hit-ratio": "The part of the reads of filter blocks that the block cache has answered",
}
"""The share of reads served from memory (KIP-471)."""
