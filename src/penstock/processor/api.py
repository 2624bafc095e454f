"""The Processor API: what users write and what they are given. Nothing here runs anything.

A processor lives in one task; its `init` runs before its first record and its `close` after its last. State stores are
got in `init` from the context.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from penstock.metrics import StreamsMetrics
from penstock.metrics.drop_reasons import DropReason
from penstock.record import Int64Array, Record, RecordBatch, RecordMetadata, TopicPartition
from penstock.serdes import Serde
from penstock.state.api import RecordContext, StoreBuilder
from penstock_broker.common.durations import Duration


class PunctuationType(Enum):
    """Which clock drives a punctuator (Kafka class: PunctuationType)."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


Punctuator = Callable[[int], None]
"""Called with the time of the punctuation in ms: stream time or wall-clock time (Kafka class: Punctuator)."""


class Cancellable(Protocol):
    """The handle of a schedule (Kafka class: Cancellable)."""

    def cancel(self) -> None:
        """End the schedule; its punctuator is not called again."""
        ...


KIn = TypeVar("KIn", default=Any)
"""The keys that a processor takes."""

VIn = TypeVar("VIn", default=Any)
"""The values that a processor takes."""

KOut = TypeVar("KOut", default=Any)
"""The keys that a processor forwards."""

VOut = TypeVar("VOut", default=Any)
"""The values that a processor forwards."""


class ProcessorContext(Protocol):
    """What a processor may ask of the task that it runs in (Kafka class:
    org.apache.kafka.streams.processor.api.ProcessorContext)."""

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
        """Topic, partition and offset of the input record; None if no record is being processed (in `init`)."""
        ...

    @property
    def topic(self) -> str | None:
        """The topic of the input record; None if no record is being processed (KIP-28)."""
        ...

    @property
    def partition(self) -> int:
        """The partition of the input record; -1 where no record is being processed (KIP-28)."""
        ...

    @property
    def offset(self) -> int:
        """The offset of the input record; -1 where no record is being processed (KIP-28)."""
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
        """Hand `record` to every child in the order of their registration, or only to the child named; raises
        StreamsError for an unknown child."""
        ...

    def send(
        self,
        topic: str,
        key: Any,
        value: Any,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> None:
        """Write a record to any topic, without a sink, with the timestamp and the headers of the record being
        processed, or the time of the punctuation (KIP-28).

        Args:
            topic: the topic, which exists; not a repartition or changelog topic.
            key: the key, None for null.
            value: the value, None for null.
            key_serde: writes the key; None for `default.key.serde`.
            value_serde: writes the value; None for `default.value.serde`.

        Raises StreamsError if the topic is not known or internal, ConfigError if there is no serde, and what a serde
        raises.
        """
        ...

    def schedule(
        self,
        interval_ms: Duration,
        punctuation_type: PunctuationType,
        callback: Punctuator,
        start_time_ms: int | None = None,
    ) -> Cancellable:
        """Call `callback` every `interval_ms` of the clock chosen, anchored at `start_time_ms` (KIP-1146) if given;
        raises ValueError below 1 ms."""
        ...

    def commit(self) -> None:
        """Ask for a commit soon."""
        ...

    def current_stream_time_ms(self) -> int:
        """Return the largest timestamp (ms) that the task has taken, -1 before the first record."""
        ...

    def current_system_time_ms(self) -> int:
        """Return the wall-clock time of the task in ms."""
        ...

    def app_configs(self) -> Mapping[str, Any]:
        """Return the configuration as the user gave it."""
        ...

    def metrics(self) -> StreamsMetrics:
        """Return the sensors of the task; add your own to them."""
        ...


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """A user's processor: override `process`, and `init` and `close` where needed (Kafka class:
    org.apache.kafka.streams.processor.api.Processor).

    The inherited `init` stores the context in `self.context` (Kafka class: ContextualProcessor).
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Prepare for records; keep the context."""
        self.context = context

    @abstractmethod
    def process(self, record: Record[KIn, VIn]) -> None:
        """Process one record; forward any number of records by `self.context.forward`."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, record).")

    def close(self) -> None:
        """Release what `init` took; records cannot be forwarded any more."""


RowOrigin = Int64Array | None
"""int64 array of row numbers (ascending), or None for the identity; see `BatchProcessor.process_batch`."""

FailureHandler = Callable[[int, Exception], None]
"""Called with the row of the batch and the error of the user's function: raises, or returns to drop the row."""


class HeldResults(Protocol):
    """Final results of an operator that are due and that an interval of wall-clock time holds back."""

    def take_held(self) -> tuple[Record[Any, Any], RecordMetadata | None] | None:
        """Return the last record after which they were held back, with its metadata, once; None if none are."""
        ...

    def emit(self, record: Record[Any, Any]) -> None:
        """Forward what is due, as after `record`."""
        ...


class EngineContext(ProcessorContext, Protocol):
    """What the task offers to the processors of this package besides the Processor API."""

    def count_dropped(self, reason: DropReason, records: int = 1) -> None:
        """Add to the records that this node has dropped for a reason (Kafka metric: dropped-records-total)."""
        ...

    def count_emitted(self, records: int) -> None:
        """Add to the suppressed records that this node has emitted (Kafka metric: suppression-emit-total)."""
        ...

    def processor_metadata(self) -> MutableMapping[str, int]:
        """Return what the processors and stores of the task keep from commit to commit besides entries, such as
        their clocks, by `<name>/<what>`: nothing else of a processor outlives a crash, or an epoch on Spark (Kafka
        class: ProcessorMetadata)."""
        ...

    def emit_with_epoch(self, results: HeldResults) -> None:
        """Emit `results` at the end of an epoch, on hosts whose tasks live for one epoch."""
        ...

    def config(self, key: str) -> Any:
        """Return the value of the configuration `key`, its default if it is not set."""
        ...

    def in_record_context(self, context: RecordContext) -> AbstractContextManager[None]:
        """Return a context manager within which `context` is that of the record being processed: for user code that is
        called, and records that are forwarded, on behalf of another record."""
        ...

    def in_stored_record_context(self, context: RecordContext) -> AbstractContextManager[None]:
        """As `in_record_context`, for a context that a store has kept, without the bytes of its source record."""
        ...

    def source_partition(self) -> TopicPartition:
        """Return the topic and partition that the batch in `process_batch` came from."""
        ...

    def forward_flushed(self, batch: RecordBatch, contexts: Sequence[RecordContext]) -> None:
        """Forward each row to every child as if the record of its context were being processed: used when a cache is
        flushed. The offsets of `batch` are those of the contexts."""
        ...


class BatchProcessor(Processor):
    """A processor whose result on a batch equals that of `process` on each record in turn; the task may then run it
    column by column.

    Engine-internal: the processors of the DSL derive from it where it serves.
    """

    @property
    def holds_back(self) -> bool:
        """Whether `process_batch` returns no rows, since all that is forwarded leaves when a cache is flushed."""
        return False

    @property
    def forwards_itself(self) -> bool:
        """Whether `process_batch` returns no rows, since it forwards by `EngineContext.forward_flushed`, each row in
        its own context: then nothing else may follow from the batch."""
        return False

    @abstractmethod
    def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
        """Process all rows of `batch`.

        Returns the rows to hand to every child, and for each of them the row of `batch` that it came from (int64 array,
        ascending), or None if row i came from row i. A user function's exception for row i is given to
        `failures(i, error)`, which raises, or returns to drop that row.
        """
        raise NotImplementedError


class BranchingProcessor(Processor):
    """A processor that hands each record to one of its children, or to none, and whose result on a batch equals that of
    `process` on each record in turn. Engine-internal."""

    @abstractmethod
    def branch_batch(
        self, batch: RecordBatch, failures: FailureHandler
    ) -> tuple[RecordBatch, RowOrigin, Mapping[str, Int64Array]]:
        """Process all rows of `batch`, as `BatchProcessor.process_batch`; returns also which of the returned rows go to
        which child (int64 arrays, ascending), by the name of the child."""
        raise NotImplementedError


ColumnProcessor = BatchProcessor | BranchingProcessor
"""What a task may run column by column."""


class SerializedBatchProcessor(BatchProcessor):
    """A batch processor that can do without objects: its result on a batch of bytes equals that on the batch
    deserialised. Engine-internal."""

    @abstractmethod
    def takes_serialized(self, key_serde: Serde) -> bool:
        """Return whether keys may come as the bytes that `key_serde` reads, and values as any bytes."""
        raise NotImplementedError

    @abstractmethod
    def process_serialized(self, batch: RecordBatch) -> None:
        """Process all rows of `batch`, keys and values as bytes; nothing is forwarded."""
        raise NotImplementedError


class ProcessorSupplier(Generic[KIn, VIn, KOut, VOut]):
    """Makes processors and names the stores they own (Kafka classes: ProcessorSupplier, ConnectedStoreProvider).

    Wherever a supplier is expected, any callable without arguments that returns a new Processor (a class, a function)
    will do.
    """

    @abstractmethod
    def get(self) -> Processor[KIn, VIn, KOut, VOut]:
        """Return a new processor; called once a task, and twice when the topology is built, to check that it is new
        each time."""
        raise NotImplementedError(f"{type(self).__name__} must define get(self).")

    def stores(self) -> Sequence[StoreBuilder]:
        """Return the stores to be added to the topology and connected to the processor."""
        return ()


class SimpleSupplier(ProcessorSupplier):
    """Makes processors by calling a factory, such as a class or a functools.partial of one."""

    def __init__(self, factory: Callable[[], Processor], stores: Sequence[StoreBuilder] = ()) -> None:
        """Keep the factory and the builders of the stores that its processors own."""
        self.factory = factory
        self._stores = tuple(stores)

    def get(self) -> Processor:
        """Return a new processor."""
        return self.factory()

    def stores(self) -> Sequence[StoreBuilder]:
        """Return the stores that the processors own."""
        return self._stores
