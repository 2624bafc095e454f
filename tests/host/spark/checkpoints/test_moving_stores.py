"""Stores with calendar windows, headers, a time to live and windows of n records on the way of an application: taken
over from the threads host, used by an edited program, saved, handed back by changelog topics, and restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from penstock import (
    BufferConfig,
    CalendarWindows,
    Consumed,
    KStream,
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
    TtlRenewal,
    ValueAndTimestamp,
    Windowed,
    savepoints,
)
from penstock.testing import TopologyTestDriver
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.threads.runner import ThreadsRunner
from tests.support.brokers import EMBEDDED_ONLY

pytestmark = EMBEDDED_ONLY

TEXT = Serdes.string()
BERLIN = ZoneInfo("Europe/Berlin")
DAY = 24 * 3_600_000


class Kind(NamedTuple):
    """A kind of store.

    Args:
        shape: adds the operators with the store, named "kept", and returns their results as texts.
        times: the times (ms) of the records of key "a" and "b" by turns, in three parts.
        settings: the configuration.
    """

    shape: Callable[[StreamsBuilder, KStream[str, str]], KStream[str, str]]
    times: tuple[list[int], list[int], list[int]]
    settings: Mapping[str, Any] = {}


def shown(windowed: Windowed[str], value: Any) -> tuple[str, str]:
    return windowed.key, f"{value} in {windowed.window.start} to {windowed.window.end}"


def with_calendar_windows(builder: StreamsBuilder, stream: KStream[str, str]) -> KStream[str, str]:
    days = stream.group_by_key().windowed_by(CalendarWindows.days(BERLIN, timedelta(hours=1)))
    counts = days.count(Materialized.as_("kept").with_key_serde(TEXT))
    final = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("final"))
    return counts.to_stream().map(shown).merge(final.to_stream().map(shown))


def with_headers(builder: StreamsBuilder, stream: KStream[str, str]) -> KStream[str, str]:
    grouped = stream.group_by_key()
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(1_000, 500))
    joined = sessions.reduce(lambda before, value: before + value, Materialized.as_("kept"))
    windows = grouped.windowed_by(TimeWindows.of_size_and_grace(2_000, 500))
    latest = windows.reduce(lambda before, value: value, Materialized.as_("latest").with_key_serde(TEXT))
    final = latest.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("final"))
    return joined.to_stream().map(shown).merge(final.to_stream().map(shown))


class Visit(Processor):
    """Keeps the first value of each key while the key is used."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.kept: Any = context.get_state_store("kept")

    def process(self, record: Record[str, str]) -> None:
        found = self.kept.get(record.key)
        if found is None:
            self.kept.put(record.key, ValueAndTimestamp(record.value, record.timestamp))
        self.context.forward(record.with_value("new" if found is None else f"{found.value} at {found.timestamp}"))


def with_a_time_to_live(builder: StreamsBuilder, stream: KStream[str, str]) -> KStream[str, str]:
    supplier = Stores.persistent_timestamped_key_value_store("kept")
    store = Stores.timestamped_key_value_store_builder(supplier, TEXT, TEXT)
    builder.add_state_store(store.with_ttl(1_000, renewal=TtlRenewal.READS_AND_WRITES))
    return stream.process(Visit, "kept")


def with_windows_of_records(builder: StreamsBuilder, stream: KStream[str, str]) -> KStream[str, str]:
    return stream.group_by_key().count_windows(2).reduce(lambda one, other: one + other, Materialized.as_("kept"))


MIDNIGHT = round(datetime(2024, 3, 31, tzinfo=BERLIN).timestamp()) * 1000
HOUR = 3_600_000
KINDS = {
    "calendar windows": Kind(
        with_calendar_windows,
        (
            [MIDNIGHT - HOUR, MIDNIGHT, MIDNIGHT + HOUR],
            [MIDNIGHT + 22 * HOUR, MIDNIGHT + 23 * HOUR, MIDNIGHT + 22 * HOUR, MIDNIGHT + 24 * HOUR],
            [MIDNIGHT + 47 * HOUR, MIDNIGHT + 22 * HOUR, MIDNIGHT + 48 * HOUR],
        ),
    ),
    "headers": Kind(
        with_headers,
        ([0, 500, 900, 1_500], [1_800, 2_400, 2_900, 3_500], [3_900, 5_000, 9_000]),
        {"dsl.store.format": "headers"},
    ),
    "time to live": Kind(
        with_a_time_to_live,
        ([0, 50, 600], [700, 1_500, 1_550], [2_000, 2_400, 4_000]),
    ),
    "windows of n records": Kind(with_windows_of_records, ([0, 1, 2], [3, 4, 5, 6], [7, 8, 9])),
}


def program(kind: Kind, source: str, target: str, is_edited: bool) -> Topology:
    """Return the program, or the edited one: it has one more operator before its stores and one after them."""
    builder = StreamsBuilder()
    stream: KStream[str, str] = builder.stream(source, Consumed.with_(TEXT, TEXT))
    stream = stream.filter(lambda key, value: True, named="checked") if is_edited else stream
    texts = kind.shape(builder, stream)
    texts = texts.peek(lambda key, value: None, named="seen") if is_edited else texts
    texts.to(target)
    return builder.build()


def parts_of(kind: Kind) -> list[list[InputRecord]]:
    parts = []
    number = 0
    for times in kind.times:
        part = []
        for time in times:
            headers = (("number", b"%d" % number),)
            part.append(InputRecord(b"ab"[number % 2 : number % 2 + 1], b"v%d" % number, time, headers=headers))
            number += 1
        parts.append(part)
    return parts


def run_on_spark(runner: SparkRunner, topology: Topology, config: StreamsConfig) -> None:
    query = InlineQuery(topology, config, runner.admin)
    try:
        query.run_to_end()
    finally:
        query.close()


def run_on_threads(runner: ThreadsRunner, topology: Topology, config: StreamsConfig) -> None:
    running = runner.program(topology, config)
    try:
        running.run_to_end()
    finally:
        running.close()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_stores_move_between_hosts_and_programs_with_their_content(
    spark_runner: SparkRunner,
    threads_runner: ThreadsRunner,
    application: str,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    kind: Kind,
) -> None:
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 1, target: 1})
    settings = {
        "default.key.serde": TEXT,
        "default.value.serde": TEXT,
        "auto.offset.reset": "earliest",
        **kind.settings,
    }
    on_spark, on_threads = spark_runner.config(application, settings), threads_runner.config(application, settings)
    plain, edited = (program(kind, source, target, is_edited) for is_edited in (False, True))
    parts = parts_of(kind)

    def found() -> list[Any]:
        return [(each.key, each.value, each.timestamp, each.headers) for each in spark_runner.read(target)]

    spark_runner.write(source, parts[0])
    run_on_threads(threads_runner, plain, on_threads)
    savepoints.import_from_kafka(plain, on_spark)
    spark_runner.write(source, parts[1][:1])
    run_on_spark(spark_runner, plain, on_spark)
    spark_runner.write(source, parts[1][1:])
    run_on_spark(spark_runner, edited, on_spark)
    saved = str(tmp_path / "saved")
    savepoints.take(on_spark, saved)
    assert savepoints.export_to_kafka(saved, edited, on_spark) > 0
    before_the_last = len(found())
    spark_runner.write(source, parts[2])
    run_on_threads(threads_runner, edited, on_threads)

    with TopologyTestDriver(plain, on_spark) as driver:
        for record in (each for part in parts for each in part):
            driver.pipe_bytes(source, record.key, record.value, record.timestamp, record.headers)
        written = [each for each in driver.read_all_bytes() if each.topic == target]
    expected = [(each.key, each.value, each.timestamp, each.headers) for each in written]
    assert found() == expected
    assert any(headers for _, _, _, headers in expected)
    assert 0 < before_the_last < len(expected)

    again = on_spark.overridden(
        {"application.id": unique_name("again"), "penstock.checkpoint.dir": str(tmp_path / "again")}
    )
    savepoints.restore(saved, again)
    run_on_spark(spark_runner, edited, again)
    assert found() == [*expected, *expected[before_the_last:]]
