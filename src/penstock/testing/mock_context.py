"""MockProcessorContext: a context for the test of one processor, without a topology (Kafka class:
org.apache.kafka.streams.processor.api.MockProcessorContext).

It captures what the processor forwards, sends and schedules; the test sets the times and the place of the record, calls
the punctuators, and looks at what was captured. A fixed-key processor is given `FixedKeyProcessorContext(context)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.config import StreamsConfig
from penstock.exception_handlers import ProducerRecord
from penstock.metrics import StreamsMetrics
from penstock.processor.api import PunctuationType, Punctuator
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
    """A record that was forwarded, to the child named or to all (Kafka class: CapturedForward)."""

    record: Record[Any, Any]
    child_name: str | None = None


@dataclass(eq=False)
class CapturedPunctuator:
    """A schedule that was asked for (Kafka class: CapturedPunctuator): call `punctuator` with a time in ms.

    interval_ms, start_time_ms: as the processor gave them. cancelled: whether the processor cancelled it since.
    """

    interval_ms: int
    type: PunctuationType
    punctuator: Punctuator
    start_time_ms: int | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Note that the schedule ended."""
        self.cancelled = True


class MockProcessorContext:
    """Captures what a processor does with its context (implements ProcessorContext)."""

    def __init__(
        self, config: StreamsConfig | Mapping[str, Any] | None = None, task_id: str = "0_0", system_time_ms: int = 0
    ) -> None:
        """Stand for the context of a task.

        Args:
            config: the configuration; `application.id` may be left out.
            task_id: the task, as `<sub-topology>_<partition>`.
            system_time_ms: the wall-clock time.
        """
        given = config.given() if isinstance(config, StreamsConfig) else dict(config or {})
        self._config = StreamsConfig({"application.id": DEFAULT_APPLICATION_ID, **given})
        self._task_id = task_id
        self._system_time_ms = system_time_ms
        self._stream_time_ms = NO_TIMESTAMP
        self._metadata: RecordMetadata | None = None
        self._stores: dict[str, StateStore] = {}
        self._forwarded: list[CapturedForward] = []
        self._sent: list[ProducerRecord] = []
        self._punctuators: list[CapturedPunctuator] = []
        self._committed = False
        self._metrics = StreamsMetrics(self._config.client_id(), self._config["metrics.recording.level"])

    # ---------------------------------------- what a processor asks for

    @property
    def application_id(self) -> str:
        """`application.id` of the configuration."""
        application_id: str = self._config.required("application.id")
        return application_id

    @property
    def task_id(self) -> str:
        """The task that was given."""
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
        """Return the store `name`, None if none was added."""
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
        """Capture a record for `topic`, key and value as objects, with the stream time; see `sent`."""
        self._sent.append(ProducerRecord(topic, key, value, max(self._stream_time_ms, 0)))

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
        """Note the request; see `committed`."""
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
        """Return sensors of the test's own, whose `take_reports` says what was recorded."""
        return self._metrics

    # ---------------------------------------- what a test sets and looks at

    def set_record_metadata(self, topic: str | None, partition: int, offset: int) -> None:
        """Say where the next record comes from."""
        self._metadata = RecordMetadata(topic, partition, offset)

    def set_current_stream_time_ms(self, time_ms: int) -> None:
        """Set the stream time (ms)."""
        self._stream_time_ms = timestamp_ms(time_ms, "time_ms")

    def set_current_system_time_ms(self, time_ms: int) -> None:
        """Set the wall-clock time (ms)."""
        self._system_time_ms = timestamp_ms(time_ms, "time_ms")

    def add_state_store(self, store: StoreBuilder | StateStore) -> Any:
        """Give the processor a store, and return it: one of the test's own, or one that `store` describes, kept in
        memory and without a cache."""
        added = self._built(store) if isinstance(store, StoreBuilder) else store
        self._stores[added.name] = added
        return added

    def _built(self, builder: StoreBuilder) -> StateStore:
        def context() -> RecordContext:
            return RecordContext(max(self._stream_time_ms, 0), (), *(self._metadata or NO_METADATA))

        view = MemoryBase().view(builder.name)
        return build_store(builder, self._config, view, RecordCache(0), context, {}).exposed()

    def forwarded(self, child_name: str | None = None) -> list[CapturedForward]:
        """Return what was forwarded since the last reset; with `child_name` only what that child gets."""
        if child_name is None:
            return list(self._forwarded)
        return [captured for captured in self._forwarded if captured.child_name in (None, child_name)]

    def reset_forwards(self) -> None:
        """Forget what was forwarded."""
        self._forwarded.clear()

    def sent(self) -> list[ProducerRecord]:
        """Return what was sent to topics."""
        return list(self._sent)

    def scheduled_punctuators(self) -> list[CapturedPunctuator]:
        """Return the schedules that were asked for, cancelled ones too."""
        return list(self._punctuators)

    def committed(self) -> bool:
        """Return whether a commit was asked for since the last reset."""
        return self._committed

    def reset_commit(self) -> None:
        """Forget that a commit was asked for."""
        self._committed = False
