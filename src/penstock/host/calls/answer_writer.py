"""Writes answers to their topics, in its own thread and in order.

An answer is kept until brokers have it: a failed write is repeated with another producer. A repeated answer is
harmless, because a task uses the first one of a record. Refused answers are replaced by failures, and then all answers
of the same write are repeated: a task ignores those that came before a replacement that must precede them.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from penstock.client.api import BatchProducer, RefusedOutputError, RefusedRecord
from penstock.errors import RetriableError
from penstock.host.crashpoints import crash_point
from penstock.processor.calls import Answer, unpack_answer
from penstock.record import PartitionBatch, RecordBatch, TopicPartition

_log = logging.getLogger(__name__)

_MOST_AT_ONCE: Final = 1_000
"""Number of answers after which no more are taken before a flush."""

_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 10.0


class CallAnswer(NamedTuple):
    """An answer for its topic.

    Args:
        partition: of the answers topic.
        key: the sequence number in 8 bytes.
        answer: the value.
        timestamp: of the waiting record, in ms.
    """

    partition: TopicPartition
    key: bytes
    answer: Answer
    timestamp: int


class AnswerWriter(Protocol):
    """Writes answers in the background, in order."""

    def open(self) -> None:
        """Connect to brokers in the background, so that the first answer need not wait for it."""
        ...

    def write(self, records: Sequence[CallAnswer], settled: Callable[[], None]) -> None:
        """Write answers; `settled` is called once, in any thread, when brokers have them or they are lost."""
        ...

    def close(self, seconds: float) -> bool:
        """Write the remaining answers; return whether they are written within `seconds`."""
        ...


class _Pending(NamedTuple):
    records: Sequence[CallAnswer]
    settled: Callable[[], None]


class Replacements:
    """The failures in place of answers that brokers refuse in one write, such as those that are too large."""

    def __init__(self) -> None:
        self._failures: dict[tuple[TopicPartition, bytes | None], Answer] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def replace(self, refused: RefusedRecord) -> list[PartitionBatch]:
        """Keep the failure of a refused answer, and write nothing in its place; raises its error if it is a failure."""
        assert refused.value is not None
        answer = unpack_answer(refused.value, refused.topic)
        if answer.failure:
            raise refused.error
        failure = f"{type(refused.error).__name__}: {refused.error}"
        place = TopicPartition(refused.topic, refused.partition), refused.key
        self._failures[place] = replace(answer, result=None, failure=failure, details=failure)
        return []

    def applied(self, records: Sequence[CallAnswer]) -> list[CallAnswer]:
        """Return answers with the failures in the places of the refused ones."""
        found = [self._failures.get((each.partition, each.key)) for each in records]
        return [
            each if failure is None or failure.entry != each.answer.entry else each._replace(answer=failure)
            for each, failure in zip(records, found, strict=True)
        ]


class ProducedAnswers:
    """Writes answers with an idempotent producer (implements AnswerWriter).

    Args:
        name: of the application, for the thread.
        make_producer: makes the producer, and a new one after each failure.
        failed: receives the error of a write that is not repeated; its answers are lost.
    """

    def __init__(
        self, name: str, make_producer: Callable[[], BatchProducer], failed: Callable[[Exception], None]
    ) -> None:
        self._name = name
        self._make_producer = make_producer
        self._failed = failed
        self._producer: BatchProducer | None = None
        self._queue: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._count = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Connect to brokers in the background; idempotent. A failure of it is that of the first write."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"penstock-{self._name}-answers", daemon=True)
                self._thread.start()

    def write(self, records: Sequence[CallAnswer], settled: Callable[[], None]) -> None:
        """Write answers in the background; by one thread."""
        self.open()
        self._queue.put(_Pending(records, settled))

    def close(self, seconds: float) -> bool:
        """Write the remaining answers, and release the producer; return whether all are written in time."""
        if self._thread is None:
            return True
        self._queue.put(None)
        self._closing.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        is_last = False
        with suppress(Exception):  # the first write has the error
            self._producer = self._make_producer()
        while not is_last:
            pending, is_last = self._taken()
            if pending:
                self._write(pending)
        if self._producer is not None:
            self._producer.close()

    def _taken(self) -> tuple[list[_Pending], bool]:
        """Wait for answers; return those that are there, and whether they are the last ones."""
        taken: list[_Pending] = []
        count, item = 0, self._queue.get()
        while item is not None:
            taken.append(item)
            count += len(item.records)
            if count >= _MOST_AT_ONCE:
                return taken, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return taken, False
        return taken, True

    def _write(self, pending: Sequence[_Pending]) -> None:
        """Write answers, again after each failure that may pass."""
        wait = _FIRST_WAIT_SECONDS
        records = [record for each in pending for record in each.records]
        count = self._count + len(records)
        while True:
            replaced = Replacements()
            try:
                self._send(_output(records), replaced)
                crash_point("call.written", count)
                if not replaced:
                    break
                records = replaced.applied(records)
            except RefusedOutputError:
                continue  # the producer names the refused answers now
            except Exception as error:
                self._drop_producer()
                if not isinstance(error, RetriableError) or self._closing.is_set():
                    self._failed(error)
                    break
                _log.warning("%d answers of %s are written again: %s", len(records), self._name, error)
                self._closing.wait(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
        self._count = count
        for each in pending:
            each.settled()

    def _send(self, output: Sequence[PartitionBatch], replaced: Replacements) -> None:
        if self._producer is None:
            self._producer = self._make_producer()
        self._producer.send(output, replaced.replace)
        self._producer.flush()

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


def _output(records: Sequence[CallAnswer]) -> list[PartitionBatch]:
    """Return the records by partition, in order."""
    rows: defaultdict[TopicPartition, list[CallAnswer]] = defaultdict(list)
    for record in records:
        rows[record.partition].append(record)
    return [
        PartitionBatch(
            *partition, RecordBatch.of([(each.key, each.answer.pack(), each.timestamp, 0, ()) for each in found])
        )
        for partition, found in rows.items()
    ]
