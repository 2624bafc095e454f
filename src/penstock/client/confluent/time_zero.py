"""Records with timestamp 0, which librdkafka cannot write: it replaces 0 by the current time.

`RecordWriter` writes each part of an output that has such a record, without librdkafka. Rules:
- The records of a partition keep their order: records already sent to librdkafka are written first.
- In a transaction, librdkafka and `RecordWriter` never write to the same partition during the lifetime of a client,
  because both would number its records. The first record decides.
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
"""Maximum size (bytes of keys and values) and rows of a batch. A larger record has its own batch."""

_REPORT_MS: Final = 50
"""Interval (ms) of librdkafka's reports, which contain the epoch of a producer."""

_QUIET_COMMITS: Final = 20
"""Number of commits without timestamp 0 after which librdkafka writes all partitions again."""


class ByItself(Protocol):
    """Selects the parts of an output to be written without librdkafka, and writes them."""

    def takes(self, output: PartitionBatch) -> bool:
        """Return whether `write` must write `output`."""
        ...

    def write(self, output: PartitionBatch) -> Sequence[RefusedRow]:
        """Write `output`, and return the rows that brokers refuse as invalid; all others are written.

        Raises KafkaException, and the errors of RecordWriter.write.
        """
        ...


class NewClientNeededError(Exception):
    """librdkafka has written to a partition with timestamp 0 under the same epoch."""


def has_time_zero(output: PartitionBatch) -> bool:
    """Return whether a record of `output` has timestamp 0."""
    return bool(np.count_nonzero(output.batch.timestamps) != len(output.batch))


def nothing_written(partition: TopicPartition, end: int) -> None:
    """Ignore an end offset."""


class TimeZero:
    """Writes records with timestamp 0 without transactions.

    Args:
        config: the configuration of the application.
        timeout_ms: the timeout (ms) of one call.
        may_write: a method of the owning client; it waits until brokers have answered librdkafka's records, and returns
            whether they have accepted them.
        written: called with a partition and the offset after its last written record.
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
        """Write `output`; see ByItself. If earlier records were not accepted, each row is held back."""
        may_write = self._may_write()
        if may_write is None or not may_write():
            return [(row, Code(Code._PURGE_QUEUE)) for row in range(len(output.batch))]
        try:
            return list(_written_rows(self.writer(), output, self._written))
        except BaseException:
            self.close()  # the next sequence number is unknown
            raise

    def writer(self) -> RecordWriter:
        """Return the writer of the records, creating it if needed."""
        if self._writer is None:
            self._writer = RecordWriter(self._config, self._timeout_ms)
        return self._writer

    def close(self) -> None:
        """Release the connections; idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class TransactionalTimeZero:
    """Writes records with timestamp 0 in a client's transactions, under its producer id and epoch.

    Args:
        config: the configuration of the application.
        timeout_ms: the timeout (ms) of one call.
        transactional_id: the transactional id of the client.
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
        """Return the settings of the next client, based on `settings`."""
        if not self._own:
            return settings
        self._epoch = _ReportedEpoch(settings.get("stats_cb", _ignore))
        return {**settings, "statistics.interval.ms": _REPORT_MS, "stats_cb": self._epoch.report}

    @property
    def has_written(self) -> bool:
        """Whether this object has written records under the epoch of the client."""
        return self._writer is not None and self._writer.has_written

    def claim(self, output: Sequence[PartitionBatch]) -> bool:
        """Reserve the partitions with timestamp 0; return whether this client can write them."""
        found = {TopicPartition(each.topic, each.partition) for each in output if has_time_zero(each)}
        if not found:
            return True
        self._quiet = 0
        new = found - self._own
        self._own |= found
        return self._is_ready and not new & self._of_client

    def continue_with(self, client: Producer, seconds: float, written: Callable[[TopicPartition, int], object]) -> None:
        """Use a new client, created with `settings`.

        Args:
            client: the new client.
            seconds: how long to wait for its epoch. Raises RetriableError if it is not known in time.
            written: called with a partition and the offset after its last written record.
        """
        self._written = written
        self._of_client.clear()
        self._is_ready = bool(self._own)
        if not self._own:
            return
        if self._writer is None:
            self._writer = RecordWriter(self._config, self._timeout_ms, self._transactional_id)
        self._writer.continue_as(self._epoch.of(client, seconds))

    def takes(self, output: PartitionBatch) -> bool:
        """Return whether the partition of `output` is written without librdkafka.

        Raises NewClientNeededError if it must be, but librdkafka has written to it.
        """
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
        """Commit the transaction for a client that may have no records in it. Raises KafkaException if refused."""
        code = 0 if self._writer is None else self._writer.end(is_commit=True)
        if code:
            raise KafkaException(Code(code))

    def give_up(self) -> Callable[[], object]:
        """Return a function that aborts the transaction, for a client that may have no records in it.

        It takes as long as one call, and may run concurrently with the next client, which uses other connections.
        """
        writer, self._writer = self._writer, None
        assert writer is not None
        return partial(_abort, writer)

    def committed(self) -> bool:
        """Note a commit; return whether the next transaction needs a new client.

        With that client, librdkafka writes all partitions again.
        """
        if self._writer is None or not self._own:
            return False
        self._writer.ended()
        self._quiet += 1
        if self._quiet <= _QUIET_COMMITS:
            return False
        self._own.clear()
        return True

    def close(self) -> None:
        """Release the connections; idempotent."""
        if self._writer is not None:
            self._writer.close()


class _ReportedEpoch:
    """Remembers producer id and epoch of a client from its statistics, and passes these on."""

    def __init__(self, pass_on: Callable[[str], object]) -> None:
        self._pass_on = pass_on
        self._found: tuple[int, int] | None = None

    def report(self, text: str) -> None:
        """Receive the statistics of the client, as JSON."""
        self._pass_on(text)
        if self._found is None:
            eos = orjson.loads(text)["eos"]
            if eos["idemp_state"] == "Assigned":
                self._found = eos["producer_id"], eos["producer_epoch"]

    def of(self, client: Producer, seconds: float) -> tuple[int, int]:
        """Return producer id and epoch of an initialised client. Raises RetriableError if no report arrives in time."""
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
    """Write `output` in batches, refused batches again record by record. Yields the rows that brokers refuse."""
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
    """Yield the range of rows of each batch of the log."""
    start = size = 0
    for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
        size += len(key or b"") + len(value or b"")
        if row > start and (size > _MOST_BYTES or row - start == _MOST_ROWS):
            yield start, row
            start, size = row, len(key or b"") + len(value or b"")
    if len(batch):
        yield start, len(batch)
