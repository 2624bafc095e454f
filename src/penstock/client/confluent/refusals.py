"""Invalid records, which brokers refuse permanently: for example, records too large for the topic.

librdkafka reports the error of one record for its whole batch. So all reported records are sent again with one record
per batch; a record that fails again is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from confluent_kafka import KafkaError as Code

from penstock.client.api import OnRefused, RefusedOutputError, RefusedRecord
from penstock.errors import KafkaError, RecordTooLargeError
from penstock.record import PartitionBatch

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
"""Remedies of refusals by code."""

_HELD_BACK = frozenset((Code._PURGE_QUEUE, Code._PURGE_INFLIGHT, Code._FATAL))
"""Codes of records that were not sent because an earlier batch was refused."""

Place = tuple[str | None, int | None, bytes | None, bytes | None]
"""Topic, partition, key and value of a record."""

ONE_BY_ONE: dict[str, Any] = {"batch.num.messages": 1}
"""Settings of a producer that sends each record in a separate batch."""

GAPLESS: dict[str, Any] = {"enable.gapless.guarantee": True}
"""Settings of a producer that ends after a refused batch and sends no later records."""

MOST_REFUSED = 100
"""Maximum number of refused records in one write; each costs another attempt to write all."""

MOST_WRITES_ONE_BY_ONE = 20
"""Number of writes after a refusal in which its records may be sent again. Their task may have moved, or may produce
other values."""


def fail_on_refused(record: RefusedRecord) -> Sequence[PartitionBatch]:
    """Raise the error of a refused record."""
    raise record.error


class RefusedError(Exception):
    """A producer refused a record in `produce`: row `row` of part `part` of the output."""

    def __init__(self, part: int, row: int, code: Code) -> None:
        super().__init__(part, row, code)
        self.part = part
        self.row = row
        self.code = code


def is_refusal(code: Code) -> bool:
    """Return whether the cause of an error is an invalid record."""
    return code.code() in _REFUSED


def is_held_back(code: Code) -> bool:
    """Return whether the cause of an error is an earlier record."""
    return code.code() in _HELD_BACK


def raise_refused(refused: RefusedError) -> None:
    """Raise `refused`."""
    raise refused


class Refusals:
    """Refused records of output that is produced and sent again after each refusal.

    First a batch is refused. Then each record has its own batch, and single records are refused, which are not sent
    again.
    """

    def __init__(self) -> None:
        self._codes: dict[Place, Code] = {}
        self._pending: set[Place] = set()
        self._times = 0
        self._writes = 0

    @property
    def settings(self) -> Mapping[str, Any]:
        """Additional settings of the next producer."""
        return ONE_BY_ONE if self._times else {}

    def take(self, reported: Mapping[Place, Code]) -> KafkaError:
        """Record refused records; return their error, whose class says whether to make them again."""
        if self._times:
            self._codes.update(reported)
        self._pending.update(reported)
        self._times, self._writes = self._times + 1, 0
        (topic, partition, _, _), code = next(iter(reported.items()))
        error = _error(code, topic or "", partition or 0)
        if self._times <= MOST_REFUSED:
            return RefusedOutputError(str(error))
        self._forget()  # perhaps other records each time
        return error

    def without_refused(self, output: Sequence[PartitionBatch], on_refused: OnRefused) -> Sequence[PartitionBatch]:
        """Return `output` with the refused records replaced by the result of `on_refused`, whose errors are raised."""
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
        """Note a successful write; return whether producers can use their usual settings again.

        They can once all refused records were produced again, or are no longer expected.
        """
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
    """Return the rows of `output` that are listed in `refused`, each in its part, in order."""
    return [
        PartitionBatch(topic, partition, batch.take(np.array(_rows(index, refused), np.int64)))
        for index, (topic, partition, batch, _) in enumerate(output)
    ]


def replaced(
    output: Sequence[PartitionBatch], refused: Sequence[RefusedError], on_refused: OnRefused
) -> list[PartitionBatch]:
    """Return the parts of `output` without the rows of `refused`, followed by the results of `on_refused`.

    Raises the errors of `on_refused`.
    """
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
