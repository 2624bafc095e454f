"""The families of operators that `operators.py` measures: a program and its input for each.

Keys are 10,000 texts, timestamps go up by 1 ms a record. A row of input is (topic, keys, values), bytes as from a host;
where a family has a table, its rows come first, once. What is measured, and how, is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock import (
    BufferConfig,
    Consumed,
    JoinWindows,
    Materialized,
    Processor,
    Produced,
    Record,
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)

KEYS: Final = 10_000
SECOND_MS: Final = 1000

Column = Callable[[int], bytes]
"""Makes the key or value of a record from its number."""


def key_of(number: int) -> bytes:
    """Return one of the keys, in an order that looks random."""
    return b"k%d" % (number * 7919 % KEYS)


def value_of(number: int) -> bytes:
    """Return a text that differs from record to record."""
    return b"value %d" % number


def foreign_value_of(number: int) -> bytes:
    """Return a text that begins with one of the keys."""
    return b"k%d %d" % (number * 104729 % KEYS, number)


@dataclass(frozen=True)
class Family:
    """One row of the table.

    build: adds the program to a builder; it reads `topics` and writes to "out". aim: records a second of one core, in
    memory and in RocksDB. topics: in turn, what the records are of. tables: topics whose rows come first and are not
    measured.
    """

    name: str
    build: Callable[[StreamsBuilder], object]
    aim: Mapping[str, int]
    topics: tuple[str, ...] = ("in",)
    tables: tuple[str, ...] = ()
    value: Column = value_of
    config: Mapping[str, Any] = field(default_factory=dict)


# ---------------------------------------- the users' functions


def keep(key: str, value: str) -> bool:
    """Keep every record."""
    return value != ""


def longer(value: str) -> str:
    """Return a longer value."""
    return value + "!"


def pair(key: str, value: str) -> tuple[str, str]:
    """Return the record as it is."""
    return key, value


def joined(one: str, other: str) -> str:
    """Return both values."""
    return f"{one}/{other}"


def foreign_key(value: str) -> str:
    """Return the key that stands before the first space."""
    return value.partition(" ")[0]


class CountingProcessor(Processor):
    """Counts in a store and forwards the count."""

    def init(self, context: Any) -> None:
        """Get the store."""
        super().init(context)
        self.store = context.get_state_store("store")

    def process(self, record: Record[str, str]) -> None:
        """Count the key of one record."""
        count = (self.store.get(record.key) or 0) + 1
        self.store.put(record.key, count)
        self.context.forward(record.with_value(count))


# ---------------------------------------- the programs


def _stateless(builder: StreamsBuilder) -> None:
    builder.stream("in").filter(keep).map_values(longer).map(pair).to("out")


def _count(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by_key().count().to_stream().to("out")


def _windowed_count(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size_with_no_grace(60 * SECOND_MS)
    counts = builder.stream("in").group_by_key().windowed_by(windows).count()
    counts.to_stream(lambda windowed, count: windowed.key).to("out")


def _session_count(builder: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap_with_no_grace(15 * SECOND_MS)
    counts = builder.stream("in").group_by_key().windowed_by(windows).count()
    counts.to_stream(lambda windowed, count: windowed.key).to("out")


def _stream_table_join(builder: StreamsBuilder) -> None:
    builder.stream("in").join(builder.table("table"), joined).to("out")


def _stream_stream_join(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference_with_no_grace(10 * SECOND_MS)
    builder.stream("in").join(builder.stream("other"), joined, windows).to("out")


def _table_table_join(builder: StreamsBuilder) -> None:
    builder.table("in").join(builder.table("other"), joined).to_stream().to("out")


def _foreign_key_join(builder: StreamsBuilder) -> None:
    table = builder.table("in").join(builder.table("table"), joined, foreign_key_extractor=foreign_key)
    table.to_stream().to("out")


def _suppress(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size_with_no_grace(SECOND_MS)
    counts = builder.stream("in").group_by_key().windowed_by(windows)
    closed = counts.count(Materialized.with_(key_serde=Serdes.string(), value_serde=Serdes.long())).suppress(
        Suppressed.until_window_closes(BufferConfig.unbounded())
    )
    closed.to_stream(lambda windowed, count: windowed.key).to("out")


def _processor(builder: StreamsBuilder) -> None:
    supplier = Stores.persistent_key_value_store("store")
    builder.add_state_store(Stores.key_value_store_builder(supplier, Serdes.string(), Serdes.long()))
    source = builder.stream("in", Consumed.with_(key_serde=Serdes.string(), value_serde=Serdes.string()))
    source.process(CountingProcessor, "store").to("out", Produced.with_(value_serde=Serdes.long()))


_OTHERS: Final = {"memory": 150_000, "rocksdb": 150_000}

FAMILIES: Final[Mapping[str, Family]] = {
    family.name: family
    for family in (
        Family("stateless chain", _stateless, {"memory": 2_000_000}),
        Family("count", _count, {"memory": 1_000_000, "rocksdb": 500_000}),
        Family("windowed count", _windowed_count, {"memory": 500_000, "rocksdb": 500_000}),
        Family("session count", _session_count, _OTHERS),
        Family("stream-table join", _stream_table_join, _OTHERS, tables=("table",)),
        Family("stream-stream join", _stream_stream_join, _OTHERS, topics=("in", "other")),
        Family("table-table join", _table_table_join, _OTHERS, topics=("in", "other")),
        Family("foreign-key join", _foreign_key_join, _OTHERS, tables=("table",), value=foreign_value_of),
        Family("suppress", _suppress, _OTHERS),
        Family("processor", _processor, _OTHERS),
    )
}
