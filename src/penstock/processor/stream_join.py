"""The join of two streams within windows (Kafka classes: KStreamJoinWindow, KStreamKStreamJoin,
KStreamKStreamSelfJoin).

Each side keeps its records in a window store, in which the other side looks for those that are near in time. Records of
a left or outer join that meet none wait in a third store until their window is over and its grace, and come out before
the results of the record that moved the time. The clocks are shared by both sides of a join.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, cast

from penstock.metrics.drop_reasons import null_part
from penstock.processor.api import EngineContext, Processor, ProcessorContext
from penstock.processor.first_results import KEYED_JOINER, UsesResults
from penstock.processor.joiner import keyed_joiner
from penstock.processor.operator_time import EmissionInterval, ObservedStreamTime
from penstock.record import NO_TIMESTAMP, Record
from penstock.state.api import EngineKeyValueStore
from penstock.state.windowed_api import EngineWindowStore, WindowStore
from penstock.windows import LONG_MAX, JoinWindows


class StreamJoinWindow(Processor):
    """Forwards each record to its side of a join, then keeps it for the other side (Kafka class:
    KStreamJoinWindow)."""

    def __init__(self, store_name: str) -> None:
        """Take the name of the window store."""
        self._store_name = store_name

    def init(self, context: ProcessorContext) -> None:
        """Get the store."""
        super().init(context)
        self._store: WindowStore = context.get_state_store(self._store_name)

    def process(self, record: Record[Any, Any]) -> None:
        """Forward the record, then store it if it has a key."""
        self.context.forward(record)
        if record.key is not None:
            self._store.put(record.key, record.value, record.timestamp)


@dataclass(frozen=True)
class JoinSide:
    """One side of a join of two streams.

    left: whether it is the left one. keeps_this, keeps_other: whether records of this side, and of the other, have a
    result if they meet none. other_store: name of the window store of the other side. outer_store: of the records that
    wait, None for an inner join. join_name: name of the join, under which its clocks are kept.
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
        """How far before a record of this side one of the other side may be."""
        return self.windows.before_ms if self.left else self.windows.after_ms

    @property
    def after_ms(self) -> int:
        """How far after a record of this side one of the other side may be."""
        return self.windows.after_ms if self.left else self.windows.before_ms


class StreamStreamInnerJoin(Processor, UsesResults):
    """One side of an inner join (Kafka class: KStreamKStreamJoin)."""

    held = (KEYED_JOINER,)

    def __init__(self, side: JoinSide) -> None:
        """Join by the rules of `side`."""
        self._side = side
        self._before, self._after = side.before_ms, side.after_ms
        self._joiner = keyed_joiner(side.joiner, side.with_key, reverse=not side.left)

    def init(self, context: ProcessorContext) -> None:
        """Get the store of the other side."""
        super().init(context)
        self._engine = cast(EngineContext, context)
        self._other: EngineWindowStore = context.get_state_store(self._side.other_store)

    def process(self, record: Record[Any, Any]) -> None:
        """Forward a result for each record of the other side that is near enough, in the order of time."""
        key, value, timestamp, headers = record.key, record.value, record.timestamp, record.headers
        if key is None or value is None:
            self._engine.count_dropped(null_part(key))
            return
        joiner, forward = self._joiner, self.context.forward
        for other_timestamp, other_value in self._other.fetch_duplicates(
            key, max(0, timestamp - self._before), max(0, timestamp + self._after)
        ):
            result = joiner(key, value, other_value)
            forward(Record(key, result, max(timestamp, other_timestamp), headers))


class StreamStreamOuterJoin(Processor, UsesResults):
    """One side of a left or outer join (Kafka class: KStreamKStreamJoin)."""

    held = (KEYED_JOINER,)

    def __init__(self, side: JoinSide) -> None:
        """Join by the rules of `side`."""
        self._side = side
        self._before, self._after = side.before_ms, side.after_ms
        self._waits_ms = side.windows.grace_period_ms
        self._left, self._keeps_this, self._keeps_other = side.left, side.keeps_this, side.keeps_other
        self._joiner = keyed_joiner(side.joiner, side.with_key, reverse=not side.left)

    def init(self, context: ProcessorContext) -> None:
        """Get the store of the other side, that of the records that wait, and the clocks."""
        super().init(context)
        assert self._side.outer_store is not None
        self._engine = cast(EngineContext, context)
        self._other: EngineWindowStore = context.get_state_store(self._side.other_store)
        self._waiting: EngineKeyValueStore = context.get_state_store(self._side.outer_store)
        self._clocks = _SharedTimeTracker(self._engine, self._side.join_name)
        self._interval = EmissionInterval(self._engine, self._side.join_name, self._emit_non_joined)

    def process(self, record: Record[Any, Any]) -> None:
        """Forward what has waited long enough, then the results of the record; keep it if it meets none."""
        key, value, timestamp, headers = record.key, record.value, record.timestamp, record.headers
        forward, joiner, clocks = self.context.forward, self._joiner, self._clocks
        stream_time = clocks.advance_stream_time(timestamp)
        if value is None or key is None:
            if self._keeps_this and value is not None:
                forward(Record(key, joiner(key, value, None), timestamp, headers))
            else:
                self._engine.count_dropped(null_part(key))
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
                waiting = other_timestamp, not self._left, key  # a plain tuple is made in a tenth of the time
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
        """Return whether the window of the oldest record that waits may be over at `stream_time`."""
        over = self._clocks.min_time + self._after + self._side.windows.grace_period_ms
        # where nothing waits Kafka's 64 bits wrap around, so that the first record already starts the interval
        return (over if over <= LONG_MAX else over - (1 << 64)) < stream_time

    def _emit_non_joined(self, record: Record[Any, Any]) -> None:
        """Forward the records that wait and whose windows are over, those of both sides in the order of time, as after
        `record`."""
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
                            break  # Kafka takes value by value: the second one ends the search, and is the oldest
                        continue
                    for _, value in values:
                        this, other = (value, None) if left is self._left else (None, value)
                        self.context.forward(Record(key, self._joiner(key, this, other), min_time, record.headers))
                        if forwarded is not None:  # only now: where the next one fails, Kafka keeps it
                            self._waiting.delete_entry(forwarded)
                        forwarded = None
                    forwarded = entry_key
            if forwarded is not None:
                self._waiting.delete_entry(forwarded)
        finally:
            clocks.set_min_time(min_time)


class _SharedTimeTracker:
    """The clocks that both sides of a join share, kept in the processor metadata (Kafka class:
    KStreamImplJoin.TimeTracker)."""

    def __init__(self, context: EngineContext, join_name: str) -> None:
        self._metadata: MutableMapping[str, int] = context.processor_metadata()
        self._stream_time = f"{join_name}/observed_stream_time"
        self._min_time = f"{join_name}/min_time"

    def advance_stream_time(self, timestamp: int) -> int:
        """Take a timestamp into account and return the stream time."""
        stream_time = self.stream_time
        if timestamp > stream_time:
            self._metadata[self._stream_time] = timestamp
            return timestamp
        return stream_time

    @property
    def stream_time(self) -> int:
        """The largest timestamp that was taken into account."""
        return self._metadata.get(self._stream_time, NO_TIMESTAMP)

    @property
    def min_time(self) -> int:
        """No record that waits is known to be older."""
        return self._metadata.get(self._min_time, LONG_MAX)

    def set_min_time(self, timestamp: int) -> None:
        """Say how old the oldest record is that waits."""
        self._metadata[self._min_time] = timestamp

    def lower_min_time(self, timestamp: int) -> None:
        """Take a record into account that waits from now on."""
        if timestamp < self.min_time:
            self._metadata[self._min_time] = timestamp


class StreamStreamSelfJoin(Processor, UsesResults):
    """A stream joined with itself by one store and one processor (Kafka class: KStreamKStreamSelfJoin)."""

    held = (KEYED_JOINER,)

    def __init__(
        self, store_name: str, join_name: str, joiner: Callable[..., Any], with_key: bool, windows: JoinWindows
    ) -> None:
        """Take the name of the window store, which the record itself is put in after it was processed, and that of the
        join, under which its clock is kept."""
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
        """Forward the results of the record as the left one, then as the right one, and with itself at its place in the
        order of time."""
        key, value, timestamp, headers = record.key, record.value, record.timestamp, record.headers
        if key is None or value is None:
            self._engine.count_dropped(null_part(key))
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
