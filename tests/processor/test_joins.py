"""The joins against models of a few lines: for random records, what comes out of the test driver is what a look at all
records says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Serdes,
    Stores,
    StreamsBuilder,
    TableJoined,
)
from penstock.errors import StreamsError
from penstock.testing import TestRecord, TopologyTestDriver

STRING = Serdes.string()
LEFT, RIGHT, OUT = "left", "right", "out"

Row = tuple[str, str, str | None, int]
"""Topic, key, value, timestamp."""

Shape = Callable[[StreamsBuilder], None]


def run(shape: Shape, rows: Sequence[Row], **config: Any) -> list[tuple[str | None, str | None, int]]:
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


def separated(left: str | None, right: str | None) -> str:
    return f"{left}|{right or '-'}"


KEYS = st.sampled_from("ab")


@st.composite
def ordered_rows(draw: st.DrawFn) -> list[Row]:
    """Rows of both topics with times that never go back; every value is there once."""
    gaps = draw(st.lists(st.tuples(st.sampled_from([LEFT, RIGHT]), KEYS, st.integers(0, 8)), max_size=25))
    time, rows = 0, []
    for number, (topic, key, gap) in enumerate(gaps):
        time += gap
        rows.append((topic, key, f"{topic[0]}{number}", time))
    return rows


# ---------------------------------------- streams


def met(windows: JoinWindows, left: Row, right: Row) -> bool:
    return left[1] == right[1] and left[3] - windows.before_ms <= right[3] <= left[3] + windows.after_ms


def stream_join(type: str, windows: JoinWindows) -> Shape:
    def shape(builder: StreamsBuilder) -> None:
        left, right = builder.stream(LEFT), builder.stream(RIGHT)
        getattr(left, type)(right, pair, windows).to(OUT)

    return shape


WINDOWS = st.builds(
    lambda before, after, grace: JoinWindows(before, after, grace), st.integers(0, 9), st.integers(0, 9), st.just(3)
)


@given(ordered_rows(), WINDOWS, st.sampled_from(["rocksdb", "in_memory"]))
@settings(max_examples=60, deadline=None)
def test_an_inner_join_finds_every_pair_that_is_near_enough(rows: list[Row], windows: JoinWindows, kind: str) -> None:
    sides = [[row for row in rows if row[0] == topic] for topic in (LEFT, RIGHT)]
    expected = sorted(
        (one[1], pair(one[2], other[2]), max(one[3], other[3]))
        for one in sides[0]
        for other in sides[1]
        if met(windows, one, other)
    )
    got = run(stream_join("join", windows), rows, **{"dsl.store.suppliers.class": kind})
    assert sorted((key or "", value or "", time) for key, value, time in got) == expected
    assert [time for *_, time in got] == sorted(time for *_, time in got)


@st.composite
def late_rows(draw: st.DrawFn) -> list[Row]:
    """Rows of both topics in any order, none later than a grace period of 100 ms; every value is there once."""
    drawn = draw(st.lists(st.tuples(st.sampled_from([LEFT, RIGHT]), KEYS, st.integers(0, 60)), max_size=25))
    return [(topic, key, f"{topic[0]}{number}", time) for number, (topic, key, time) in enumerate(drawn)]


@given(late_rows(), st.builds(JoinWindows, st.integers(0, 9), st.integers(0, 9), st.just(100)), st.booleans())
@settings(max_examples=60, deadline=None)
def test_within_the_grace_period_a_record_that_meets_one_has_no_result_without(
    rows: list[Row], windows: JoinWindows, outer: bool
) -> None:
    left, right = ([row for row in rows if row[0] == topic] for topic in (LEFT, RIGHT))
    pairs = [(one[2], other[2]) for one in left for other in right if met(windows, one, other)]
    alone = {row[2] for row in [*left, *(right if outer else [])]} - {value for each in pairs for value in each}
    expected = [pair(*each) for each in pairs] + [pair(v, None) if v and v[0] == "l" else pair(None, v) for v in alone]
    flush = [(topic, "flush", f"{topic[0]}!", 1000) for topic in (LEFT, RIGHT)]
    got = run(stream_join("outer_join" if outer else "left_join", windows), [*rows, *flush])
    assert sorted(value or "" for key, value, _ in got if key != "flush") == sorted(expected)


@given(ordered_rows(), WINDOWS, st.sampled_from(["left_join", "outer_join"]))
@settings(max_examples=60, deadline=None)
def test_an_outer_join_has_each_record_that_meets_none_once_when_its_window_is_over(
    rows: list[Row], windows: JoinWindows, type: str
) -> None:
    end = max((row[3] for row in rows), default=0) + 1000
    flush = [(topic, "flush", f"{topic[0]}!", end) for topic in (LEFT, RIGHT)]
    got = [value for key, value, _ in run(stream_join(type, windows), [*rows, *flush]) if key != "flush"]
    alone = {
        topic: [
            row
            for row in rows
            if row[0] == topic
            and not any(met(windows, *((row, o) if topic == LEFT else (o, row))) for o in rows if o[0] != topic)
        ]
        for topic in (LEFT, RIGHT)
    }
    expected = [pair(row[2], None) for row in alone[LEFT]]
    expected += [pair(None, row[2]) for row in alone[RIGHT] if type == "outer_join"]
    assert sorted(value or "" for value in got if "-" in (value or "")) == sorted(expected)


@given(ordered_rows(), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_a_self_join_by_one_store_finds_what_two_find(rows: list[Row], difference: int) -> None:
    windows = JoinWindows.of_time_difference_and_grace(difference, 100)

    def shape(builder: StreamsBuilder) -> None:
        stream = builder.stream(LEFT)
        stream.join(stream, pair, windows).to(OUT)

    own = [row for row in rows if row[0] == LEFT]
    two = run(shape, own)
    assert run(shape, own, **{"topology.optimization": "single.store.self.join"}) == two
    assert len(two) >= len(own)


def test_both_sides_of_an_outer_join_share_their_clock_over_a_restart_of_the_interval() -> None:
    windows = JoinWindows.of_time_difference_with_no_grace(10)
    rows = [(LEFT, "a", "1", 0), (RIGHT, "b", "2", 11), (LEFT, "c", "3", 30)]
    assert run(stream_join("outer_join", windows), rows) == [("a", "1-", 0), ("b", "-2", 11)]
    throttled = run(stream_join("outer_join", windows), rows, **{"penstock.emit.interval.ms": 1000})
    assert throttled == []  # the first record begins the interval, and wall-clock time stands still


@pytest.mark.parametrize(("type", "expected"), [("join", []), ("left_join", [("1-", 5)])])
def test_a_record_without_key_has_a_result_only_if_it_may_stand_alone(type: str, expected: list[Any]) -> None:
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    getattr(builder.stream(LEFT), type)(builder.stream(RIGHT), pair, windows).to(OUT)
    defaults = {"default.key.serde": STRING, "default.value.serde": STRING}
    with TopologyTestDriver(builder.build(), defaults) as driver:
        driver.create_input_topic(LEFT, STRING, STRING).pipe_record_list([TestRecord(None, "1", 5)])
        records = driver.create_output_topic(OUT, STRING, STRING).read_records_to_list()
        assert [(record.value, record.timestamp) for record in records] == expected


# ---------------------------------------- a stream and a table


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


# ---------------------------------------- tables


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


def last(got: Sequence[tuple[str | None, str | None, int]]) -> dict[str | None, str]:
    table: dict[str | None, str] = {}
    for key, value, _ in got:
        table.pop(key, None)
        if value is not None:
            table[key] = value
    return table


@given(updates(), st.sampled_from(["join", "left_join", "outer_join"]), st.sampled_from([None, "store"]))
@settings(max_examples=60, deadline=None)
def test_the_join_of_two_tables_ends_as_the_join_of_what_they_end_as(
    rows: list[Row], type: str, store: str | None
) -> None:
    def shape(builder: StreamsBuilder) -> None:
        materialized = None if store is None else Materialized.as_(store)
        left, right = builder.table(LEFT), builder.table(RIGHT)
        joined: KTable = getattr(left, type)(right, pair, materialized=materialized)
        joined.to_stream().to(OUT)

    left, right = final(rows, LEFT), final(rows, RIGHT)
    keys = {"join": left.keys() & right.keys(), "left_join": left.keys(), "outer_join": left.keys() | right.keys()}
    expected = {key: pair(left.get(key), right.get(key)) for key in keys[type]}
    assert last(run(shape, rows)) == expected


def foreign_key(value: str) -> str | None:
    return value[0] if value[0] != "z" else None


@given(updates(), st.sampled_from(["join", "left_join"]), st.sampled_from([0, 10_000_000]))
@settings(max_examples=80, deadline=None)
def test_the_join_by_foreign_key_ends_as_the_join_of_what_the_tables_end_as(
    rows: list[Row], type: str, cache: int
) -> None:
    def shape(builder: StreamsBuilder) -> None:
        left, right = builder.table(LEFT), builder.table(RIGHT)
        joined: KTable = getattr(left, type)(right, pair, foreign_key_extractor=foreign_key)
        joined.to_stream().to(OUT)

    left, right = final(rows, LEFT), final(rows, RIGHT)
    expected = {
        key: pair(value, right.get(foreign_key(value) or ""))
        for key, value in left.items()
        if type == "left_join" or (foreign_key(value) or "") in right
    }
    assert last(run(shape, rows, **{"statestore.cache.max.bytes": cache})) == expected


def test_a_partitioner_of_a_foreign_key_join_must_choose_one_partition() -> None:
    def shape(builder: StreamsBuilder) -> None:
        options = TableJoined.as_("j").with_other_partitioner(lambda topic, key, value, partitions: {0, 1})
        builder.table(LEFT).join(
            builder.table(RIGHT), pair, foreign_key_extractor=foreign_key, table_joined=options
        ).to_stream().to(OUT)

    with pytest.raises(StreamsError) as raised:
        run(shape, [(LEFT, "a", "xp", 0)])
    cause: BaseException | None = raised.value
    while cause is not None and not isinstance(cause, ValueError):
        cause = cause.__cause__
    assert "should be a singleton set" in str(cause)


def test_a_record_meets_a_global_table_by_the_key_that_is_made_of_it() -> None:
    def shape(builder: StreamsBuilder) -> None:
        stream: KStream = builder.stream(LEFT)
        stream.left_join(builder.global_table(RIGHT), pair, key_selector=lambda key, value: value[0]).to(OUT)

    rows = [(RIGHT, "x", "r", 0), (LEFT, "a", "xp", 1), (LEFT, "a", "yp", 2)]
    assert run(shape, rows) == [("a", "xpr", 1), ("a", "yp-", 2)]
