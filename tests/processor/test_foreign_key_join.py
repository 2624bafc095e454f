"""The join of two tables by foreign key."""

from __future__ import annotations

import pickle
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import KTable, Materialized, Stores, StreamsBuilder, TableJoined
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.plan.subtopology import TaskId
from penstock.processor.foreign_key_join import SingletonPartitioner, partition_of_response
from penstock.record import Headers, RecordBatch
from penstock.serdes.subscription import (
    SubscriptionResponseWrapper,
    SubscriptionResponseWrapperSerde,
    SubscriptionWrapper,
    SubscriptionWrapperSerde,
    hash_of,
)
from penstock.state.memory import MemoryBase
from penstock.task.stream_task import StreamTask, TaskCommit
from penstock.testing import TopologyTestDriver
from tests.support.joins import LEFT, OUT, RIGHT, STRING, Row, final, last, pair, run, updates
from tests.support.tables import UNCACHED
from tests.task.topologies import AnyTopic


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


class JoiningTasks:
    """The tasks of a foreign-key join with one partition, which pass their records to each other."""

    def __init__(self, execution: str, type: str, cache_bytes: int, versioned: bool) -> None:
        settings = {
            "application.id": "app",
            "default.key.serde": STRING,
            "default.value.serde": STRING,
            "penstock.execution": execution,
            "statestore.cache.max.bytes": cache_bytes,
        }
        builder = StreamsBuilder()
        versions = [Materialized.as_(Stores.persistent_versioned_key_value_store("v", 1000))] if versioned else []
        left, right = builder.table(LEFT, *versions), builder.table(RIGHT)
        joined: KTable = getattr(left, type)(right, pair, foreign_key_extractor=foreign_key)
        results = joined.to_stream()
        results.to(OUT)  # two children: the order of both outputs follows from the origin of each row
        results.map_values(lambda value: f"{value}!").to(OUT)
        config = StreamsConfig(settings, environment={})
        self.output: list[Any] = []
        self._tasks: dict[StreamTask, Any] = {}
        for spec in builder.build(settings).build("app").subtopologies:
            task = StreamTask(spec, TaskId(spec.id, 0), config, MemoryBase(), AnyTopic(1))
            task.initialize()
            self._tasks[task] = spec
        self._ends: dict[str, int] = {}

    def process(self, topic: str, rows: list[Any], flushes: bool) -> None:
        """Process `rows` and all that follows from them, each step as one batch of a topic."""
        waiting = deque([(topic, rows)])
        while waiting:
            topic, rows = waiting.popleft()
            task = next(task for task, spec in self._tasks.items() if topic in spec.source_topics)
            first = self._ends.get(topic, 0)
            self._ends[topic] = first + len(rows)
            task.add_records(topic, 0, RecordBatch.of([(*row[:3], first + at, row[3]) for at, row in enumerate(rows)]))
            task.process()
            if flushes:
                task.flush()
            sent: dict[str, list[Any]] = {}
            for each in task.drain_in_order():
                sent.setdefault(each.topic, []).append((each.key, each.value, each.timestamp, each.headers))
            self.output += sent.pop(OUT, [])
            waiting.extend(sent.items())

    def commits(self) -> list[TaskCommit]:
        return [task.prepare_commit() for task in self._tasks]


def turns_of(topic: str, keys: str) -> st.SearchStrategy[Any]:
    values = st.none() | st.tuples(st.sampled_from("xyz"), st.sampled_from("pq")).map("".join)
    rows = st.lists(st.tuples(st.none() | st.sampled_from(keys), values, st.integers(0, 9)), min_size=1, max_size=8)
    return st.tuples(st.just(topic), rows, st.booleans(), st.booleans())


@given(
    turns=st.lists(turns_of(LEFT, "ab") | turns_of(RIGHT, "xy"), max_size=8),
    type=st.sampled_from(["join", "left_join"]),
    cache_bytes=st.sampled_from([0, 10_000_000]),
    versioned=st.booleans(),
)
@settings(deadline=None)
def test_columns_give_what_records_give(turns: list[Any], type: str, cache_bytes: int, versioned: bool) -> None:
    def outcome(execution: str) -> tuple[Any, ...]:
        tasks = JoiningTasks(execution, type, cache_bytes, versioned)
        for topic, changed, has_headers, flushes in turns:
            headers = (("h", b"1"),) if has_headers else ()
            rows = [
                (key and key.encode(), value and value.encode(), timestamp, headers)
                for key, value, timestamp in changed
            ]
            tasks.process(topic, rows, flushes)
        commits = tasks.commits()
        changes = [{name: dict(own) for name, own in commit.changes.items()} for commit in commits]
        return tasks.output, changes, [dict(commit.dropped_records) for commit in commits]

    assert outcome("auto") == outcome("record")


def test_a_batch_reads_the_subscriptions_to_a_foreign_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    deserialize, read = SubscriptionWrapperSerde.deserialize, list[bytes]()

    def counted(self: SubscriptionWrapperSerde, topic: str, data: bytes, headers: Headers = ()) -> SubscriptionWrapper:
        read.append(data)
        return deserialize(self, topic, data, headers)

    monkeypatch.setattr(SubscriptionWrapperSerde, "deserialize", counted)
    tasks = JoiningTasks("auto", "join", 0, False)
    tasks.process(LEFT, [(b"a", b"xp", 0, ()), (b"b", b"xq", 0, ())], False)
    read.clear()
    tasks.process(RIGHT, [(b"x", value, 1, ()) for value in (b"xp", b"xq", b"xr")], False)
    assert (len(read), len(tasks.output)) == (2, 12)


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


@pytest.mark.parametrize("chosen", [None, {2}])
def test_the_partitioner_of_the_user_chooses_by_the_key_alone(chosen: set[int] | None) -> None:
    calls: list[tuple[Any, ...]] = []

    def partitioner(*arguments: Any) -> set[int] | None:
        calls.append(arguments)
        return chosen

    assert SingletonPartitioner(partitioner)("topic", "k", "v", (), 4) == chosen
    assert calls == [("topic", "k", None, 4)]


def test_the_partitioner_of_the_user_gets_the_headers_if_it_takes_them() -> None:
    def partitioner(topic: str, key: Any, value: Any, headers: Headers, partitions: int) -> set[int]:
        return {len(headers) % partitions}

    choose = SingletonPartitioner(partitioner)
    assert choose("topic", "k", "v", (("a", b"1"), ("b", None)), 4) == {2}
    again = pickle.loads(pickle.dumps(SingletonPartitioner(max)))
    assert vars(again) == {"_partitioner": max}


@pytest.mark.parametrize("chosen", [set(), {0, 1}])
def test_a_partitioner_must_choose_exactly_one_partition(chosen: set[int]) -> None:
    with pytest.raises(ValueError, match="should be a singleton set"):
        SingletonPartitioner(lambda topic, key, value, partitions: chosen)("topic", "k", None, (), 4)


@pytest.mark.parametrize(("partition", "chosen"), [(3, {3}), (0, {0}), (None, None)])
def test_a_response_returns_to_the_partition_of_its_subscription(
    partition: int | None, chosen: set[int] | None
) -> None:
    response = SubscriptionResponseWrapper(None, "v", partition)
    assert partition_of_response("topic", "k", response, 4) == chosen


def test_a_row_moves_to_the_foreign_key_of_its_new_value() -> None:
    def shape(builder: StreamsBuilder) -> None:
        left, right = builder.table(LEFT), builder.table(RIGHT)
        left.join(right, pair, foreign_key_extractor=foreign_key).to_stream().to(OUT)

    rows: list[Row] = [(RIGHT, "x", "X", 1), (RIGHT, "y", "Y", 2), (LEFT, "a", "xp", 3), (LEFT, "a", "yp", 4)]
    rows += [(RIGHT, "x", "Z", 5), (LEFT, "a", "zp", 6), (RIGHT, "y", "W", 7), (LEFT, "a", None, 8)]
    assert run(shape, rows) == [("a", "xpX", 3), ("a", "ypY", 4), ("a", None, 6)]


@pytest.mark.parametrize(("hashed", "results", "dropped"), [(b"xp", ["xpN"], 0), (b"xq", [], 1)])
def test_a_response_to_a_row_that_has_changed_since_is_dropped(hashed: bytes, results: list[str], dropped: int) -> None:
    builder = StreamsBuilder()
    left, right = builder.table(LEFT), builder.table(RIGHT)
    options = TableJoined.as_("j")
    left.join(right, pair, foreign_key_extractor=foreign_key, table_joined=options).to_stream().to(OUT)
    response = SubscriptionResponseWrapper(hash_of(hashed), "N", 0)
    with TopologyTestDriver(builder.build(), {**UNCACHED, "application.id": "app"}) as driver:
        driver.create_input_topic(LEFT, STRING, STRING).pipe_input("a", "xp", 1)
        data = SubscriptionResponseWrapperSerde(STRING).serialize("", response)
        driver.pipe_bytes("app-j-subscription-response-topic", b"a", data, 2)
        assert driver.create_output_topic(OUT, STRING, STRING).read_values_to_list() == results
        assert driver.dropped_records() == dropped
