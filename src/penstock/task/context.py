"""The contexts of tasks and processors.

`TaskContext` holds the state shared by all nodes of a task, including the source records (`SourceRecords`);
`NodeContext` is the context of one processor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, Protocol

from penstock.config import StreamsConfig
from penstock.errors import StreamsError, UnsupportedOperationError
from penstock.exception_handlers import ExceptionHandler, ProducerRecord
from penstock.metrics import StreamsMetrics
from penstock.metrics.drop_reasons import Dropped, DropReason
from penstock.metrics.observer import NOT_OBSERVED, TaskObserver
from penstock.plan.internal_topics import INTERNAL_SUFFIXES
from penstock.plan.user_lines import made_at
from penstock.processor.api import A, Alarm, Cancellable, HeldResults, ProcessorContext, PunctuationType, Punctuator
from penstock.processor.call_inbox import CallInbox
from penstock.processor.row_partitions import RowPartitions
from penstock.processor.waiting_records import WaitingRecord
from penstock.record import (
    NO_METADATA,
    NO_TIMESTAMP,
    Headers,
    Int64Array,
    Record,
    RecordBatch,
    RecordMetadata,
    TopicPartition,
)
from penstock.serdes import Serde
from penstock.serdes.api import missing_serde
from penstock.state.api import EngineStore, RecordContext, StateStore
from penstock.task.dropped_records import DroppedRow, dropped_headers, dropped_rows
from penstock.task.punctuation import MINIMUM_INTERVAL_MS, Schedule, Schedules, TaskAlarm, check_schedule
from penstock.task.source_records import SourceRecords
from penstock.task.taps import TappedRecord, Taps
from penstock.windows import Window
from penstock_broker.common.durations import Duration, milliseconds, timestamp_ms


class Child(Protocol):
    """A child node, as used by a context."""

    name: str

    def process(self, record: Record[Any, Any]) -> None:
        """Process one record, in this node and all downstream nodes."""
        ...


class ServedNode(Protocol):
    """The node of a context, as used by the context."""

    name: str
    initializing: bool

    @property
    def stores(self) -> Sequence[str]:
        """The names of the stores connected to the node."""
        ...

    @property
    def children(self) -> Sequence[Child]:
        """The children, in order of registration."""
        ...

    @property
    def dropped_sinks(self) -> Sequence[Child]:
        """The sinks of the records that the node drops."""
        ...

    @property
    def dropped_rows(self) -> list[DroppedRow]:
        """The dropped rows of the batch in progress, for these sinks."""
        ...

    def flushed(self, batch: RecordBatch, contexts: Sequence[RecordContext]) -> None:
        """Forward records that left the cache of the node's store."""
        ...

    def process(self, record: Record[Any, Any]) -> None:
        """Process one record, in this node and all downstream nodes."""
        ...

    def count_dead_letter(self) -> None:
        """Count a record that is written as a dead letter."""
        ...


@dataclass
class CallState:
    """The calls of a task.

    Args:
        inboxes: of its operators with calls, by name.
        repartition_topics: the topics whose offsets tell no record from others.
        repeated_before: the offsets before which failed answers are ignored, because their calls are made again.
        answered: the id of the call whose answer is used; None without one.
    """

    inboxes: dict[str, CallInbox] = field(default_factory=dict)
    repartition_topics: Set[str] = frozenset()
    repeated_before: dict[TopicPartition, int] = field(default_factory=dict)
    answered: str | None = None


@dataclass(frozen=True)
class TaskStores:
    """The stores of a task, and the global stores that it reads, by name, and its calls."""

    own: Mapping[str, EngineStore] = field(default_factory=dict)
    shared: Mapping[str, StateStore] = field(default_factory=dict)
    calls: CallState = field(default_factory=CallState)


class TaskContext:
    """The state shared by the nodes of a task: times, the current record, and counts.

    It has no clock: the host sets `wall_clock` (ms).

    Args:
        task_id: the task, as `<sub-topology>_<partition>`.
        config: the configuration of the application.
        schedules: the schedules of the task's punctuations.
        wall_clock: the initial wall-clock time (ms).
        stream_time: the initial stream time (ms).
        observer: receives the reports of the task, its nodes and its stores.
        node_lines: the line of the user's program that created each node, by node name.
    """

    def __init__(
        self,
        task_id: str,
        config: StreamsConfig,
        schedules: Schedules,
        wall_clock: int,
        stream_time: int = NO_TIMESTAMP,
        observer: TaskObserver = NOT_OBSERVED,
        node_lines: Mapping[str, str] | None = None,
    ) -> None:
        self.task_id = task_id
        self.config = config
        self.schedules = schedules
        self.wall_clock = wall_clock
        self.stream_time = stream_time
        self.metadata: RecordMetadata | None = None
        self.record: Record[Any, Any] | None = None
        self.punctuation_time = NO_TIMESTAMP
        self.sources = RowPartitions((TopicPartition("", -1),))
        self.source_records = SourceRecords()
        self.stores = TaskStores()
        self.processor_metadata: dict[str, int] = {}
        self.held_results: list[tuple[NodeContext, HeldResults]] = []
        self.dropped_records: Counter[Dropped] = Counter()
        self.metrics = StreamsMetrics(config.client_id(), config["metrics.recording.level"])
        self.observer = observer
        self.taps = Taps(task_id)
        self.commit_requested = False
        self.sender: Callable[[ProducerRecord], None] | None = None
        self._node_lines = node_lines or {}

    def set_wall_clock(self, now_ms: int) -> None:
        """Set the wall-clock time, which may go backwards."""
        if now_ms < self.wall_clock:
            self.schedules.go_back(now_ms)
        self.wall_clock = now_ms

    def described(self, node: str) -> str:
        """Return the name of a node with its line in the program, if known."""
        return f"{node}{made_at(self._node_lines.get(node))}"

    def node_context(self, node: ServedNode) -> ProcessorContext:
        """Return the context of `node`."""
        return NodeContext(self, node)

    def count_dropped(self, name: str, reason: DropReason, records: int = 1) -> None:
        """Count records dropped by the node or store `name` for a reason."""
        if records:
            self.dropped_records[Dropped(name, reason)] += records

    def count_late(self, store: str, records: int) -> None:
        """Count late writes to a store."""
        self.count_dropped(store, DropReason.LATE, records)

    def tap(self, node: str, record: Record[Any, Any]) -> None:
        """Keep a record that reaches the tapped node `node`."""
        at = self.metadata or NO_METADATA
        self.taps.take_record(
            node,
            TappedRecord(
                record.key, record.value, record.timestamp, record.headers, self.task_id, *at, self.wall_clock
            ),
        )

    def offset(self) -> int:
        """Return the offset of the current input record, -1 without a record."""
        return (self.metadata or NO_METADATA).offset

    def record_context(self) -> RecordContext:
        """Return the context for a write to a store: the current record's or punctuation's."""
        record = self.record
        if record is None:
            return RecordContext(self.punctuation_time, (), *(self.metadata or NO_METADATA))
        return RecordContext(record.timestamp, record.headers, *(self.metadata or NO_METADATA))


def _serialized(serde: Serde | None, what: str, topic: str, part: Any, headers: Headers) -> bytes | None:
    if part is None:
        return None
    if serde is None:
        raise missing_serde(what)
    return serde.serialize(topic, part, headers)


class NodeContext:
    """The context of one processor (implements ProcessorContext, EngineContext and CallsContext).

    Args:
        task: the context of the task.
        node: the node of the processor.
    """

    def __init__(self, task: TaskContext, node: ServedNode) -> None:
        self._task = task
        self._node = node
        self._calls = 0
        self._caller: Callable[[Callable[..., Any], Record[Any, Any]], None] | None = None

    @property
    def application_id(self) -> str:
        """`application.id` of the configuration."""
        application_id: str = self._task.config.required("application.id")
        return application_id

    @property
    def task_id(self) -> str:
        """The task, as `<sub-topology>_<partition>`."""
        return self._task.task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record; None without a current record."""
        return self._task.metadata

    @property
    def topic(self) -> str | None:
        """The topic of the input record; None without a current record (KIP-28)."""
        return (self._task.metadata or NO_METADATA).topic

    @property
    def partition(self) -> int:
        """The partition of the input record; -1 without a current record (KIP-28)."""
        return (self._task.metadata or NO_METADATA).partition

    @property
    def offset(self) -> int:
        """The offset of the input record; -1 without a current record (KIP-28)."""
        return (self._task.metadata or NO_METADATA).offset

    @property
    def key_serde(self) -> Serde | None:
        """`default.key.serde`, None if not set."""
        serde: Serde | None = self._task.config["default.key.serde"]
        return serde

    @property
    def value_serde(self) -> Serde | None:
        """`default.value.serde`, None if not set."""
        serde: Serde | None = self._task.config["default.value.serde"]
        return serde

    def get_state_store(self, name: str) -> Any:
        """Return the store `name`, or a read-only view of a global store.

        Raises StreamsError if the store is not connected to this processor.
        """
        if name in self._task.stores.shared:
            return self._task.stores.shared[name]
        if name not in self._node.stores:
            error = StreamsError(
                f"Processor {self._node.name} has no access to StateStore {name} as the store is not connected to "
                "the processor. If you add stores manually via '.add_state_store()' make sure to connect the added "
                "store to the processor by providing the processor name to '.add_state_store()' or connect them via "
                "'.connect_processor_and_state_stores()'. DSL users need to provide the store name to '.process()', "
                "'.process_values()', or '.transform_values()' to connect the store to the corresponding operator, or "
                "they can provide a StoreBuilder by implementing the stores() method on the Supplier itself."
            )
            connected = ", ".join(self._node.stores) or "none"
            error.add_note(
                f"{self._task.described(self._node.name)} is connected to: {connected}. Name the store there, as in "
                f"stream.process(supplier, {name!r}), or connect them with "
                f"Topology.connect_processor_and_state_stores({self._node.name!r}, {name!r})."
            )
            raise error
        return self._task.stores.own[name].exposed()

    def forward(self, record: Record[Any, Any], child_name: str | None = None) -> None:
        """Forward `record` to every child in order of registration, or only to the named child.

        Raises StreamsError for an unknown child, TypeError if `record` is not a Record.
        """
        if not isinstance(record, Record):
            raise TypeError(
                f"Expected a Record, such as record.with_value(...) or Record(key, value, timestamp), got {record!r}."
            )
        if child_name is None:
            for child in self._node.children:
                child.process(record)
            return
        for child in self._node.children:
            if child.name == child_name:
                child.process(record)
                return
        raise StreamsError(
            f"Unknown downstream node: {child_name} either does not exist or is not connected to this processor."
        )

    def send(
        self,
        topic: str,
        key: Any,
        value: Any,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> None:
        """Write a record to any topic without a sink (KIP-28).

        It has the timestamp and the headers of the current record, or the time of the punctuation. Arguments and errors
        are those of `ProcessorContext.send`.
        """
        if self._task.sender is None:
            raise UnsupportedOperationError("send() is not supported in the processor of a global store.")
        if topic.startswith(f"{self.application_id}-") and topic.endswith(INTERNAL_SUFFIXES):
            raise StreamsError(
                f"Processor {self._node.name} cannot send to the internal topic {topic}: forward to a repartition() "
                "instead, or write to your own topic."
            )
        context = self._task.record_context()
        timestamp, headers = context.timestamp, context.headers
        raw_key = _serialized(key_serde or self.key_serde, "key", topic, key, headers)
        raw_value = _serialized(value_serde or self.value_serde, "value", topic, value, headers)
        self._task.sender(ProducerRecord(topic, raw_key, raw_value, max(timestamp, 0), headers))

    def call(self, function: Callable[Concatenate[A, ...], Any], argument: A, *, key: Any = None) -> None:
        """Call a function outside of the task, as in `ProcessorContext.call`."""
        named = f"Processor {self._task.described(self._node.name)}"
        if self._caller is None:
            raise StreamsError(
                f"{named} calls a function, but has no calls: give it calls=Calls(...) and "
                "call_functions=(function,), with all functions that the processor calls."
            )
        if self._node.initializing:
            raise StreamsError(f"{named} calls a function in init(): call it for a record, or in a punctuation.")
        record, context = self._task.record, self._task.record_context()
        if key is None and record is None:
            raise StreamsError(
                f"{named} calls a function in a punctuation without a key: name the key of the call, with key=. A "
                "FixedKeyProcessor calls only for records."
            )
        own_key = record.key if key is None and record is not None else key
        self._caller(function, Record(own_key, argument, max(context.timestamp, 0), context.headers))

    def schedule(
        self,
        interval_ms: Duration,
        punctuation_type: PunctuationType,
        callback: Punctuator,
        start_time_ms: int | None = None,
    ) -> Cancellable:
        """Call `callback` every `interval_ms`.

        Stream time is aligned to 0 or `start_time_ms`, wall-clock time to now or `start_time_ms`. Raises ValueError for
        an interval below 1 ms or a start time below 0, and TypeError for another type, or a callback that does not
        accept the time.
        """
        check_schedule(punctuation_type, callback, self._task.described(self._node.name))
        interval_ms = milliseconds(interval_ms, "interval")
        if interval_ms < MINIMUM_INTERVAL_MS:
            raise ValueError("The minimum supported scheduling interval is 1 millisecond.")
        if start_time_ms is not None and timestamp_ms(start_time_ms, "start_time_ms") < 0:
            raise ValueError("The minimum supported start time is Instant.EPOCH.")
        now = self._task.stream_time if punctuation_type is PunctuationType.STREAM_TIME else self._task.wall_clock
        if start_time_ms is not None:
            first = (
                start_time_ms
                if start_time_ms >= now
                else start_time_ms + ((now - start_time_ms) // interval_ms + 1) * interval_ms
            )
        else:
            first = 0 if punctuation_type is PunctuationType.STREAM_TIME else now + interval_ms
        schedule = Schedule(self._node.name, self._calls, punctuation_type, interval_ms, callback, first)
        schedule.first_time = NO_TIMESTAMP if start_time_ms is None else start_time_ms
        self._task.schedules.add(schedule, self._node.initializing)
        self._calls += 1
        return schedule

    def commit(self) -> None:
        """Request a commit soon."""
        self._task.commit_requested = True

    def current_stream_time_ms(self) -> int:
        """Return the largest timestamp (ms) of the task's records, -1 before the first record."""
        return self._task.stream_time

    def current_system_time_ms(self) -> int:
        """Return the wall-clock time of the task in ms."""
        return self._task.wall_clock

    def app_configs(self) -> Mapping[str, Any]:
        """Return the configuration set by the user."""
        return self._task.config.given()

    def metrics(self) -> StreamsMetrics:
        """Return the sensors of the task."""
        return self._task.metrics

    @property
    def node_name(self) -> str:
        """The name of the node."""
        return self._node.name

    def count_dropped(self, reason: DropReason, records: int = 1) -> None:
        """Count records dropped by this node for a reason (Kafka metric: dropped-records-total)."""
        self._task.count_dropped(self._node.name, reason, records)

    def drop(self, reason: DropReason, window: Window | None = None, stream_time: int | None = None) -> None:
        """Drop the current record of this node: count it, and write it to the sinks of dropped records."""
        self.count_dropped(reason)
        self.write_dropped(reason, window, stream_time)

    def write_dropped(self, reason: DropReason, window: Window | None = None, stream_time: int | None = None) -> None:
        """Write the current record of this node to its sinks of dropped records, without counting it."""
        sinks, task = self._node.dropped_sinks, self._task
        record = task.record
        if not sinks or record is None:
            return
        time = task.stream_time if stream_time is None else stream_time
        source = task.source_records.place(task.metadata or NO_METADATA)
        headers = (*record.headers, *dropped_headers(self._node.name, reason, window, time, source))
        for sink in sinks:
            sink.process(record.with_headers(headers))

    def drop_rows(
        self,
        reason: DropReason,
        rows: Int64Array,
        windows: Iterable[Window] | None = None,
        stream_times: Int64Array | None = None,
    ) -> None:
        """Drop rows of the batch in `process_batch`: count them, and write them to the sinks of dropped records."""
        self.count_dropped(reason, len(rows))
        self.write_dropped_rows(reason, rows, windows, stream_times)

    def write_dropped_rows(
        self,
        reason: DropReason,
        rows: Int64Array,
        windows: Iterable[Window] | None = None,
        stream_times: Int64Array | None = None,
    ) -> None:
        """Write rows of the batch in `process_batch` to the sinks of dropped records, without counting them."""
        if self._node.dropped_sinks:
            self._node.dropped_rows.extend(dropped_rows(reason, rows, windows, stream_times))

    def count_emitted(self, records: int) -> None:
        """Count suppressed records emitted by this node (Kafka metric: suppression-emit-total)."""
        self._task.observer.emitted(self._node.name, records)

    def processor_metadata(self) -> MutableMapping[str, int]:
        """Return the numbers that processors and stores keep across commits, by `<name>/<what>`."""
        return self._task.processor_metadata

    def emit_with_epoch(self, results: HeldResults) -> None:
        """Emit `results` at the end of an epoch, for hosts with one task per epoch."""
        self._task.held_results.append((self, results))

    def config(self, key: str) -> Any:
        """Return the value of the configuration `key`, or its default."""
        return self._task.config[key]

    @contextmanager
    def in_record_context(self, context: RecordContext) -> Iterator[None]:
        """Set `context` as that of the current record during the `with` block."""
        task = self._task
        outer, is_earlier = (task.metadata, task.record), task.source_records.place_is_earlier
        task.source_records.place_is_earlier = is_earlier or context.metadata != task.metadata
        task.metadata = context.metadata
        task.record = Record(None, None, max(context.timestamp, 0), context.headers)
        try:
            yield
        finally:
            task.metadata, task.record = outer
            task.source_records.place_is_earlier = is_earlier

    @contextmanager
    def in_stored_record_context(self, context: RecordContext) -> Iterator[None]:
        """Set a context kept by a store, as `in_record_context` does, and hide the source records."""
        with self._task.source_records.hidden(), self.in_record_context(context):
            yield

    def alarm(self, callback: Punctuator) -> Alarm:
        """Return an alarm that calls `callback`."""
        alarm = TaskAlarm(self._node.name, self._calls, callback, self._task.schedules)
        self._task.schedules.add(alarm, self._node.initializing)
        self._calls += 1
        return alarm

    def source_record(self) -> tuple[bytes | None, bytes | None] | None:
        """Return key and value of the source record of the current one; None if they are not kept."""
        return self._task.source_records.kept(self._task.metadata or NO_METADATA)

    def process_again(
        self, record: Record[Any, Any], metadata: RecordMetadata, source: tuple[bytes | None, bytes | None] | None
    ) -> None:
        """Pass a record that waited in a store to this node, as when it arrived."""
        task = self._task
        outer, task.metadata = task.metadata, metadata
        with task.source_records.stored(metadata, source):
            self._node.process(record)
        task.metadata = outer  # not after an error, which names the place of the record

    def bury(self, error: Exception) -> None:
        """Drop the current record of this node, and write it to the sinks of dropped records as a dead letter."""
        self.count_dropped(DropReason.PROCESSING)
        task = self._task
        record = task.record
        if record is None:
            return
        self._node.count_dead_letter()
        source = task.source_records.place(task.metadata or NO_METADATA) or NO_METADATA
        letter = record.with_headers((*record.headers, *ExceptionHandler.error_headers(error, source)))
        for sink in self._node.dropped_sinks:
            sink.process(letter)

    def call_inbox(self, node: str, make: Callable[[], CallInbox]) -> CallInbox:
        """Return the inbox of the operator `node` in this task, made by `make` at first."""
        inboxes = self._task.stores.calls.inboxes
        if node not in inboxes:
            inboxes[node] = make()
        return inboxes[node]

    def set_caller(self, caller: Callable[[Callable[..., Any], Record[Any, Any]], None]) -> None:
        """Set the function that keeps the calls of this node."""
        self._caller = caller

    def process_answered(self, record: Record[Any, Any], waiting: WaitingRecord) -> None:
        """Pass the record of an answer to this node, as when it arrived."""
        calls = self._task.stores.calls
        calls.answered = waiting.call_id
        self.process_again(record, RecordMetadata(waiting.topic, waiting.partition, waiting.offset), waiting.source)
        calls.answered = None  # not after an error, which ends the task

    def call_origin(self) -> str | None:
        """Return the beginning of the ids of the calls that follow from the current record; None without one."""
        records, calls = self._task.source_records, self._task.stores.calls
        place = self._task.metadata or NO_METADATA
        if records.are_earlier:
            return None
        if records.are_stored:
            return None if calls.answered is None else f"{calls.answered}/"
        if place.topic is None or place.topic in calls.repartition_topics:
            return None
        return f"{place.topic}-{place.partition}-{place.offset}-"

    def is_repeated(self, answer: RecordMetadata) -> bool:
        """Return whether the call of the answer at this place is made again if it has failed."""
        topic, partition, offset = answer
        return offset < self._task.stores.calls.repeated_before.get(TopicPartition(topic or "", partition), 0)

    def source_partitions(self) -> RowPartitions:
        """Return the source partitions of the rows in `process_batch`."""
        return self._task.sources

    def forward_flushed(self, batch: RecordBatch, contexts: Sequence[RecordContext]) -> None:
        """Forward each record to every child, with its context as that of the current record."""
        self._node.flushed(batch, contexts)
