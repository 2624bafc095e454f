"""The metrics that `metrics.recording.level` of DEBUG adds: what they count, and that they change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock import (
    BufferConfig,
    Named,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    Serdes,
    SessionWindow,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    Suppressed,
    Topology,
    Windowed,
)
from penstock.host.inline.inline_host import ProducedRecord
from penstock.testing import TopologyTestDriver

STRING = Serdes.string()
CONFIG = {"default.key.serde": STRING, "default.value.serde": STRING, "client.id": "me"}
GROUPS = ["stream-processor-node-metrics", "stream-state-metrics", "stream-record-cache-metrics"]
Line = tuple[str | None, str, int]
LINES: Sequence[Line] = [
    ("k", "one", 1_000),
    ("k", "two", 400),
    ("l", "three", 2_000),
    (None, "four", 3_000),
    ("k", "six", 4_000),
]


class Run:
    """A topology that was given lines at a level."""

    def __init__(self, topology: Topology, level: str, given: Sequence[Line] = LINES, **config: Any) -> None:
        values = {**CONFIG, "metrics.recording.level": level, **config}
        with TopologyTestDriver(topology, values, 0) as driver:
            lines = driver.create_input_topic("in", STRING, STRING)
            for key, value, timestamp in given:
                lines.pipe_input(key, value, timestamp)
            self.output: list[ProducedRecord] = driver.read_all_bytes()
            self.found = {
                (
                    name.name,
                    *(tag for tag in name.tag_items if tag[0] not in ("client-id", "thread-id", "task-id")),
                ): metric
                for name, metric in driver.metrics().items()
                if name.group in GROUPS
            }

    def value(self, name: str, tag: str, id: str) -> Any:
        return self.found[name, (tag, id)].metric_value

    def values(self, name: str) -> dict[str, Any]:
        """Return the values of a metric by what its last tag says."""
        return {key[-1][1]: metric.metric_value for key, metric in self.found.items() if key[0] == name}


class Twice(Processor):
    """Forwards each record twice to its first child, and no long ones."""

    def process(self, record: Record[Any, Any]) -> None:
        if len(record.value) < 5:
            self.context.forward(record)
            self.context.forward(record)


def branches() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in").filter(lambda key, value: value != "six", named=Named.as_("some"))
    upper = stream.map_values(lambda value: value.upper(), named=Named.as_("upper"))
    upper.process(Twice, named=Named.as_("twice")).to("twice", produced=Produced.as_("twice-out"))
    upper.to("upper", produced=Produced.as_("upper-out"))
    builder.stream("other").to("unheard", produced=Produced.as_("unheard-out"))
    return builder.build()


def counted() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(named=Named.as_("counted"))
    return builder.build()


@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (
            branches(),
            {"KSTREAM-SOURCE-0000000000": 5, "some": 5, "upper": 4, "twice": 4, "twice-out": 6, "upper-out": 4},
        ),
        (counted(), {"KSTREAM-SOURCE-0000000000": 5, "counted": 5}),
    ],
    ids=["branches", "counted"],
)
def test_each_node_counts_what_it_is_handed(topology: Topology, expected: dict[str, int], execution: str) -> None:
    run = Run(topology, "DEBUG", **{"penstock.execution": execution})
    assert run.values("process-total") == expected
    assert run.values("process-rate") == {name: pytest.approx(records / 30) for name, records in expected.items()}
    assert {key[1][0] for key in run.found if key[0] == "process-total"} == {"processor-node-id"}


@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize("topology", [branches(), counted()], ids=["branches", "counted"])
def test_what_is_recorded_changes_nothing(topology: Topology, execution: str) -> None:
    runs = {level: Run(topology, level, **{"penstock.execution": execution}) for level in ("INFO", "DEBUG", "TRACE")}
    assert runs["INFO"].found == {}
    assert runs["DEBUG"].found.keys() == runs["TRACE"].found.keys() != set()
    assert runs["INFO"].output == runs["DEBUG"].output == runs["TRACE"].output != []


class Calls(Processor):
    """Calls a store of keys and values in each way that is measured."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = context.get_state_store("store")

    def process(self, record: Record[Any, Any]) -> None:
        store, key = self._store, record.key or "none"
        store.put(key, record.value)
        store.get(key)
        store.get("absent")
        store.put_if_absent(key, "other")
        store.delete(key)
        store.put_all([("a", "1"), ("b", "2")])
        with store.range("a", "b") as entries:
            assert [entry.key for entry in entries] == ["a", "b"]
        for entry in store.reverse_all():
            self.context.forward(record.with_value(entry.value))
        store.prefix_scan("a", STRING).close()
        store.all()  # which nobody closes is not measured, as in Kafka


class SessionCalls(Calls):
    """Calls a session store in each way that is measured."""

    def process(self, record: Record[Any, Any]) -> None:
        session = Windowed(record.key or "none", SessionWindow(record.timestamp, record.timestamp + 1))
        self._store.put(session, record.value)
        self._store.fetch_session(session.key, session.window.start, session.window.end)
        with self._store.find_sessions(session.key, 0, 10_000) as found:
            assert next(found).key == session
        self._store.remove(session)


class WindowCalls(Calls):
    """Calls a window store in each way that is measured."""

    def process(self, record: Record[Any, Any]) -> None:
        self._store.put(record.key or "none", record.value, record.timestamp)
        self._store.fetch(record.key or "none", record.timestamp)
        assert list(self._store.fetch_all(record.timestamp, record.timestamp))


class VersionedCalls(Calls):
    """Calls a versioned store in each way that is measured."""

    def process(self, record: Record[Any, Any]) -> None:
        self._store.put(record.key or "none", record.value, record.timestamp)
        self._store.get(record.key or "none")
        self._store.get(record.key or "none", record.timestamp)
        self._store.delete(record.key or "none", record.timestamp)


def calling(builder: StoreBuilder, calls: type[Processor]) -> Topology:
    topology = Topology().add_source("source", "in").add_processor("calls", calls, "source")
    return topology.add_state_store(builder, "calls").add_sink("sink", "out", "calls")


EACH = {"get": 2, "put": 1, "put-if-absent": 1, "delete": 1, "put-all": 1, "range": 1, "all": 1, "prefix-scan": 1}
KEY_VALUE = Stores.persistent_key_value_store("store")


@pytest.mark.parametrize(
    ("builder", "calls", "scope", "each"),
    [
        (Stores.key_value_store_builder(KEY_VALUE, STRING, STRING), Calls, "rocksdb", EACH),
        (
            Stores.key_value_store_builder(KEY_VALUE, STRING, STRING).with_caching_enabled(),
            Calls,
            "rocksdb",
            EACH,
        ),
        (
            Stores.key_value_store_builder(Stores.in_memory_key_value_store("store"), STRING, STRING),
            Calls,
            "in-memory",
            EACH,
        ),
        (
            Stores.session_store_builder(Stores.persistent_session_store("store", 60_000), STRING, STRING),
            SessionCalls,
            "rocksdb-session",
            {"put": 1, "fetch": 2, "remove": 1},
        ),
        (
            Stores.window_store_builder(Stores.in_memory_window_store("store", 60_000, 1_000, False), STRING, STRING),
            WindowCalls,
            "in-memory-window",
            {"put": 1, "fetch": 2},
        ),
        (
            Stores.versioned_key_value_store_builder(
                Stores.persistent_versioned_key_value_store("store", 60_000), STRING, STRING
            ),
            VersionedCalls,
            "rocksdb",
            {"put": 1, "get": 2, "delete": 1},
        ),
    ],
    ids=["disk", "cached", "memory", "session", "window", "versioned"],
)
def test_the_calls_of_a_store_are_measured(
    builder: StoreBuilder, calls: type[Processor], scope: str, each: dict[str, int]
) -> None:
    run = Run(calling(builder, calls), "DEBUG")
    assert run.output == Run(calling(builder, calls), "INFO").output
    expected = {name: number * len(LINES) for name, number in each.items()} | {"flush": len(LINES)}
    state = {key[0]: metric.metric_value for key, metric in run.found.items() if "state-id" in key[1][0]}
    assert {key[1] for key in run.found if "state-id" in key[1][0]} == {(f"{scope}-state-id", "store")}
    assert {name: value for name, value in state.items() if name.endswith("-rate")} == {
        f"{name}-rate": pytest.approx(number / 30) for name, number in expected.items()
    }
    for name in expected:
        assert state[f"{name}-latency-max"] >= state[f"{name}-latency-avg"] > 0


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_the_store_of_an_operator_is_measured(execution: str) -> None:
    run = Run(counted(), "DEBUG", **{"penstock.execution": execution, "statestore.cache.max.bytes": 0})
    (store,) = {key[1] for key in run.found if key[0] == "put-rate"}
    assert store == ("rocksdb-state-id", "KSTREAM-AGGREGATE-STATE-STORE-0000000001")
    assert run.value("put-rate", *store) == run.value("get-rate", *store) == pytest.approx(4 / 30)


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_the_record_cache_of_a_store_tells_how_many_reads_it_answers(execution: str) -> None:
    lines = [(key, "text", 1_000) for key in "kklkkk"]  # of which the cache answers all but the first and the third
    run = Run(counted(), "DEBUG", lines, **{"penstock.execution": execution})
    cache = ("record-cache-id", "KSTREAM-AGGREGATE-STATE-STORE-0000000001")
    assert run.value("hit-ratio-min", *cache) == 1 / 2
    assert run.value("hit-ratio-max", *cache) == 4 / 6
    assert run.value("hit-ratio-avg", *cache) == pytest.approx((1 / 2 + 2 / 4 + 3 / 5 + 4 / 6) / 4)
    without = Run(counted(), "DEBUG", **{"penstock.execution": execution, "statestore.cache.max.bytes": 0})
    assert without.values("hit-ratio-avg") == {}


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_suppression_tells_what_it_holds_and_what_leaves(execution: str) -> None:
    builder = StreamsBuilder()
    held = Suppressed.until_time_limit(5, BufferConfig.unbounded()).with_name("held")
    builder.table("in").suppress(held).to_stream().to("out")
    topology = builder.build()
    lines = [("a", "1", 0), ("a", "2", 4), ("b", "1", 5), ("a", "3", 9), ("b", "2", 10)]
    run = Run(topology, "DEBUG", lines, **{"penstock.execution": execution})
    plain = Run(topology, "INFO", lines, **{"penstock.execution": execution})
    assert run.output == plain.output
    assert len([record for record in run.output if record.topic == "out"]) == 2
    assert run.values("suppression-emit-total") == {"held": 2}
    assert run.values("suppression-emit-rate") == {"held": pytest.approx(2 / 30)}
    buffer = ("in-memory-suppression-state-id", "held-store")
    assert run.value("suppression-buffer-count-max", *buffer) == 2
    held_after_each = [1, 1, 2, 1, 2, 2, 1]  # put or left
    assert run.value("suppression-buffer-count-avg", *buffer) == pytest.approx(sum(held_after_each) / 7)
    largest, average = (run.value(f"suppression-buffer-size-{end}", *buffer) for end in ("max", "avg"))
    assert largest > average > largest / 2
    assert plain.found == {}
