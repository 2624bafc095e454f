"""Consumer and Fetcher over confluent-kafka: records of assigned partitions as batches of bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Message
from confluent_kafka import KafkaError as Code
from confluent_kafka import TopicPartition as Position

from penstock.client.confluent.connection import UNKNOWN_TOPIC, Connection, passing
from penstock.client.settings import CONSUMER, client_settings
from penstock.config import StreamsConfig
from penstock.errors import KafkaError
from penstock.record import Headers, RecordBatch, TopicPartition

_FETCH_RECORDS = 10_000
"""Records asked of librdkafka at once, and so the most of one batch."""

_LOOK_SECONDS = 0.5
"""How often a wait for records looks whether they can still come."""


class ConfluentConsumer:
    """Consumer over confluent-kafka; it follows partitions until it is closed."""

    def __init__(self, config: StreamsConfig, read_committed: bool = True, timeout_ms: int = 10_000) -> None:
        """Connect in the background. read_committed: leave out records of aborted and open transactions."""
        self._connection = Connection(client_settings(config, CONSUMER, _isolation(read_committed)), timeout_ms)
        self._client: Consumer | None = self._connection.make(Consumer)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on, in place of what was assigned before."""
        targets = [Position(*partition, offset) for partition, offset in positions.items()]
        client = self._open()
        self._connection.call("assigning partitions", lambda: client.assign(targets))

    def poll(self, timeout_ms: int, max_records: int) -> list[tuple[TopicPartition, RecordBatch]]:
        """Return up to `max_records` records that have arrived, waiting up to `timeout_ms` for them."""
        messages = _arrived(self._open(), max_records, timeout_ms / 1000)
        runs: list[tuple[TopicPartition, list[Message]]] = []
        for message in messages:
            partition = _partition_of(message)
            error = message.error()
            if error is not None:
                self._connection.fail(error, f"reading {partition} at offset {message.offset()}")
            if not runs or runs[-1][0] != partition:
                runs.append((partition, []))
            runs[-1][1].append(message)
        return [(partition, _batch(run)) for partition, run in runs]

    def close(self) -> None:
        """Release connections and threads; harmless when called again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> Consumer:
        if self._client is None:
            raise KafkaError("The consumer is closed.")
        return self._client


class ConfluentFetcher:
    """Fetcher over confluent-kafka. It keeps one consumer for each isolation level that it was asked for."""

    def __init__(self, config: StreamsConfig, timeout_ms: int = 60_000) -> None:
        """Connect at the first fetch. timeout_ms: longest wait for the next records of a range."""
        self._config = config
        self._timeout_ms = timeout_ms
        self._clients: dict[bool, tuple[Connection, Consumer]] = {}

    def fetch(
        self, partition: TopicPartition, start_offset: int, end_offset: int, read_committed: bool
    ) -> Iterator[RecordBatch]:
        """Yield the records of `partition` from `start_offset` to before `end_offset`, in order; see `client.api`."""
        if start_offset >= end_offset:
            return
        connection, consumer = self._client(read_committed)
        connection.noticed = None
        doing = f"reading {partition} from offset {start_offset} to {end_offset}"
        connection.call(doing, lambda: consumer.assign([Position(*partition, start_offset)]))
        try:
            yield from self._range(connection, consumer, end_offset, doing)
        finally:
            consumer.unassign()

    def _range(self, connection: Connection, consumer: Consumer, end_offset: int, doing: str) -> Iterator[RecordBatch]:
        """Yield what the consumer delivers, until a record or the end of the partition at or behind `end_offset`."""
        while True:
            messages = self._next(connection, consumer, doing)
            ended = _offset(messages[-1]) >= end_offset - 1
            if messages[-1].error() is not None or messages[0].error() is not None:
                messages, ended = self._without_events(connection, messages, end_offset, doing)
            if ended:
                messages = [message for message in messages if _offset(message) < end_offset]
            if messages:
                yield _batch(messages)
            if ended:
                return

    @staticmethod
    def _next(connection: Connection, consumer: Consumer, doing: str) -> list[Message]:
        """Return the next messages and events; raises KafkaError if none come within the bound, or none can."""
        deadline = time.monotonic() + connection.timeout
        while True:
            messages = _arrived(consumer, _FETCH_RECORDS, min(connection.timeout, _LOOK_SECONDS))
            if messages:
                return messages
            if connection.noticed is not None and connection.noticed.code() in UNKNOWN_TOPIC:
                connection.fail(connection.noticed, doing)
            if time.monotonic() >= deadline:
                connection.fail(Code(Code._TIMED_OUT, "no records arrived"), doing)

    @staticmethod
    def _without_events(
        connection: Connection, messages: list[Message], end_offset: int, doing: str
    ) -> tuple[list[Message], bool]:
        """Return the records among `messages`, and whether all up to `end_offset` have been delivered."""
        records, ended = [], False
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
                ended = ended or _offset(message) >= end_offset - 1
            elif error.code() == Code._PARTITION_EOF:
                ended = ended or _offset(message) >= end_offset
            elif error.fatal() or not passing(error) or error.code() in UNKNOWN_TOPIC:
                connection.fail(error, doing)
        return records, ended

    def close(self) -> None:
        """Release connections and threads; harmless when called again."""
        for _, consumer in self._clients.values():
            consumer.close()
        self._clients.clear()

    def _client(self, read_committed: bool) -> tuple[Connection, Consumer]:
        if read_committed not in self._clients:
            # The end of a partition is an event: behind the last record there may be only control records. All that is
            # asked for is there already: to wait for more would delay the next range by as much.
            forced = {**_isolation(read_committed), "enable.partition.eof": True, "fetch.wait.max.ms": 5}
            connection = Connection(client_settings(self._config, CONSUMER, forced), self._timeout_ms)
            self._clients[read_committed] = (connection, connection.make(Consumer))
        return self._clients[read_committed]


def _isolation(read_committed: bool) -> dict[str, Any]:
    return {"isolation.level": "read_committed" if read_committed else "read_uncommitted"}


def _arrived(consumer: Consumer, most: int, timeout: float) -> list[Message]:
    """Return up to `most` messages and events that have arrived, waiting up to `timeout` seconds for the first."""
    messages = consumer.consume(most, 0)  # with a time-out it would wait until there are `most`
    if not messages:
        first = consumer.poll(timeout)
        messages = [] if first is None else [first, *consumer.consume(most - 1, 0)]
    return messages


def _partition_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _batch(messages: list[Message]) -> RecordBatch:
    count = len(messages)
    headers = [message.headers() for message in messages]
    return RecordBatch(
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        timestamps=np.fromiter([message.timestamp()[1] for message in messages], np.int64, count),
        offsets=np.fromiter([message.offset() for message in messages], np.int64, count),
        headers=[_headers(each) for each in headers] if any(headers) else None,
    )


def _headers(received: Any) -> Headers:
    return tuple(received) if received else ()
