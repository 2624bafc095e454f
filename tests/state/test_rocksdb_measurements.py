"""Statistics and properties of a RocksDB database as measurements."""

from __future__ import annotations

from penstock.metrics.measurements import Measurement, measured_once
from penstock.metrics.rocksdb_names import ROCKSDB_PROPERTIES
from penstock.state.rocksdb_measurements import Statistics, properties


def text(written: int, hits: int, misses: int, flushes: int, micros: int) -> str:
    """Return statistics in the format of RocksDB."""
    times = "P50 : 1.0 P95 : 2.0 P99 : 3.0 P100 : 7000.000000"
    return "\n".join(
        [
            "a line that is no statistic",
            "rocksdb.bytes.read COUNT : 0",
            f"rocksdb.bytes.written COUNT : {written}",
            f"rocksdb.memtable.hit COUNT : {hits}",
            f"rocksdb.memtable.miss COUNT : {misses}",
            f"rocksdb.db.flush.micros {times} COUNT : {flushes} SUM : {micros}",
        ]
    )


def test_statistics_are_those_since_the_last_call() -> None:
    statistics = Statistics()
    assert dict(statistics.since(text(100, 3, 1, 2, 8_000))) == {
        "bytes-written": measured_once(100),
        "memtable-hit-ratio": measured_once(0.75),
        "memtable-flush-time": Measurement(2, 8.0, 4.0, 7.0),
    }
    assert dict(statistics.since(text(150, 3, 2, 3, 9_000))) == {
        "bytes-written": measured_once(50),
        "memtable-hit-ratio": measured_once(0.0),
        "memtable-flush-time": Measurement(1, 1.0, 1.0, 7.0),
    }


def test_statistics_without_an_increase_are_left_out() -> None:
    statistics = Statistics()
    assert dict(statistics.since("")) == {}
    list(statistics.since(text(1, 1, 1, 1, 1)))
    assert dict(statistics.since(text(1, 1, 1, 1, 1))) == {}


def test_a_property_that_a_database_lacks_is_left_out() -> None:
    assert dict(properties(lambda name: None)) == {}
    found = dict(properties(lambda name: 0 if name == "rocksdb.estimate-num-keys" else None))
    assert found == {"estimate-num-keys": measured_once(0)}
    assert dict(properties(lambda name: 1)).keys() == ROCKSDB_PROPERTIES.keys()
