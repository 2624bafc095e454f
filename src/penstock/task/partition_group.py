"""The partition group: a task's buffered input and its order (Kafka classes: PartitionGroup, RecordQueue).

Each lane of a topic partition is a queue, processed in its own order; among the queues, the one with the smallest head
timestamp is next. Of partitions with equal heads, Kafka's `java.util.PriorityQueue` selects one, and they take turns.
Two methods follow this rule, and a host uses one of them. They differ in the first partition:

- `take` returns all buffered records. The first partition is that of the source which the program creates first, and
  within one source the first by topic and number; if records were held back, it is the one whose turn it is. So the
  order depends only on program and records, not on their arrival. Of the lanes of a partition with equal heads the
  first is taken. As long as no heads of several partitions are equal, taking heads one by one gives the order of a
  stable sort by the largest timestamp that a queue has shown so far: this module does exactly that. If the difference
  would be invisible, the partitions are taken one after another.
- `take_next` returns one record, and others may arrive before the next call. The first to arrive begins.

No record after the last one of an awaited partition is taken: the rest stays buffered. Answers of calls have no part in
this order: they are taken alone, by `take_answers`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, pairwise
from typing import NamedTuple, Protocol

import numpy as np

from penstock.errors import StreamsError
from penstock.metrics.drop_reasons import DropReason
from penstock.plan.user_lines import function_line
from penstock.processor.timestamps import (
    TimestampExtractor,
    fail_on_invalid_timestamp,
    wallclock_timestamp_extractor,
)
from penstock.record import (
    NO_TIMESTAMP,
    ConsumerRecord,
    FailedRecord,
    Int64Array,
    PartitionBatch,
    RecordBatch,
    RecordMetadata,
    TopicPartition,
    running_maximum,
)
from penstock.task.error_handling import failed_record, told_cause
from penstock.task.few_rows import least, most
from penstock.task.priority_queue import PriorityQueue
from penstock.task.processor_topology import SourceNode
from penstock.task.queue_order import in_turns, places_among
from penstock_broker.common.durations import timestamp_ms
from penstock_broker.common.log_limits import limit_rate

_log = limit_rate(logging.getLogger(__name__))


class RecordRun(NamedTuple):
    """Consecutive records of one topic partition.

    Args:
        lanes: the lane of each record (int64 array).
        serialized: whether the records are still bytes.
        source_records: the unchanged records of the lane, by ascending offset, if error handlers may need them.
    """

    source: SourceNode
    partition: TopicPartition
    lanes: Int64Array
    batch: RecordBatch
    serialized: bool
    source_records: RecordBatch | None


class MixedRun(NamedTuple):
    """Consecutive, deserialised records of several partitions with too many turns for separate runs.

    Args:
        sources: the source of each partition.
        partitions: the partitions.
        numbers: for each row, the index of its partition.
        lanes: as in Run.
    """

    sources: list[SourceNode]
    partitions: list[TopicPartition]
    numbers: Int64Array
    lanes: Int64Array
    batch: RecordBatch

    def turns(self) -> Iterator[tuple[int, int, int]]:
        """Yield partition index, first row, and the row after the last one, for each turn."""
        cuts = [0, *(np.flatnonzero(self.numbers[1:] != self.numbers[:-1]) + 1).tolist(), len(self.numbers)]
        for start, stop in pairwise(cuts):
            yield int(self.numbers[start]), start, stop


_FEW_ROWS = 8
"""Average number of rows per run below which single records are cheaper."""


class Lane(NamedTuple):
    """A queue: a topic partition and, after a shuffle, the upstream task of the records.

    The upstream task is 0 for a broker's topic.
    """

    partition: TopicPartition
    lane: int


class BufferSize(NamedTuple):
    """The number of buffered records, and the bytes of their keys, values and headers."""

    records: int
    bytes: int


class _Head(NamedTuple):
    """The first record of a queue, unchanged and prepared: deserialised unless `serialized`."""

    lane: Lane
    came: RecordBatch
    batch: RecordBatch
    serialized: bool

    def timestamp(self) -> int:
        """Return the extracted timestamp (ms)."""
        return int(self.batch.timestamps[0])


class RunRules(Protocol):
    """The execution's rules for runs."""

    def takes_serialized(self, source: SourceNode, rows: int) -> bool:
        """Return whether this number of records of `source` may stay bytes."""

    def may_follow_each_other(self, sources: Iterable[SourceNode]) -> bool:
        """Return whether interleaved records may be taken one partition after another.

        sources: those of the partitions.
        """

    def run_together(self, sources: Sequence[SourceNode]) -> bool:
        """Return whether interleaved records of these sources run together: then turns need no runs of their own."""


class PartitionGroup:
    """The queues of one task.

    Args:
        sources: the source nodes of the task.
        default_extractor: extracts timestamps for sources without their own extractor.
        partition_times: those of the last commit (ms).
        rules: the rules for runs.
        count_dropped: receives a node's name, a reason and a number of records.
        keep_source_records: whether runs include the unchanged records.
        mixes: whether mixed runs are allowed.
        wall_clock: returns the task's wall-clock time (ms).
    """

    def __init__(
        self,
        sources: Sequence[SourceNode],
        default_extractor: TimestampExtractor,
        partition_times: Mapping[TopicPartition, int],
        rules: RunRules,
        count_dropped: Callable[[str, DropReason, int], None],
        keep_source_records: bool,
        mixes: bool,
        wall_clock: Callable[[], int],
    ) -> None:
        self._wall_clock = wall_clock
        self._mixes = mixes and not keep_source_records
        self._sources = {topic: source for source in sources for topic in source.spec.topics}
        self._places = {source.name: place for place, source in enumerate(sources)}
        self._default_extractor = default_extractor
        self._rules = rules
        self._count_dropped = count_dropped
        self._keep_source_records = keep_source_records
        self._queues: dict[Lane, deque[RecordBatch]] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._heads: PriorityQueue[_Head] = PriorityQueue(_Head.timestamp)
        self.partition_times: dict[TopicPartition, int] = dict(partition_times)
        self._recent: list[TopicPartition] = []  # partitions with records taken before the rest was held back

    def add_source_topic(self, topic: str, source: SourceNode) -> None:
        """Also read `topic`, by `source`."""
        self._sources[topic] = source

    def add(self, partition: TopicPartition, lane: int, batch: RecordBatch) -> None:
        """Buffer serialised records; raises StreamsError for a topic that no source reads."""
        if partition.topic not in self._sources:
            raise StreamsError(
                f"No source of this task reads topic {partition.topic}: expected one of "
                f"{', '.join(sorted(self._sources))}."
            )
        if len(batch):
            self._queues.setdefault(Lane(partition, lane), deque()).append(batch)
            self._ends[partition] = int(batch.offsets[-1]) + 1

    def buffered(self) -> Set[TopicPartition]:
        """Return the partitions with buffered records."""
        if not self._queues and not self._heads:
            return frozenset()
        return {lane.partition for lane in (*self._queues, *(head.lane for head in self._heads))}

    def sizes(self) -> dict[TopicPartition, BufferSize]:
        """Return the buffer size of each partition with buffered records."""
        if not self._queues and not self._heads:
            return {}
        queued = ((lane, batch) for lane, queue in self._queues.items() for batch in queue)
        sizes: dict[TopicPartition, BufferSize] = {}
        for lane, batch in chain(queued, ((head.lane, head.came) for head in self._heads)):
            records, size = sizes.get(lane.partition, (0, 0))
            sizes[lane.partition] = BufferSize(records + len(batch), size + _bytes_of(batch))
        return sizes

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset to be taken, for each partition with added records.

        Without buffered records, it is the one after the last added record. For partitions of a broker, which have one
        lane.
        """
        positions = dict(self._ends)
        first = [(lane.partition, queue[0]) for lane, queue in self._queues.items()]
        for partition, batch in (*first, *((head.lane.partition, head.came) for head in self._heads)):
            positions[partition] = min(positions[partition], int(batch.offsets[0]))
        return positions

    def give_up(self) -> list[PartitionBatch]:
        """Remove and return the buffered records unchanged."""
        queues, self._queues = self._queues, {}
        return [
            PartitionBatch(*lane.partition, RecordBatch.concat(batches), lane.lane)
            for lane, batches in sorted(queues.items())
        ]

    @property
    def rows(self) -> int:
        """The number of buffered records, without those found by `find_heads`."""
        return sum(len(batch) for queue in self._queues.values() for batch in queue)

    def take(
        self, awaited: Set[TopicPartition] = frozenset(), limit: int | None = None
    ) -> Iterator[RecordRun | MixedRun]:
        """Remove and yield the buffered records in processing order, without answers.

        Stops before the first record that may have to wait for one of a partition in `awaited`, and after `limit`
        records.
        """
        return self._take([lane for lane in self._queues if not self._has_answers(lane)], awaited, limit)

    def take_answers(self) -> Iterator[RecordRun | MixedRun]:
        """Remove and yield the buffered answers of calls, and requests about parked records, in processing order."""
        return self._take(filter(self._has_answers, [*self._queues]), frozenset(), None)

    def _has_answers(self, lane: Lane) -> bool:
        return self._sources[lane.partition.topic].spec.has_task_topic

    def _take(
        self, from_lanes: Iterable[Lane], awaited: Set[TopicPartition], limit: int | None
    ) -> Iterator[RecordRun | MixedRun]:
        lanes = sorted(from_lanes)
        taken = {lane: self._remove_rows(lane, limit) for lane in lanes}
        cut = {lane for lane in lanes if lane in self._queues}
        source_records = taken if self._keep_source_records else {}
        serialized = all(self._stays_serialized(lane, batch) for lane, batch in taken.items())
        prepared = [(lane, batch if serialized else self._prepare(lane, batch)) for lane, batch in taken.items()]
        kept = [(lane, batch) for lane, batch in prepared if len(batch)]
        if (awaited or limit is not None) and kept:
            order = self._order(kept)
            stop = _stop(kept, order, awaited, cut, limit)
            kept, all_kept = self._hold_back(kept, taken, order, stop), kept
            order = _within(kept, all_kept, order)
        elif len(kept) > 1:
            order = self._order(kept)
        if not self._queues:
            self._recent = []
        for lane, batch in kept:
            if self._has_answers(lane):  # their times are those of earlier records
                continue
            time = self.partition_times.get(lane.partition, NO_TIMESTAMP)
            self.partition_times[lane.partition] = max(time, most(batch.timestamps))
        if len(kept) == 1:
            lane, batch = kept[0]
            numbers = np.full(len(batch), lane.lane, np.int64) if lane.lane else np.zeros(len(batch), np.int64)
            yield self._run(lane.partition, numbers, batch, serialized, source_records.get(lane))
        elif kept:
            yield from self._merge(kept, order, serialized, source_records)

    def _order(self, queues: list[tuple[Lane, RecordBatch]]) -> Int64Array:
        """Return the rows of `queues`, numbered over all of them, in processing order."""
        if len(queues) < 2:
            return np.arange(sum(len(batch) for _, batch in queues))
        heads = np.concatenate([running_maximum(batch.timestamps) for _, batch in queues])
        order = np.argsort(heads, kind="stable")
        partitions, numbers = _numbered(queues)
        times, numbers = heads[order], numbers[order]
        is_shared = (times[1:] == times[:-1]) & (numbers[1:] != numbers[:-1])
        if not is_shared.any() or self._may_follow(partitions):
            return order
        # A record before the largest timestamp of its queue is taken directly after its predecessor.
        begins = np.concatenate([batch.timestamps for _, batch in queues])[order] == times
        first = sorted(range(len(partitions)), key=lambda number: self._waits_behind(partitions[number]))
        turns = in_turns([times[begins & (numbers == number)] for number in range(len(partitions))], first)
        places = np.empty(len(order), np.int64)
        for number in range(len(partitions)):
            own = numbers == number
            places[own] = np.flatnonzero(turns == number)[np.cumsum(begins[own]) - 1]
        return order[np.argsort(places, kind="stable")]

    def _waits_behind(self, partition: TopicPartition) -> tuple[int, int]:
        recency = self._recent.index(partition) if partition in self._recent else -1
        return recency, self._places[self._sources[partition.topic].name]

    def _may_follow(self, partitions: Iterable[TopicPartition]) -> bool:
        return self._rules.may_follow_each_other(self._sources[partition.topic] for partition in partitions)

    def find_heads(self) -> None:
        """Remove the first record of each queue for `take_next`.

        Drops those that are unreadable or without a valid timestamp, if the handlers permit it.
        """
        known = {head.lane for head in self._heads}
        for lane in [lane for lane in self._queues if lane not in known and not self._has_answers(lane)]:
            while lane in self._queues:
                came = self._remove_first(lane)
                serialized = self._stays_serialized(lane, came)
                batch = came if serialized else self._prepare(lane, came)
                if len(batch):
                    self._heads.offer(_Head(lane, came, batch, serialized))
                    break

    def take_next(self) -> RecordRun | None:
        """Remove and return the next record found by `find_heads`, or None."""
        head = self._heads.poll()
        if head is None:
            return None
        lane, came, batch, serialized = head
        time = self.partition_times.get(lane.partition, NO_TIMESTAMP)
        self.partition_times[lane.partition] = max(time, head.timestamp())
        numbers = np.full(1, lane.lane, np.int64)
        return self._run(lane.partition, numbers, batch, serialized, came if self._keep_source_records else None)

    def _remove_rows(self, lane: Lane, limit: int | None) -> RecordBatch:
        """Remove and return the first records of a queue, at most `limit`."""
        if limit is None:
            return RecordBatch.concat(self._queues.pop(lane))
        queue, rows, removed = self._queues[lane], 0, list[RecordBatch]()
        while queue and rows < limit:
            first, left = queue.popleft(), limit - rows
            if len(first) > left:
                queue.appendleft(first.slice(left, len(first)))
                first = first.slice(0, left)
            removed.append(first)
            rows += len(first)
        if not queue:
            del self._queues[lane]
        return RecordBatch.concat(removed)

    def _remove_first(self, lane: Lane) -> RecordBatch:
        queue = self._queues[lane]
        first = queue.popleft()
        if len(first) > 1:
            queue.appendleft(first.slice(1, len(first)))
        elif not queue:
            del self._queues[lane]
        return first.slice(0, 1)

    def _hold_back(
        self,
        queues: list[tuple[Lane, RecordBatch]],
        came: Mapping[Lane, RecordBatch],
        order: Int64Array,
        stop: int,
    ) -> list[tuple[Lane, RecordBatch]]:
        """Return the first `stop` records in `order`.

        The rest stays buffered unchanged, without dropped records.
        """
        free: list[tuple[Lane, RecordBatch]] = []
        taken: dict[TopicPartition, int] = {}
        for (lane, batch), own in zip(queues, _ranks(queues, order), strict=True):
            count = int(np.searchsorted(own, stop))
            if count:
                free.append((lane, batch.slice(0, count)))
                taken[lane.partition] = max(taken.get(lane.partition, -1), int(own[count - 1]))
            if count < len(batch):
                rows = places_among(batch.offsets, came[lane].offsets)[count:]
                self._queues.setdefault(lane, deque()).appendleft(came[lane].take(rows))
        self._recent = [each for each in self._recent if each not in taken] + sorted(taken, key=taken.__getitem__)
        return free

    def _stays_serialized(self, lane: Lane, batch: RecordBatch) -> bool:
        source = self._sources[lane.partition.topic]
        return (
            self._rules.takes_serialized(source, len(batch))
            and self._extractor(source) is fail_on_invalid_timestamp
            and int(batch.timestamps.min()) >= 0
            and source.is_canonical(batch)
        )

    def _extractor(self, source: SourceNode) -> TimestampExtractor:
        if source.spec.repartition:
            return fail_on_invalid_timestamp
        chosen = source.spec.timestamp_extractor or self._default_extractor
        return self._now if chosen is wallclock_timestamp_extractor else chosen

    def _now(self, record: ConsumerRecord, partition_time: int) -> int:
        """Return the wall-clock time of the task (implements TimestampExtractor)."""
        return self._wall_clock()

    def _merge(
        self,
        queues: list[tuple[Lane, RecordBatch]],
        order: Int64Array,
        serialized: bool,
        source_records: Mapping[Lane, RecordBatch],
    ) -> Iterator[RecordRun | MixedRun]:
        lengths = [len(batch) for _, batch in queues]
        partitions, numbers = _numbered(queues)
        numbers = numbers[order]
        if self._may_follow(partitions):
            one_by_one = np.argsort(numbers, kind="stable")
            order, numbers = order[one_by_one], numbers[one_by_one]
        lanes = np.repeat([lane.lane for lane, _ in queues], lengths)[order]
        merged = RecordBatch.concat([batch for _, batch in queues]).take(order)
        changes = numbers[1:] != numbers[:-1]
        if source_records:  # an offset identifies one record of a lane, not of a partition
            changes |= lanes[1:] != lanes[:-1]
        if self._mixes and not serialized:
            sources = [self._sources[partition.topic] for partition in partitions]
            are_few = len(numbers) < _FEW_ROWS * (1 + np.count_nonzero(changes))
            if are_few or self._rules.run_together(sources):
                yield MixedRun(sources, partitions, numbers, lanes, merged)
                return
        cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(numbers)]
        for start, stop in pairwise(cuts):
            partition = partitions[int(numbers[start])]
            source = source_records.get(Lane(partition, int(lanes[start])))
            yield self._run(partition, lanes[start:stop], merged.slice(start, stop), serialized, source)

    def _run(
        self,
        partition: TopicPartition,
        lanes: Int64Array,
        batch: RecordBatch,
        serialized: bool,
        source_records: RecordBatch | None,
    ) -> RecordRun:
        return RecordRun(self._sources[partition.topic], partition, lanes, batch, serialized, source_records)

    def _prepare(self, lane: Lane, batch: RecordBatch) -> RecordBatch:
        """Return the records deserialised, with timestamps, without those that the extractor drops."""
        partition = lane.partition
        source = self._sources[partition.topic]
        batch = source.deserialize(partition.topic, partition.partition, batch)
        if source.spec.has_task_topic:
            batch = self._with_values(partition, batch)
        extractor = self._extractor(source)
        if extractor is not fail_on_invalid_timestamp or (len(batch) and least(batch.timestamps) < 0):
            batch = self._extract(partition, batch, extractor)
        return batch

    def _with_values(self, partition: TopicPartition, batch: RecordBatch) -> RecordBatch:
        """Return the answers or requests of `batch`; records without a value, which are neither, are dropped."""
        refused = [row for row, value in enumerate(batch.values) if value is None]
        if not refused:
            return batch
        for row in refused:
            _log.warning(
                "Topic %s has a record without a value at partition %d, offset %d, which is dropped: only Penstock may "
                "write to this topic.",
                partition.topic,
                partition.partition,
                batch.offsets[row],
            )
        name = self._sources[partition.topic].name
        self._count_dropped(name, DropReason.DESERIALIZATION, len(refused))
        return batch.take(np.delete(np.arange(len(batch)), refused))

    def _extract(self, partition: TopicPartition, batch: RecordBatch, extractor: TimestampExtractor) -> RecordBatch:
        partition_time = self.partition_times.get(partition, NO_TIMESTAMP)
        extracted: list[int] = []
        name = self._sources[partition.topic].name
        rows = zip(batch.keys, batch.values, batch.timestamps.tolist(), batch.offsets.tolist(), strict=True)
        for row, (key, value, timestamp, offset) in enumerate(rows):
            record = ConsumerRecord(
                partition.topic, partition.partition, offset, timestamp, key, value, batch.headers_at(row)
            )
            try:
                time = extractor(record, partition_time)
            except StreamsError as error:
                error.failed_record = self._failed(record)
                raise
            except Exception as error:
                failure = StreamsError(
                    f"Fatal user code error in TimestampExtractor callback for record {partition} at offset {offset}."
                )
                failure.failed_record = self._failed(record)
                failure.add_note(told_cause(error, name, name))
                raise failure from error
            try:
                time = timestamp_ms(time, "a timestamp")
            except (TypeError, ValueError) as error:
                failure = StreamsError(
                    f"The timestamp extractor of {name} returned {time!r} for the record at topic {partition.topic}, "
                    f"partition {partition.partition}, offset {offset}: expected a whole number of ms since the epoch."
                )
                failure.failed_record = self._failed(record)
                failure.add_note(f"{error}\n  {function_line(extractor)}")
                raise failure from error
            partition_time = max(partition_time, time)
            extracted.append(time)
        timestamps = np.array(extracted, np.int64)
        result = RecordBatch(batch.keys, batch.values, timestamps, batch.offsets, batch.headers)
        kept = np.flatnonzero(timestamps >= 0)
        if len(kept) == len(batch):
            return result
        dropped = len(batch) - len(kept)
        self._count_dropped(self._sources[partition.topic].name, DropReason.INVALID_TIMESTAMP, dropped)
        return result.take(kept)

    def _failed(self, record: ConsumerRecord) -> FailedRecord:
        """Return the record whose timestamp extraction failed, for its error."""
        return failed_record(self._sources[record.topic].name, RecordMetadata(*record[:3]), record)


def _numbered(queues: Sequence[tuple[Lane, RecordBatch]]) -> tuple[list[TopicPartition], Int64Array]:
    """Return the partitions of `queues`, and for each row the index of its partition."""
    partitions = sorted({lane.partition for lane, _ in queues})
    numbers = [partitions.index(lane.partition) for lane, _ in queues]
    return partitions, np.repeat(np.array(numbers, np.int64), [len(batch) for _, batch in queues])


def _ranks(queues: Sequence[tuple[Lane, RecordBatch]], order: Int64Array) -> list[Int64Array]:
    """Return the places in `order` of the rows of each queue, which ascend."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return np.split(rank, np.cumsum([len(batch) for _, batch in queues])[:-1])


def _stop(
    queues: Sequence[tuple[Lane, RecordBatch]],
    order: Int64Array,
    awaited: Set[TopicPartition],
    cut: Set[Lane],
    limit: int | None,
) -> int:
    """Return the number of records, in `order`, that need no others.

    Args:
        queues: the records.
        order: their rows in processing order.
        awaited: partitions whose next records may have to come before others.
        cut: lanes whose next records are buffered, but not among these.
        limit: the largest number; None without a limit.
    """
    last: dict[TopicPartition, int] = {}
    last_of_cut = dict.fromkeys(cut, -1)
    for (lane, _), own in zip(queues, _ranks(queues, order), strict=True):
        last[lane.partition] = max(last.get(lane.partition, -1), int(own[-1]))
        if lane in cut:
            last_of_cut[lane] = int(own[-1])
    stops = [1 + last.get(partition, -1) for partition in awaited] + [1 + each for each in last_of_cut.values()]
    return min(stops if limit is None else [*stops, limit])


def _within(
    kept: Sequence[tuple[Lane, RecordBatch]], queues: Sequence[tuple[Lane, RecordBatch]], order: Int64Array
) -> Int64Array:
    """Return `order`, of the rows of `queues`, as an order of the rows of `kept`.

    `kept` has the first rows of some queues.
    """
    counts = {lane: len(batch) for lane, batch in kept}
    is_kept = np.concatenate([np.arange(len(batch)) < counts.get(lane, 0) for lane, batch in queues])
    rows: Int64Array = (np.cumsum(is_kept) - 1)[order[is_kept[order]]]
    return rows


def _bytes_of(batch: RecordBatch) -> int:
    headers = chain.from_iterable(batch.headers or ())
    named = sum(len(name) + len(value or b"") for name, value in headers)
    return named + sum(map(len, filter(None, chain(batch.keys, batch.values))))
