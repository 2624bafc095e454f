"""Records with timestamp 0, which librdkafka cannot write: it takes 0 for no timestamp, and writes the current time.

Each part of an output that has such a record is written without librdkafka, by `RecordWriter`. Rules:
- The records of a partition keep their order: what librdkafka has of it is written before.
- In a transaction, a partition is written by one of the two alone as long as a client lives, because both would number
  its records. Which one is decided before the first record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, Protocol
from weakref import WeakMethod

import numpy as np
import orjson
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer

from penstock.client.confluent.refusals import is_refusal
from penstock.client.sockets.record_writer import RecordWriter
from penstock.config import StreamsConfig
from penstock.errors import RetriableError
from penstock.record import PartitionBatch, RecordBatch, TopicPartition

RefusedRow = tuple[int, Code]
"""The row of a part that brokers have refused, and their error."""

_MOST_BYTES: Final = 512 * 1024
_MOST_ROWS: Final = 10_000
"""Bytes of keys and values, and rows, of one batch of the log; a larger record has a batch of its own."""

_REPORT_MS: Final = 50
"""How often librdkafka reports the epoch of a producer (ms)."""

_QUIET_COMMITS: Final = 20
"""Commits without timestamp 0 after which librdkafka writes all partitions again."""


class ByItself(Protocol):
    """Decides which parts of an output are written without librdkafka, and writes them."""

    def takes(self, output: PartitionBatch) -> bool:
        """Return whether `output` is to be written by `write`."""
        ...

    def write(self, output: PartitionBatch) -> Sequence[RefusedRow]:
        """Write `output`, and return the rows that brokers refuse for what they are; all others are written. Raises
        KafkaException, and what RecordWriter.write raises."""
        ...


class NewClientNeededError(Exception):
    """A partition has a record with timestamp 0, and librdkafka has written to it under the same epoch."""


def has_time_zero(output: PartitionBatch) -> bool:
    """Return whether a record of `output` has timestamp 0."""
    return bool(np.count_nonzero(output.batch.timestamps) != len(output.batch))


def nothing_written(partition: TopicPartition, end: int) -> None:
    """Ignore the offset after the last record that was written."""


class TimeZero:
    """Writes without transactions.

    Args:
        config: the configuration of the application.
        timeout_ms: the bound (ms) of one call.
        may_write: a method of the client that this object belongs to; it waits until brokers have what librdkafka was
            given, and returns whether they have accepted it.
        written: takes a partition and the offset after the last record that was written.
    """

    def __init__(
        self,
        config: StreamsConfig,
        timeout_ms: int,
        may_write: Callable[[], bool],
        written: Callable[[TopicPartition, int], object] = nothing_written,
    ) -> None:
        self._config = config
        self._timeout_ms = timeout_ms
        self._may_write = WeakMethod(may_write)  # a client that is released ends immediately
        self._written = written
        self._writer: RecordWriter | None = None

    def takes(self, output: PartitionBatch) -> bool:
        """Return whether a record of `output` has timestamp 0."""
        return has_time_zero(output)

    def write(self, output: PartitionBatch) -> Sequence[RefusedRow]:
        """Write `output`; see ByItself. Without what comes before it, each row is held back."""
        may_write = self._may_write()
        if may_write is None or not may_write():
            return [(row, Code(Code._PURGE_QUEUE)) for row in range(len(output.batch))]
        try:
            return list(_written_rows(self.writer(), output, self._written))
        except BaseException:
            self.close()  # the next sequence number is unknown
            raise

    def writer(self) -> RecordWriter:
        """Return what writes the records."""
        if self._writer is None:
            self._writer = RecordWriter(self._config, self._timeout_ms)
        return self._writer

    def close(self) -> None:
        """Release the connections; harmless when called again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class TransactionalTimeZero:
    """Writes in the transactions of a client, under its producer id and epoch.

    Args:
        config: the configuration of the application.
        timeout_ms: the bound (ms) of one call.
        transactional_id: that of the client.
    """

    def __init__(
        self,
        config: StreamsConfig,
        timeout_ms: int,
        transactional_id: str,
    ) -> None:
        self._config = config
        self._timeout_ms = timeout_ms
        self._transactional_id = transactional_id
        self._written: Callable[[TopicPartition, int], object] = nothing_written
        self._writer: RecordWriter | None = None
        self._own: set[TopicPartition] = set()
        self._of_client: set[TopicPartition] = set()
        self._is_ready = False
        self._quiet = 0
        self._epoch = _ReportedEpoch(_ignore)

    def settings(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return with which settings the next client is to be made, in place of `settings`."""
        if not self._own:
            return settings
        self._epoch = _ReportedEpoch(settings.get("stats_cb", _ignore))
        return {**settings, "statistics.interval.ms": _REPORT_MS, "stats_cb": self._epoch.report}

    @property
    def has_written(self) -> bool:
        """Whether something was written under the epoch of the client."""
        return self._writer is not None and self._writer.has_written

    def claim(self, output: Sequence[PartitionBatch]) -> bool:
        """Take that `output` will be written; return whether that is possible with this client, or needs a new one."""
        found = {TopicPartition(each.topic, each.partition) for each in output if has_time_zero(each)}
        if not found:
            return True
        self._quiet = 0
        new = found - self._own
        self._own |= found
        return self._is_ready and not new & self._of_client

    def continue_with(self, client: Producer, seconds: float, written: Callable[[TopicPartition, int], object]) -> None:
        """Take that `client` is made, with `settings`; raises RetriableError if its epoch is not known in time.
        written: takes a partition and the offset after the last record that was written."""
        self._written = written
        self._of_client.clear()
        self._is_ready = bool(self._own)
        if not self._own:
            return
        if self._writer is None:
            self._writer = RecordWriter(self._config, self._timeout_ms, self._transactional_id)
        self._writer.continue_as(self._epoch.of(client, seconds))

    def takes(self, output: PartitionBatch) -> bool:
        """Return whether `output` is of a partition that is written without librdkafka; raises NewClientNeededError if
        it must be and cannot."""
        if not self._own and not has_time_zero(output):
            return False
        if not self.claim([output]):
            raise NewClientNeededError
        partition = TopicPartition(output.topic, output.partition)
        if partition in self._own:
            return True
        self._of_client.add(partition)
        return False

    def write(self, output: PartitionBatch) -> Sequence[RefusedRow]:
        """Write `output`; see ByItself."""
        assert self._writer is not None
        return list(_written_rows(self._writer, output, self._written))

    def commit(self) -> None:
        """Commit the transaction for a client that may have nothing in it; raises KafkaException if brokers refuse
        it."""
        code = 0 if self._writer is None else self._writer.end(is_commit=True)
        if code:
            raise KafkaException(Code(code))

    def give_up(self) -> Callable[[], object]:
        """Return what ends the transaction without a commit, for a client that has written and may have nothing in it.
        It takes as long as a call, and may run beside what follows: the next client writes over other connections."""
        writer, self._writer = self._writer, None
        assert writer is not None
        return partial(_abort, writer)

    def committed(self) -> bool:
        """Take that a transaction is committed; return whether the next one needs a new client, with which librdkafka
        writes all partitions again."""
        if self._writer is None or not self._own:
            return False
        self._writer.ended()
        self._quiet += 1
        if self._quiet <= _QUIET_COMMITS:
            return False
        self._own.clear()
        return True

    def close(self) -> None:
        """Release the connections; harmless when called again."""
        if self._writer is not None:
            self._writer.close()


class _ReportedEpoch:
    """Keeps the producer id and the epoch of a client, as librdkafka reports them; passes its reports on."""

    def __init__(self, pass_on: Callable[[str], object]) -> None:
        self._pass_on = pass_on
        self._found: tuple[int, int] | None = None

    def report(self, text: str) -> None:
        """Take the statistics of the client."""
        self._pass_on(text)
        if self._found is None:
            eos = orjson.loads(text)["eos"]
            if eos["idemp_state"] == "Assigned":
                self._found = eos["producer_id"], eos["producer_epoch"]

    def of(self, client: Producer, seconds: float) -> tuple[int, int]:
        """Return them of `client`, which is initialised; raises RetriableError if no report comes in time."""
        deadline = time.monotonic() + seconds
        while self._found is None:
            if time.monotonic() >= deadline:
                raise RetriableError("The Kafka client, librdkafka, did not report the epoch of a producer in time.")
            client.poll(_REPORT_MS / 1000)
        return self._found


def _ignore(text: str) -> None:
    """Ignore the statistics."""


def _abort(writer: RecordWriter) -> None:
    with closing(writer):
        writer.end(is_commit=False)


def _written_rows(
    writer: RecordWriter, output: PartitionBatch, written: Callable[[TopicPartition, int], object]
) -> Iterator[RefusedRow]:
    """Write `output` in batches, those that brokers refuse a record at a time; yield the rows that they refuse."""
    partition = TopicPartition(output.topic, output.partition)
    waiting = list(reversed(list(_batches(output.batch))))
    while waiting:
        start, stop = waiting.pop()
        code, end = writer.write(partition, output.batch.slice(start, stop))
        error = Code(code)
        if not code:
            written(partition, end)
        elif not is_refusal(error):
            raise KafkaException(error)
        elif stop - start == 1:
            yield start, error
        else:
            waiting.extend((row, row + 1) for row in range(stop - 1, start - 1, -1))


def _batches(batch: RecordBatch) -> Iterator[tuple[int, int]]:
    """Yield first row and the row after the last one of each batch of the log."""
    start = size = 0
    for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
        size += len(key or b"") + len(value or b"")
        if row > start and (size > _MOST_BYTES or row - start == _MOST_ROWS):
            yield start, row
            start, size = row, len(key or b"") + len(value or b"")
    if len(batch):
        yield start, len(batch)
