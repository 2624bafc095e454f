"""Records of two partitions that take turns: however they are taken, what comes out is what comes out record by record,
in the order of the records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock import JoinWindows, Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.metrics.host_metrics import NODE_ID, PROCESS, operation_of
from penstock.plan.subtopology import TaskId
from penstock.state.memory import MemoryBase
from penstock.task.environment import TaskEnvironment
from penstock.task.stream_task import StreamTask
from tests.task.topologies import STRING, AnyTopic, batch_of, sent

Program = Callable[[StreamsBuilder], None]


def joined(one: str | None, other: str | None) -> str:
    return f"{one}/{other}"


def join(builder: StreamsBuilder) -> None:
    builder.table("a").join(builder.table("b"), joined).to_stream().to("out")


def outer_join(builder: StreamsBuilder) -> None:
    builder.table("a").outer_join(builder.table("b"), joined).to_stream().to("out")


def join_of_counts(builder: StreamsBuilder) -> None:
    counts = (builder.stream(topic).group_by_key().count() for topic in "ab")
    next(counts).left_join(next(counts), joined).to_stream().to("out")


def stored_join(builder: StreamsBuilder) -> None:
    table = builder.table("a").left_join(builder.table("b"), joined).filter(lambda key, value: "x" in value)
    table.to_stream().to("out")
    table.group_by(lambda key, value: (value, key)).count().to_stream().to("counts")


def join_of_one_with_itself(builder: StreamsBuilder) -> None:
    table = builder.table("a")
    table.join(table, joined).outer_join(builder.table("b"), joined).to_stream().to("out")


def join_where_one_side_has_no_cache(builder: StreamsBuilder) -> None:
    other = builder.table("b", materialized=Materialized.as_("b").with_caching_disabled())
    builder.table("a").join(other, joined, materialized=Materialized.as_("joined")).to_stream().to("out")


def stream_table_join(builder: StreamsBuilder) -> None:
    builder.stream("a").left_join(builder.table("b"), joined).to("out")


def stream_stream_join(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference_and_grace(5, 3)
    builder.stream("a").outer_join(builder.stream("b"), joined, windows).to("out")


def merge(builder: StreamsBuilder) -> None:
    builder.stream("a").merge(builder.stream("b")).to("out")


def one_store_of_two(builder: StreamsBuilder) -> None:
    streams = builder.stream("a").merge(builder.stream("b"))
    streams.group_by_key().reduce(lambda total, value: total + value).to_stream().to("out")


PROGRAMS: list[Program] = [
    join,
    outer_join,
    join_of_counts,
    stored_join,
    join_of_one_with_itself,
    join_where_one_side_has_no_cache,
    stream_table_join,
    stream_stream_join,
    merge,
    one_store_of_two,
]

ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["k", "l", None]), st.sampled_from(["x", "y", None])), max_size=40
)


def task_of(program: Program, execution: str, cache_bytes: int, level: str = "INFO") -> StreamTask:
    """Return a task of the first sub-topology."""
    builder = StreamsBuilder()
    program(builder)
    part = builder.build().build("test").subtopologies[0]
    settings = {
        "application.id": "test",
        "default.key.serde": STRING,
        "default.value.serde": STRING,
        "penstock.execution": execution,
        "statestore.cache.max.bytes": cache_bytes,
        "metrics.recording.level": level,
    }
    config = StreamsConfig(settings, environment={})
    task = StreamTask(
        part, TaskId(0, 0), config, MemoryBase(), AnyTopic(1), environment=TaskEnvironment(nanoseconds=lambda: 0)
    )
    task.initialize()
    return task


def outcome(program: Program, execution: str, cache_bytes: int, batches: list[Any]) -> tuple[Any, ...]:
    """Return what the first sub-topology sends, what its stores change, and its dropped records."""
    task = task_of(program, execution, cache_bytes)
    for rows in batches:
        for topic in "ab":
            own = [(key, value, time) for time, (name, key, value) in rows if name == topic]
            task.add_records(topic, 0, batch_of(*own))
        task.process()
    task.flush()
    return sent(task), task.changes(), task.dropped_records


@pytest.mark.parametrize("program", PROGRAMS)
@example(rows=[("a", "k", "x"), ("b", "k", "y"), ("a", "k", None)], cut=3, cache_bytes=1 << 20, stretch=1)
@given(rows=ROWS, cut=st.integers(0, 40), cache_bytes=st.sampled_from([0, 1 << 20]), stretch=st.sampled_from([1, 12]))
def test_taking_turns_changes_nothing(
    program: Program, rows: list[Any], cut: int, cache_bytes: int, stretch: int
) -> None:
    longer = [row for row in rows for _ in range(stretch)]  # few turns of many records, or many of few
    timed = list(enumerate(longer))
    batches = [timed[:cut], timed[cut:]]
    expected = outcome(program, "record", cache_bytes, batches)
    assert outcome(program, "auto", cache_bytes, batches) == expected


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_each_source_counts_its_own_records(execution: str) -> None:
    task = task_of(merge, execution, 0, "DEBUG")
    task.add_records("a", 0, batch_of(("k", "x", 0), ("k", "x", 2), ("k", "x", 4)))
    task.add_records("b", 0, batch_of(("k", "y", 1), ("k", "y", 3)))
    assert task.process() == 5
    measured, _ = task.take_measured()
    names = [f"KSTREAM-{name}" for name in ("SOURCE-0000000000", "SOURCE-0000000001", "MERGE-0000000002")]
    assert [measured[operation_of(PROCESS, NODE_ID, name)].number for name in names] == [3, 2, 5]
    assert not any(name.startswith(PROCESS) for name in task.take_measured()[0])
