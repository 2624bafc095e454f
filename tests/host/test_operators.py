"""Tables, windows and joins on Spark, over several partitions, epochs and restarts: what they end with is what the test
driver ends with.

Input is written in rounds, each in a new run of the application, so that clocks and stores outlive tasks. The
tables of both hosts are compared, and the results of joins without regard to their order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

from penstock import (
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Produced,
    Serde,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    Topology,
    WindowedSerdes,
)
from penstock.testing import TopologyTestDriver
from tests.host.support import WITH_ALL_SESSIONS_AT_LENGTH, InputRecord, Runner

pytestmark = WITH_ALL_SESSIONS_AT_LENGTH

STRING, LONG = Serdes.string(), Serdes.long()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
PAIRS = Grouped.with_(key_serde=STRING, value_serde=STRING)
GRACE_MS = 1_000_000

Row = tuple[str, InputRecord]


def windowed_counts(stream: KStream, to: Callable[[KTable, str, Serde], None]) -> None:
    grouped = stream.group_by_key(PAIRS)
    minute = TimeWindows.of_size_and_grace(60_000, GRACE_MS)
    to(grouped.windowed_by(minute).count(Materialized.as_("tumbling")), "tumbling", windowed(60_000))
    hops = TimeWindows.of_size_and_grace(60_000, GRACE_MS).advance_by(20_000)
    to(grouped.windowed_by(hops).count(Materialized.as_("hopping")), "hopping", windowed(60_000))
    slides = SlidingWindows.of_time_difference_and_grace(5_000, GRACE_MS)
    to(grouped.windowed_by(slides).count(Materialized.as_("sliding")), "sliding", windowed(5_000))
    sessions = SessionWindows.of_inactivity_gap_and_grace(7_000, GRACE_MS)
    counted = grouped.windowed_by(sessions).count(Materialized.as_("sessions"))
    to(counted, "sessions", WindowedSerdes.session_windowed(STRING))


def windowed(size_ms: int) -> Serde:
    return WindowedSerdes.time_windowed(STRING, size_ms)


def topology(prefix: str) -> Topology:
    """Windows and joins of a stream of clicks, a stream of views and a table of users, all by user."""
    builder = StreamsBuilder()

    def to(table: KTable, name: str, key_serde: Serde) -> None:
        table.to_stream().to(f"{prefix}-{name}", Produced.with_(key_serde=key_serde, value_serde=LONG))

    clicks, views = builder.stream(f"{prefix}-clicks", TEXT), builder.stream(f"{prefix}-views", TEXT)
    users, ages = builder.table(f"{prefix}-users", TEXT), builder.table(f"{prefix}-ages", TEXT)
    windowed_counts(clicks, to)
    text = Produced.with_(key_serde=STRING, value_serde=STRING)
    near = JoinWindows.of_time_difference_and_grace(3_000, GRACE_MS)
    joined = StreamJoined.with_(key_serde=STRING, value_serde=STRING, other_value_serde=STRING)
    clicks.join(views, lambda click, view: f"{click}+{view}", near, stream_joined=joined).to(f"{prefix}-pairs", text)
    enriched = Joined.with_(key_serde=STRING, value_serde=STRING, other_value_serde=STRING)
    clicks.left_join(users, lambda click, user: f"{click} of {user}", joined=enriched).to(f"{prefix}-enriched", text)
    known = users.join(ages, lambda user, age: f"{user}, {age}")
    known.to_stream().to(f"{prefix}-known", text)
    by_age = ages.group_by(lambda user, age: (age, user), PAIRS).count(Materialized.as_("by-age"))
    to(by_age, "by-age", STRING)
    return builder.build()


TABLES = ("tumbling", "hopping", "sliding", "sessions", "known", "by-age")
JOINS = ("pairs", "enriched")


def rounds(prefix: str, seed: int) -> list[list[Row]]:
    """Return the tables' rows first, then clicks and views, in rounds; times overlap between rounds."""
    chosen = random.Random(seed)
    keys = [f"u{number}" for number in range(20)]

    def row(topic: str, value: str, time: int) -> Row:
        key = chosen.choice(keys)
        return f"{prefix}-{topic}", InputRecord(key.encode(), value.encode(), time, _partition(key))

    tables = [row("users", f"name{n}", 1_000 + n) for n in range(60)]
    tables += [row("ages", str(20 + chosen.randrange(5)), 1_000 + n) for n in range(60)]
    streams = [
        [
            row(chosen.choice(("clicks", "views")), f"{number}.{n}", 100_000 * (number + 1) + chosen.randrange(150_000))
            for n in range(150)
        ]
        for number in range(2)
    ]
    return [tables, *streams]


def _partition(key: str) -> int:
    return int(key[1:]) % 2


def expected(prefix: str, all_rows: list[list[Row]]) -> Mapping[str, list[tuple[bytes | None, bytes | None]]]:
    """Return what the test driver writes, by topic."""
    written: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
    with TopologyTestDriver(topology(prefix), {"application.id": "expected"}) as driver:
        for topic, record in (row for rows in all_rows for row in rows):
            driver.pipe_bytes(topic, record.key, record.value, record.timestamp, ())
        for produced in driver.read_all_bytes():
            written.setdefault(produced.topic, []).append((produced.key, produced.value))
    return written


def test_tables_and_joins_end_with_what_the_test_driver_ends_with(
    runner: Runner, application: str, unique_name: Callable[[str], str]
) -> None:
    prefix = unique_name("all")
    topics = ("clicks", "views", "users", "ages", *TABLES, *JOINS)
    runner.create_topics({f"{prefix}-{name}": 2 for name in topics})
    config, all_rows = runner.config(application), rounds(prefix, seed=3)
    for rows in all_rows:
        for topic, record in rows:
            runner.write(topic, [record])
        runner.run(topology(prefix), config)
    written = expected(prefix, all_rows)
    for name in TABLES:
        records = [(record.key, record.value) for record in runner.read(f"{prefix}-{name}")]
        assert living(records) == living(written[f"{prefix}-{name}"]), name
    for name in JOINS:
        found = Counter((record.key, record.value) for record in runner.read(f"{prefix}-{name}"))
        assert found == Counter(written[f"{prefix}-{name}"]), name


def living(records: list[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    """Return the entries that a table has after its updates."""
    return {key: value for key, value in dict(records).items() if value is not None}
