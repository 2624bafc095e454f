"""Ready aggregations on each host, over several partitions and restarts: tables end as on the test driver."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from penstock import (
    Consumed,
    Grouped,
    KTable,
    Materialized,
    Produced,
    Serde,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
    WindowedSerdes,
    aggregations,
)
from penstock.testing import TopologyTestDriver
from tests.host.support import WITH_PROCESSES, InputRecord, Runner
from tests.host.test_operators import living

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker]

TEXT, DOUBLE, JSON = Serdes.string(), Serdes.double(), Serdes.json()
GRACE_MS = 1_000_000
TABLES = ("keys", "windows", "sessions", "groups")
EVERYTHING = aggregations.combined(
    number=aggregations.count(),
    total=aggregations.sum(),
    mean=aggregations.mean(),
    least=aggregations.min(),
    most=aggregations.max(),
    last=aggregations.last(),
    all=aggregations.collect(limit=20),
    top=aggregations.top(3),
    distinct=aggregations.approx_distinct(),
    quantiles=aggregations.quantiles([0.5, 0.9]),
)
SUBTRACTABLE = aggregations.combined(total=aggregations.sum(), quantiles=aggregations.quantiles([0.5]))


def topology(prefix: str) -> Topology:
    builder = StreamsBuilder()

    def to(table: KTable, name: str, key_serde: Serde) -> None:
        table.to_stream().to(f"{prefix}-{name}", Produced.with_(key_serde, JSON))

    grouped = builder.stream(f"{prefix}-in", Consumed.with_(TEXT, DOUBLE)).group_by_key()
    to(grouped.aggregate(EVERYTHING, materialized=Materialized.as_("keys")), "keys", TEXT)
    minute = grouped.windowed_by(TimeWindows.of_size_and_grace(60_000, GRACE_MS))
    to(minute.aggregate(EVERYTHING), "windows", WindowedSerdes.time_windowed(TEXT, 60_000))
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(7_000, GRACE_MS))
    to(sessions.aggregate(EVERYTHING), "sessions", WindowedSerdes.session_windowed(TEXT))
    table = builder.table(f"{prefix}-table", Consumed.with_(TEXT, DOUBLE))
    groups = table.group_by(lambda key, value: (key[-1], value), Grouped.with_(TEXT, DOUBLE))
    to(groups.aggregate(SUBTRACTABLE), "groups", TEXT)
    return builder.build()


def rounds(seed: int) -> list[list[tuple[str, InputRecord]]]:
    """Return rows of topic and record, in rounds; the times overlap between rounds."""
    chosen = random.Random(seed)

    def row(number: int) -> tuple[str, InputRecord]:
        key = chosen.randrange(12)
        data = DOUBLE.serialize("", round(chosen.uniform(-50, 500), 2))
        time = 100_000 * number + chosen.randrange(150_000)
        return chosen.choice(["in", "in", "table"]), InputRecord(f"u{key}".encode(), data, time, key % 2)

    return [[row(number) for _ in range(120)] for number in range(1, 3)]


def expected(prefix: str, all_rows: list[list[tuple[str, InputRecord]]]) -> Mapping[str, list[tuple[bytes, bytes]]]:
    written: dict[str, list[tuple[bytes, bytes]]] = {}
    with TopologyTestDriver(topology(prefix), {"application.id": "expected"}) as driver:
        for topic, record in (row for rows in all_rows for row in rows):
            driver.pipe_bytes(f"{prefix}-{topic}", record.key, record.value, record.timestamp, ())
        for produced in driver.read_all_bytes():
            written.setdefault(produced.topic, []).append((produced.key, produced.value))
    return written


def test_tables_end_with_what_the_test_driver_ends_with(
    runner: Runner, application: str, unique_name: Callable[[str], str]
) -> None:
    prefix, all_rows = unique_name("aggregations"), rounds(seed=5)
    runner.create_topics({f"{prefix}-{name}": 2 for name in ("in", "table", *TABLES)})
    config = runner.config(application)
    for rows in all_rows:  # each in a run of its own
        for topic, record in rows:
            runner.write(f"{prefix}-{topic}", [record])
        runner.run_here(topology(prefix), config)
    written = expected(prefix, all_rows)
    for name in TABLES:
        records = [(record.key, record.value) for record in runner.read(f"{prefix}-{name}")]
        found = living(records)
        assert found
        assert found == living(list(written[f"{prefix}-{name}"])), name
