"""Delivery reports of a producer: the ends of its partitions, and records that brokers did not accept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from confluent_kafka import KafkaError as Code
from confluent_kafka import Message

from penstock.client.confluent.refusals import MOST_REFUSED, Place, RefusedError, is_held_back, is_refusal
from penstock.errors import KafkaError
from penstock.record import PartitionBatch, TopicPartition


class DeliveryReports:
    """Keeps the delivery reports of one producer. The client refers to it; it refers to no client."""

    def __init__(self) -> None:
        self.failures: list[tuple[Code, Message]] = []
        """Undelivered records with their errors; at most all records of one write."""
        self._last: dict[tuple[str | None, int | None], int] = {}
        self._ignores_failures = False

    def delivered(self, error: Code | None, message: Message) -> None:
        """Record the report of one record (a callback of librdkafka)."""
        if error is None:  # mostly, and for each record: as little as possible
            self._last[message.topic(), message.partition()] = message.offset() or 0
        elif not self._ignores_failures:
            self.failures.append((error, message))

    def written(self, partition: TopicPartition, end: int) -> None:
        """Record the end of a partition after records that were written without librdkafka."""
        self._last[partition] = end - 1

    def take_ends(self) -> dict[TopicPartition, int]:
        """Return and forget the ends of the partitions written to since the last call."""
        last, self._last = self._last, {}
        return {TopicPartition(topic or "", number or 0): offset + 1 for (topic, number), offset in last.items()}

    def forget(self) -> None:
        """Forget all reports."""
        self._last = {}
        self.failures.clear()
        self._ignores_failures = False

    def ignore(self) -> None:
        """Forget all reports, and ignore failures until the next `forget`: an abort drops all records."""
        self.forget()
        self._ignores_failures = True

    def first_failure(self) -> tuple[Code, TopicPartition] | None:
        """Return the first error that is neither a refusal nor a consequence of one, with its partition."""
        return self._first(lambda code: not (is_refusal(code) or is_held_back(code)))

    def cause(self) -> tuple[Code, TopicPartition] | None:
        """Return the first error that is no refusal, with its partition; consequences of other errors come last."""
        return self.first_failure() or self._first(is_held_back)

    def lacks_cause(self) -> bool:
        """Return whether all failures are consequences of other failures, whose reports may arrive later."""
        return bool(self.failures) and all(is_held_back(code) for code, _ in self.failures)

    def refused_records(self) -> Mapping[Place, Code]:
        """Return the errors of records that brokers have refused, by topic, partition, key and value."""
        refused = ((code, m) for code, m in self.failures if is_refusal(code))
        return {(m.topic(), m.partition(), m.key(), m.value()): code for code, m in islice(refused, MOST_REFUSED)}

    def rows(self, output: Sequence[PartitionBatch], reported: Callable[[Code], bool]) -> list[RefusedError]:
        """Return the rows of `output` with such an error, found by key and value: reports contain no row number."""
        wanted: dict[Place, list[Code]] = {}
        for code, message in self.failures:
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

    def _first(self, reported: Callable[[Code], bool]) -> tuple[Code, TopicPartition] | None:
        found = ((code, m) for code, m in self.failures if reported(code))
        return next(((code, TopicPartition(m.topic() or "", m.partition() or 0)) for code, m in found), None)
