"""The buffer of `suppress` of a task whose `metrics.recording.level` asks how much it holds (Kafka class:
StateStoreMetrics). Any other task has the plain one, and pays nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping

from penstock.metrics.host_metrics import SUPPRESSION_BUFFER_COUNT, SUPPRESSION_BUFFER_SIZE, operation_of, state_id
from penstock.metrics.measurements import Measurement, Recorder
from penstock.state.api import RecordContext
from penstock.state.change_logging_store import StoreChangeLog
from penstock.state.state_serdes import StateSerdes
from penstock.state.time_ordered_buffer import Eviction, TimeOrderedChangeBuffer, WaitingUpdate
from penstock.state.uncommitted import UncommittedStore

_SCOPE = "in-memory-suppression"


class MeasuredTimeOrderedChangeBuffer(TimeOrderedChangeBuffer):
    """A buffer that measures its size after each update that comes, and after some that leave together, as in
    Kafka."""

    def __init__(
        self,
        recorder: Recorder,
        serdes: StateSerdes,
        buffer: UncommittedStore,
        metadata: MutableMapping[str, int],
        log: StoreChangeLog | None,
    ) -> None:
        """As TimeOrderedChangeBuffer; `recorder` takes what is measured."""
        super().__init__(serdes, buffer, metadata, log)
        self._recorder = recorder
        self._size_operation = operation_of(SUPPRESSION_BUFFER_SIZE, state_id(_SCOPE), self.name)
        self._count_operation = operation_of(SUPPRESSION_BUFFER_COUNT, state_id(_SCOPE), self.name)

    def put_serialized(
        self, time: int, key: bytes, new: bytes | None, old: bytes | None, context: RecordContext
    ) -> None:
        """As `put`, key and values as bytes."""
        super().put_serialized(time, key, new, old, context)
        self._measure()

    def evict_while(self, predicate: Callable[[], bool], callback: Callable[[Eviction], None]) -> int:
        """Give updates to `callback`, the eldest first, as long as `predicate` is true and there are any; each is
        removed after its callback. Return how many left."""
        evicted = super().evict_while(predicate, callback)
        if evicted:
            self._measure()
        return evicted

    def take_until(self, time: int) -> Iterator[WaitingUpdate]:
        """Remove and yield the updates of up to `time` (ms), the eldest first."""
        before = self.num_records
        try:
            yield from super().take_until(time)
        finally:
            if self.num_records < before:
                self._measure()

    def _measure(self) -> None:
        size, count = float(self.buffer_size), float(self.num_records)
        self._recorder.record(self._size_operation, Measurement(1, size, size, size))
        self._recorder.record(self._count_operation, Measurement(1, count, count, count))
