"""The Processor API: the interfaces for users' processors.

It contains no engine code.

A processor belongs to one task; its `init` runs before its first record and its `close` after its last. `init` gets the
state stores from the context.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Concatenate, Generic, Protocol

from typing_extensions import TypeVar

from penstock.errors import CallFailedError
from penstock.metrics import StreamsMetrics
from penstock.metrics.drop_reasons import DropReason
from penstock.processor.row_partitions import RowPartitions
from penstock.record import Int64Array, Record, RecordBatch, RecordMetadata
from penstock.serdes import Serde
from penstock.serdes.api import Library
from penstock.state.api import RecordContext, StoreBuilder
from penstock.windows import Window
from penstock_broker.common.durations import Duration


class PunctuationType(Enum):
    """The clock of a punctuator (Kafka class: PunctuationType)."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"

    __hash__ = object.__hash__  # each record looks for schedules, and the hash of Enum is a function in Python


Punctuator = Callable[[int], None]
"""Called with the time of the punctuation in ms, stream or wall-clock (Kafka class: Punctuator)."""


class Cancellable(Protocol):
    """The handle of a schedule (Kafka class: Cancellable)."""

    def cancel(self) -> None:
        """End the schedule; its punctuator is not called again."""
        ...


class Alarm(Protocol):
    """Calls a punctuator of an operator once, at a time by wall clock."""

    def ring_at(self, time_ms: int | None) -> None:
        """Set the time of the next call (ms), None for never. The operator sets it in `init` and in each call."""
        ...


A = TypeVar("A")
"""The type of the argument of a called function."""

KIn = TypeVar("KIn", default=Any)
"""The type of keys that a processor receives."""

VIn = TypeVar("VIn", default=Any)
"""The type of values that a processor receives."""

KOut = TypeVar("KOut", default=Any)
"""The type of keys that a processor forwards."""

VOut = TypeVar("VOut", default=Any)
"""The type of values that a processor forwards."""


class ProcessorContext(Protocol):
    """A processor's interface to its task.

    Kafka class: org.apache.kafka.streams.processor.api.ProcessorContext.
    """

    @property
    def application_id(self) -> str:
        """`application.id` of the configuration."""
        ...

    @property
    def task_id(self) -> str:
        """The task, as `<sub-topology>_<partition>`."""
        ...

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record; None outside of record processing (in `init`)."""
        ...

    @property
    def topic(self) -> str | None:
        """The topic of the input record; None outside of record processing (KIP-28)."""
        ...

    @property
    def partition(self) -> int:
        """The partition of the input record; -1 outside of record processing (KIP-28)."""
        ...

    @property
    def offset(self) -> int:
        """The offset of the input record; -1 outside of record processing (KIP-28)."""
        ...

    @property
    def key_serde(self) -> Serde | None:
        """`default.key.serde`, None if not set."""
        ...

    @property
    def value_serde(self) -> Serde | None:
        """`default.value.serde`, None if not set."""
        ...

    def get_state_store(self, name: str) -> Any:
        """Return the store `name`; raises StreamsError if it is not connected to this processor."""
        ...

    def forward(self, record: Record[Any, Any], child_name: str | None = None) -> None:
        """Forward `record` to all children in registration order, or only to `child_name`.

        Raises StreamsError for an unknown child.
        """
        ...

    def send(
        self,
        topic: str,
        key: Any,
        value: Any,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> None:
        """Write a record to any topic, without a sink (KIP-28).

        It has the timestamp and headers of the record being processed, or the time of the punctuation.

        Args:
            topic: an existing topic; not a repartition or changelog topic.
            key: the key, None for null.
            value: the value, None for null.
            key_serde: the serde of the key; None for `default.key.serde`.
            value_serde: the serde of the value; None for `default.value.serde`.

        Raises StreamsError if the topic is unknown or internal, ConfigError if a serde is missing, and the errors of
        the serdes.
        """
        ...

    def call(self, function: Callable[Concatenate[A, ...], Any], argument: A, *, key: Any = None) -> None:
        """Call a function outside of the task; its answer comes to `Processor.answered` (no Kafka method).

        The call waits in a store of the processor until its answer comes, also after a restart. It has the key, the
        timestamp and the headers of the record being processed, or the time of the punctuation.

        Args:
            function: one of `call_functions` of `KStream.process`.
            argument: its argument.
            key: the key of the call, by which calls are ordered; None for that of the record being processed.

        Raises:
            TypeError: it is no function, such as the name of one, or the coroutine that one returns.
            StreamsError: the function is not declared, a serde cannot write the argument, or no record is processed
                and the key is None.
        """
        ...

    def schedule(
        self,
        interval_ms: Duration,
        punctuation_type: PunctuationType,
        callback: Punctuator,
        start_time_ms: int | None = None,
    ) -> Cancellable:
        """Call `callback` at regular intervals of a clock.

        Args:
            interval_ms: the interval in ms.
            punctuation_type: the clock.
            callback: called with the time in ms.
            start_time_ms: anchor of the intervals in ms (KIP-1146), None for no anchor.

        Raises ValueError if the interval is below 1 ms.
        """
        ...

    def commit(self) -> None:
        """Request a commit soon."""
        ...

    def current_stream_time_ms(self) -> int:
        """Return the largest timestamp (ms) of the task so far, -1 before the first record."""
        ...

    def current_system_time_ms(self) -> int:
        """Return the wall-clock time of the task in ms."""
        ...

    def app_configs(self) -> Mapping[str, Any]:
        """Return the configuration as given by the user."""
        ...

    def metrics(self) -> StreamsMetrics:
        """Return the sensors of the task; processors can add their own."""
        ...


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """Base class of users' processors; override `process`, and `init` and `close` if needed.

    The inherited `init` stores the context in `self.context` (Kafka classes:
    org.apache.kafka.streams.processor.api.Processor, ContextualProcessor).
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Prepare for records, and store the context."""
        self.context = context

    @abstractmethod
    def process(self, record: Record[KIn, VIn]) -> None:
        """Process one record; forward any number of records with `self.context.forward`."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, record).")

    def answered(self, record: Record[KIn, Any], answer: Any) -> None:
        """Process the answer of a call, in the context of the record that made it (no Kafka method).

        Only a processor that calls functions overrides it. It may use stores, forward, and call again.

        Args:
            record: the key, timestamp and headers of the call; its value is the argument.
            answer: the result of the function.
        """
        raise NotImplementedError(f"{type(self).__name__} must define answered(self, record, answer).")

    def failed(self, record: Record[KIn, Any], error: CallFailedError) -> None:
        """Process the failure of a call after its last attempt, in the context of its record (no Kafka method).

        A processor overrides it in place of `on_failure` and `then` of Calls. It may use stores, forward, and call
        again.

        Args:
            record: the key, timestamp and headers of the call; its value is the argument.
            error: the failure; its message has the error of the last attempt.
        """
        raise NotImplementedError(f"{type(self).__name__} must define failed(self, record, error).")

    def close(self) -> None:
        """Release the resources of `init`; records can no longer be forwarded."""


RowOrigin = Int64Array | None
"""int64 array of row numbers (ascending), or None for the identity; see `BatchProcessor.process_batch`."""

FailureHandler = Callable[[int, Exception], None]
"""Called with a row of the batch and its error in a user function.

It raises, or returns to drop the row.
"""


class HeldResults(Protocol):
    """Final results of an operator that are due, but held back.

    An interval of wall-clock time holds them back.
    """

    def take_held(self) -> tuple[Record[Any, Any], RecordMetadata | None] | None:
        """Return the last record whose results were held back, with its metadata.

        It is returned once; None if no results are held back.
        """
        ...

    def emit(self, record: Record[Any, Any]) -> None:
        """Forward the due results, as after `record`."""
        ...


class EngineContext(ProcessorContext, Protocol):
    """A task's interface to this package's processors, in addition to the Processor API."""

    def count_dropped(self, reason: DropReason, records: int = 1) -> None:
        """Count records that this node has dropped for a reason (Kafka metric: dropped-records-total)."""
        ...

    def drop(self, reason: DropReason, window: Window | None = None, stream_time: int | None = None) -> None:
        """Drop the current record of this node: count it, and write it to the sinks of dropped records.

        Args:
            reason: the reason.
            window: the closed window; None without one.
            stream_time: that of the operator (ms); None for that of the task.
        """
        ...

    def write_dropped(self, reason: DropReason, window: Window | None = None, stream_time: int | None = None) -> None:
        """As `drop`, for a record that its store counts, or that is not counted."""
        ...

    def drop_rows(
        self,
        reason: DropReason,
        rows: Int64Array,
        windows: Iterable[Window] | None = None,
        stream_times: Int64Array | None = None,
    ) -> None:
        """As `drop`, for rows of the batch in `process_batch`.

        Args:
            reason: the reason.
            rows: the indexes of the rows; a row may be dropped for several windows.
            windows: the closed window of each row; not read if the node has no sinks of dropped records.
            stream_times: that of the operator at each row (ms); None for that of the task.
        """
        ...

    def write_dropped_rows(
        self,
        reason: DropReason,
        rows: Int64Array,
        windows: Iterable[Window] | None = None,
        stream_times: Int64Array | None = None,
    ) -> None:
        """As `drop_rows`, for rows that are not counted."""
        ...

    def count_emitted(self, records: int) -> None:
        """Count suppressed records that this node has emitted (Kafka metric: suppression-emit-total)."""
        ...

    def processor_metadata(self) -> MutableMapping[str, int]:
        """Return the task's metadata that outlives a commit, in addition to store entries.

        Processors and stores keep their clocks and similar numbers there, by `<name>/<what>`. No other state of a
        processor outlives a crash, or an epoch on Spark (Kafka class: ProcessorMetadata).
        """
        ...

    def emit_with_epoch(self, results: HeldResults) -> None:
        """Emit `results` at the end of each epoch.

        Applies to hosts whose tasks live for one epoch.
        """
        ...

    def config(self, key: str) -> Any:
        """Return the value of the configuration `key`, or its default."""
        ...

    def in_record_context(self, context: RecordContext) -> AbstractContextManager[None]:
        """Return a context manager that makes `context` that of the current record.

        It is used for calls of user code, and for forwarded records, on behalf of another record.
        """
        ...

    def in_stored_record_context(self, context: RecordContext) -> AbstractContextManager[None]:
        """As `in_record_context`, for a context from a store.

        Stores do not keep the bytes of the source record.
        """
        ...

    def alarm(self, callback: Punctuator) -> Alarm:
        """Return an alarm that calls `callback` with the time in ms; only in `init`."""
        ...

    def source_record(self) -> tuple[bytes | None, bytes | None] | None:
        """Return key and value of the source record of the current one; None if they are not kept."""
        ...

    def process_again(
        self, record: Record[Any, Any], metadata: RecordMetadata, source: tuple[bytes | None, bytes | None] | None
    ) -> None:
        """Pass a record that waited in a store to this node, as when it arrived.

        Args:
            record: the record.
            metadata: of its input record.
            source: key and value of its source record, None if unknown.
        """
        ...

    def bury(self, error: Exception) -> None:
        """Drop the current record of this node: count it, and write it as a dead letter.

        The dead letter goes to the sinks of the dropped records of this node.
        """
        ...

    def source_partitions(self) -> RowPartitions:
        """Return the source partitions of the rows in `process_batch`."""
        ...

    def forward_flushed(self, batch: RecordBatch, contexts: Sequence[RecordContext]) -> None:
        """Forward each row to every child in the context of its own record.

        Used when a cache is flushed. The offsets of `batch` are those of the contexts.
        """
        ...


class BatchProcessor(Processor):
    """A processor with equal results for a batch and for its individual records.

    The task may therefore run it column by column. Engine-internal: the processors of the DSL derive from it if they
    benefit.
    """

    takes_arrays = False
    """Whether the columns of a batch may be arrays (`ArrayColumn`)."""

    @property
    def libraries(self) -> tuple[Library | None, Library | None]:
        """The libraries of the arrays in which it takes keys and values from a source; None for objects."""
        return None, None

    @property
    def passes_keys(self) -> bool:
        """Whether it forwards the keys of a batch without a look at them."""
        return False

    @property
    def holds_back(self) -> bool:
        """Whether `process_batch` returns no rows, since updates are forwarded when a cache is flushed."""
        return False

    @property
    def drops_rows(self) -> bool:
        """Whether `process_batch` reports each dropped row, by `EngineContext.drop_rows`.

        Other processors work record by record if their dropped records are written.
        """
        return False

    @property
    def forwards_itself(self) -> bool:
        """Whether `process_batch` returns no rows, since it forwards its output itself.

        It forwards by `EngineContext.forward_flushed`, each row in its own context; the batch must have no other
        output.
        """
        return False

    @abstractmethod
    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Process all rows of `batch`.

        Returns the rows for all children, and for each of them its row of origin in `batch` (int64 array, ascending),
        or None if all rows are at their original index. The exception of a user function for row i is passed to
        `failures(i, error)`, which raises, or returns to drop that row.
        """
        raise NotImplementedError


class BranchingProcessor(Processor):
    """A processor that forwards each record to at most one of its children.

    Its result for a batch equals that of `process` on each record in turn. Engine-internal.
    """

    @abstractmethod
    def branch_batch(
        self, batch: RecordBatch, failures: FailureHandler
    ) -> tuple[RecordBatch, RowOrigin, Mapping[str, Int64Array]]:
        """Process all rows of `batch`, like `BatchProcessor.process_batch`.

        Also returns the rows of the result for each child (int64 arrays, ascending), by the child's name.
        """
        raise NotImplementedError


ColumnProcessor = BatchProcessor | BranchingProcessor
"""A processor that can run column by column."""


class SerializedBatchProcessor(BatchProcessor):
    """A batch processor that can process serialised rows.

    Its result for a batch of bytes equals that for the deserialised batch. Engine-internal.
    """

    @abstractmethod
    def takes_serialized(self, key_serde: Serde) -> bool:
        """Return whether keys may be the bytes of `key_serde`, and values any bytes."""
        raise NotImplementedError

    @abstractmethod
    def process_serialized(self, batch: RecordBatch) -> None:
        """Process all rows of `batch`, with keys and values as bytes; forwards no rows."""
        raise NotImplementedError


class ProcessorSupplier(Generic[KIn, VIn, KOut, VOut]):
    """Makes processors and declares their stores.

    Any callable without arguments that returns a new Processor (a class, a function) can replace a supplier. Kafka
    classes: ProcessorSupplier, ConnectedStoreProvider.
    """

    @abstractmethod
    def get(self) -> Processor[KIn, VIn, KOut, VOut]:
        """Return a new processor.

        Called once per task, and twice during the construction of the topology, to check that the processors are
        different.
        """
        raise NotImplementedError(f"{type(self).__name__} must define get(self).")

    def stores(self) -> Sequence[StoreBuilder]:
        """Return the stores to add to the topology and connect to the processor."""
        return ()


class SimpleSupplier(ProcessorSupplier):
    """Makes processors with a factory, such as a class or functools.partial.

    Args:
        factory: returns a new processor.
        stores: the builders of the stores that its processors own.
    """

    def __init__(self, factory: Callable[[], Processor], stores: Sequence[StoreBuilder] = ()) -> None:
        self.factory = factory
        self._stores = tuple(stores)

    def get(self) -> Processor:
        """Return a new processor."""
        return self.factory()

    def stores(self) -> Sequence[StoreBuilder]:
        """Return the stores that the processors own."""
        return self._stores
