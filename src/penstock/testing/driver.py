"""Tests of a topology without a broker or Spark: TopologyTestDriver (Kafka: kafka-streams-test-utils).

Rules: every topic has one partition and all sub-topologies run in one task, `0_0`. `pipe_input` processes a record
completely before it returns: the record, stream-time punctuation, a commit, then its output to source topics of the
topology. The wall clock moves only by calls. `host/inline` processes the records; this module has the output queues,
the stores, and the errors of Kafka's driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.client.keys import check_client_keys
from penstock.config import StreamsConfig, keys_of
from penstock.extras import load
from penstock.host.inline.inline_host import InlineHost, ProducedRecord
from penstock.metrics import Metric, MetricName
from penstock.plan.subtopology import SinkSpec, SourceSpec
from penstock.plan.topic_loops import warn_of_topic_loops
from penstock.plan.topology import Topology, built_topology
from penstock.processor.parked_requests import ParkedAction, ParkedRequest
from penstock.processor.waiting_records import unpack_waiting
from penstock.processor.waiting_serdes import serdes_of_store
from penstock.record import Headers, Record
from penstock.serdes import Serde
from penstock.state.api import StateStore
from penstock.state.key_value_store import TypedKeyValueStore, TypedTimestampedKeyValueStore
from penstock.state.session_store import TypedSessionStore
from penstock.state.versioned_store import TypedVersionedKeyValueStore
from penstock.state.window_store import TypedTimestampedWindowStore, TypedWindowStore
from penstock.testing.store_views import KeyValueStoreFacade, WindowStoreFacade
from penstock.testing.topic_serdes import TopicSerdes
from penstock.testing.topics import TestInputTopic, TestOutputTopic
from penstock.windows import LONG_MAX
from penstock_broker.common.clock import MockClock, SystemClock
from penstock_broker.common.durations import Duration, milliseconds, timestamp_ms
from penstock_broker.common.log_limits import forget_lines

if TYPE_CHECKING:
    from penstock.state.query.features import Features

DEFAULT_APPLICATION_ID = "topology-test-driver"

# Family, name and method of the stores not returned by `get_state_store`; timestamped kinds come before their base
# kinds.
_KINDS: Mapping[type, tuple[str, str, str]] = {
    TypedTimestampedKeyValueStore: ("key-value", "timestamped key-value store", "get_timestamped_key_value_store"),
    TypedKeyValueStore: ("key-value", "key-value store", "get_key_value_store"),
    TypedVersionedKeyValueStore: ("versioned", "versioned key-value store", "get_versioned_key_value_store"),
    TypedTimestampedWindowStore: ("window", "timestamped window store", "get_timestamped_window_store"),
    TypedWindowStore: ("window", "window store", "get_window_store"),
    TypedSessionStore: ("session", "session store", "get_session_store"),
}


class TopologyTestDriver:
    """Runs a topology in this process, record by record, for tests (Kafka class: TopologyTestDriver).

    Args:
        topology: the result of `StreamsBuilder.build()`, or a `Topology` made by hand.
        config: the configuration; `application.id` is optional.
        initial_wall_clock_ms: the start of the clock, in ms; None for the machine's time.

    Raises:
        ConfigError: a key of the configuration is unknown to Kafka Streams, Penstock and the Kafka client.
        StreamsError: a processor cannot be initialised.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any] | None = None,
        initial_wall_clock_ms: int | None = None,
    ) -> None:
        given = keys_of(config)
        checked = StreamsConfig({"application.id": DEFAULT_APPLICATION_ID, **given})
        check_client_keys(checked)
        start = SystemClock().milliseconds() if initial_wall_clock_ms is None else initial_wall_clock_ms
        self._clock = MockClock(timestamp_ms(start, "initial_wall_clock_ms"))
        self._application_id: str = checked.required("application.id")
        built = built_topology(topology, self._application_id)
        warn_of_topic_loops(built)
        self._host = InlineHost(built, checked, self._clock)
        self._serdes = TopicSerdes(built, checked)
        self._queues: dict[str, deque[ProducedRecord]] = {}
        forget_lines()  # log lines are limited in rate, and a test expects those of its own records

    def create_input_topic(
        self,
        topic: str,
        key_serde: Serde,
        value_serde: Serde,
        start_timestamp: int | None = None,
        auto_advance_ms: Duration = 0,
    ) -> TestInputTopic[Any, Any]:
        """Return a topic to pipe records into.

        Args:
            topic: its name; piping a record checks that the topology reads it.
            key_serde: the serializer of the keys.
            value_serde: the serializer of the values.
            start_timestamp: the time in ms of the first record without a timestamp; None for the driver's clock.
            auto_advance_ms: the time between two such records, in ms.

        Raises:
            TypeError: the topic is None, or a serde is not a Serde.
            ValueError: auto_advance_ms is negative.
        """
        self._serdes.check(topic, key_serde, value_serde, SourceSpec)
        start = self._clock.milliseconds() if start_timestamp is None else start_timestamp
        start = timestamp_ms(start, "start_timestamp")
        advance_ms = milliseconds(auto_advance_ms, "auto_advance_ms")
        return TestInputTopic(self, topic, key_serde, value_serde, start, advance_ms)

    def create_output_topic(self, topic: str, key_serde: Serde, value_serde: Serde) -> TestOutputTopic[Any, Any]:
        """Return a topic to read results from.

        Raises TypeError if the topic is None, or a serde is not a Serde. Logs a warning for serdes that misread numbers
        because the topology writes them with other serdes.
        """
        self._serdes.check(topic, key_serde, value_serde, SinkSpec)
        return TestOutputTopic(self, topic, key_serde, value_serde)

    def produced_topic_names(self) -> set[str]:
        """Return the names of all topics written so far, including repartition and changelog topics."""
        return set(self._queues)

    def pipe_bytes(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> None:
        """Process one record completely, from its bytes and a timestamp in ms.

        Raises ValueError if the topology does not read the topic, StreamsError if a processor fails.
        """
        try:
            self._host.pipe(topic, key, value, timestamp_ms(timestamp, "timestamp"), headers)
        finally:
            self._collect()

    def read_bytes(self, topic: str) -> ProducedRecord:
        """Return the next record of `topic` as bytes; raises LookupError if the topic is empty."""
        if topic not in self._queues:
            error = LookupError(f"Uninitialized topic: {topic}")
            error.add_note(
                f"Nothing was written to it; written were: {', '.join(sorted(self._queues)) or 'no topics'}."
            )
            raise error
        if not self._queues[topic]:
            raise LookupError(f"Empty topic: {topic}")
        return self._queues[topic].popleft()

    def read_all_bytes(self) -> list[ProducedRecord]:
        """Return the unread records of all topics as bytes, in the order of sending."""
        records = [record for queue in self._queues.values() for record in queue]
        for queue in self._queues.values():
            queue.clear()
        return sorted(records, key=lambda record: record.number)

    def unread_bytes(self, topic: str) -> list[ProducedRecord]:
        """Return the unread records of `topic` as bytes; they stay unread."""
        return list(self._queues.get(topic, ()))

    def queue_size(self, topic: str) -> int:
        """Return the number of unread records of `topic`, 0 for an unwritten topic."""
        return len(self._queues.get(topic, ()))

    def answers(self, node: str, answers: Iterable[Any]) -> None:
        """Use `answers` for the calls of an operator with Calls, instead of its function.

        From then on, the function is not called: if there are fewer answers than attempts, `pipe_input` raises a
        StreamsError that says how many were given. A second call of this method adds answers.

        Args:
            node: the name of the operator.
            answers: one for each attempt, retries included: a result, or an error to raise.

        Raises:
            ValueError: no operator of this name has calls.
            TypeError: `answers` is a single answer, or has the class of an error instead of an error.
        """
        self._host.give_answers(node, answers)

    def retry_parked(self, store: str, keys: Iterable[Any] | None = None) -> None:
        """Try parked records again at once, as `penstock parked retry` does.

        Args:
            store: the name of a store of parked records, such as "charge-parked".
            keys: the keys whose records are tried; None for all keys.

        Raises:
            TypeError: `keys` is a text or bytes.
            ValueError: there is no such store of parked records, or no record of a key is parked in it.
            StreamsError: a key has no serialised form, or a processor fails.
        """
        self._request_parked(store, ParkedAction.RETRY, keys)

    def drop_parked(self, store: str, keys: Iterable[Any] | None = None) -> None:
        """Drop parked records, or write them as dead letters, as `penstock parked drop` does.

        Args:
            store: the name of a store of parked records, such as "charge-parked".
            keys: the keys whose records are dropped; None for all keys.

        Raises:
            TypeError: `keys` is a text or bytes.
            ValueError: there is no such store of parked records, or no record of a key is parked in it.
            StreamsError: a key has no serialised form, or a processor fails.
        """
        self._request_parked(store, ParkedAction.DROP, keys)

    def _request_parked(self, store: str, action: ParkedAction, keys: Iterable[Any] | None) -> None:
        self._host.requests_topic(store)
        chosen: tuple[bytes | None, ...] | None = None
        if keys is not None:
            chosen = self._parked_keys(store, keys)
        try:
            self._host.request_parked(store, ParkedRequest(action, LONG_MAX, chosen))
        finally:
            self._collect()

    def _parked_keys(self, store: str, keys: Iterable[Any]) -> tuple[bytes | None, ...]:
        """Return keys in serialised form; raises TypeError for a text, ValueError for a key without parked records."""
        if isinstance(keys, str | bytes):
            raise TypeError(
                f"Expected the keys of store {store!r} as a list, got {keys!r:.100}: write [{keys!r:.100}]."
            )
        opened: Any = self._host.stores()[store]
        serdes = serdes_of_store("Park", opened, self._application_id)
        with opened.all() as entries:
            parked = [unpack_waiting(data, store) for _, data in entries]
        known, chosen = {each.key for each in parked}, list[bytes | None]()
        for key in keys:
            chosen.append(serdes.key_of(Record(key, None, 0)))
            if chosen[-1] not in known:
                shown = ", ".join(sorted({repr(serdes.record_of(each).key) for each in parked})) or "none"
                raise ValueError(
                    f"Store {store!r} has no parked record of the key {key!r:.100}. The keys with parked records: "
                    f"{shown:.500}."
                )
        return tuple(chosen)

    def _collect(self) -> None:
        for record in self._host.take_output():
            self._queues.setdefault(record.topic, deque()).append(record)

    def advance_wall_clock_time(self, advance_ms: Duration) -> None:
        """Move the clock by `advance_ms` (0 or more), run due wall-clock punctuations, and commit.

        Raises ValueError for a negative step, StreamsError if a punctuator fails.
        """
        self._clock.advance(milliseconds(advance_ms, "advance_ms"))
        try:
            self._host.punctuate_wall_clock()
        finally:
            self._collect()

    def metrics(self) -> Mapping[MetricName, Metric]:
        """Return the metrics of the task by name, including the processors' sensors.

        Rates, averages and extremes cover the last minute of the driver's clock (`metrics.sample.window.ms`).
        """
        return self._host.metrics()

    def get_all_state_stores(self) -> dict[str, StateStore]:
        """Return all stores by name."""
        return dict(self._host.stores())

    def get_state_store(self, name: str) -> StateStore | None:
        """Return the store `name`, None if absent.

        Raises ValueError for a kind with its own method.
        """
        return self._store_of(name, family=None)

    def _store_of(self, name: str, family: str | None) -> StateStore | None:
        """Return the store `name`, None if absent; raises ValueError for a store of another family.

        Stores without their own method have no family.
        """
        store = self._host.stores().get(name)
        for kind, (found, shown, method) in _KINDS.items():
            if isinstance(store, kind) and found != family:
                raise ValueError(f"Store {name} is a {shown} and should be accessed via `{method}()`")
        return store

    def get_key_value_store(self, name: str) -> KeyValueStoreFacade | TypedKeyValueStore | None:
        """Return the key-value store `name`, None if absent or of another kind.

        A timestamped store reads and writes plain values, and writes timestamp -1.
        """
        match self._store_of(name, "key-value"):
            case TypedTimestampedKeyValueStore() as store:
                return KeyValueStoreFacade(store)
            case TypedKeyValueStore() as store:
                return store
            case _:
                return None

    def get_timestamped_key_value_store(self, name: str) -> TypedTimestampedKeyValueStore | None:
        """Return the timestamped key-value store `name`, None if absent or of another kind.

        Its values are ValueAndTimestamp.
        """
        store = self._store_of(name, "key-value")
        return store if isinstance(store, TypedTimestampedKeyValueStore) else None

    def get_versioned_key_value_store(self, name: str) -> TypedVersionedKeyValueStore | None:
        """Return the versioned key-value store `name`, None if absent or of another kind."""
        store = self._store_of(name, "versioned")
        return store if isinstance(store, TypedVersionedKeyValueStore) else None

    def features(self, store_names: Sequence[str]) -> Features:
        """Return versioned stores as the features of labels; see `KafkaStreams.features`."""
        module = load("penstock.state.query.features", "Features")
        names = module.versioned_stores(store_names, self._host.builders())
        features: Features = module.Features(names, lambda: {name: [self._host.stores()[name]] for name in names})
        return features

    def get_window_store(self, name: str) -> WindowStoreFacade | TypedWindowStore | None:
        """Return the window store `name`, None if absent or of another kind.

        A timestamped store reads and writes plain values, and writes timestamp -1.
        """
        match self._store_of(name, "window"):
            case TypedTimestampedWindowStore() as store:
                return WindowStoreFacade(store)
            case TypedWindowStore() as store:
                return store
            case _:
                return None

    def get_timestamped_window_store(self, name: str) -> TypedTimestampedWindowStore | None:
        """Return the timestamped window store `name`, None if absent or of another kind.

        Its values are ValueAndTimestamp.
        """
        store = self._store_of(name, "window")
        return store if isinstance(store, TypedTimestampedWindowStore) else None

    def get_session_store(self, name: str) -> TypedSessionStore | None:
        """Return the session store `name`, None if absent or of another kind."""
        store = self._store_of(name, "session")
        return store.of_operators() if isinstance(store, TypedSessionStore) else None

    def dropped_records(self) -> int:
        """Return the number of dropped records (Kafka metric: dropped-records-total, over all nodes)."""
        return self._host.dropped_records()

    def close(self) -> None:
        """Close processors and stores; output stays readable. A second call does nothing."""
        try:
            self._host.close()
        finally:
            self._collect()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
