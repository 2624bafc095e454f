"""Redrives dead letters to their source topics, each once (KIP-1034 defines their headers).

Records that operators drop, in the topics of `late_to`, are letters too, with headers of their own.

The redriven dead letters are recorded by offset instead of a position, so a run may redrive some of them and a later
run the others. The progress has a key for each 10,000 offsets of a partition, with the ranges of finished offsets,
including offsets between two records. The id of the topic is a part of the key: after a topic was deleted and created
again, all its records count as new.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, UnknownTopicOrPartitionError
from penstock.exception_handlers import (
    HEADER_ERRORS_EXCEPTION,
    HEADER_ERRORS_MESSAGE,
    HEADER_ERRORS_OFFSET,
    HEADER_ERRORS_PARTITION,
    HEADER_ERRORS_STACKTRACE,
    HEADER_ERRORS_TOPIC,
)
from penstock.plan.partitioning import partition_for
from penstock.record import ConsumerRecord, Headers, PartitionBatch, RecordBatch, TopicPartition
from penstock.task.dropped_records import (
    HEADER_DROPPED_NODE,
    HEADER_DROPPED_OFFSET,
    HEADER_DROPPED_PARTITION,
    HEADER_DROPPED_REASON,
    HEADER_DROPPED_STREAM_TIME,
    HEADER_DROPPED_TOPIC,
    HEADER_DROPPED_WINDOW_END,
    HEADER_DROPPED_WINDOW_START,
)
from penstock.tools.transfers.progress import REDRIVE, Key, Progress, ProgressWriter, committed_progress, identified
from penstock.windows import LONG_MAX


class _Layout(NamedTuple):
    """The names of the headers of one kind of letters.

    Args:
        cause: of the class of the error, or the reason of a dropped record.
        topic: of the source topic.
        partition: of its partition.
        offset: of the offset.
        details: of everything else.
    """

    cause: str
    topic: str
    partition: str
    offset: str
    details: tuple[str, ...]

    @property
    def needed(self) -> tuple[str, ...]:
        """The headers that each letter has."""
        return self.cause, self.topic, self.partition

    @property
    def names(self) -> frozenset[str]:
        """All headers."""
        return frozenset((self.cause, self.topic, self.partition, self.offset, *self.details))


_FAILED: Final = _Layout(
    HEADER_ERRORS_EXCEPTION,
    HEADER_ERRORS_TOPIC,
    HEADER_ERRORS_PARTITION,
    HEADER_ERRORS_OFFSET,
    (HEADER_ERRORS_MESSAGE, HEADER_ERRORS_STACKTRACE),
)
_DROPPED: Final = _Layout(
    HEADER_DROPPED_REASON,
    HEADER_DROPPED_TOPIC,
    HEADER_DROPPED_PARTITION,
    HEADER_DROPPED_OFFSET,
    (
        HEADER_DROPPED_NODE,
        HEADER_DROPPED_WINDOW_START,
        HEADER_DROPPED_WINDOW_END,
        HEADER_DROPPED_STREAM_TIME,
    ),
)

_INT_MAX: Final = (1 << 31) - 1
_TRANSACTION_RECORDS: Final = 1_000
_TRANSACTION_BYTES: Final = 4 * 1024 * 1024
_OFFSETS_FOR_EACH: Final = 4
"""The number of offsets read per requested last record."""
_CHUNK: Final = 10_000
"""The number of offsets per key of the progress."""

_Bits: TypeAlias = npt.NDArray[np.bool_]


class NotADeadLetterError(StreamsError):
    """A record of a dead letter queue lacks the headers with its origin.

    What to do: Name a topic that only error handlers, or only `late_to`, write to. `penstock redrive --skip-invalid`
    skips such records.
    """


@dataclass(frozen=True)
class LetterSelection:
    """The dead letters to redrive; an empty or None field selects all.

    Args:
        topics: of the source.
        partitions: of the source.
        exceptions: names of classes, with or without their module or package.
        keys: as bytes.
        since: the first selected timestamp (ms).
        until: the end of the selected timestamps (ms), exclusive.
        offsets: of the source.
    """

    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    exceptions: frozenset[str] = frozenset()
    keys: frozenset[bytes] = frozenset()
    since: int | None = None
    until: int | None = None
    offsets: frozenset[int] = frozenset()

    def takes(self, letter: DeadLetter) -> bool:
        """Return whether `letter` is selected."""
        names = {letter.exception, letter.exception.rpartition(".")[2]}
        return (
            (not self.topics or letter.topic in self.topics)
            and (not self.partitions or letter.partition in self.partitions)
            and (not self.offsets or letter.offset in self.offsets)
            and (not self.exceptions or not self.exceptions.isdisjoint(names))
            and (not self.keys or letter.key in self.keys)
            and (self.since is None or letter.timestamp >= self.since)
            and (self.until is None or letter.timestamp < self.until)
        )


class DeadLetter(NamedTuple):
    """A dead letter without the headers of the handler.

    Args:
        exception: the name of its class, or the reason of a dropped record.
        message: its text, or the node and the times of a dropped record.
        topic: of the source record; None if unknown, as for an error of a punctuator.
        partition: of the source record; -1 if unknown.
        key: the serialised key.
        value: the serialised value.
        timestamp: in ms.
        headers: the headers of the source record.
        offset: of the source record, -1 without a header.
        stacktrace: of the error.
    """

    exception: str
    message: str
    topic: str | None
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    offset: int = -1
    stacktrace: str = ""


class KeptLetter(NamedTuple):
    """A record in a dead letter queue.

    Args:
        record: the unmodified record.
        letter: the parsed dead letter; None if the record is not a dead letter.
        is_redriven: whether it was written back.
    """

    record: ConsumerRecord
    letter: DeadLetter | None
    is_redriven: bool


def read_dead_letter(record: ConsumerRecord) -> DeadLetter:
    """Parse a record of a dead letter queue, or of a topic of dropped records.

    Raises:
        NotADeadLetterError: it lacks a header with its origin, or its partition is not a number.
    """
    present = {name for name, _ in record.headers}
    layout = _DROPPED if _DROPPED.cause in present and _FAILED.cause not in present else _FAILED
    names = layout.names
    kept: list[tuple[str, bytes | None]] = []
    said: dict[str, str | None] = {}
    for name, value in reversed(record.headers):  # a dead letter that failed again has each of them twice
        if name in names and name not in said:
            said[name] = None if value is None else value.decode(errors="replace")
        else:
            kept.append((name, value))
    missing = [name for name in layout.needed if name not in said]
    text = said.get(layout.partition) or ""
    partition = _number(text, _INT_MAX)
    if missing or partition is None:
        lacks = f"it has no header {', '.join(missing)}" if missing else f"its partition is {text!r:.100}"
        raise NotADeadLetterError(
            f"The record at topic {record.topic}, partition {record.partition}, offset {record.offset} is not a dead "
            f"letter of Kafka Streams: {lacks}. Skip such records with --skip-invalid."
        )
    offset = _number(said.get(layout.offset) or "", LONG_MAX)
    return DeadLetter(
        said[layout.cause] or "",
        said.get(HEADER_ERRORS_MESSAGE) or _drop_message(said),
        said[layout.topic],
        partition,
        record.key,
        record.value,
        record.timestamp,
        tuple(reversed(kept)),
        -1 if offset is None else offset,
        said.get(HEADER_ERRORS_STACKTRACE) or "",
    )


def _drop_message(said: Mapping[str, str | None]) -> str:
    """Return the node and the times of a dropped record as text; empty for a letter of an error."""
    node, start, end = (
        said.get(name) for name in (HEADER_DROPPED_NODE, HEADER_DROPPED_WINDOW_START, HEADER_DROPPED_WINDOW_END)
    )
    window = "" if start is None else f", window {start} to {end}"
    return "" if node is None else f"{node}{window}, stream time {said.get(HEADER_DROPPED_STREAM_TIME)}"


def _number(text: str, largest: int) -> int | None:
    """Return the number in a header, None unless it consists of digits up to `largest`, perhaps after a minus.

    Any client can write headers. Rows of a history have negative offsets.
    """
    digits = text.removeprefix("-")
    if not digits.isdecimal() or len(digits) > len(str(largest)):
        return None
    number = int(text)
    return number if abs(number) <= largest else None


@dataclass
class RedrivenLetters:
    """Dead letters of one origin and one class of errors."""

    topic: Annotated[str, Meta(description="the topic that they came from")]
    partition: Annotated[int, Meta(description="its partition")]
    target: Annotated[str, Meta(description="the topic that they go to")]
    exception: Annotated[str, Meta(description="name of the class of the errors")]
    message: Annotated[str, Meta(description="message of the first one")]
    records: Annotated[int, Meta(description="how many")]


@dataclass
class Redrive:
    """The result of a run, or its plan.

    Args:
        dead_letter_topic: the topic of the dead letters.
        letters: redriven dead letters by origin and class of errors.
        not_selected: the number of dead letters left for another run.
        without_source: the number of letters without a known source, such as errors of punctuators.
        invalid: the number of records that are not dead letters.
        redriven_before: the number of offsets that earlier runs have passed, with those of markers of transactions.
    """

    dead_letter_topic: str
    letters: list[RedrivenLetters] = field(default_factory=list)
    not_selected: int = 0
    without_source: int = 0
    invalid: int = 0
    redriven_before: int = 0

    @property
    def records(self) -> int:
        """The number of redriven dead letters."""
        return sum(each.records for each in self.letters)

    def add(self, letter: DeadLetter, target: str) -> None:
        """Count a dead letter for the topic `target`."""
        origin = (str(letter.topic), letter.partition, target, letter.exception)
        for each in self.letters:
            if (each.topic, each.partition, each.target, each.exception) == origin:
                break
        else:
            each = RedrivenLetters(*origin, message=letter.message, records=0)
            self.letters.append(each)
        each.records += 1


@dataclass(frozen=True)
class RedriveOptions:
    """Options of a redrive.

    Args:
        selection: the dead letters to redrive.
        to: a topic for all records; None for the topic and partition of each source record.
        limit: the maximum number of records.
        skip_invalid: skip records that are not dead letters.
    """

    selection: LetterSelection = LetterSelection()
    to: str | None = None
    limit: int | None = None
    skip_invalid: bool = False


def redrive(config: StreamsConfig, topic: str, options: RedriveOptions) -> Redrive:
    """Write the remaining dead letters of `topic` to their source partitions, each once.

    It reads the current content of the topic. Key, value and timestamp stay unchanged; the headers of the handler are
    removed. Output and progress, in the topic `penstock-redrive-<topic>`, are committed together.

    Raises:
        NotADeadLetterError: a record is not a dead letter; earlier records may have been redriven.
        UnknownTopicOrPartitionError: the topic, or the source partition of a dead letter, does not exist.
        ProducerFencedError: another run for this topic has started.
        KafkaError: the brokers do not answer or reject a record, or a permission is missing. Run it again.
    """
    run = _Run(config, topic, options)
    writer: ProgressWriter | None = None
    try:
        run.check()
        writer = ProgressWriter(config, _progress_name(topic))
        return run.write(writer)
    finally:
        run.close()
        if writer is not None:
            writer.close()


def plan_redrive(config: StreamsConfig, topic: str, options: RedriveOptions) -> Redrive:
    """Return the plan of `redrive` without writing anything; raises its errors."""
    run = _Run(config, topic, options)
    try:
        run.check()
        return run.plan(committed_progress(config, _progress_name(topic)))
    finally:
        run.close()


def inspect_letters(
    config: StreamsConfig, topic: str, options: RedriveOptions, limit: int
) -> tuple[Redrive, list[KeptLetter]]:
    """Return the plan of `redrive` and the last records of the queue, up to `limit`.

    The largest timestamp comes first. Raises the errors of `redrive`. It reads only the last offsets of each partition,
    including transaction markers, so the result may have fewer than `limit` records.
    """
    run = _Run(config, topic, options)
    try:
        run.check()
        progress = committed_progress(config, _progress_name(topic))
        return run.plan(progress), run.last(progress, limit)
    finally:
        run.close()


def _progress_name(topic: str) -> str:
    return f"{REDRIVE}{topic}"


class _Row(NamedTuple):
    """A dead letter and its target."""

    letter: DeadLetter
    target: TopicPartition


class _Run:
    """One run over the content of the topic at its start."""

    def __init__(self, config: StreamsConfig, topic: str, options: RedriveOptions) -> None:
        self._servers = config["bootstrap.servers"]
        self._topic = topic
        self._options = options
        self._admin, self._fetcher = ConfluentAdmin(config), ConfluentFetcher(config)
        self._partitions: Mapping[str, int] = {}
        self._topic_id = ""
        self._done: dict[int, _Offsets] = {}
        self.report = Redrive(topic)

    def check(self) -> None:
        """Look up the topics.

        Raises UnknownTopicOrPartitionError, and StreamsError if the target is the source.
        """
        self._partitions = self._admin.topics()
        for name in filter(None, (self._topic, self._options.to)):
            if name not in self._partitions:
                self._admin.topic_ids([name])  # raises if the topic exists but is not visible
                raise UnknownTopicOrPartitionError(
                    f"There is no topic {name!r} at bootstrap.servers={self._servers}; `penstock topics list` lists "
                    "the topics."
                )
        if self._options.to == self._topic:
            raise StreamsError(f"Topic {self._topic} cannot be the target of its own dead letters: name another one.")
        self._topic_id = identified(self._admin, [self._topic])[self._topic]

    def plan(self, progress: Progress) -> Redrive:
        """Return the output of `write` after `progress`."""
        for _ in self._rows(progress):
            pass
        return self.report

    def last(self, progress: Progress, limit: int) -> list[KeptLetter]:
        """Return the last records of the topic, up to `limit`, with their state in `progress`."""
        found: list[KeptLetter] = []
        begins, ends = self._bounds()
        for place in begins:
            done = _Offsets.of(progress, self._topic_id, place.partition)
            start = max(begins[place], ends[place] - _OFFSETS_FOR_EACH * limit)
            for record in deque(self._records(place, start, ends[place]), maxlen=limit):
                try:
                    letter = read_dead_letter(record)
                except NotADeadLetterError:
                    letter = None
                found.append(KeptLetter(record, letter, record.offset in done))
            found.sort(key=lambda each: (each.record.timestamp, each.record.offset), reverse=True)
            del found[limit:]
        return found

    def write(self, writer: ProgressWriter) -> Redrive:
        """Write the selected dead letters, in transactions of limited size."""
        rows: list[_Row] = []
        size = 0
        for row in self._rows(writer.committed):
            rows.append(row)
            size += len(row.letter.key or b"") + len(row.letter.value or b"")
            if len(rows) >= _TRANSACTION_RECORDS or size >= _TRANSACTION_BYTES:
                writer.write(_batches(rows), self._changes())
                rows, size = [], 0
        if rows:
            writer.write(_batches(rows), self._changes())
        return self.report

    def close(self) -> None:
        """Release connections and threads."""
        self._fetcher.close()
        self._admin.close()

    def _rows(self, progress: Progress) -> Iterator[_Row]:
        """Yield the selected dead letters in the order of the topic.

        Adds them to the progress and the report.
        """
        begins, ends = self._bounds()
        for place, first in begins.items():
            done = self._done[place.partition] = _Offsets.of(progress, self._topic_id, place.partition)
            self.report.redriven_before += done.count_from(first)
        for place in begins:
            done = self._done[place.partition]
            reached = done.next_without(begins[place])
            for record in self._records(place, reached, ends[place]):
                if self._options.limit is not None and self.report.records >= self._options.limit:
                    return
                if record.offset not in done:
                    row = self._row(record)
                    if row is not None:
                        done.add(reached, record.offset)
                        self.report.add(row.letter, row.target.topic)
                        yield row
                reached = record.offset + 1

    def _bounds(self) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """Return the first offset of each partition, and the end of its committed records."""
        places = [TopicPartition(self._topic, number) for number in range(self._partitions[self._topic])]
        begins = self._admin.beginning_offsets(places)
        return {place: begins[place] for place in places}, self._admin.end_offsets(places, read_committed=True)

    def _records(self, place: TopicPartition, start: int, end: int) -> Iterator[ConsumerRecord]:
        for batch in self._fetcher.fetch(place, start, end, read_committed=True) if start < end else ():
            for index in range(len(batch)):
                yield ConsumerRecord(
                    *place,
                    int(batch.offsets[index]),
                    int(batch.timestamps[index]),
                    batch.keys[index],
                    batch.values[index],
                    batch.headers_at(index),
                )

    def _row(self, record: ConsumerRecord) -> _Row | None:
        """Return a dead letter with its target; count a record that stays, and return None."""
        try:
            letter = read_dead_letter(record)
        except NotADeadLetterError:
            if not self._options.skip_invalid:
                raise
            self.report.invalid += 1
            return None
        if not self._options.selection.takes(letter):
            self.report.not_selected += 1
            return None
        if letter.topic is None:
            self.report.without_source += 1
            return None
        if self._options.to is not None:
            count = self._partitions[self._options.to]
            by_key = letter.partition % count if letter.key is None else partition_for(letter.key, count)
            return _Row(letter, TopicPartition(self._options.to, by_key))
        if letter.partition not in range(self._partitions.get(letter.topic, 0)):
            raise UnknownTopicOrPartitionError(
                f"The dead letter at topic {record.topic}, partition {record.partition}, offset {record.offset} came "
                f"from {TopicPartition(letter.topic, letter.partition)}, which bootstrap.servers={self._servers} does "
                "not have. Name a topic to write to with --to, or leave it out with a filter, such as --source-topic."
            )
        return _Row(letter, TopicPartition(letter.topic, letter.partition))

    def _changes(self) -> Progress:
        """Return the progress since the last call."""
        return {
            (self._topic_id, partition, chunk): ranges
            for partition, done in self._done.items()
            for chunk, ranges in done.take_changes()
        }


def _batches(rows: list[_Row]) -> list[PartitionBatch]:
    """Return the output records of `rows`, those of each partition in their order."""
    columns: defaultdict[TopicPartition, list[tuple[Any, Any, int, int, Headers]]] = defaultdict(list)
    for letter, target in rows:
        columns[target].append((letter.key, letter.value, letter.timestamp, 0, letter.headers))
    return [PartitionBatch(*target, RecordBatch.of(column)) for target, column in columns.items()]


class _Offsets:
    """A set of offsets of one partition, as bits in chunks."""

    def __init__(self) -> None:
        self._chunks: dict[int, _Bits] = {}
        self._changed: set[int] = set()

    @staticmethod
    def of(progress: Progress, topic_id: str, partition: int) -> _Offsets:
        """Return the offsets of a partition in `progress`."""
        found = _Offsets()
        for key, ranges in progress.items():
            if _is_about(key, topic_id, partition):
                for first, last in ranges:
                    found.add(first, last)
        found._changed.clear()
        return found

    def add(self, first: int, last: int) -> None:
        """Add the offsets from `first` to `last`, both included."""
        for chunk in range(first // _CHUNK, last // _CHUNK + 1):
            start = chunk * _CHUNK
            bits = self._chunks.setdefault(chunk, np.zeros(_CHUNK, np.bool_))
            bits[max(first - start, 0) : last - start + 1] = True
            self._changed.add(chunk)

    def __contains__(self, offset: int) -> bool:
        bits = self._chunks.get(offset // _CHUNK)
        return bits is not None and bool(bits[offset % _CHUNK])

    def count_from(self, offset: int) -> int:
        """Return the number of offsets in the set from `offset` on."""
        return sum(
            int(np.count_nonzero(bits[max(offset - chunk * _CHUNK, 0) :]))
            for chunk, bits in self._chunks.items()
            if (chunk + 1) * _CHUNK > offset
        )

    def next_without(self, offset: int) -> int:
        """Return the first offset outside of the set, from `offset` on."""
        while (bits := self._chunks.get(offset // _CHUNK)) is not None:
            free = np.flatnonzero(~bits[offset % _CHUNK :])
            if len(free):
                return offset + int(free[0])
            offset = (offset // _CHUNK + 1) * _CHUNK
        return offset

    def take_changes(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """Return the changed chunks since the last call, as ranges from first to last offset."""
        changed, self._changed = sorted(self._changed), set()
        return [(chunk, _ranges(self._chunks[chunk], chunk * _CHUNK)) for chunk in changed]


def _is_about(key: Key, topic_id: str, partition: int) -> bool:
    return key[:2] == (topic_id, partition)


def _ranges(bits: _Bits, start: int) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(bits, prepend=False, append=False)) + start
    return [(int(first), int(after) - 1) for first, after in edges.reshape(-1, 2)]
