"""Dropped records in a topic: those of each operator, with their origin, column by column and record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    CalendarWindows,
    Consumed,
    EmitStrategy,
    Grouped,
    JoinWindows,
    KStream,
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    aggregations,
)
from penstock.metrics.drop_reasons import DropReason
from penstock.record import RecordMetadata
from penstock.task.dropped_records import dropped_headers
from penstock.task.stream_task import StreamTask
from penstock.windows import TimeWindow
from tests.task.topologies import LONG, STRING, batch_of, task_of

Program = Callable[[KStream, StreamsBuilder], object]
Rows = Sequence[tuple[str | None, str | None, int]]
GOOD: Rows = [(f"k{number}", "v", 100) for number in range(30)]
"""Enough that the operators above the first sink run column by column."""
NO_KEY: Rows = [(None, "v", 100)]
NO_VALUE: Rows = [("k", None, 100)]
LATE: Rows = [("k", "late", 5)]

EXECUTIONS = pytest.mark.parametrize("execution", ["auto", "record"])
TUMBLING = TimeWindows.of_size_with_no_grace(10)


def task_over(program: Program, execution: str, cache_bytes: int = 0) -> StreamTask:
    builder = StreamsBuilder()
    program(builder.stream("in", Consumed.with_(STRING, STRING)), builder)
    return task_of(builder.build(), execution=execution, cache_bytes=cache_bytes, first_of_several=True)


def run(task: StreamTask, rows: Rows) -> tuple[list[tuple[str, ...]], int]:
    """Return value, reason and window of each record in "dropped", and the number of dropped records."""
    task.add_records("in", 0, batch_of(*rows))
    task.process()
    found = []
    for each in list(task.drain_in_order()):
        if each.topic == "dropped":
            said = {name: value for name, value in each.headers if value is not None}
            names = ("reason", "window.start", "window.end")
            parts = [said.get(f"penstock.dropped.{name}", b"").decode() for name in names]
            found.append(((each.value or b"").decode(), *parts))
    return found, sum(task.prepare_commit().dropped_records.values())


def joined(stream: KStream, builder: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference_with_no_grace(10)
    stream.join(builder.stream("other"), lambda one, other: f"{one}{other}", windows).late_to("dropped")


def versioned(stream: KStream, builder: StreamsBuilder) -> None:
    store = Stores.persistent_versioned_key_value_store("versions", 50)
    stream.to_table(materialized=Materialized.as_(store)).late_to("dropped")


def versioned_counts(stream: KStream, builder: StreamsBuilder) -> None:
    store = Stores.persistent_versioned_key_value_store("versions", 50)
    stream.group_by_key().count(Materialized.as_(store)).late_to("dropped")


def cogrouped(stream: KStream, builder: StreamsBuilder) -> None:
    group = stream.group_by_key().cogroup(lambda key, value, total: total + 1)
    group = group.cogroup(builder.stream("other").group_by_key(), lambda key, value, total: total)
    group.windowed_by(TUMBLING).aggregate(lambda: 0, Materialized.with_(STRING, LONG)).late_to("dropped")


def final_counts(stream: KStream, builder: StreamsBuilder) -> None:
    windows = stream.group_by_key().windowed_by(TUMBLING).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    windows.count().late_to("dropped")


LATE_IN_0_TO_10 = ("late", "late", "0", "10")
KEYLESS = ("v", "null-key", "", "")
VALUELESS = ("", "null-value", "", "")

CASES: Mapping[str, tuple[Program, Rows, Sequence[tuple[str, ...]]]] = {
    "count": (
        lambda s, b: s.group_by_key().count().late_to("dropped"),
        [*NO_KEY, *NO_VALUE],
        [KEYLESS, VALUELESS],
    ),
    "reduce": (
        lambda s, b: s.group_by_key().reduce(lambda one, other: other).late_to("dropped"),
        [*NO_VALUE, *NO_KEY],
        [VALUELESS, KEYLESS],
    ),
    "ready aggregation": (
        lambda s, b: s.group_by_key().aggregate(aggregations.mean(of=len)).late_to("dropped"),
        NO_KEY,
        [KEYLESS],
    ),
    "tumbling windows": (
        lambda s, b: s.group_by_key().windowed_by(TUMBLING).count().late_to("dropped"),
        [*NO_KEY, *LATE, *GOOD, *LATE],
        [KEYLESS, LATE_IN_0_TO_10, LATE_IN_0_TO_10],
    ),
    "ready aggregation in windows": (
        lambda s, b: s.group_by_key().windowed_by(TUMBLING).aggregate(aggregations.mean(of=len)).late_to("dropped"),
        LATE,
        [LATE_IN_0_TO_10],
    ),
    "hopping windows": (
        lambda s, b: s.group_by_key().windowed_by(TUMBLING.advance_by(5)).count().late_to("dropped"),
        LATE,
        [LATE_IN_0_TO_10, ("late", "late", "5", "15")],
    ),
    "final results": (final_counts, LATE, [LATE_IN_0_TO_10]),
    "calendar windows": (
        lambda s, b: (s.group_by_key().windowed_by(CalendarWindows.days("UTC", 0)).count().late_to("dropped"),),
        [("k", "v", 86_400_000), *LATE],
        [("late", "late", "0", "86400000")],
    ),
    "sessions": (
        lambda s, b: (
            s.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).count().late_to("dropped")
        ),
        [*NO_KEY, *LATE],
        [KEYLESS, ("late", "late", "5", "5")],
    ),
    "sliding windows": (
        lambda s, b: (
            s.group_by_key().windowed_by(SlidingWindows.of_time_difference_with_no_grace(5)).count().late_to("dropped")
        ),
        [*NO_KEY, *NO_VALUE, *LATE],
        [KEYLESS, VALUELESS, ("late", "late", "5", "10")],
    ),
    "cogroup": (cogrouped, [*NO_KEY, *LATE], [KEYLESS, LATE_IN_0_TO_10]),
    "join of streams": (
        joined,
        [("k", "newer", 90_000_000), *NO_KEY, *NO_VALUE, *LATE],
        [KEYLESS, VALUELESS, ("late", "late", "", "")],
    ),
    "join with a table": (
        lambda s, b: s.join(b.table("other"), lambda one, other: one).late_to("dropped"),
        [*NO_KEY, *NO_VALUE],
        [KEYLESS, VALUELESS],
    ),
    "deduplication": (
        lambda s, b: s.deduplicate_by_key(5).late_to("dropped"),
        [("k3", "again", 100)],
        [("again", "duplicate", "", "")],
    ),
    "table of a stream": (lambda s, b: s.to_table().late_to("dropped"), NO_KEY, [KEYLESS]),
    "versioned table": (versioned, [("k", "late", 5), ("k", "late", 99)], [("late", "late", "", "")]),
    "versioned counts": (versioned_counts, [("k3", "v", 100), *NO_KEY], [KEYLESS]),
}


@EXECUTIONS
@pytest.mark.parametrize("case", CASES)
def test_the_topic_has_one_record_for_each_dropped_one(case: str, execution: str) -> None:
    program, rows, expected = CASES[case]
    found, counted = run(task_over(program, execution), [*GOOD, *rows])
    assert found == list(expected)
    assert counted == len(expected)


@EXECUTIONS
def test_a_late_version_and_a_keyless_record_of_a_table_of_a_topic_are_written(execution: str) -> None:
    builder = StreamsBuilder()
    store = Stores.persistent_versioned_key_value_store("versions", 50)
    builder.table("in", Consumed.with_(STRING, STRING), Materialized.as_(store)).late_to("dropped")
    task = task_of(builder.build(), execution=execution)
    found, counted = run(task, [*GOOD, *NO_KEY, *LATE])
    assert found == [KEYLESS, ("late", "late", "", "")]
    assert counted == 2


@EXECUTIONS
def test_records_that_a_repartition_drops_for_the_operator_are_written_from_its_source(execution: str) -> None:
    def program(stream: KStream, builder: StreamsBuilder) -> None:
        keyed = stream.select_key(lambda key, value: key)
        keyed.group_by_key().count().late_to("dropped")

    found, counted = run(task_over(program, execution), [*GOOD, *NO_KEY, *NO_VALUE])
    assert found == [KEYLESS]
    assert counted == 0  # as without late_to


@EXECUTIONS
def test_a_repartition_of_the_user_writes_its_dropped_records(execution: str) -> None:
    found, _ = run(task_over(lambda s, b: s.repartition().late_to("dropped"), execution), [*GOOD, *NO_KEY])
    assert found == [KEYLESS]


@EXECUTIONS
def test_a_dropped_record_has_the_bytes_and_headers_of_its_source_record(execution: str) -> None:
    def program(stream: KStream, builder: StreamsBuilder) -> None:
        stream.map_values(lambda value: len(value)).group_by_key().windowed_by(TUMBLING).count().late_to("dropped")

    task = task_over(program, execution)
    task.add_records("in", 0, batch_of(*GOOD, *LATE, first_offset=40, headers=(("trace", b"1"),)))
    task.process()
    (sent,) = (each for each in task.drain_in_order() if each.topic == "dropped")
    assert (sent.key, sent.value, sent.timestamp) == (b"k", b"late", 5)
    node = "KSTREAM-AGGREGATE-0000000003"
    origin = RecordMetadata("in", 0, 70)
    dropped = dropped_headers(node, DropReason.LATE, TimeWindow(0, 10), 100, origin)
    assert sent.headers == (("trace", b"1"), *dropped)
    assert dict(dropped) == {
        "penstock.dropped.reason": b"late",
        "penstock.dropped.window.start": b"0",
        "penstock.dropped.window.end": b"10",
        "penstock.dropped.stream.time": b"100",
        "penstock.dropped.node": node.encode(),
        "penstock.dropped.topic": b"in",
        "penstock.dropped.partition": b"0",
        "penstock.dropped.offset": b"70",
    }


class Reminder(Processor):
    """Forwards a record of its own with each second of stream time."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(1_000, PunctuationType.STREAM_TIME, self._remind)

    def process(self, record: Record) -> None:
        pass

    def _remind(self, time: int) -> None:
        self.context.forward(Record(None, 7, time))


@EXECUTIONS
def test_a_record_without_a_source_record_has_the_key_and_value_of_the_operator_and_no_origin(execution: str) -> None:
    def program(stream: KStream, builder: StreamsBuilder) -> None:
        reminders = stream.process(Reminder).group_by_key(Grouped.with_(STRING, LONG))
        reminders.windowed_by(TUMBLING).count().late_to("dropped")

    task = task_over(program, execution)
    task.add_records("in", 0, batch_of(("k", "v", 5_000)))
    task.process()
    (sent,) = task.drain_in_order()
    assert (sent.key, sent.value, sent.timestamp) == (None, (7).to_bytes(8, "big"), 5_000)
    assert sent.headers[-3:] == (
        ("penstock.dropped.topic", None),
        ("penstock.dropped.partition", b"-1"),
        ("penstock.dropped.offset", b"-1"),
    )


rows = st.lists(
    st.tuples(st.sampled_from(["k", "l", None]), st.sampled_from(["a", "b", None]), st.integers(0, 60)), max_size=60
)


@given(rows, st.integers(0, 20), st.booleans(), st.integers(1, 60))
def test_counted_and_dropped_records_are_all_records(
    records: list[tuple[str | None, str | None, int]], grace: int, caching: bool, size: int
) -> None:
    windows = TimeWindows.of_size_and_grace(timedelta(milliseconds=10), timedelta(milliseconds=grace))

    def program(stream: KStream, builder: StreamsBuilder) -> None:
        table = stream.group_by_key().windowed_by(windows).count().late_to("dropped")
        table.to_stream().map(lambda key, count: (f"{key.key}@{key.window.start}", str(count))).to("counts")

    outcomes = []
    for execution in ("auto", "record"):
        task = task_over(program, execution, 10_000_000 if caching else 0)
        sent = []
        for start in range(0, len(records), size):
            task.add_records("in", 0, batch_of(*records[start : start + size], first_offset=start))
            task.process()
            sent += list(task.drain_in_order())
        task.flush()
        sent += list(task.drain_in_order())
        counts = {each.key: int(each.value or b"0") for each in sent if each.topic == "counts"}
        late = [each for each in sent if each.topic == "dropped"]
        assert sum(counts.values()) + len(late) == len(records)
        keys = Counter(each.key for each in late)
        assert keys[None] == sum(key is None for key, _, _ in records)
        outcomes.append((counts, late))
    assert outcomes[0] == outcomes[1]


class Echo(Processor):
    """A processor of the user's, which works record by record."""

    def process(self, record: Record) -> None:
        self.context.forward(record)


def hopping(stream: KStream, builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size_with_no_grace(10).advance_by(5)
    counts = stream.map_values(lambda value: value).group_by_key().windowed_by(windows).count().late_to("out")
    counts.to_stream().map(lambda key, count: (key.key, str(count))).process(Echo).to("out")


def several(stream: KStream, builder: StreamsBuilder) -> None:
    stream.group_by_key().count().late_to("out").to_stream().map_values(str).to("out")
    stream.group_by_key().windowed_by(TUMBLING).reduce(lambda one, other: other).late_to("out").late_to("other")
    stream.to_table().late_to("out").to_stream().to("out")
    stream.select_key(lambda key, value: value).repartition().late_to("out")
    stream.deduplicate_by_key(5).late_to("out").to("out")


@pytest.mark.parametrize("program", [hopping, several])
@given(rows, st.booleans())
def test_dropped_records_and_results_are_in_the_same_order_in_both_executions(
    program: Program, records: list[tuple[str | None, str | None, int]], caching: bool
) -> None:
    outcomes = []
    for execution in ("auto", "record"):
        task = task_over(program, execution, 10_000_000 if caching else 0)
        task.add_records("in", 0, batch_of(*records, headers=(("trace", b"1"),)))
        task.process()
        sent = list(task.drain_in_order())
        task.flush()
        outcomes.append((sent, list(task.drain_in_order()), task.prepare_commit().dropped_records))
    assert outcomes[0] == outcomes[1]


@EXECUTIONS
def test_a_record_from_a_cache_has_no_origin_if_several_lanes_have_its_offset(execution: str) -> None:
    def program(stream: KStream, builder: StreamsBuilder) -> None:
        texts = stream.group_by_key().count().to_stream().map_values(str)
        texts.group_by_key(Grouped.with_(STRING, STRING)).windowed_by(TUMBLING).count().late_to("dropped")

    task = task_over(program, execution, cache_bytes=10_000_000)
    task.add_records("in", 0, batch_of(("z", "first", 100), ("a", "first", 5), ("c", "first", 5)), lane=0)
    task.add_records("in", 0, batch_of(("y", "second", 100), ("b", "second", 5)), lane=1)
    task.process()
    task.flush()
    found = [(each.key, each.value, dict(each.headers)["penstock.dropped.topic"]) for each in task.drain_in_order()]
    assert found == [(b"a", b"1", None), (b"c", b"first", b"in"), (b"b", b"1", None)]
