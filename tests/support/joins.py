"""Joins in a test: random records of two topics, and the output of a driver for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from penstock import Serdes, StreamsBuilder
from penstock.testing import TestRecord, TopologyTestDriver

STRING = Serdes.string()
LEFT, RIGHT, OUT = "left", "right", "out"

Row = tuple[str, str, str | None, int]
"""Topic, key, value, timestamp."""

Shape = Callable[[StreamsBuilder], None]


def run(shape: Shape, rows: Sequence[Row], **config: Any) -> list[tuple[str | None, str | None, int | None]]:
    """Return (key, value, timestamp) of what `shape` writes to the topic `out`, for the records `rows`."""
    builder = StreamsBuilder()
    shape(builder)
    settings_of_all = {
        "default.key.serde": STRING,
        "default.value.serde": STRING,
        "statestore.cache.max.bytes": 0,
        "penstock.emit.interval.ms": 0,
        **config,
    }
    with TopologyTestDriver(builder.build(settings_of_all), settings_of_all) as driver:
        topics = {name: driver.create_input_topic(name, STRING, STRING) for name in {row[0] for row in rows}}
        for topic, key, value, timestamp in rows:
            topics[topic].pipe_record_list([TestRecord(key, value, timestamp)])
        output = driver.create_output_topic(OUT, STRING, STRING)
        return [(record.key, record.value, record.timestamp) for record in output.read_records_to_list()]


def pair(left: str | None, right: str | None) -> str:
    return f"{left or '-'}{right or '-'}"


KEYS = st.sampled_from("ab")


@st.composite
def ordered_rows(draw: st.DrawFn) -> list[Row]:
    """Rows of both topics with times that never go back; every value is there once."""
    gaps = draw(st.lists(st.tuples(st.sampled_from([LEFT, RIGHT]), KEYS, st.integers(0, 8)), max_size=25))
    time, rows = 0, list[Row]()
    for number, (topic, key, gap) in enumerate(gaps):
        time += gap
        rows.append((topic, key, f"{topic[0]}{number}", time))
    return rows


@st.composite
def updates(draw: st.DrawFn) -> list[Row]:
    """Updates of both tables: values name a key of the other table, None deletes."""
    values = st.none() | st.tuples(st.sampled_from("xyz"), st.sampled_from("pq")).map("".join)
    steps = draw(st.lists(st.tuples(st.sampled_from([LEFT, RIGHT]), st.sampled_from("abxyz"), values), max_size=30))
    return [(topic, key, value, time) for time, (topic, key, value) in enumerate(steps)]


def final(rows: Sequence[Row], topic: str) -> dict[str, str]:
    table: dict[str, str] = {}
    for name, key, value, _ in rows:
        if name == topic:
            table.pop(key, None)
            if value is not None:
                table[key] = value
    return table


def last(got: Sequence[tuple[str | None, str | None, int | None]]) -> dict[str | None, str]:
    table: dict[str | None, str] = {}
    for key, value, _ in got:
        table.pop(key, None)
        if value is not None:
            table[key] = value
    return table
