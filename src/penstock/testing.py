"""Tests of a topology without broker or Spark: TopologyTestDriver and its topics (Kafka: kafka-streams-test-utils).

Rules: every topic has one partition and all sub-topologies run in one task, `0_0`. A record piped in is processed
completely before `pipe_input` returns: the record, stream-time punctuation, a commit, then the records that this wrote
to topics that the topology reads. The wall clock moves only when told. How records are driven stands in
`host/inline.py`; here are the encoding of input, the queues of output, and the errors of Kafka's driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, TypeVar, overload

from penstock.clock import MockClock, SystemClock
from penstock.config import StreamsConfig
from penstock.host.inline import InlineHost, ProducedRecord
from penstock.plan.topology import Topology
from penstock.record import NO_TIMESTAMP, Headers, KeyValue, ValueAndTimestamp
from penstock.serdes import Serde
from penstock.state.api import KeyValueIterator, KeyValueStore, StateStore
from penstock.state.layers import MeteredKeyValueStore, MeteredTimestampedKeyValueStore

__all__ = ["MockClock", "TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"]

K = TypeVar("K")
V = TypeVar("V")

DEFAULT_APPLICATION_ID = "topology-test-driver"
_NOT_GIVEN: Final = object()
"""Stands for an argument that was left out, where None means null."""


@dataclass(frozen=True)
class TestRecord(Generic[K, V]):
    """A record to pipe in, or one that was read (Kafka class: TestRecord).

    timestamp: ms since the epoch; None in a record to pipe in: the time of the input topic. Raises ValueError when it
    is negative.
    """

    __test__: ClassVar[bool] = False  # pytest takes classes named Test... for tests

    key: K
    value: V
    timestamp: int | None = None
    headers: Headers = ()

    def __post_init__(self) -> None:
        if self.timestamp is not None and self.timestamp < 0:
            raise ValueError(f"Invalid timestamp: {self.timestamp}. Timestamp should always be non-negative or None.")


class TopologyTestDriver:
    """Runs a topology in this process, record by record, so that a test can look at each result (Kafka class:
    TopologyTestDriver).
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any] | None = None,
        initial_wall_clock_ms: int | None = None,
    ) -> None:
        """Make the task and initialise its processors.

        Args:
            topology: what `StreamsBuilder.build()` gives, or a `Topology` made by hand.
            config: the configuration; `application.id` may be left out.
            initial_wall_clock_ms: where the clock starts, in ms; None for the machine's time.

        Raises:
            StreamsError: a processor cannot be initialised.
        """
        given = config.given() if isinstance(config, StreamsConfig) else dict(config or {})
        checked = StreamsConfig({"application.id": DEFAULT_APPLICATION_ID, **given})
        start = SystemClock().milliseconds() if initial_wall_clock_ms is None else initial_wall_clock_ms
        self._clock = MockClock(start)
        self._host = InlineHost(topology.build(checked.required("application.id")), checked, self._clock)
        self._queues: dict[str, deque[ProducedRecord]] = {}

    def create_input_topic(
        self,
        topic: str,
        key_serde: Serde,
        value_serde: Serde,
        start_timestamp: int | None = None,
        auto_advance_ms: int = 0,
    ) -> TestInputTopic[Any, Any]:
        """Return a topic to pipe records into.

        Args:
            topic: its name; that the topology reads it is checked when a record is piped in.
            key_serde: writes the keys.
            value_serde: writes the values.
            start_timestamp: time in ms of the first record that is piped in without one; None for the driver's clock.
            auto_advance_ms: by how much each such record is later than the one before.

        Raises:
            TypeError: the topic or a serde is None.
            ValueError: auto_advance_ms is negative.
        """
        start = self._clock.milliseconds() if start_timestamp is None else start_timestamp
        return TestInputTopic(self, topic, key_serde, value_serde, start, auto_advance_ms)

    def create_output_topic(self, topic: str, key_serde: Serde, value_serde: Serde) -> TestOutputTopic[Any, Any]:
        """Return a topic to read results from; raises TypeError when the topic or a serde is None."""
        return TestOutputTopic(self, topic, key_serde, value_serde)

    def produced_topic_names(self) -> set[str]:
        """Return the names of all topics that were written so far, repartition topics among them."""
        return set(self._queues)

    def pipe_bytes(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> None:
        """Process one record, given as bytes and a timestamp in ms, completely.

        Raises ValueError for a topic that the topology does not read, StreamsError when a processor fails.
        """
        try:
            self._host.pipe(topic, key, value, timestamp, headers)
        finally:
            self._collect()

    def read_bytes(self, topic: str) -> ProducedRecord:
        """Return the next record of `topic` as bytes; raises LookupError when there is none."""
        if topic not in self._queues:
            raise LookupError(f"Uninitialized topic: {topic}")
        if not self._queues[topic]:
            raise LookupError(f"Empty topic: {topic}")
        return self._queues[topic].popleft()

    def read_all_bytes(self) -> list[ProducedRecord]:
        """Return all records of all topics that were not read yet as bytes, in the order in which they were sent,
        across topics.
        """
        records = [record for queue in self._queues.values() for record in queue]
        for queue in self._queues.values():
            queue.clear()
        return sorted(records, key=lambda record: record.number)

    def queue_size(self, topic: str) -> int:
        """Return how many records of `topic` were not read yet, 0 for one that was never written."""
        return len(self._queues.get(topic, ()))

    def _collect(self) -> None:
        for record in self._host.take_output():
            self._queues.setdefault(record.topic, deque()).append(record)

    def advance_wall_clock_time(self, advance_ms: int) -> None:
        """Move the clock by `advance_ms` (0 or more), run the wall-clock punctuations that fall due, and commit.

        Raises ValueError for a negative step, StreamsError when a punctuator fails.
        """
        self._clock.advance(advance_ms)
        try:
            self._host.punctuate_wall_clock()
        finally:
            self._collect()

    def get_all_state_stores(self) -> dict[str, StateStore]:
        """Return all stores by name."""
        return dict(self._host.stores())

    def get_state_store(self, name: str) -> StateStore | None:
        """Return the store `name`, None if there is none; raises ValueError for a kind that has a method of its own."""
        match self._host.stores().get(name):
            case MeteredTimestampedKeyValueStore():
                raise ValueError(
                    f"Store {name} is a timestamped key-value store and should be accessed via "
                    "`get_timestamped_key_value_store()`"
                )
            case MeteredKeyValueStore():
                raise ValueError(
                    f"Store {name} is a key-value store and should be accessed via `get_key_value_store()`"
                )
            case store:
                return store

    def get_key_value_store(self, name: str) -> KeyValueStore | None:
        """Return the key-value store `name`, None if there is none of that kind; a timestamped one shows its values
        without their timestamps, and takes them so, with timestamp -1.
        """
        match self._host.stores().get(name):
            case MeteredTimestampedKeyValueStore() as store:
                return KeyValueStoreFacade(store)
            case MeteredKeyValueStore() as store:
                return store
            case _:
                return None

    def get_timestamped_key_value_store(self, name: str) -> KeyValueStore | None:
        """Return the timestamped key-value store `name`, whose values are ValueAndTimestamp, None if there is none of
        that kind.
        """
        store = self._host.stores().get(name)
        return store if isinstance(store, MeteredTimestampedKeyValueStore) else None

    def dropped_records(self) -> int:
        """Return how many records were dropped so far (Kafka metric: dropped-records-total, over all nodes)."""
        return self._host.dropped_records()

    def close(self) -> None:
        """Close processors and stores; output can still be read. A second call does nothing."""
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


class TestInputTopic(Generic[K, V]):
    """A topic to pipe records into (Kafka class: TestInputTopic); made by `create_input_topic`."""

    __test__: ClassVar[bool] = False

    def __init__(
        self,
        driver: TopologyTestDriver,
        topic: str,
        key_serde: Serde,
        value_serde: Serde,
        start_timestamp: int,
        auto_advance_ms: int,
    ) -> None:
        """See `TopologyTestDriver.create_input_topic`."""
        _check_not_none(topic, key_serde, value_serde)
        if auto_advance_ms < 0:
            raise ValueError(f"auto_advance_ms must be 0 or more, got {auto_advance_ms}.")
        self._driver = driver
        self._topic = topic
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._current_time = start_timestamp
        self._auto_advance_ms = auto_advance_ms

    def advance_time(self, advance_ms: int) -> None:
        """Move the time of the records that follow by `advance_ms`; raises ValueError for a negative step."""
        if advance_ms < 0:
            raise ValueError(f"advance_ms must be 0 or more, got {advance_ms}.")
        self._current_time += advance_ms

    @overload
    def pipe_input(self, record: TestRecord[K, V], /) -> None: ...

    @overload
    def pipe_input(self, value: V, /, *, timestamp: int | None = None, headers: Headers = ()) -> None: ...

    @overload
    def pipe_input(
        self, key: K | None = None, value: V | None = None, timestamp: int | None = None, headers: Headers = ()
    ) -> None: ...

    def pipe_input(
        self, key: Any = _NOT_GIVEN, value: Any = _NOT_GIVEN, timestamp: int | None = None, headers: Headers = ()
    ) -> None:
        """Process one record completely: `pipe_input(key, value)`, `pipe_input(value)` or `pipe_input(record)`.

        Args:
            key: the key, None for null.
            value: the value, None for null.
            timestamp: time in ms; None for the time of this topic, which then advances by auto_advance_ms.
            headers: pairs of name and bytes.

        Raises:
            ValueError: the topology does not read the topic, or the timestamp is negative.
            StreamsError: a processor failed.
        """
        if isinstance(key, TestRecord):
            self._pipe(key)
        elif value is _NOT_GIVEN:
            self._pipe(TestRecord(None, None if key is _NOT_GIVEN else key, timestamp, headers))
        else:
            self._pipe(TestRecord(None if key is _NOT_GIVEN else key, value, timestamp, headers))

    def pipe_record_list(self, records: Iterable[TestRecord[K, V]]) -> None:
        """Process `records`, one after the other."""
        for record in records:
            self._pipe(record)

    def pipe_key_value_list(
        self, key_values: Iterable[tuple[K, V]], start_timestamp: int | None = None, advance_ms: int = 0
    ) -> None:
        """Process a record for each (key, value).

        Args:
            key_values: pairs of key and value.
            start_timestamp: time of the first in ms; None for the time of this topic, with its own advance.
            advance_ms: by how much each is later than the one before, if start_timestamp is given.
        """
        for index, (key, value) in enumerate(key_values):
            time = None if start_timestamp is None else start_timestamp + index * advance_ms
            self._pipe(TestRecord(key, value, time))

    def pipe_value_list(self, values: Iterable[V], start_timestamp: int | None = None, advance_ms: int = 0) -> None:
        """Process a record without a key for each value; times as in `pipe_key_value_list`."""
        for index, value in enumerate(values):
            time = None if start_timestamp is None else start_timestamp + index * advance_ms
            self._pipe(TestRecord(None, value, time))

    def _pipe(self, record: TestRecord[Any, Any]) -> None:
        timestamp = record.timestamp
        if timestamp is None:
            timestamp = self._current_time
            self._current_time += self._auto_advance_ms
        topic, headers = self._topic, record.headers
        key = None if record.key is None else self._key_serde.serialize(topic, record.key, headers)
        value = None if record.value is None else self._value_serde.serialize(topic, record.value, headers)
        self._driver.pipe_bytes(topic, key, value, timestamp, headers)

    def __repr__(self) -> str:
        return f"TestInputTopic({self._topic!r}, {type(self._key_serde).__name__}, {type(self._value_serde).__name__})"


class TestOutputTopic(Generic[K, V]):
    """A topic to read results from (Kafka class: TestOutputTopic); made by `create_output_topic`."""

    __test__: ClassVar[bool] = False

    def __init__(self, driver: TopologyTestDriver, topic: str, key_serde: Serde, value_serde: Serde) -> None:
        """See `TopologyTestDriver.create_output_topic`."""
        _check_not_none(topic, key_serde, value_serde)
        self._driver = driver
        self._topic = topic
        self._key_serde = key_serde
        self._value_serde = value_serde

    def read_record(self) -> TestRecord[K, V]:
        """Return the next record; raises LookupError when there is none."""
        record = self._driver.read_bytes(self._topic)
        topic, headers = self._topic, record.headers
        key: Any = None if record.key is None else self._key_serde.deserialize(topic, record.key, headers)
        value: Any = None if record.value is None else self._value_serde.deserialize(topic, record.value, headers)
        return TestRecord(key, value, record.timestamp, headers)

    def read_value(self) -> V:
        """Return the value of the next record; raises LookupError when there is none."""
        return self.read_record().value

    def read_key_value(self) -> KeyValue:
        """Return key and value of the next record; raises LookupError when there is none."""
        record = self.read_record()
        return KeyValue(record.key, record.value)

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        """Return all records that were not read yet."""
        return [self.read_record() for _ in range(self.get_queue_size())]

    def read_key_values_to_list(self) -> list[KeyValue]:
        """Return keys and values of all records that were not read yet."""
        return [KeyValue(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """Return the last value of each key among the records that were not read yet; raises RuntimeError for a null
        key.
        """
        result: dict[K, V] = {}
        while not self.is_empty():
            record = self.read_record()
            if record.key is None:
                raise RuntimeError("Null keys not allowed with read_key_values_to_map method")
            result[record.key] = record.value
        return result

    def read_values_to_list(self) -> list[V]:
        """Return the values of all records that were not read yet."""
        return [record.value for record in self.read_records_to_list()]

    def get_queue_size(self) -> int:
        """Return how many records were not read yet."""
        return self._driver.queue_size(self._topic)

    def is_empty(self) -> bool:
        """Return whether all records were read."""
        return self.get_queue_size() == 0

    def __repr__(self) -> str:
        return f"TestOutputTopic({self._topic!r}, {type(self._key_serde).__name__}, {type(self._value_serde).__name__})"


class KeyValueStoreFacade:
    """A timestamped key-value store seen as a plain one (implements KeyValueStore; Kafka class:
    TopologyTestDriver.KeyValueStoreFacade).
    """

    def __init__(self, store: MeteredTimestampedKeyValueStore) -> None:
        """Show `store`, which stays its own master: writes go to it with timestamp -1."""
        self._store = store

    @property
    def name(self) -> str:
        """The name of the store."""
        return self._store.name

    def flush(self) -> None:
        """Write cached entries through and forward them."""
        self._store.flush()

    def close(self) -> None:
        """Close the store; later calls raise InvalidStateStoreError."""
        self._store.close()

    def is_open(self) -> bool:
        """Return whether the store can be used."""
        return self._store.is_open()

    def persistent(self) -> bool:
        """Return whether the store's base outlives the process."""
        return self._store.persistent()

    def get(self, key: Any) -> Any:
        """Return the value of `key`, None if there is none; raises TypeError for a None key."""
        return _plain(self._store.get(key))

    def put(self, key: Any, value: Any) -> None:
        """Store `value` under `key`; None deletes. Raises TypeError for a None key."""
        self._store.put(key, _timed(value))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Store `value` unless `key` has one; return the value that was there, None if there was none."""
        return _plain(self._store.put_if_absent(key, _timed(value)))

    def put_all(self, entries: Sequence[tuple[Any, Any]]) -> None:
        """Store each (key, value) in turn."""
        self._store.put_all([(key, _timed(value)) for key, value in entries])

    def delete(self, key: Any) -> Any:
        """Remove `key`; return the value that was there, None if there was none."""
        return _plain(self._store.delete(key))

    def clear(self) -> None:
        """Remove all entries."""
        self._store.clear()

    def range(self, from_key: Any, to_key: Any) -> KeyValueIterator:
        """Return the entries from `from_key` to `to_key`, both inclusive, None for an open end."""
        return _PlainIterator(self._store.range(from_key, to_key))

    def reverse_range(self, from_key: Any, to_key: Any) -> KeyValueIterator:
        """As `range`, from the largest key to the smallest."""
        return _PlainIterator(self._store.reverse_range(from_key, to_key))

    def all(self) -> KeyValueIterator:
        """Return all entries."""
        return _PlainIterator(self._store.all())

    def reverse_all(self) -> KeyValueIterator:
        """Return all entries from the largest key to the smallest."""
        return _PlainIterator(self._store.reverse_all())

    def prefix_scan(self, prefix: Any, prefix_serde: Serde) -> KeyValueIterator:
        """Return the entries whose serialised key begins with `prefix` as `prefix_serde` writes it."""
        return _PlainIterator(self._store.prefix_scan(prefix, prefix_serde))

    def approximate_num_entries(self) -> int:
        """Return about how many entries there are."""
        return self._store.approximate_num_entries()


class _PlainIterator:
    """Takes the timestamps from what another iterator gives."""

    def __init__(self, entries: KeyValueIterator) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self

    def __next__(self) -> KeyValue:
        key, value = next(self._entries)
        return KeyValue(key, _plain(value))

    def __enter__(self) -> KeyValueIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def peek_next_key(self) -> Any:
        """Return the next key without taking it; raises StopIteration at the end."""
        return self._entries.peek_next_key()

    def close(self) -> None:
        """Release the iterator."""
        self._entries.close()


def _plain(value: ValueAndTimestamp | None) -> Any:
    return None if value is None else value.value


def _timed(value: Any) -> ValueAndTimestamp | None:
    return None if value is None else ValueAndTimestamp(value, NO_TIMESTAMP)


def _check_not_none(topic: str, key_serde: Serde, value_serde: Serde) -> None:
    for name, given in (("topic", topic), ("key_serde", key_serde), ("value_serde", value_serde)):
        if given is None:
            raise TypeError(f"{name} cannot be None")
