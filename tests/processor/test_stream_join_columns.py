"""Joins of two streams column by column: the same as record by record, whatever a batch has of both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    Consumed,
    Grouped,
    JoinWindows,
    KStream,
    Materialized,
    Processor,
    Produced,
    Record,
    Serdes,
    StreamJoined,
    StreamsBuilder,
)
from penstock.record import RecordBatch
from penstock.state.change_logging_store import ChangeLog
from penstock.state.changelog_format import ChangelogRecord
from tests.support.joins import LEFT, OUT, RIGHT, STRING, pair
from tests.task.topologies import task_of

ROWS = st.tuples(
    st.sampled_from([LEFT, RIGHT]),
    st.none() | st.sampled_from(["a", "b", "ab"]),
    st.none() | st.sampled_from("xyz"),
    st.integers(0, 40),
    st.booleans(),
)
WINDOWS = st.builds(JoinWindows, st.integers(0, 9), st.integers(0, 9), st.integers(0, 30))

Step = list[tuple[str, str | None, str | None, int, bool]]


def outcome(builder: StreamsBuilder, steps: list[Step], execution: str, **config: Any) -> list[Any]:
    """Return all that a task does with `steps`: the records of each are taken together, and committed."""
    topology = builder.build({"default.key.serde": STRING, "default.value.serde": STRING})
    stores = [name for spec in topology.build("test").subtopologies for name in spec.stores]
    log = ChangeLog({name: name for name in stores})
    cache_bytes = config.pop("cache_bytes", 0)
    task = task_of(topology, execution=execution, cache_bytes=cache_bytes, config=config, change_log=log)
    ends = {LEFT: 0, RIGHT: 0}
    found: list[Any] = []
    for number, step in enumerate(steps):
        for topic, key, value, timestamp, has_headers in step:
            headers = (("h", b"%d" % ends[topic]),) if has_headers else ()
            row = key and key.encode(), value and value.encode(), timestamp, ends[topic], headers
            task.add_records(topic, 0, RecordBatch.of([row]))
            ends[topic] += 1
        task.process()
        task.flush()
        sent = list(task.drain_in_order())
        commit = task.prepare_commit()
        logged: dict[str, list[ChangelogRecord]] = {}
        for topic, record in log.take():
            logged.setdefault(topic, []).append(record)
        found.append((sent, commit.changes, commit.checkpoint, commit.dropped_records, logged))
        task.committed(commit.changes, str(number).encode())
    return found


class Places(Processor[Any, Any, Any, Any]):
    """Shows the source record and the stream time of each record."""

    def process(self, record: Record[Any, Any]) -> None:
        shown = f"{record.value}@{self.context.record_metadata}/{self.context.current_stream_time_ms()}"
        self.context.forward(record.with_value(shown))


def forwarded(joined: KStream[Any, Any]) -> None:
    """Two sinks: the order of both outputs follows from the row of each result."""
    joined.to(OUT)
    joined.map_values(lambda value: f"{value}!").to(OUT)


def counted(joined: KStream[Any, Any]) -> None:
    """A store below the join, whose changes have the contexts of their records."""
    counts = joined.group_by_key(Grouped.with_(STRING, STRING)).count(Materialized.with_(STRING, Serdes.long()))
    counts.to_stream().process(Places).to(OUT)


def processed(joined: KStream[Any, Any]) -> None:
    """A user's processor below the join, which runs record by record."""
    joined.process(Places).to(OUT)


@given(
    steps=st.lists(st.lists(ROWS, max_size=30), max_size=4),
    windows=WINDOWS,
    below=st.sampled_from([forwarded, counted, processed]),
    config=st.fixed_dictionaries(
        {
            "cache_bytes": st.sampled_from([0, 10_000_000]),
            "dsl.store.suppliers.class": st.sampled_from(["rocksdb", "in_memory"]),
            "dsl.store.format": st.sampled_from(["default", "headers"]),
        }
    ),
)
@settings(deadline=None)
def test_columns_of_both_sides_give_what_records_give(
    steps: list[Step], windows: JoinWindows, below: Callable[[KStream[Any, Any]], None], config: dict[str, Any]
) -> None:
    def built() -> StreamsBuilder:
        builder = StreamsBuilder()
        right = builder.stream(RIGHT).map_values(lambda value: value and value.upper())
        below(builder.stream(LEFT).join(right, pair, windows, stream_joined=StreamJoined.as_("join")))
        return builder

    assert outcome(built(), steps, "auto", **config) == outcome(built(), steps, "record", **config)


def test_a_joiner_that_returns_its_changed_argument_gives_each_result_as_it_was() -> None:
    def added(left: list[int], right: list[int]) -> list[int]:
        left += right
        return left

    def sent(execution: str) -> list[Any]:
        builder, numbers = StreamsBuilder(), Serdes.json()
        left, right = (builder.stream(topic, Consumed.with_(STRING, numbers)) for topic in (LEFT, RIGHT))
        joined = left.join(
            right, added, JoinWindows(5, 5, 0), stream_joined=StreamJoined.with_(STRING, numbers, numbers)
        )
        joined.to(OUT, Produced.with_(STRING, numbers))
        rows: Step = [(RIGHT, "a", "[1]", 1, False), (RIGHT, "a", "[2]", 2, False), (LEFT, "a", "[0]", 3, False)]
        return [record.value for record in outcome(builder, [rows], execution)[0][0]]

    assert sent("auto") == sent("record") == [b"[0,1]", b"[0,1,2]"]
