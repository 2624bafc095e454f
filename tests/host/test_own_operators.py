"""Operators that Kafka Streams lacks, on each host and each kind of session, over several runs: calendar windows,
windows of n records, deduplication, a time to live, ready aggregations, and dropped records as a topic.

A task reads one partition of the input, so what comes out is what the test driver gives for each partition.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from penstock import (
    CalendarWindows,
    Consumed,
    Deduplicated,
    KTable,
    Materialized,
    Produced,
    Serde,
    Serdes,
    StreamsBuilder,
    Topology,
    WindowedSerdes,
    aggregations,
)
from penstock.testing import TopologyTestDriver
from tests.host.support import WITH_ALL_SESSIONS, InputRecord, Runner
from tests.host.test_operators import living

pytestmark = [WITH_ALL_SESSIONS, pytest.mark.one_broker]

TEXT, LONG, JSON = Serdes.string(), Serdes.long(), Serdes.json()
BERLIN = ZoneInfo("Europe/Berlin")
BEGIN = round(datetime(2024, 3, 30, tzinfo=BERLIN).timestamp()) * 1_000  # a day before one of 23 hours
HOUR = 3_600_000
PARTITIONS = 2
TABLES = ("days", "means", "last")
STREAMS = ("once", "threes", "dropped")


def topology(prefix: str) -> Topology:
    builder = StreamsBuilder()
    texts = Produced.with_(TEXT, TEXT)

    def to(table: KTable, name: str, key_serde: Serde, value_serde: Serde) -> None:
        table.to_stream().to(f"{prefix}-{name}", Produced.with_(key_serde, value_serde))

    readings = builder.stream(f"{prefix}-in", Consumed.with_(TEXT, TEXT))
    ids = Deduplicated(id_serde=TEXT, name="once")
    once = readings.deduplicate_by_key_value(lambda key, value: value[-1], timedelta(hours=3), ids)
    once.late_to(f"{prefix}-dropped").to(f"{prefix}-once", texts)
    by_key = readings.group_by_key()
    days = CalendarWindows.days(BERLIN, timedelta(hours=2))
    per_day = by_key.windowed_by(days)
    counts = per_day.count(Materialized.as_("days")).late_to(f"{prefix}-dropped")
    to(counts, "days", WindowedSerdes.calendar_windowed(TEXT, days), LONG)
    means = per_day.aggregate(aggregations.combined(mean=aggregations.mean(len), top=aggregations.top(2)))
    to(means, "means", WindowedSerdes.calendar_windowed(TEXT, days), JSON)
    threes = by_key.count_windows(3).reduce(lambda known, value: f"{known} {value}", Materialized.as_("threes"))
    threes.to(f"{prefix}-threes", texts)
    to(readings.to_table(materialized=Materialized.as_("last").with_ttl(timedelta(hours=6))), "last", TEXT, TEXT)
    return builder.build()


def rounds(seed: int) -> list[list[InputRecord]]:
    """Return two rounds of readings, 20 minutes apart, some of which come late, with a last one of each partition."""
    chosen = random.Random(seed)
    found = []
    for part in range(2):
        records = []
        for number in range(90 * part, 90 * (part + 1)):
            key = chosen.randrange(12)
            time = BEGIN + number * HOUR // 3 - chosen.choice((0, 0, 0, HOUR, 30 * HOUR))
            records.append(InputRecord(b"u%d" % key, b"reading %d" % number, time, key % PARTITIONS))
        found.append(records)
    ends = [InputRecord(b"end%d" % number, b"end", BEGIN + 64 * HOUR, number) for number in range(PARTITIONS)]
    found[-1] += ends  # after them, all that has expired is swept
    return found


def expected(prefix: str, records: list[InputRecord]) -> dict[str, list[tuple[bytes | None, bytes | None]]]:
    """Return what the test driver writes for each partition, by topic."""
    written: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
    for number in range(PARTITIONS):
        with TopologyTestDriver(topology(prefix), {"application.id": "expected"}) as driver:
            for each in records:
                if each.partition == number:
                    driver.pipe_bytes(f"{prefix}-in", each.key, each.value, each.timestamp, ())
            for produced in driver.read_all_bytes():
                written.setdefault(produced.topic, []).append((produced.key, produced.value))
    return written


def test_results_are_those_of_the_test_driver_over_several_runs(
    runner: Runner, application: str, unique_name: Callable[[str], str]
) -> None:
    prefix, all_rounds = unique_name("own"), rounds(seed=4)
    runner.create_topics({f"{prefix}-{name}": PARTITIONS for name in ("in", *TABLES, *STREAMS)})
    config = runner.config(application)
    for records in all_rounds:
        runner.write(f"{prefix}-in", records)
        runner.run(topology(prefix), config)
    written = expected(prefix, [record for records in all_rounds for record in records])
    for name in TABLES:
        records = [(record.key, record.value) for record in runner.read(f"{prefix}-{name}")]
        assert living(records) == living(written[f"{prefix}-{name}"]), name
    for name in STREAMS:
        found = Counter((record.key, record.value) for record in runner.read(f"{prefix}-{name}"))
        assert found == Counter(written[f"{prefix}-{name}"]), name
    assert 0 < len(living(written[f"{prefix}-last"])) < 12, "some words have expired"
