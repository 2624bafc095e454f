"""Each family of operators over several partitions and tasks, with restarts on the way, on each host: what it ends with
is what the test driver ends with; in both executions where the order could differ.

Tables are compared by their last entries, streams and joins without regard to the order of their records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from penstock import (
    CogroupedKStream,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Produced,
    Record,
    Serde,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    Topology,
    WindowedSerdes,
)
from penstock.plan.partitioning import partition_for
from penstock.processor.api import Processor, ProcessorContext
from penstock.testing import TopologyTestDriver
from tests.host.support import InputRecord, Program, Runner
from tests.host.test_operators import GRACE_MS, LONG, PAIRS, STRING, TEXT, Row, living, rounds, windowed

TEXT_OUT = Produced.with_(key_serde=STRING, value_serde=STRING)
INPUTS = ("clicks", "views", "users", "ages")
GLOBAL = "accounts"
SIZE_MS = 60_000
PARTITIONS = 3

Build = Callable[[StreamsBuilder, str], None]
"""Adds a family to a builder: reads the topics `PREFIX-NAME` of INPUTS, writes `PREFIX-table` and `PREFIX-stream`."""


def stream(builder: StreamsBuilder, prefix: str, name: str = "clicks") -> KStream:
    return builder.stream(f"{prefix}-{name}", TEXT)


def table(builder: StreamsBuilder, prefix: str, name: str = "users") -> KTable:
    return builder.table(f"{prefix}-{name}", TEXT)


def to_table(result: KTable, prefix: str, key_serde: Serde = STRING, value_serde: Serde = STRING) -> None:
    result.to_stream().to(f"{prefix}-table", Produced.with_(key_serde=key_serde, value_serde=value_serde))


def stateless(builder: StreamsBuilder, prefix: str) -> None:
    clicks, views = stream(builder, prefix), stream(builder, prefix, "views")
    longer = (
        clicks.merge(views).filter(lambda _, value: not value.endswith("3")).flat_map_values(lambda v: [v, v + "!"])
    )
    longer.to(f"{prefix}-stream", TEXT_OUT)


def aggregate(builder: StreamsBuilder, prefix: str) -> None:
    by_end = stream(builder, prefix).group_by(lambda _, value: value[-1], PAIRS)
    to_table(by_end.count(Materialized.as_("counts")), prefix, value_serde=LONG)


def time_windows(builder: StreamsBuilder, prefix: str) -> None:
    hops = TimeWindows.of_size_and_grace(SIZE_MS, GRACE_MS).advance_by(SIZE_MS // 3)
    to_table(stream(builder, prefix).group_by_key(PAIRS).windowed_by(hops).count(), prefix, windowed(SIZE_MS), LONG)


def sliding_windows(builder: StreamsBuilder, prefix: str) -> None:
    slides = SlidingWindows.of_time_difference_and_grace(5_000, GRACE_MS)
    to_table(stream(builder, prefix).group_by_key(PAIRS).windowed_by(slides).count(), prefix, windowed(5_000), LONG)


def session_windows(builder: StreamsBuilder, prefix: str) -> None:
    sessions = SessionWindows.of_inactivity_gap_and_grace(7_000, GRACE_MS)
    counted = stream(builder, prefix).group_by_key(PAIRS).windowed_by(sessions).count()
    to_table(counted, prefix, WindowedSerdes.session_windowed(STRING), LONG)


def cogroup(builder: StreamsBuilder, prefix: str) -> None:
    clicks, views = (stream(builder, prefix, name).group_by_key(PAIRS) for name in ("clicks", "views"))
    both: CogroupedKStream = clicks.cogroup(lambda _key, _value, total: total + 1)
    counted = both.cogroup(views, lambda _key, _value, total: total + 1000)
    stored = Materialized.as_("both").with_key_serde(STRING).with_value_serde(LONG)
    to_table(counted.aggregate(lambda: 0, stored), prefix, value_serde=LONG)


def stream_stream_join(builder: StreamsBuilder, prefix: str) -> None:
    near = JoinWindows.of_time_difference_and_grace(3_000, GRACE_MS)
    sides = StreamJoined.with_(key_serde=STRING, value_serde=STRING, other_value_serde=STRING)
    clicks, views = stream(builder, prefix), stream(builder, prefix, "views")
    clicks.join(views, lambda a, b: f"{a}+{b}", near, stream_joined=sides).to(f"{prefix}-stream", TEXT_OUT)


def stream_table_join(builder: StreamsBuilder, prefix: str) -> None:
    joined = Joined.with_(key_serde=STRING, value_serde=STRING, other_value_serde=STRING)
    enriched = stream(builder, prefix).left_join(table(builder, prefix), lambda a, b: f"{a} of {b}", joined=joined)
    enriched.to(f"{prefix}-stream", TEXT_OUT)


def stream_global_join(builder: StreamsBuilder, prefix: str) -> None:
    accounts = builder.global_table(f"{prefix}-{GLOBAL}", TEXT)
    joined = stream(builder, prefix).join(accounts, lambda a, b: f"{a} of {b}", key_selector=lambda key, _: key)
    joined.to(f"{prefix}-stream", TEXT_OUT)


def table_table_join(builder: StreamsBuilder, prefix: str) -> None:
    to_table(table(builder, prefix).outer_join(table(builder, prefix, "ages"), lambda a, b: f"{a}, {b}"), prefix)


def table_aggregate(builder: StreamsBuilder, prefix: str) -> None:
    by_age = table(builder, prefix, "ages").group_by(lambda user, age: (age, user), PAIRS)
    to_table(by_age.count(Materialized.as_("by-age")), prefix, value_serde=LONG)


def foreign_key_join(builder: StreamsBuilder, prefix: str) -> None:
    users, ages = table(builder, prefix), table(builder, prefix, "ages")
    near = users.left_join(
        ages, lambda a, b: f"{a} near {b}", foreign_key_extractor=lambda name: f"u{int(name[4:]) % 20}"
    )
    to_table(near, prefix)


class _LastOfKey(Processor):
    """Forwards a value with the previous one of the same key, from its own store."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = context.get_state_store("last")

    def process(self, record: Record[str, str]) -> None:
        before = self._store.get(record.key)
        self._store.put(record.key, record.value)
        self.context.forward(record.with_value(f"{record.value} after {before}"))


def processor(builder: StreamsBuilder, prefix: str) -> None:
    builder.add_state_store(Stores.key_value_store_builder(Stores.persistent_key_value_store("last"), STRING, STRING))
    stream(builder, prefix).process(_LastOfKey, "last").to(f"{prefix}-stream", TEXT_OUT)


FAMILIES: Mapping[str, Build] = {
    build.__name__: build
    for build in (
        stateless,
        aggregate,
        time_windows,
        sliding_windows,
        session_windows,
        cogroup,
        stream_stream_join,
        stream_table_join,
        stream_global_join,
        table_table_join,
        table_aggregate,
        foreign_key_join,
        processor,
    )
}


def topology(family: str, prefix: str) -> Topology:
    builder = StreamsBuilder()
    FAMILIES[family](builder, prefix)
    return builder.build()


def rows_of(family: str, prefix: str) -> list[list[Row]]:
    """Return the rounds of `rounds` that the family reads; the users once more for its global table."""
    all_rounds = rounds(prefix, seed=11)
    copied = [(f"{prefix}-{GLOBAL}", record) for topic, record in all_rounds[0] if topic == f"{prefix}-users"]
    read = {topic for spec in topology(family, prefix).build("x").subtopologies for topic in spec.source_topics}
    read.add(f"{prefix}-{GLOBAL}" if family == "stream_global_join" else "")
    kept = ([row for row in rows if row[0] in read] for rows in ([*copied, *all_rounds[0]], *all_rounds[1:]))
    return [[(topic, record._replace(partition=_partition(record))) for topic, record in rows] for rows in kept]


def _partition(record: InputRecord) -> int:
    assert record.key is not None
    return partition_for(record.key, PARTITIONS)


def parameters() -> list[object]:
    """Return each family on each host, with the executions that may differ in the order of what they write."""
    ordered = (stateless, cogroup, stream_stream_join, stream_table_join, foreign_key_join, processor)
    return [
        pytest.param(host, name, execution, marks=pytest.mark.family(name, f"{host}, partitions"))
        for host in ("spark", "threads")
        for name, build in FAMILIES.items()
        for execution in (("auto", "record") if build in ordered else ("auto",))
    ]


@pytest.mark.slow
@pytest.mark.one_broker
@pytest.mark.parametrize(("runner", "family", "execution"), parameters(), indirect=["runner"])
def test_family_ends_with_what_the_test_driver_ends_with(
    family: str, execution: str, runner: Runner, start: Callable[..., Program], unique_name: Callable[[str], str]
) -> None:
    prefix = unique_name(family)
    runner.create_topics({f"{prefix}-{name}": PARTITIONS for name in (*INPUTS, GLOBAL, "table", "stream")})
    config = runner.config(prefix, {"penstock.execution": execution})
    all_rows = rows_of(family, prefix)
    program = start(topology(family, prefix), config)
    for rows in all_rows:
        for topic in {topic for topic, _ in rows}:
            runner.write(topic, [record for other, record in rows if other == topic])
        program.run_to_end()
        program.restart()
    written: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
    with TopologyTestDriver(topology(family, prefix), {"application.id": "expected"}) as driver:
        for topic, record in (row for rows in all_rows for row in rows):
            driver.pipe_bytes(topic, record.key, record.value, record.timestamp, ())
        for produced in driver.read_all_bytes():
            written.setdefault(produced.topic, []).append((produced.key, produced.value))
    found = {
        name: [(record.key, record.value) for record in runner.read(f"{prefix}-{name}")] for name in ("table", "stream")
    }
    assert found["table"] or found["stream"]
    assert living(found["table"]) == living(written.get(f"{prefix}-table", []))
    assert Counter(found["stream"]) == Counter(written.get(f"{prefix}-stream", []))
