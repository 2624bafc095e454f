"""MockProcessorContext: a context for the test of one processor, without a topology.

Kafka class: org.apache.kafka.streams.processor.api.MockProcessorContext.

It captures forwarded records, sent records, calls and schedules of the processor; the test sets the times and the
metadata of the record, calls the punctuators, and inspects the captures. A fixed-key processor receives
`FixedKeyProcessorContext(context)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate

from penstock.config import StreamsConfig
from penstock.exception_handlers import ProducerRecord
from penstock.metrics import StreamsMetrics
from penstock.processor.api import A, PunctuationType, Punctuator
from penstock.record import NO_METADATA, NO_TIMESTAMP, Record, RecordMetadata
from penstock.serdes import Serde
from penstock.state.api import RecordContext, StateStore, StoreBuilder
from penstock.state.build import build_store
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock_broker.common.durations import Duration, milliseconds, timestamp_ms

DEFAULT_APPLICATION_ID = "mock-processor-context"


@dataclass(frozen=True)
class CapturedForward:
    """A forwarded record, to a named child or to all children (Kafka class: CapturedForward)."""

    record: Record[Any, Any]
    child_name: str | None = None


@dataclass(frozen=True)
class CapturedCall:
    """A call of a function outside of the task (no Kafka class).

    Args:
        function: the function.
        argument: its argument.
        key: the key given by the processor, None for that of the record.
    """

    function: Callable[..., Any]
    argument: Any
    key: Any = None


@dataclass(eq=False)
class CapturedPunctuator:
    """A requested schedule (Kafka class: CapturedPunctuator); call `punctuator` with a time in ms.

    Args:
        interval_ms: the interval given by the processor.
        type: stream time or wall-clock time.
        punctuator: the callback.
        start_time_ms: the start time given by the processor.
        cancelled: whether the processor has cancelled it since.
    """

    interval_ms: int
    type: PunctuationType
    punctuator: Punctuator
    start_time_ms: int | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Mark the schedule as cancelled."""
        self.cancelled = True


class MockProcessorContext:
    """Captures the calls of a processor to its context (implements ProcessorContext).

    Args:
        config: the configuration; `application.id` is optional.
        task_id: the task, as `<sub-topology>_<partition>`.
        system_time_ms: the wall-clock time.
    """

    def __init__(
        self, config: StreamsConfig | Mapping[str, Any] | None = None, task_id: str = "0_0", system_time_ms: int = 0
    ) -> None:
        given = config.given() if isinstance(config, StreamsConfig) else dict(config or {})
        self._config = StreamsConfig({"application.id": DEFAULT_APPLICATION_ID, **given})
        self._task_id = task_id
        self._system_time_ms = system_time_ms
        self._stream_time_ms = NO_TIMESTAMP
        self._metadata: RecordMetadata | None = None
        self._stores: dict[str, StateStore] = {}
        self._forwarded: list[CapturedForward] = []
        self._sent: list[ProducerRecord] = []
        self._called: list[CapturedCall] = []
        self._punctuators: list[CapturedPunctuator] = []
        self._committed = False
        self._metrics = StreamsMetrics(self._config.client_id(), self._config["metrics.recording.level"])

    # ---------------------------------------- for the processor

    @property
    def application_id(self) -> str:
        """`application.id` of the configuration."""
        application_id: str = self._config.required("application.id")
        return application_id

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The argument of the last `set_record_metadata`, None before."""
        return self._metadata

    @property
    def topic(self) -> str | None:
        """The topic of the last `set_record_metadata`, None before."""
        return (self._metadata or NO_METADATA).topic

    @property
    def partition(self) -> int:
        """The partition of the last `set_record_metadata`, -1 before."""
        return (self._metadata or NO_METADATA).partition

    @property
    def offset(self) -> int:
        """The offset of the last `set_record_metadata`, -1 before."""
        return (self._metadata or NO_METADATA).offset

    @property
    def key_serde(self) -> Serde | None:
        """`default.key.serde`, None if not set."""
        serde: Serde | None = self._config["default.key.serde"]
        return serde

    @property
    def value_serde(self) -> Serde | None:
        """`default.value.serde`, None if not set."""
        serde: Serde | None = self._config["default.value.serde"]
        return serde

    def get_state_store(self, name: str) -> Any:
        """Return the store `name`, None if absent."""
        return self._stores.get(name)

    def forward(self, record: Record[Any, Any], child_name: str | None = None) -> None:
        """Capture `record`; see `forwarded`."""
        self._forwarded.append(CapturedForward(record, child_name))

    def send(
        self,
        topic: str,
        key: Any,
        value: Any,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> None:
        """Capture a record with key and value as objects, and the stream time; see `sent`."""
        self._sent.append(ProducerRecord(topic, key, value, max(self._stream_time_ms, 0)))

    def call(self, function: Callable[Concatenate[A, ...], Any], argument: A, *, key: Any = None) -> None:
        """Capture a call, which is not made; see `called`. The test passes an answer to `answered` of the processor."""
        self._called.append(CapturedCall(function, argument, key))

    def schedule(
        self,
        interval_ms: Duration,
        punctuation_type: PunctuationType,
        callback: Punctuator,
        start_time_ms: int | None = None,
    ) -> CapturedPunctuator:
        """Capture the punctuator; see `scheduled_punctuators`. Raises ValueError for an interval below 1 ms."""
        interval_ms = milliseconds(interval_ms, "interval")
        if interval_ms < 1:
            raise ValueError("The minimum supported scheduling interval is 1 millisecond.")
        captured = CapturedPunctuator(interval_ms, punctuation_type, callback, start_time_ms)
        self._punctuators.append(captured)
        return captured

    def commit(self) -> None:
        """Record the request; see `committed`."""
        self._committed = True

    def current_stream_time_ms(self) -> int:
        """Return the argument of the last `set_current_stream_time_ms`, -1 before."""
        return self._stream_time_ms

    def current_system_time_ms(self) -> int:
        """Return the argument of the last `set_current_system_time_ms`."""
        return self._system_time_ms

    def app_configs(self) -> Mapping[str, Any]:
        """Return the configuration, unchanged."""
        return self._config.given()

    def metrics(self) -> StreamsMetrics:
        """Return the test's own sensors; their `take_reports` returns the recorded values."""
        return self._metrics

    # ---------------------------------------- for the test

    def set_record_metadata(self, topic: str | None, partition: int, offset: int) -> None:
        """Set the origin of the next record."""
        self._metadata = RecordMetadata(topic, partition, offset)

    def set_current_stream_time_ms(self, time_ms: int) -> None:
        """Set the stream time (ms)."""
        self._stream_time_ms = timestamp_ms(time_ms, "time_ms")

    def set_current_system_time_ms(self, time_ms: int) -> None:
        """Set the wall-clock time (ms)."""
        self._system_time_ms = timestamp_ms(time_ms, "time_ms")

    def add_state_store(self, store: StoreBuilder | StateStore) -> Any:
        """Add a store for the processor, and return it.

        Args:
            store: a store of the test's own, or a builder of a store, which is kept in memory and without a cache.
        """
        added = self._built(store) if isinstance(store, StoreBuilder) else store
        self._stores[added.name] = added
        return added

    def _built(self, builder: StoreBuilder) -> StateStore:
        def context() -> RecordContext:
            return RecordContext(max(self._stream_time_ms, 0), (), *(self._metadata or NO_METADATA))

        view = MemoryBase().view(builder.name)
        return build_store(builder, self._config, view, RecordCache(0), context, {}).exposed()

    def forwarded(self, child_name: str | None = None) -> list[CapturedForward]:
        """Return the forwarded records since the last reset; with `child_name` only those for that child."""
        if child_name is None:
            return list(self._forwarded)
        return [captured for captured in self._forwarded if captured.child_name in (None, child_name)]

    def reset_forwards(self) -> None:
        """Clear the forwarded records."""
        self._forwarded.clear()

    def sent(self) -> list[ProducerRecord]:
        """Return the records sent to topics."""
        return list(self._sent)

    def called(self) -> list[CapturedCall]:
        """Return the calls of functions."""
        return list(self._called)

    def scheduled_punctuators(self) -> list[CapturedPunctuator]:
        """Return the requested schedules, cancelled ones included."""
        return list(self._punctuators)

    def committed(self) -> bool:
        """Return whether a commit was requested since the last reset."""
        return self._committed

    def reset_commit(self) -> None:
        """Clear the request for a commit."""
        self._committed = False
