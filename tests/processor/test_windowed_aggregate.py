"""Windowed aggregations against what windows are by definition, on the test driver."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    CalendarWindows,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    TimeWindow,
    TimeWindows,
    Window,
    Windowed,
    WindowedSerdes,
    Windows,
)
from penstock.testing import TopologyTestDriver
from tests.support.tables import STRINGS, UNCACHED, Row, updates
from tests.support.windows import MUCH, ROWS, counts_of, expected_counts


@given(ROWS, st.booleans())
def test_hopping_windows_count_the_records_that_they_hold(rows: list[Row], cached: bool) -> None:
    windows = TimeWindows.of_size_and_grace(10, MUCH).advance_by(4)
    expected = expected_counts(
        rows, lambda row: [(start, start + 9) for start in range(0, row[2] + 1, 4) if start + 10 > row[2]]
    )
    found = counts_of(windows, rows, STRINGS if cached else UNCACHED)
    assert found == {
        f"{key.rpartition('/')[0]}/{int(key[:-1].rpartition('/')[2]) + 1}]": n for key, n in expected.items()
    }


def test_an_update_after_end_and_grace_is_dropped() -> None:
    windows = TimeWindows.of_size_and_grace(10, 5)
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(windows).count().to_stream(lambda key, n: str(key)).to("out")
    rows: list[Row] = [("a", "x", 3), ("b", "x", 14), ("a", "x", 4), ("b", "x", 15), ("a", "x", 5)]
    assert updates(builder, rows, UNCACHED, Serdes.long()) == [
        ("[a@0/10]", 1, 3),
        ("[b@10/20]", 1, 14),
        ("[a@0/10]", 2, 4),
        ("[b@10/20]", 2, 15),
    ]


def test_null_values_count_in_time_windows_and_sessions_but_not_in_sliding_windows() -> None:
    rows: list[Row] = [("a", None, 20), (None, "x", 21)]
    assert counts_of(TimeWindows.of_size_with_no_grace(100), rows) == {"[a@0/100]": 1}
    assert counts_of(SessionWindows.of_inactivity_gap_with_no_grace(5), rows) == {"[a@20/20]": 1}
    assert counts_of(SlidingWindows.of_time_difference_with_no_grace(5), rows) == {}


class Night(Windows):
    """Windows of a user's own, of two lengths."""

    size_ms = 20
    grace_period_ms = 0

    def windows_for(self, timestamp: int) -> Mapping[int, Window]:
        day, hour = divmod(timestamp, 30)
        start, end = (0, 20) if hour < 20 else (20, 30)
        return {day * 30 + start: TimeWindow(day * 30 + start, day * 30 + end)}


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_a_users_own_windows_are_asked_for_every_record(execution: str) -> None:
    rows: list[Row] = [("a", "x", 1), ("a", "x", 19), ("a", "x", 21), ("a", "x", 30)]
    config = {**UNCACHED, "penstock.execution": execution}
    assert counts_of(Night(), rows, config) == {"[a@0/20]": 2, "[a@20/30]": 1, "[a@30/50]": 1}


BERLIN = CalendarWindows.days("Europe/Berlin", 0)
OF_JAVA: list[tuple[str, int, tuple[str, int] | None]] = [
    ("b", 1711753200000, ("[b@1711753200000/1711839600000]", 1)),
    ("a", 1711800000000, ("[a@1711753200000/1711839600000]", 1)),
    ("a", 1711839600000, ("[a@1711839600000/1711922400000]", 1)),
    ("b", 1711922399999, ("[b@1711839600000/1711922400000]", 1)),
    ("a", 1711922400000, ("[a@1711922400000/1712008800000]", 1)),
    ("a", 1711918800001, None),
    ("b", 1711839599999, None),
    ("a", 1712008800000, ("[a@1712008800000/1712095200000]", 1)),
    ("a", 1729980000000, ("[a@1729980000000/1730070000000]", 1)),
    ("b", 1730069999999, ("[b@1729980000000/1730070000000]", 1)),
    ("a", 1730070000000, ("[a@1730070000000/1730156400000]", 1)),
    ("a", 1730070000001, ("[a@1730070000000/1730156400000]", 2)),
    ("b", 1730200000000, ("[b@1730156400000/1730242800000]", 1)),
]
"""Key and time of records, and the update of each that Kafka Streams 4.4.0 emits without a cache.

Java has these days as a user's own Windows."""


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_days_of_a_calendar_have_the_results_of_kafka_streams(execution: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(BERLIN).count().to_stream(lambda key, n: str(key)).to("out")
    found = updates(
        builder,
        [(key, "v", time) for key, time, _ in OF_JAVA],
        {**UNCACHED, "penstock.execution": execution},
        Serdes.long(),
    )
    assert [(key, count) for key, count, _ in found] == [update for _, _, update in OF_JAVA if update is not None]


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_updates_from_a_cache_and_reads_of_the_store_have_the_ends_of_the_calendar(execution: str) -> None:
    builder = StreamsBuilder()
    days = builder.stream("in").group_by_key().windowed_by(BERLIN)
    days.count(Materialized.as_("days").with_retention(timedelta(days=365))).to_stream(lambda key, n: str(key)).to(
        "out"
    )
    config = {"application.id": "app", **STRINGS, "penstock.execution": execution}
    text = Serdes.string()
    with TopologyTestDriver(builder.build(), config) as driver:
        source = driver.create_input_topic("in", text, text)
        for key, time, _ in OF_JAVA:
            source.pipe_input(key, "v", time)
        output = driver.create_output_topic("out", text, Serdes.long()).read_key_values_to_list()
        store = driver.get_window_store("days")
        assert store is not None
        with store.all() as entries:
            stored = [(str(key), count) for key, count in entries]
        assert store.fetch("b", 1729980000000) == 1
    expected = [update for _, _, update in OF_JAVA if update is not None]
    assert [tuple(update) for update in output] == expected
    assert sorted(stored) == sorted(dict(expected).items())


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40 * 24)), max_size=80), st.booleans(), st.booleans())
def test_months_count_the_records_that_they_hold(rows: list[tuple[str, int]], cached: bool, by_record: bool) -> None:
    zone = ZoneInfo("America/New_York")
    first = round(datetime(2024, 10, 1, tzinfo=zone).timestamp()) * 1000
    limits = [round(datetime(2024, month, 1, tzinfo=zone).timestamp()) * 1000 for month in (10, 11, 12)]
    records: list[Row] = [(key, "v", first + hour * 3_600_000) for key, hour in rows]
    expected: dict[str, int] = {}
    for key, _, time in records:
        start, end = limits[:2] if time < limits[1] else limits[1:]
        expected[f"[{key}@{start}/{end}]"] = expected.get(f"[{key}@{start}/{end}]", 0) + 1
    config = {**(STRINGS if cached else UNCACHED), "penstock.execution": "record" if by_record else "auto"}
    assert counts_of(CalendarWindows.months(zone, timedelta(days=60)), records, config) == expected


def test_cogrouped_streams_and_a_users_store_have_the_ends_of_the_calendar() -> None:
    builder = StreamsBuilder()
    supplier = Stores.persistent_window_store("days", timedelta(days=9), timedelta(days=1), False)
    cogrouped = builder.stream("in").group_by_key().cogroup(lambda key, value, total: total + value)
    days = cogrouped.windowed_by(BERLIN).aggregate(
        lambda: "", Materialized.as_(supplier).with_value_serde(Serdes.string())
    )
    days.to_stream(lambda key, value: str(key)).to("out")
    rows: list[Row] = [("a", "x", 1711839600000), ("a", "y", 1711922399999)]
    assert [row[:2] for row in updates(builder, rows, STRINGS)] == [
        ("[a@1711839600000/1711922400000]", "x"),
        ("[a@1711839600000/1711922400000]", "xy"),
    ]


def test_a_topic_with_windowed_keys_has_the_bytes_of_kafka_and_comes_back_with_ends() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(BERLIN).count(
        Materialized.with_(key_serde=Serdes.string())
    ).to_stream().to("out")
    text = Serdes.string()
    with TopologyTestDriver(builder.build(), {"application.id": "app", **STRINGS}) as driver:
        driver.create_input_topic("in", text, text).pipe_input("a", "v", 1711839600000)
        keys = {record.topic: record.key for record in driver.read_all_bytes()}
    start = (1711839600000).to_bytes(8, "big")
    key = keys.pop("out")
    assert key == b"a" + start
    assert list(keys.values()) == [b"a" + start + bytes(4)]  # of the changelog: a sequence number, and no end
    read = WindowedSerdes.calendar_windowed(text, BERLIN).deserialize("out", key)
    assert read == Windowed("a", TimeWindow(1711839600000, 1711922400000))
