"""Producer over confluent-kafka: records written in the background, without transactions."""

from __future__ import annotations

import random
import time
from typing import Any, NoReturn

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer

from penstock.client.confluent.connection import ClientConnection, drained, nothing_to_serve
from penstock.client.confluent.delivery_reports import DeliveryReports
from penstock.client.confluent.time_zero import TimeZero
from penstock.client.failures import Right
from penstock.client.settings import PRODUCER, client_settings
from penstock.config import StreamsConfig
from penstock.errors import KafkaError, counted
from penstock.plan.partitioning import partition_for
from penstock.record import Headers, PartitionBatch, RecordBatch, TopicPartition
from penstock_broker.common.durations import timestamp_ms

_PARTITIONER = "murmur2_random"


class ConfluentProducer:
    """Producer over confluent-kafka: idempotent, without transactions.

    It connects in the background.

    Args:
        config: the configuration of the application.
        timeout_ms: the timeout (ms) of a flush, and of a wait for space in the buffer.
    """

    def __init__(self, config: StreamsConfig, timeout_ms: int = 120_000) -> None:
        self._reports = DeliveryReports()
        forced = {"on_delivery": self._reports.delivered}
        self._connection = ClientConnection(client_settings(config, PRODUCER, forced), timeout_ms)
        self._client: Producer | None = self._connection.make(Producer)
        self._connection.serve = self._client.poll
        self._time_zero = TimeZero(config, timeout_ms, self._flushed)
        self._topic = ""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Write a record in the background; see `client.api.Producer`."""
        client = self._open()
        self._topic = topic
        if timestamp == 0:
            self._write_at_zero(topic, key, value, partition, headers)
            return
        extra: dict[str, Any] = {"headers": list(headers)} if headers else {}
        if timestamp is not None:
            extra["timestamp"] = timestamp_ms(timestamp, f"the timestamp of a record for {topic}")
        self._connection.asks()
        deadline = time.monotonic() + self._connection.timeout
        while True:
            try:
                client.produce(topic, value, key, -1 if partition is None else partition, **extra)
                break
            except BufferError:  # the buffer is full: deliveries make room
                if time.monotonic() >= deadline:
                    self._connection.fail(Code(Code._TIMED_OUT, "the buffer stays full"), f"writing to {topic!r}")
                self._poll(client, 0.1)
            except KafkaException as error:
                self._connection.fail(error.args[0], f"writing to {topic!r}")
        self._poll(client, 0)
        self._raise_failed()

    def flush(self) -> None:
        """Wait until all records are written. Raises KafkaError if one failed."""
        self._connection.asks()
        try:
            remaining = drained(self._open(), self._connection.timeout)
        except KafkaException as error:
            self._fail_for_good(error)
        self._raise_failed()
        if remaining:
            self._connection.fail(Code(Code._TIMED_OUT, f"{counted(remaining, 'record')} not written"), "writing")

    def close(self) -> None:
        """Flush and release connections and threads; idempotent."""
        self._time_zero.close()
        if self._client is not None:
            try:
                self.flush()
            finally:
                self._connection.serve = nothing_to_serve
                self._client = None

    def _flushed(self) -> bool:
        self.flush()
        return True

    def _write_at_zero(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None, headers: Headers
    ) -> None:
        at = TopicPartition(topic, self._partition(topic, key) if partition is None else partition)
        try:
            refused = self._time_zero.write(PartitionBatch(*at, RecordBatch.of([(key, value, 0, 0, headers)])))
        except KafkaException as error:
            refused = [(0, error.args[0])]
        for _, code in refused:
            self._connection.fail(code, f"writing to {at}", Right("WRITE", "topic", topic))

    def _partition(self, topic: str, key: bytes | None) -> int:
        """Return the partition of a record that librdkafka does not write."""
        chosen = self._connection.settings["partitioner"]
        if chosen != _PARTITIONER:
            raise KafkaError(
                f"Cannot write a record with timestamp 0 to topic {topic}: partitioner={chosen} chooses no partition "
                f"for it. Give its partition, another timestamp, or partitioner={_PARTITIONER}."
            )
        count = self._time_zero.writer().partitions(topic)
        return random.randrange(count) if key is None else partition_for(key, count)

    def _raise_failed(self) -> None:
        if self._reports.failures:
            error, message = self._reports.failures[0]
            self._reports.failures.clear()
            topic, partition = message.topic() or "", message.partition()
            where = repr(topic) if partition is None else str(TopicPartition(topic, partition))
            self._connection.fail(error, f"writing to {where}", Right("WRITE", "topic", topic))

    def _poll(self, client: Producer, seconds: float) -> None:
        try:
            client.poll(seconds)
        except KafkaException as error:
            self._fail_for_good(error)

    def _fail_for_good(self, error: KafkaException) -> NoReturn:
        """Raise the error for a failed poll, after which the producer cannot continue.

        The user may lack the right to write to any topic, so the topic of the last record is named.
        """
        self._connection.fail(error.args[0], f"writing to {self._topic!r}", Right("WRITE", "topic", self._topic))

    def _open(self) -> Producer:
        if self._client is None:
            raise KafkaError("The producer is closed.")
        return self._client
