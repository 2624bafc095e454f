"""Interactive queries to the tasks of an instance: every kind of store, committed or not, while tasks come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import pytest

from penstock.client.api import Admin, Consumer
from penstock.config import StreamsConfig
from penstock.config.isolation_level import IsolationLevel
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Materialized
from penstock.errors import (
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    StateStoreNotAvailableError,
    UnknownStateStoreError,
)
from penstock.host.api import Staleness, StoreSize
from penstock.host.deployment.layout import layout_of
from penstock.host.threads import queries as threads_queries
from penstock.host.threads import vocabulary as v
from penstock.host.threads.commit_times import InstanceCommit
from penstock.host.threads.processing import TaskRunner
from penstock.host.threads.queries import RunningTasks, TaskQueries
from penstock.host.threads.standbys import Standbys
from penstock.host.threads.subscription import Endpoint
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import Topology, built_topology
from penstock.record import PartitionBatch, Record, RecordBatch, TopicPartition, ValueAndTimestamp
from penstock.serdes import Serdes
from penstock.state.guarded import AT_ONCE
from penstock.state.memory import MemoryBase
from penstock.state.query.metadata import HostInfo, KeyQueryMetadata, LagInfo
from penstock.state.query.position import Position, PositionBound
from penstock.state.query.queries import (
    KeyQuery,
    TimestampedKeyWithHeadersQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.state.query.queryable import QueryableStoreTypes, StoreQueryParameters
from penstock.state.query.request import FailureReason, StateQueryRequest
from penstock.state.stores import Stores
from penstock.state.versioned_api import VersionedRecord
from penstock.windows import SessionWindows, TimeWindows
from penstock_broker.common.clock import MockClock
from tests.host.threads.inline import InlineInstance
from tests.host.threads.memory_broker import MemoryBroker

KEY_VALUE = QueryableStoreTypes.key_value_store()
COUNTS = StoreQueryParameters.from_name_and_type("counts", KEY_VALUE)


def topology() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in")
    grouped = words.group_by_key()
    grouped.count(Materialized.as_("counts"))
    grouped.count(Materialized.as_(Stores.in_memory_key_value_store("memory")))
    grouped.windowed_by(TimeWindows.of_size_and_grace(10, 1_000)).count(Materialized.as_("windows"))
    grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(5, 1_000)).count(Materialized.as_("sessions"))
    builder.table("versions", Materialized.as_(Stores.persistent_versioned_key_value_store("versions", 1_000)))
    builder.global_table("everywhere", Materialized.as_("global"))
    return builder.build()


class Follower:
    """Follows partitions of topics in memory (implements what standbys use of Consumer)."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._positions: dict[TopicPartition, int] = {}

    def incremental_assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._positions.update(positions)

    def incremental_unassign(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            del self._positions[partition]

    def poll(self, timeout_ms: int, max_records: int) -> list[tuple[TopicPartition, RecordBatch]]:
        ends = {partition: self._broker.end(partition) for partition in self._positions}
        found = [
            (p, self._broker.read(p, self._positions[p], end)) for p, end in ends.items() if self._positions[p] < end
        ]
        self._positions.update(ends)
        return found

    def reached_ends(self) -> dict[TopicPartition, int]:
        return dict(self._positions)


class Play:
    """An instance with two tasks of each sub-topology, and queries to it."""

    def __init__(self, guarantee: str = "at_least_once", **settings: Any) -> None:
        config = StreamsConfig(
            {
                "application.id": "app",
                "application.server": "here:80",
                "default.key.serde": Serdes.string(),
                "default.value.serde": Serdes.string(),
                "processing.guarantee": guarantee,
                **settings,
            },
            environment={},
        )
        self.broker = MemoryBroker({"in": 2, "versions": 2, "everywhere": 1})
        self.clock = MockClock(1_000)
        self.instance = InlineInstance(
            topology(), config, self.broker, self.clock, commit_interval_ms=10_000, records_at_once=10_000
        )
        self.queries = TaskQueries(built_topology(topology(), "app"), config, self.clock)
        self.running = True
        self.commit = InstanceCommit(0, 0)
        self.endpoints: list[Endpoint] = []
        self.updated: list[tuple[TaskId, int]] = []
        self.standbys = Standbys(
            self.instance.layout,
            cast(Admin, self.broker),
            lambda: cast(Consumer, Follower(self.broker)),
            lambda task: MemoryBase(),
            updated=lambda task, records: self.updated.append((task, records)),
        )
        self.queries.begin(
            RunningTasks(
                self.instance.layout,
                self.instance.runner,
                self.standbys,
                lambda: self.running,
                lambda: self.commit,
                lambda: self.endpoints,
            )
        )
        self.instance.run()

    def write(self, *rows: tuple[str, str, int], partition: int = 0, topic: str = "in") -> None:
        batch = RecordBatch.of([(key.encode(), value.encode(), time, 0, ()) for key, value, time in rows])
        self.broker.append([PartitionBatch(topic, partition, batch)])
        self.instance.run()

    def commits(self) -> None:
        self.clock.advance(10_000)
        self.instance.tell(v.TimePassed())
        self.instance.run()

    def store(self, name: str, kind: Any = KEY_VALUE) -> Any:
        return self.queries.store(StoreQueryParameters.from_name_and_type(name, kind))

    def ask(self, name: str, query: Any, **options: Any) -> Any:
        return self.queries.query(StateQueryRequest(name, query, **options))


@pytest.mark.parametrize("cache", [0, 10_000_000])
def test_every_write_is_seen_at_once_at_least_once(cache: int) -> None:
    play = Play(**{"statestore.cache.max.bytes": cache})
    play.write(("a", "x", 1), ("b", "x", 2), ("a", "x", 12))
    play.write(("c", "x", 3), partition=1)
    for name in ("counts", "memory"):
        counts = play.store(name)
        assert {key: counts.get(key) for key in "abcd"} == {"a": 2, "b": 1, "c": 1, "d": None}
        assert dict(counts.all()) == dict(counts.reverse_all()) == {"a": 2, "b": 1, "c": 1}
        assert dict(counts.range("b", None)) == {"b": 1, "c": 1}
    timestamped = play.store("counts", QueryableStoreTypes.timestamped_key_value_store())
    assert timestamped.get("a") == ValueAndTimestamp(2, 12)
    windows = play.store("windows", QueryableStoreTypes.window_store())
    assert (windows.fetch("a", 0), windows.fetch("a", 10), windows.fetch("b", 0)) == (1, 1, 1)
    assert [(start, count) for start, count in windows.fetch("a", 0, 100)] == [(0, 1), (10, 1)]
    sessions = play.store("sessions", QueryableStoreTypes.session_store())
    assert [(each.window.start, count) for each, count in sessions.fetch("a")] == [(1, 1), (12, 1)]
    play.commits()
    assert dict(play.store("counts").all()) == {"a": 2, "b": 1, "c": 1}


ISOLATED = {"enable.transactional.statestores": True}
CACHED = {"statestore.cache.max.bytes": 10_000_000}
UNCACHED = {"statestore.cache.max.bytes": 0}


@pytest.mark.parametrize("cache", [CACHED, UNCACHED], ids=str)
def test_read_committed_does_not_see_what_read_uncommitted_sees(cache: Mapping[str, Any]) -> None:
    play = Play(**ISOLATED, **cache)
    play.write(("a", "x", 1), ("a", "x", 12))
    play.write(("k", "v", 1), topic="versions")
    kinds = {
        "counts": KEY_VALUE,
        "memory": KEY_VALUE,
        "windows": QueryableStoreTypes.window_store(),
        "sessions": QueryableStoreTypes.session_store(),
    }
    stores = {name: play.store(name, kind) for name, kind in kinds.items()}
    queries = {
        "counts": KeyQuery.with_key("a"),
        "memory": KeyQuery.with_key("a"),
        "versions": VersionedKeyQuery.with_key("k"),
    }

    def found(level: IsolationLevel) -> tuple[object, ...]:
        read = {name: store.read_only(level) for name, store in stores.items()}
        answers = [play.ask(name, query, isolation_level=level) for name, query in queries.items()]
        values = [each.only_partition_result for each in answers]
        return (
            read["counts"].get("a"),
            dict(read["memory"].all()),
            read["windows"].fetch("a", 10),
            len(list(read["sessions"].fetch("a"))),
            [each and each.result for each in values],
            answers[0].position,
        )

    version = VersionedRecord("v", 1)
    written = (2, {"a": 2}, 1, 2, [2, 2, version], Position.from_map({"in": {0: 1}}))
    assert found(IsolationLevel.READ_UNCOMMITTED) == written
    assert stores["counts"].get("a") == 2, "the default level is READ_UNCOMMITTED"
    assert found(IsolationLevel.READ_COMMITTED) == (None, {}, None, 0, [None, None, None], Position())
    play.commits()
    assert found(IsolationLevel.READ_COMMITTED) == found(IsolationLevel.READ_UNCOMMITTED) == written


def test_read_committed_sees_what_has_left_the_record_cache_without_transactional_stores() -> None:
    """Kafka Streams keeps apart only the record cache then."""
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a"))
    committed = request.with_isolation_level(IsolationLevel.READ_COMMITTED)
    bound = PositionBound.at(Position.from_map({"in": {0: 0}}))
    for cache, seen in ((CACHED, None), (UNCACHED, 1)):
        play = Play(**cache)
        play.write(("a", "x", 1))
        assert play.queries.query(request).partition_results[0].result == 1
        assert play.queries.query(committed).partition_results[0].result == seen
        assert play.store("counts").read_only(IsolationLevel.READ_COMMITTED).get("a") == seen
        assert play.queries.query(committed.with_position_bound(bound)).partition_results[0].is_success() is bool(seen)
        play.commits()
        assert play.queries.query(committed.with_position_bound(bound)).partition_results[0].result == 1


def test_the_default_level_is_configured() -> None:
    for guarantee, level, seen in (
        ("at_least_once", "read_committed", None),
        ("exactly_once_v2", "READ_UNCOMMITTED", 1),
    ):
        play = Play(guarantee, **ISOLATED, **{"default.interactive.query.isolation.level": level})
        play.write(("a", "x", 1))
        counts = play.store("counts")
        assert counts.get("a") == seen
        assert play.ask("counts", KeyQuery.with_key("a")).partition_results[0].result == seen
        assert counts.read_only(IsolationLevel.READ_UNCOMMITTED).get("a") == 1
        assert counts.read_only(IsolationLevel.READ_COMMITTED).get("a") is None


def test_a_query_with_headers_can_skip_the_record_cache() -> None:
    play = Play(**CACHED, **{"dsl.store.format": "headers"})
    play.write(("a", "x", 1))
    query = TimestampedKeyWithHeadersQuery.with_key("a")
    assert play.ask("counts", query).partition_results[0].result == Record("a", 1, 1)
    assert play.ask("counts", query.skip_cache()).partition_results[0].result is None
    play.commits()
    assert play.ask("counts", query.skip_cache()).partition_results[0].result == Record("a", 1, 1)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_stores_that_keep_headers_are_read_with_and_without_them(guarantee: str) -> None:
    pytest.importorskip("pyarrow")
    play = Play(guarantee, **{"dsl.store.format": "headers"})
    batch = RecordBatch.of([(b"k", b"new", 5, 0, (("h", b"1"),))])
    play.broker.append([PartitionBatch("in", 0, batch), PartitionBatch("everywhere", 0, batch)])
    play.instance.run()
    play.commits()
    types = QueryableStoreTypes
    assert play.store("counts").get("k") == 1
    assert play.store("counts", types.timestamped_key_value_store()).get("k") == ValueAndTimestamp(1, 5)
    found = play.store("counts", types.timestamped_key_value_store_with_headers()).get("k")
    assert (found.value, found.timestamp) == (1, 5)
    kept = play.store("global", types.timestamped_key_value_store_with_headers()).get("k")
    assert (kept.value, kept.timestamp) == ("new", 5)
    assert play.store("windows", types.timestamped_window_store_with_headers()).fetch("k", 0).value == 1
    assert play.ask("counts", KeyQuery.with_key("k")).only_partition_result.result == 1
    assert play.queries.table("counts").to_pylist()[0]["value"] == 1


def test_only_what_is_committed_is_seen_exactly_once() -> None:
    play = Play("exactly_once_v2")
    play.write(("a", "x", 1), ("a", "x", 12))
    counts, windows = play.store("counts"), play.store("windows", QueryableStoreTypes.window_store())
    sessions = play.store("sessions", QueryableStoreTypes.session_store())
    assert (counts.get("a"), windows.fetch("a", 0), list(sessions.fetch("a"))) == (None, None, [])
    assert play.ask("counts", KeyQuery.with_key("a")).position == Position()
    play.commits()
    assert (counts.get("a"), windows.fetch("a", 10), len(list(sessions.fetch("a")))) == (2, 1, 2)
    assert play.ask("counts", KeyQuery.with_key("a")).position == Position({"in": {0: 1}})


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_entries_of_each_store_are_counted_as_of_the_last_commit(guarantee: str) -> None:
    play = Play(guarantee)
    play.write(("a", "x", 1), ("b", "x", 2), ("a", "x", 12))
    play.write(("c", "x", 3), partition=1)
    play.write(("a", "old", 5), ("a", "new", 9), topic="versions")
    play.write(("k", "v", 5), topic="everywhere")
    assert {size.entries for size in play.queries.store_sizes().values()} == {0}
    play.commits()
    sizes = play.queries.store_sizes()
    counted = {"counts": 3, "memory": 3, "windows": 4, "sessions": 4, "versions": 2, "global": 1}
    assert {name: size.entries for name, size in sizes.items()} == counted
    assert {(size.segments, size.segment_bytes) for size in sizes.values()} == {(None, None)}
    play.queries.close()
    assert set(play.queries.store_sizes().values()) == {StoreSize()}


def test_an_iterator_goes_through_stores_that_are_larger_than_what_it_takes_at_once() -> None:
    play = Play()
    keys = [f"{number:05}" for number in range(2 * AT_ONCE + 1)]
    play.write(*((key, "x", 1) for key in keys))
    counts = play.store("counts")
    assert [key for key, _ in counts.all()] == keys
    assert [key for key, _ in counts.reverse_all()] == keys[::-1]
    assert counts.approximate_num_entries() in (0, len(keys))  # Kafka counts what is below the cache
    play.commits()
    assert counts.approximate_num_entries() == len(keys)


def test_each_kind_of_query_is_answered_by_each_partition() -> None:
    play = Play()
    play.write(("a", "x", 1), ("a", "x", 12))
    play.write(("k", "old", 5), ("k", "new", 9), topic="versions")
    assert play.ask("counts", KeyQuery.with_key("a")).only_partition_result.result == 2
    versions = play.ask("versions", VersionedKeyQuery.with_key("k").as_of(6)).only_partition_result.result
    assert versions.value == "old"
    windows = play.ask("windows", WindowKeyQuery.with_key_and_window_start_range("a", 0, 100))
    assert len(list(windows.partition_results[0].result)) == 2
    sessions = play.ask("sessions", WindowRangeQuery.with_key("a"), partitions=frozenset([0, 7]))
    assert len(list(sessions.partition_results[0].result)) == 2
    assert sessions.partition_results[7].failure_reason is FailureReason.NOT_PRESENT
    assert play.ask("global", KeyQuery.with_key("a")).global_result.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE


def test_an_answer_waits_for_its_bound_and_for_active_tasks() -> None:
    play = Play()
    play.write(("a", "x", 1))
    bound = PositionBound.at(Position({"in": {0: 1}}))
    early = play.ask("counts", KeyQuery.with_key("a"), position_bound=bound)
    assert early.partition_results[0].failure_reason is FailureReason.NOT_UP_TO_BOUND
    play.write(("a", "x", 1))
    assert play.ask("counts", KeyQuery.with_key("a"), position_bound=bound).only_partition_result.result == 2
    play.running = False
    refused = play.ask("counts", KeyQuery.with_key("a"), active_required=True)
    assert {each.failure_reason for each in refused.partition_results.values()} == {FailureReason.NOT_ACTIVE}


def test_global_stores_are_read_by_store() -> None:
    play = Play()
    play.write(("g", "x", 1), topic="everywhere")
    assert dict(play.store("global").all()) == {"g": "x"}


def test_what_cannot_be_read_is_reported() -> None:
    play = Play()
    play.write(("a", "x", 1))
    with pytest.raises(UnknownStateStoreError, match=r"Cannot get state store count because.* It has: counts"):
        play.store("count")
    with pytest.raises(InvalidStateStoreError, match=r"\[window store\] does not accept"):
        play.store("counts", QueryableStoreTypes.window_store()).all()
    with pytest.raises(InvalidStateStorePartitionError, match="partition 3 for store counts does not exist"):
        play.queries.store(COUNTS.with_partition(3)).get("a")
    counts = play.store("counts")
    play.running = False
    with pytest.raises(InvalidStateStoreError, match="ask again when it is RUNNING"):
        counts.get("a")
    play.running = True
    entries = iter(counts.all())
    play.instance.close()
    with pytest.raises(InvalidStateStoreError, match="may have migrated"):
        counts.get("a")
    with pytest.raises(InvalidStateStoreError, match="was closed here"):
        next(entries)
    play.queries.close()
    with pytest.raises(StateStoreNotAvailableError, match="does not run in this process"):
        counts.get("a")


def test_metadata_name_the_partition_of_a_key_and_what_the_instance_has() -> None:
    play = Play()
    found = play.queries.query_metadata_for_key("counts", "a")
    assert (found.active_host.host, found.partition in (0, 1)) == ("here", True)
    chosen = play.queries.query_metadata_for_key("counts", "a", partitioner=lambda *_: frozenset([1]))
    assert chosen.partition == 1
    assert play.queries.query_metadata_for_key("global", "a").partition == -1
    [metadata] = play.queries.streams_metadata()
    assert metadata.state_store_names == {"counts", "memory", "windows", "sessions", "versions", "global"}
    assert {partition.topic for partition in metadata.topic_partitions} == {"in", "versions"}
    assert play.queries.staleness() == Staleness(0, 0, None)
    play.commit = InstanceCommit(3, 400)
    assert play.queries.staleness() == Staleness(3, 400, 600)


def test_metadata_name_the_instances_that_have_the_other_partitions_and_standbys() -> None:
    play = Play()
    [first, second] = sorted(task for task in play.instance.layout.groups if task.subtopology == 0)
    play.instance.tell(v.Assigned(frozenset(play.instance.layout.groups) - {second}))
    play.instance.run()
    play.endpoints = [
        Endpoint("here:80", frozenset([first]), frozenset([second])),
        Endpoint("there:2", frozenset([second]), frozenset([first])),
    ]
    here, there = HostInfo("here", 80), HostInfo("there", 2)
    for task, active, standby in ((first, here, there), (second, there, here)):
        found = play.queries.query_metadata_for_key("counts", "a", partitioner=lambda *_, task=task: {task.partition})
        assert found == KeyQueryMetadata(active, frozenset([standby]), task.partition)
    own, other = play.queries.streams_metadata()
    assert (own.host_info, other.host_info) == (here, there)
    assert {partition.partition for partition in other.topic_partitions} == {second.partition}
    assert {partition.partition for partition in own.standby_topic_partitions} == {second.partition}
    assert "counts" in own.standby_state_store_names & other.state_store_names & other.standby_state_store_names
    play.endpoints = []
    unknown = play.queries.query_metadata_for_key("counts", "a", partitioner=lambda *_: {second.partition})
    assert unknown.active_host == HostInfo.unavailable()


def test_a_store_is_a_table_of_arrow() -> None:
    pytest.importorskip("pyarrow")
    play = Play()
    play.write(("a", "x", 1), ("a", "x", 12))
    play.write(("c", "x", 3), partition=1)
    rows = play.queries.table("counts").to_pylist()
    assert [(row["partition"], row["key"], row["value"]) for row in rows] == [(0, "a", 2), (1, "c", 1)]
    assert play.queries.table("windows").column_names == [
        "partition", "key", "window_start", "window_end", "value", "timestamp",
    ]  # fmt: skip
    assert play.queries.table("windows").num_rows == 3


def test_features_need_all_partitions_of_their_stores() -> None:
    pa = pytest.importorskip("pyarrow")
    play, labels = Play(), pa.table({"key": ["a"], "timestamp": [1]})
    assert play.queries.features(["versions"]).as_of(labels).num_rows == 1
    gone = max(task for task in play.instance.layout.groups if "versions" in play.instance.layout.spec(task).stores)
    play.instance.tell(v.Assigned(frozenset(play.instance.layout.groups) - {gone}))
    play.instance.run()
    with pytest.raises(InvalidStateStoreError, match="has 1 of the 2 partitions of store versions"):
        play.queries.features(["versions"]).as_of(labels)


def test_another_thread_reads_while_the_task_writes(run_in_thread: Callable[[Callable[[], None]], None]) -> None:
    play = Play()
    counts, stop, seen = play.store("counts"), threading.Event(), list[int]()

    def read() -> None:
        while not stop.is_set():
            seen.append(sum(value for _, value in counts.all()))

    run_in_thread(read)
    try:
        for _ in range(50):
            play.write(*((f"{number}", "x", 1) for number in range(20)))
            play.commits()
    finally:
        stop.set()
    assert sum(value for _, value in counts.all()) == 1_000
    assert seen == sorted(seen)


@pytest.fixture
def run_in_thread(request: pytest.FixtureRequest) -> Callable[[Callable[[], None]], None]:
    def run(function: Callable[[], None]) -> None:
        thread = threading.Thread(target=function)
        thread.start()
        request.addfinalizer(thread.join)

    return run


def test_standbys_are_read_where_stale_stores_will_do() -> None:
    play = Play()
    play.write(("a", "x", 1))
    play.write(("b", "x", 1), partition=1)
    play.commits()
    tasks = frozenset(play.instance.layout.groups)
    [moved] = (task for task in tasks if task.partition == 1 and "counts" in play.instance.layout.spec(task).stores)
    play.instance.tell(v.Assigned(tasks - {moved}))
    play.instance.run()
    stale = play.queries.store(COUNTS.enable_stale_stores())
    assert dict(stale.all()) == {"a": 1}
    play.standbys.add(moved)
    play.standbys.advance()
    assert play.updated == [(moved, 0), *[(moved, 1)] * len(play.instance.layout.followed_changelogs(moved))]
    assert dict(play.store("counts").all()) == {"a": 1}
    play.running = False
    assert dict(stale.all()) == {"a": 1, "b": 1}
    found = play.ask("counts", KeyQuery.with_key("b")).partition_results
    assert {number: each.result for number, each in found.items()} == {0: None, 1: 1}
    assert play.ask("counts", KeyQuery.with_key("b"), active_required=True).partition_results.keys() == {0}
    play.standbys.remove(moved)
    assert dict(stale.all()) == {"a": 1}


def test_the_lag_of_a_standby_counts_what_it_does_not_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StreamsBuilder()
    consumed = Consumed.with_(Serdes.string(), Serdes.string())
    names = builder.table("in", consumed, Materialized.as_("names"))
    clicks = builder.stream("clicks", consumed).join(names, lambda click, name: name)
    clicks.group_by_key().count(Materialized.as_("counts"))
    built = built_topology(builder.build({"topology.optimization": "all"}), "app")
    config = StreamsConfig({"application.id": "app"}, environment={})
    broker = MemoryBroker({"in": 1, "clicks": 1})
    broker.append([PartitionBatch("in", 0, RecordBatch.of([(b"a", b"Ann", 0, 0, ())] * 5))])
    layout = layout_of(built, config, broker.topics())
    [task] = layout.stateful
    assert layout.followed_changelogs(task).keys() == {"counts"}
    consumer = cast(Consumer, Follower(broker))
    standbys = Standbys(layout, cast(Admin, broker), lambda: consumer, lambda _: MemoryBase())
    standbys.add(task)
    standbys.advance()
    queries = TaskQueries(built, config, MockClock(0))
    runner = TaskRunner(layout, {})
    queries.begin(RunningTasks(layout, runner, standbys, lambda: True, lambda: InstanceCommit(0, 0), lambda: ()))
    monkeypatch.setattr(threads_queries, "ConfluentAdmin", lambda *_: broker)
    assert queries.all_local_store_partition_lags() == {"counts": {0: LagInfo(0, 0)}, "names": {0: LagInfo(0, 5)}}
