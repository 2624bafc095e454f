"""The join of two streams within windows.

Kafka classes: KStreamJoinWindow, KStreamKStreamJoin, KStreamKStreamSelfJoin.

Each side stores its records in a window store, which the other side searches for records near in time. Unmatched
records of a left or outer join wait in a third store until their window and its grace period are over. They are
forwarded before the results of the record that advanced the time. Both sides of a join share the clocks.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, cast

from penstock.metrics.drop_reasons import DropReason, null_part
from penstock.processor.api import EngineContext, Processor, ProcessorContext
from penstock.processor.first_results import KEYED_JOINER, UsesResults
from penstock.processor.joiner import KeyedJoiner, keyed_joiner
from penstock.processor.operator_time import EmissionInterval, ObservedStreamTime
from penstock.processor.store_reader import StoreReader
from penstock.record import NO_TIMESTAMP, Record
from penstock.state.api import EngineKeyValueStore
from penstock.state.windowed_api import EngineWindowStore
from penstock.windows import LONG_MAX, JoinWindows


class StreamJoinWindow(Processor):
    """Forwards each record to its join side, then stores it for the other.

    Kafka class: KStreamJoinWindow.

    Args:
        store_name: the name of the window store.
    """

    def __init__(self, store_name: str) -> None:
        self._store_name = store_name

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        super().init(context)
        self.engine = cast(EngineContext, context)
        self.store: EngineWindowStore = context.get_state_store(self._store_name)

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record, then store it if it has a key."""
        self.context.forward(record)
        if record.key is None:
            return
        self.store.put(record.key, record.value, record.timestamp)
        if record.value is not None and self.store.is_late(record.timestamp):  # the store counts it
            self.engine.write_dropped(DropReason.LATE)


@dataclass(frozen=True)
class JoinSide:
    """One side of a join of two streams.

    Args:
        left: whether it is the left side.
        joiner: the user's joiner.
        with_key: whether the joiner takes the key too.
        windows: the windows of the join.
        keeps_this: whether records of this side have a result without a match.
        keeps_other: whether records of the other side have a result without a match.
        other_store: the name of the other side's window store.
        outer_store: the name of the store of waiting records, None for an inner join.
        join_name: the name of the join, which identifies its clocks.
    """

    left: bool
    joiner: Callable[..., Any]
    with_key: bool
    windows: JoinWindows
    keeps_this: bool
    keeps_other: bool
    other_store: str
    outer_store: str | None
    join_name: str

    @property
    def before_ms(self) -> int:
        """Maximum time (ms) by which a matching record of the other side is earlier."""
        return self.windows.before_ms if self.left else self.windows.after_ms

    @property
    def after_ms(self) -> int:
        """Maximum time (ms) by which a matching record of the other side is later."""
        return self.windows.after_ms if self.left else self.windows.before_ms


class StreamStreamInnerJoin(Processor, UsesResults, StoreReader):
    """One side of an inner join (Kafka class: KStreamKStreamJoin).

    Args:
        side: the parameters of the side.
    """

    held = (KEYED_JOINER,)

    def __init__(self, side: JoinSide) -> None:
        self.side = side
        self._before, self._after = side.before_ms, side.after_ms
        self._joiner = keyed_joiner(side.joiner, side.with_key, reverse=not side.left)

    def read_stores(self) -> tuple[str, ...]:
        """Return the store of the other side."""
        return (self.side.other_store,)

    def init(self, context: ProcessorContext) -> None:
        """Get the store of the other side."""
        super().init(context)
        self.engine = cast(EngineContext, context)
        self._other: EngineWindowStore = context.get_state_store(self.side.other_store)

    @property
    def joiner(self) -> KeyedJoiner:
        """The joiner as a function of key, value of this side and value of the other side."""
        return self._joiner

    def process(self, record: Record[Any, Any]) -> None:
        """Forward a result for each matching record of the other side, in time order."""
        key, value, timestamp, headers = record.key, record.value, record.timestamp, record.headers
        if key is None or value is None:
            self.engine.drop(null_part(key))
            return
        joiner, forward = self._joiner, self.context.forward
        for other_timestamp, other_value in self._other.fetch_duplicates(
            key, max(0, timestamp - self._before), max(0, timestamp + self._after)
        ):
            result = joiner(key, value, other_value)
            forward(Record(key, result, max(timestamp, other_timestamp), headers))


class StreamStreamOuterJoin(Processor, UsesResults, StoreReader):
    """One side of a left or outer join (Kafka class: KStreamKStreamJoin).

    Args:
        side: the parameters of the side.
    """

    held = (KEYED_JOINER,)

    def __init__(self, side: JoinSide) -> None:
        self._side = side
        self._before, self._after = side.before_ms, side.after_ms
        self._waits_ms = side.windows.grace_period_ms
        self._left, self._keeps_this, self._keeps_other = side.left, side.keeps_this, side.keeps_other
        self._joiner = keyed_joiner(side.joiner, side.with_key, reverse=not side.left)

    def read_stores(self) -> tuple[str, ...]:
        """Return the store of the other side."""
        return (self._side.other_store,)

    def init(self, context: ProcessorContext) -> None:
        """Get the store of the other side, the store of waiting records, and the clocks."""
        super().init(context)
        assert self._side.outer_store is not None
        self._engine = cast(EngineContext, context)
        self._other: EngineWindowStore = context.get_state_store(self._side.other_store)
        self._waiting: EngineKeyValueStore = context.get_state_store(self._side.outer_store)
        self._clocks = _SharedTimeTracker(self._engine, self._side.join_name)
        self._interval = EmissionInterval(self._engine, self._side.join_name, self._emit_non_joined)

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the records that have waited long enough, then the results of this record.

        The record is stored if it has no match.
        """
        key, value, timestamp, headers = record.key, record.value, record.timestamp, record.headers
        forward, joiner, clocks = self.context.forward, self._joiner, self._clocks
        stream_time = clocks.advance_stream_time(timestamp)
        if value is None or key is None:
            if self._keeps_this and value is not None:
                forward(Record(key, joiner(key, value, None), timestamp, headers))
            else:
                self._engine.drop(null_part(key))
            return
        if timestamp == stream_time and self._is_over(stream_time) and self._interval.is_over(record):
            self._emit_non_joined(record)
        time_to = max(0, timestamp + self._after)
        alone = self._keeps_this
        for other_timestamp, other_value in self._other.fetch_duplicates(
            key, max(0, timestamp - self._before), time_to
        ):
            alone = False
            if self._keeps_other:
                waiting = other_timestamp, not self._left, key  # creating a plain tuple takes a tenth of the time
                if self._waiting.get(waiting) is not None:
                    self._waiting.put(waiting, None)
            forward(Record(key, joiner(key, value, other_value), max(timestamp, other_timestamp), headers))
        if alone:
            if time_to + self._waits_ms < stream_time:
                forward(Record(key, joiner(key, value, None), timestamp, headers))
            else:
                clocks.lower_min_time(timestamp)
                this = timestamp, self._left, key
                self._waiting.put(this, [*(self._waiting.get(this) or ()), (self._left, value)])

    def _is_over(self, stream_time: int) -> bool:
        """Return whether the window of the oldest waiting record may be over at `stream_time`."""
        over = self._clocks.min_time + self._after + self._side.windows.grace_period_ms
        # if no record waits, Kafka's 64 bits wrap around, so that the first record already starts the interval
        return (over if over <= LONG_MAX else over - (1 << 64)) < stream_time

    def _emit_non_joined(self, record: Record[Any, Any]) -> None:
        """Forward the waiting records whose windows are over, as after `record`.

        The records of both sides are in time order.
        """
        clocks, windows = self._clocks, self._side.windows
        stream_time = clocks.stream_time
        min_time = LONG_MAX
        forwarded: bytes | None = None
        left_open = right_open = False
        try:
            with self._waiting.entries() as entries:
                for entry_key, values in entries:
                    min_time, left, key = self._waiting.deserialize_key(entry_key)
                    if left_open and right_open:
                        break
                    look_back = windows.after_ms if left else windows.before_ms
                    if min_time + look_back + windows.grace_period_ms >= stream_time:
                        left_open, right_open = left_open or left, right_open or not left
                        if left_open and right_open and len(values) > 1:
                            break  # Kafka goes value by value: the second value ends the search, and is the oldest
                        continue
                    for _, value in values:
                        this, other = (value, None) if left is self._left else (None, value)
                        self.context.forward(Record(key, self._joiner(key, this, other), min_time, record.headers))
                        if forwarded is not None:  # only now: if the next one fails, Kafka keeps it
                            self._waiting.delete_entry(forwarded)
                        forwarded = None
                    forwarded = entry_key
            if forwarded is not None:
                self._waiting.delete_entry(forwarded)
        finally:
            clocks.set_min_time(min_time)


class _SharedTimeTracker:
    """The clocks that both sides of a join share, in the processor metadata.

    Kafka class: KStreamImplJoin.TimeTracker.
    """

    def __init__(self, context: EngineContext, join_name: str) -> None:
        self._metadata: MutableMapping[str, int] = context.processor_metadata()
        self._stream_time = f"{join_name}/observed_stream_time"
        self._min_time = f"{join_name}/min_time"

    def advance_stream_time(self, timestamp: int) -> int:
        """Advance the stream time to a timestamp if it is larger, and return it."""
        stream_time = self.stream_time
        if timestamp > stream_time:
            self._metadata[self._stream_time] = timestamp
            return timestamp
        return stream_time

    @property
    def stream_time(self) -> int:
        """The largest timestamp so far."""
        return self._metadata.get(self._stream_time, NO_TIMESTAMP)

    @property
    def min_time(self) -> int:
        """A lower bound for the timestamps of waiting records."""
        return self._metadata.get(self._min_time, LONG_MAX)

    def set_min_time(self, timestamp: int) -> None:
        """Set the timestamp of the oldest waiting record."""
        self._metadata[self._min_time] = timestamp

    def lower_min_time(self, timestamp: int) -> None:
        """Lower the bound to the timestamp of a new waiting record."""
        if timestamp < self.min_time:
            self._metadata[self._min_time] = timestamp


class StreamStreamSelfJoin(Processor, UsesResults):
    """A stream joined with itself by one store and one processor (Kafka class: KStreamKStreamSelfJoin).

    Args:
        store_name: the name of the window store, which gets each record after its processing.
        join_name: the name of the join, which identifies its clock.
        joiner: the user's joiner.
        with_key: whether the joiner takes the key too.
        windows: the windows of the join.
    """

    held = (KEYED_JOINER,)

    def __init__(
        self, store_name: str, join_name: str, joiner: Callable[..., Any], with_key: bool, windows: JoinWindows
    ) -> None:
        self._store_name = store_name
        self._join_name = join_name
        self._joiner = keyed_joiner(joiner, with_key)
        self._before, self._after = windows.before_ms, windows.after_ms
        self._retention_ms = windows.size_ms + windows.grace_period_ms

    def init(self, context: ProcessorContext) -> None:
        """Get the store and the clock."""
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._store: EngineWindowStore = context.get_state_store(self._store_name)
        self._stream_time = ObservedStreamTime(self._engine.processor_metadata(), self._join_name)

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the results of the record as the left side, then as the right side.

        The result of the record with itself comes at its place in time order.
        """
        key, value, timestamp, headers = record.key, record.value, record.timestamp, record.headers
        if key is None or value is None:
            self._engine.drop(null_part(key))
            return
        joiner, forward = self._joiner, self.context.forward
        with_itself = Record(key, joiner(key, value, value), timestamp, headers)
        pending = timestamp > self._stream_time.advance(timestamp) - self._retention_ms + 1
        for other_timestamp, other in self._near(key, timestamp - self._before, timestamp + self._after):
            forward(Record(key, joiner(key, value, other), max(timestamp, other_timestamp), headers))
        for other_timestamp, other in self._near(key, timestamp - self._after, timestamp + self._before):
            if pending and timestamp < other_timestamp:
                pending = False
                forward(with_itself)
            forward(Record(key, joiner(key, other, value), max(timestamp, other_timestamp), headers))
        if pending:
            forward(with_itself)

    def _near(self, key: Any, time_from: int, time_to: int) -> list[tuple[int, Any]]:
        return self._store.fetch_duplicates(key, max(0, time_from), max(0, time_to))
