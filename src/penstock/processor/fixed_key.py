"""Processors that cannot change keys.

Contains their record, context and supplier, and the adapter that runs them like any other processor. Since keys stay
the same, operators downstream need no repartition.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Generic, TypeVar

from penstock.errors import CallFailedError
from penstock.metrics import StreamsMetrics
from penstock.processor.api import (
    A,
    Cancellable,
    KIn,
    Processor,
    ProcessorContext,
    PunctuationType,
    Punctuator,
    VIn,
    VOut,
)
from penstock.record import Headers, Record, RecordMetadata
from penstock.serdes import Serde
from penstock.state.api import StoreBuilder
from penstock_broker.common.durations import Duration

K = TypeVar("K")
V = TypeVar("V")


class FixedKeyRecord(Generic[K, V]):
    """A record whose key cannot be replaced (Kafka class: FixedKeyRecord).

    Its value, timestamp and headers can be replaced. It is created by Penstock, not by processors.

    Args:
        record: the record.
    """

    __slots__ = ("_record",)

    def __init__(self, record: Record[K, V]) -> None:
        self._record = record

    @property
    def key(self) -> K:
        """The key."""
        return self._record.key

    @property
    def value(self) -> V:
        """The value."""
        return self._record.value

    @property
    def timestamp(self) -> int:
        """The timestamp in ms."""
        return self._record.timestamp

    @property
    def headers(self) -> Headers:
        """The headers."""
        return self._record.headers

    def with_value(self, value: Any) -> FixedKeyRecord[K, Any]:
        """Return this record with another value."""
        return FixedKeyRecord(self._record.with_value(value))

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord[K, V]:
        """Return this record with another timestamp (ms); raises StreamsError if it is negative."""
        return FixedKeyRecord(self._record.with_timestamp(timestamp))

    def with_headers(self, headers: Iterable[tuple[str, bytes | None]]) -> FixedKeyRecord[K, V]:
        """Return this record with other headers."""
        return FixedKeyRecord(self._record.with_headers(headers))

    def as_record(self) -> Record[K, V]:
        """Return the record as a plain Record."""
        return self._record

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FixedKeyRecord):
            return NotImplemented
        return bool(self._record == other._record)

    def __hash__(self) -> int:
        return hash(self._record)

    def __repr__(self) -> str:
        return f"FixedKey{self._record!r}"


class FixedKeyProcessorContext:
    """A fixed-key processor's interface to its task (Kafka class: FixedKeyProcessorContext).

    It is like ProcessorContext, but forwards FixedKeyRecords.

    Args:
        context: the context to delegate to.
    """

    def __init__(self, context: ProcessorContext) -> None:
        self._context = context

    @property
    def application_id(self) -> str:
        """`application.id` of the configuration."""
        return self._context.application_id

    @property
    def task_id(self) -> str:
        """The task, as `<sub-topology>_<partition>`."""
        return self._context.task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record; None in `init`."""
        return self._context.record_metadata

    @property
    def topic(self) -> str | None:
        """The topic of the input record; None outside of record processing (KIP-28)."""
        return self._context.topic

    @property
    def partition(self) -> int:
        """The partition of the input record; -1 outside of record processing (KIP-28)."""
        return self._context.partition

    @property
    def offset(self) -> int:
        """The offset of the input record; -1 outside of record processing (KIP-28)."""
        return self._context.offset

    @property
    def key_serde(self) -> Serde | None:
        """`default.key.serde`, None if not set."""
        return self._context.key_serde

    @property
    def value_serde(self) -> Serde | None:
        """`default.value.serde`, None if not set."""
        return self._context.value_serde

    def get_state_store(self, name: str) -> Any:
        """Return the store `name`; raises StreamsError if it is not connected to this processor."""
        return self._context.get_state_store(name)

    def forward(self, record: FixedKeyRecord[Any, Any], child_name: str | None = None) -> None:
        """Forward `record` to all children in registration order, or only to `child_name`.

        Raises StreamsError for an unknown child.
        """
        if not isinstance(record, FixedKeyRecord):
            raise TypeError(f"Expected a FixedKeyRecord, such as record.with_value(...), got {record!r}.")
        self._context.forward(record.as_record(), child_name)

    def send(
        self,
        topic: str,
        key: Any,
        value: Any,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> None:
        """Write a record to any topic, without a sink (KIP-28).

        It has the timestamp and headers of the record being processed, or the time of the punctuation. Arguments and
        errors are those of `ProcessorContext.send`.
        """
        self._context.send(topic, key, value, key_serde, value_serde)

    def call(self, function: Callable[Concatenate[A, ...], Any], argument: A) -> None:
        """Call a function outside of the task; its answer comes to `FixedKeyProcessor.answered` (no Kafka method).

        Arguments and errors are those of `ProcessorContext.call`; the key is that of the record being processed.
        """
        self._context.call(function, argument)

    def schedule(
        self,
        interval_ms: Duration,
        punctuation_type: PunctuationType,
        callback: Punctuator,
        start_time_ms: int | None = None,
    ) -> Cancellable:
        """Call `callback` every `interval_ms` of the chosen clock; raises ValueError below 1 ms."""
        return self._context.schedule(interval_ms, punctuation_type, callback, start_time_ms)

    def commit(self) -> None:
        """Request a commit soon."""
        self._context.commit()

    def current_stream_time_ms(self) -> int:
        """Return the largest timestamp (ms) of the task so far, -1 before the first record."""
        return self._context.current_stream_time_ms()

    def current_system_time_ms(self) -> int:
        """Return the wall-clock time of the task in ms."""
        return self._context.current_system_time_ms()

    def app_configs(self) -> Mapping[str, Any]:
        """Return the configuration as given by the user."""
        return self._context.app_configs()

    def metrics(self) -> StreamsMetrics:
        """Return the sensors of the task; processors can add their own."""
        return self._context.metrics()


class FixedKeyProcessor(Generic[KIn, VIn, VOut]):
    """Base class of users' processors that keep keys.

    Override `process`, and `init` and `close` if needed. The inherited `init` stores the context in `self.context`
    (Kafka classes: FixedKeyProcessor, ContextualFixedKeyProcessor).
    """

    context: FixedKeyProcessorContext

    def init(self, context: FixedKeyProcessorContext) -> None:
        """Prepare for records, and store the context."""
        self.context = context

    @abstractmethod
    def process(self, record: FixedKeyRecord[KIn, VIn]) -> None:
        """Process one record; forward any number of records with `self.context.forward`."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, record).")

    def answered(self, record: FixedKeyRecord[KIn, Any], answer: Any) -> None:
        """Process the answer of a call, as `Processor.answered` (no Kafka method)."""
        raise NotImplementedError(f"{type(self).__name__} must define answered(self, record, answer).")

    def failed(self, record: FixedKeyRecord[KIn, Any], error: CallFailedError) -> None:
        """Process the failure of a call, as `Processor.failed` (no Kafka method)."""
        raise NotImplementedError(f"{type(self).__name__} must define failed(self, record, error).")

    def close(self) -> None:
        """Release the resources of `init`; records can no longer be forwarded."""


class FixedKeyProcessorSupplier(Generic[KIn, VIn, VOut]):
    """Makes fixed-key processors and declares their stores (Kafka class: FixedKeyProcessorSupplier).

    Any callable without arguments that returns a new FixedKeyProcessor can replace it.
    """

    @abstractmethod
    def get(self) -> FixedKeyProcessor[KIn, VIn, VOut]:
        """Return a new processor.

        Called once per task, and during the construction of the topology, to check that the processors are different.
        """
        raise NotImplementedError(f"{type(self).__name__} must define get(self).")

    def stores(self) -> Sequence[StoreBuilder]:
        """Return the stores to add to the topology and connect to the processor."""
        return ()


class FixedKeyAdapter(Processor):
    """Runs a fixed-key processor as a processor.

    Engine-internal.

    Args:
        make: returns the fixed-key processor.
    """

    def __init__(self, make: Callable[[], FixedKeyProcessor]) -> None:
        self.inner = make()

    def init(self, context: ProcessorContext) -> None:
        """Pass on the context, restricted to fixed keys."""
        super().init(context)
        self.inner.init(FixedKeyProcessorContext(context))

    def process(self, record: Record[Any, Any]) -> None:
        """Pass on the record with its key fixed."""
        self.inner.process(FixedKeyRecord(record))

    def answered(self, record: Record[Any, Any], answer: Any) -> None:
        """Pass on the answer, with the key of its record fixed."""
        self.inner.answered(FixedKeyRecord(record), answer)

    def failed(self, record: Record[Any, Any], error: CallFailedError) -> None:
        """Pass on the failure, with the key of its record fixed."""
        self.inner.failed(FixedKeyRecord(record), error)

    def close(self) -> None:
        """Close the processor."""
        self.inner.close()
