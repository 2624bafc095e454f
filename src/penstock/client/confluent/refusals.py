"""Records that brokers refuse for what they are: too large for the topic, or forbidden by it. To send them again would
not help, while all others could be written.

librdkafka reports the error of one record for the whole batch in which it was sent. So what was reported is sent again
with one record a batch, and what fails then is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from confluent_kafka import KafkaError as Code
from confluent_kafka import Message

from penstock.client.api import OnRefused, RefusedOutputError, RefusedRecord
from penstock.errors import KafkaError, RecordTooLargeError
from penstock.record import PartitionBatch, TopicPartition

_REFUSED = frozenset(
    (
        Code.MSG_SIZE_TOO_LARGE,
        Code.RECORD_LIST_TOO_LARGE,
        Code.INVALID_MSG_SIZE,
        Code.INVALID_TIMESTAMP,
        Code.INVALID_RECORD,
        Code.POLICY_VIOLATION,
    )
)

_REMEDIES = {
    Code.INVALID_TIMESTAMP: "Its timestamp is further from the time of the brokers than the topic allows: change its "
    "message.timestamp.before.max.ms or message.timestamp.after.max.ms, or the timestamp of the record.",
    Code.INVALID_RECORD: "A compacted topic takes no record without a key: give the record a key, or change "
    "cleanup.policy of the topic.",
}
"""What to do about a refusal, by its code."""

_HELD_BACK = frozenset((Code._PURGE_QUEUE, Code._PURGE_INFLIGHT, Code._FATAL))
"""What is reported of records that were not sent, since a batch before them was refused."""

_Place = tuple[str | None, int | None, bytes | None, bytes | None]
"""Topic, partition, key and value of a record."""

ONE_BY_ONE: dict[str, Any] = {"batch.num.messages": 1}
"""Settings of a producer that sends each record in a separate batch."""

GAPLESS: dict[str, Any] = {"enable.gapless.guarantee": True}
"""Settings of a producer that ends where a batch is refused, and sends nothing that comes after it."""

MOST_REFUSED = 100
"""Records that may be refused in one write; each costs another attempt to write all."""

MOST_WRITES_ONE_BY_ONE = 20
"""Writes after a refusal in which its records may come again. They may never come: their task is elsewhere now, or it
makes other values this time."""


def fail_on_refused(record: RefusedRecord) -> Sequence[PartitionBatch]:
    """Raise the error of a record that is refused."""
    raise record.error


class RefusedError(Exception):
    """A record was refused as soon as it was given to the producer."""

    def __init__(self, part: int, row: int, code: Code) -> None:
        """Say which row of which part of the output."""
        super().__init__(part, row, code)
        self.part = part
        self.row = row
        self.code = code


def is_refusal(code: Code) -> bool:
    """Return whether an error is for what a record is."""
    return code.code() in _REFUSED


def is_held_back(code: Code) -> bool:
    """Return whether an error is for what came before a record."""
    return code.code() in _HELD_BACK


def raise_refused(refused: RefusedError) -> None:
    """Raise that a record was refused."""
    raise refused


class Reports:
    """Keeps what producers report of records that were not delivered; at most all of one write."""

    def __init__(self) -> None:
        self._failed: list[tuple[Code, Message]] = []

    def delivered(self, error: Code | None, message: Message) -> None:
        """Record the report of one record (a callback of librdkafka)."""
        if error is not None:
            self._failed.append((error, message))

    def __len__(self) -> int:
        return len(self._failed)

    def clear(self) -> None:
        """Forget all reports."""
        self._failed.clear()

    def first_failure(self) -> tuple[Code, TopicPartition] | None:
        """Return the first error that is neither a refusal nor a consequence of one, with its partition."""
        failed = ((code, m) for code, m in self._failed if not (is_refusal(code) or is_held_back(code)))
        return next(((code, TopicPartition(m.topic() or "", m.partition() or 0)) for code, m in failed), None)

    def refused(self, output: Sequence[PartitionBatch]) -> list[RefusedError]:
        """Return the row of `output` of each record that was refused."""
        return self._rows(output, is_refusal)

    def held_back(self, output: Sequence[PartitionBatch]) -> list[RefusedError]:
        """Return the row of `output` of each record that was not sent, since one before it was refused."""
        return self._rows(output, is_held_back)

    def _rows(self, output: Sequence[PartitionBatch], reported: Callable[[Code], bool]) -> list[RefusedError]:
        """Return the rows whose report is such an error, found by key and value: a report has nothing else."""
        wanted: dict[_Place, list[Code]] = {}
        for code, message in self._failed:
            if reported(code):
                place = (message.topic(), message.partition(), message.key(), message.value())
                wanted.setdefault(place, []).append(code)
        found: list[RefusedError] = []
        for part, (topic, partition, batch, _) in enumerate(output if wanted else ()):
            for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
                codes = wanted.get((topic, partition, key, value))
                if codes:
                    found.append(RefusedError(part, row, codes.pop()))
        lost = sum(map(len, wanted.values()))
        if lost:
            raise KafkaError(f"{lost} delivery reports have no record: the client is in an inconsistent state.")
        return found


class Refusals:
    """What brokers have refused of output that is made and sent again after each refusal: first a batch, and then, when
    each record has a batch of its own, records. Those are not sent another time."""

    def __init__(self) -> None:
        """Know of none."""
        self._codes: dict[_Place, Code] = {}
        self._pending: set[_Place] = set()
        self._times = 0
        self._writes = 0

    @property
    def settings(self) -> Mapping[str, Any]:
        """How a producer is to send."""
        return ONE_BY_ONE if self._times else {}

    def take(self, reported: Mapping[_Place, Code]) -> KafkaError:
        """Record refused records; return their error, whose class says whether to make them again."""
        if self._times:
            self._codes.update(reported)
        self._pending.update(reported)
        self._times, self._writes = self._times + 1, 0
        (topic, partition, _, _), code = next(iter(reported.items()))
        error = _error(code, topic or "", partition or 0)
        if self._times <= MOST_REFUSED:
            return RefusedOutputError(str(error))
        self._forget()  # other records each time, perhaps
        return error

    def without_refused(self, output: Sequence[PartitionBatch], on_refused: OnRefused) -> Sequence[PartitionBatch]:
        """Return `output` without the records that brokers have refused, and with what `on_refused` gives for them;
        raises what it raises."""
        if not self._times:
            return output
        found: list[RefusedError] = []
        for part, (topic, partition, batch, _) in enumerate(output):
            for row, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
                place = topic, partition, key, value
                self._pending.discard(place)
                if place in self._codes:
                    found.append(RefusedError(part, row, self._codes[place]))
        return replaced(output, found, on_refused)

    def written(self) -> bool:
        """Take that all that was sent is written; return whether producers are to send as usual again, since all that
        was refused has been made again, or is not expected any more."""
        if not self._times:
            return False
        self._writes += 1
        if self._pending and self._writes < MOST_WRITES_ONE_BY_ONE:
            return False
        self._forget()
        return True

    def _forget(self) -> None:
        self._codes.clear()
        self._pending.clear()
        self._times = self._writes = 0


def only(output: Sequence[PartitionBatch], refused: Sequence[RefusedError]) -> list[PartitionBatch]:
    """Return the rows of `output` that `refused` names, each in its part, in their order."""
    return [
        PartitionBatch(topic, partition, batch.take(np.array(_rows(index, refused), np.int64)))
        for index, (topic, partition, batch, _) in enumerate(output)
    ]


def replaced(
    output: Sequence[PartitionBatch], refused: Sequence[RefusedError], on_refused: OnRefused
) -> list[PartitionBatch]:
    """Return `output` without the rows of `refused`, each part in its place, and behind it what `on_refused` gives for
    them; raises what it raises."""
    result = list(output)
    instead: list[PartitionBatch] = []
    for each in sorted(refused, key=lambda each: (each.part, each.row)):
        topic, partition, batch, _ = output[each.part]
        record = RefusedRecord(
            each.part,
            topic,
            partition,
            batch.keys[each.row],
            batch.values[each.row],
            int(batch.timestamps[each.row]),
            batch.headers_at(each.row),
            _error(each.code, topic, partition),
        )
        instead.extend(on_refused(record))
    for part in {each.part for each in refused}:
        topic, partition, batch, _ = output[part]
        kept = np.setdiff1d(np.arange(len(batch)), _rows(part, refused))
        result[part] = PartitionBatch(topic, partition, batch.take(kept))
    return [*result, *instead]


def _rows(part: int, refused: Sequence[RefusedError]) -> list[int]:
    return sorted(each.row for each in refused if each.part == part)


def _error(code: Code, topic: str, partition: int) -> KafkaError:
    text = f"The brokers refuse a record for topic {topic}, partition {partition}: {str(code.str()).rstrip('.')}."
    if code.code() == Code.MSG_SIZE_TOO_LARGE:
        return RecordTooLargeError(
            f"{text} Raise max.message.bytes of the topic and message.max.bytes of the producer, or write smaller "
            "records."
        )
    return KafkaError(f"{text} {_REMEDIES[code.code()]}" if code.code() in _REMEDIES else text)
