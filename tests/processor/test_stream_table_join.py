"""The join of a stream with a table, against a model that sees all records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Joined, KStream, Materialized, Stores, StreamsBuilder
from penstock.errors import StreamsError
from penstock.exception_handlers import (
    LogAndContinueProcessingExceptionHandler,
    LogAndFailProcessingExceptionHandler,
)
from penstock.record import RecordBatch, ValueAndTimestamp
from penstock.testing import TestRecord, TopologyTestDriver
from tests.support.joins import LEFT, OUT, RIGHT, STRING, Row, ordered_rows, pair, run
from tests.support.tables import STRINGS
from tests.task.topologies import task_of


def separated(left: str | None, right: str | None) -> str:
    return f"{left}|{right or '-'}"


@given(ordered_rows())
@settings(max_examples=40, deadline=None)
def test_a_record_meets_the_value_that_the_table_has_when_it_comes(rows: list[Row]) -> None:
    def shape(builder: StreamsBuilder) -> None:
        builder.stream(LEFT).left_join(builder.table(RIGHT), pair).to(OUT)

    table: dict[str, str | None] = {}
    expected = []
    for topic, key, value, time in rows:
        if topic == RIGHT:
            table[key] = value
        else:
            expected.append((key, pair(value, table.get(key)), time))
    assert run(shape, rows) == expected


ROWS = st.lists(
    st.tuples(st.none() | st.sampled_from("ab"), st.none() | st.sampled_from("xyz"), st.integers(0, 9)), min_size=1
)


@given(
    turns=st.lists(st.tuples(st.sampled_from([LEFT, RIGHT]), ROWS, st.booleans()), max_size=6),
    type=st.sampled_from(["join", "left_join"]),
    cache_bytes=st.sampled_from([0, 10_000_000]),
    writes_dropped=st.booleans(),
)
@settings(deadline=None)
def test_columns_give_what_records_give(turns: list[Any], type: str, cache_bytes: int, writes_dropped: bool) -> None:
    def outcome(execution: str) -> tuple[Any, ...]:
        builder = StreamsBuilder()
        stream = builder.stream(LEFT)
        joined: KStream = getattr(stream, type)(builder.table(RIGHT), pair)
        joined.to(OUT)  # two children: the order of both outputs follows from the origin of each row
        joined.map_values(lambda value: f"{value}!").to(OUT)
        if writes_dropped:
            joined.late_to("dropped")
        topology = builder.build({"default.key.serde": STRING, "default.value.serde": STRING})
        task = task_of(topology, execution=execution, cache_bytes=cache_bytes)
        sent: list[Any] = []
        ends = {LEFT: 0, RIGHT: 0}
        for topic, rows, has_headers in turns:
            headers = (("h", b"1"),) if has_headers else ()
            records = [
                (key and key.encode(), value and value.encode(), timestamp, ends[topic] + at, headers)
                for at, (key, value, timestamp) in enumerate(rows)
            ]
            ends[topic] += len(rows)
            task.add_records(topic, 0, RecordBatch.of(records))
            task.process()
            sent += task.drain_in_order()
        commit = task.prepare_commit()
        return sent, {name: dict(own) for name, own in commit.changes.items()}, dict(commit.dropped_records)

    assert outcome("auto") == outcome("record")


class Table:
    """A global store with one key, which fails for another one."""

    name = "table"

    def get(self, key: str) -> ValueAndTimestamp | None:
        if key == "z":
            raise ValueError(key)
        return ValueAndTimestamp("found", 0) if key == "x" else None


def selected(key: str | None, value: str | None) -> str | None:
    """Select the value; fail for a key, and return None for another one."""
    if key == "a" and value == "y":
        raise LookupError(value)
    return None if key == "b" else value


@given(
    rows=ROWS,
    type=st.sampled_from(["join", "left_join"]),
    handler=st.sampled_from([LogAndContinueProcessingExceptionHandler, LogAndFailProcessingExceptionHandler]),
)
@settings(deadline=None)
def test_columns_join_a_global_table_as_records_do(rows: list[Any], type: str, handler: Any) -> None:
    def outcome(execution: str) -> tuple[Any, ...]:
        builder = StreamsBuilder()
        table = builder.global_table(RIGHT, Materialized.as_("table"))
        getattr(builder.stream(LEFT), type)(table, pair, key_selector=selected).to(OUT)
        topology = builder.build({"default.key.serde": STRING, "default.value.serde": STRING})
        config = {"processing.exception.handler": handler}
        task = task_of(topology, execution=execution, config=config, global_stores={"table": Table()})
        records = [
            (key and key.encode(), value and value.encode(), timestamp, offset, ())
            for offset, (key, value, timestamp) in enumerate(rows)
        ]
        task.add_records(LEFT, 0, RecordBatch.of(records))
        try:
            task.process()
        except StreamsError as error:
            return (str(error),)
        return list(task.drain_in_order()), dict(task.prepare_commit().dropped_records)

    assert outcome("auto") == outcome("record")


@given(ordered_rows(), st.integers(0, 20), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_with_grace_a_record_meets_the_version_of_its_time(rows: list[Row], grace: int, random: Any) -> None:
    versioned = Materialized.as_(Stores.persistent_versioned_key_value_store("versions", 10_000))

    def shape(builder: StreamsBuilder) -> None:
        table = builder.table(RIGHT, materialized=versioned)
        stream = builder.stream(LEFT)
        stream.left_join(table, separated, joined=Joined.as_("j").with_grace_period(grace)).to(OUT)

    late = sorted(rows, key=lambda row: row[3] + random.randint(0, grace))  # nothing comes later than the grace
    flush = [(LEFT, "flush", "!", 10_000)]
    got = [entry for entry in run(shape, [*late, *flush]) if entry[0] != "flush"]

    def values_at(key: str, time: int) -> set[str]:
        possible = set()
        for latest in (time, time - 1):  # an update of the very time may come just after the record has left
            known = [row for row in rows if row[0] == RIGHT and row[1] == key and row[3] <= latest]
            newest = max((row[3] for row in known), default=None)
            possible |= {row[2] or "" for row in known if row[3] == newest} or {"-"}  # of one time any may come last
        return possible

    waiting = {row[2]: row for row in rows if row[0] == LEFT}
    assert [time for *_, time in got] == sorted(row[3] for row in waiting.values())
    for key, value, time in got:
        left, _, right = (value or "").partition("|")
        assert waiting.pop(left)[1::2] == (key, time)
        assert right in values_at(key or "", time)
    assert waiting == {}


def test_a_record_meets_a_global_table_by_the_key_that_is_made_of_it() -> None:
    def shape(builder: StreamsBuilder) -> None:
        stream: KStream = builder.stream(LEFT)
        stream.left_join(builder.global_table(RIGHT), pair, key_selector=lambda key, value: value[0]).to(OUT)

    rows = [(RIGHT, "x", "r", 0), (LEFT, "a", "xp", 1), (LEFT, "a", "yp", 2)]
    assert run(shape, rows) == [("a", "xpr", 1), ("a", "yp-", 2)]


@pytest.mark.parametrize(
    ("type", "results", "dropped"), [("join", ["kx|t"], 2), ("left_join", ["kx|t", "-x|-", "ly|-"], 1)]
)
def test_a_record_without_a_key_has_a_result_only_in_a_left_join(type: str, results: list[str], dropped: int) -> None:
    builder = StreamsBuilder()
    stream, table = builder.stream(LEFT), builder.table(RIGHT)
    getattr(stream, type)(table, lambda key, one, other: f"{key or '-'}{separated(one, other)}").to(OUT)
    with TopologyTestDriver(builder.build(), STRINGS) as driver:
        driver.create_input_topic(RIGHT, STRING, STRING).pipe_input("k", "t")
        source = driver.create_input_topic(LEFT, STRING, STRING)
        source.pipe_record_list(
            [TestRecord(k, v, timestamp=5) for k, v in (("k", "x"), (None, "x"), ("k", None), ("l", "y"))]
        )
        assert driver.create_output_topic(OUT, STRING, STRING).read_values_to_list() == results
        assert driver.dropped_records() == dropped


def test_a_record_that_is_later_than_the_grace_period_is_joined_at_once() -> None:
    def shape(builder: StreamsBuilder) -> None:
        table = builder.table(
            RIGHT, materialized=Materialized.as_(Stores.persistent_versioned_key_value_store("v", 99))
        )
        builder.stream(LEFT).join(table, pair, joined=Joined.as_("j").with_grace_period(10)).to(OUT)

    rows: list[Row] = [(RIGHT, "a", "old", 0), (RIGHT, "a", "new", 20), (LEFT, "a", "1-", 30), (LEFT, "a", "2-", 19)]
    assert run(shape, rows) == [("a", "2-old", 19)]
    assert run(shape, [*rows, (LEFT, "b", "3-", 40)]) == [("a", "2-old", 19), ("a", "1-new", 30)]
