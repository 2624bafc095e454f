"""Producer over confluent-kafka: records written in the background, without transactions."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Message, Producer

from penstock.client.confluent.connection import Connection
from penstock.client.settings import PRODUCER, client_settings
from penstock.config import StreamsConfig
from penstock.errors import KafkaError
from penstock.record import Headers


class ConfluentProducer:
    """Producer over confluent-kafka: idempotent, without transactions."""

    def __init__(self, config: StreamsConfig, timeout_ms: int = 120_000) -> None:
        """Connect in the background. timeout_ms: longest wait for room in the buffer, and of a flush."""
        forced = {"on_delivery": self._delivered}
        self._connection = Connection(client_settings(config, PRODUCER, forced), timeout_ms)
        self._client: Producer | None = self._connection.make(Producer)
        self._failed: tuple[Code, str] | None = None

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Take a record to be written in the background; see `client.api.Producer`."""
        client = self._open()
        extra: dict[str, Any] = {"headers": list(headers)} if headers else {}
        if timestamp is not None:
            extra["timestamp"] = timestamp
        deadline = time.monotonic() + self._connection.timeout
        while True:
            try:
                client.produce(topic, value, key, -1 if partition is None else partition, **extra)
                break
            except BufferError:  # the buffer is full: deliveries make room
                if time.monotonic() >= deadline:
                    self._connection.fail(Code(Code._TIMED_OUT, "the buffer stays full"), f"writing to {topic!r}")
                client.poll(0.1)
            except KafkaException as error:
                self._connection.fail(error.args[0], f"writing to {topic!r}")
        client.poll(0)
        self._raise_failed()

    def flush(self) -> None:
        """Return when all records taken are written; raises KafkaError if one could not be."""
        remaining = self._open().flush(self._connection.timeout)
        self._raise_failed()
        if remaining:
            self._connection.fail(Code(Code._TIMED_OUT, f"{remaining} records were not written"), "writing")

    def close(self) -> None:
        """Flush and release connections and threads; harmless when called again."""
        if self._client is not None:
            try:
                self.flush()
            finally:
                self._client = None

    def _delivered(self, error: Code | None, message: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = (error, f"{message.topic()}-{message.partition()}")

    def _raise_failed(self) -> None:
        if self._failed is not None:
            (error, partition), self._failed = self._failed, None
            self._connection.fail(error, f"writing to {partition}")

    def _open(self) -> Producer:
        if self._client is None:
            raise KafkaError("The producer is closed.")
        return self._client
