"""A producer for the input of tests.

An idempotent producer of librdkafka waits half a second or a whole one for its producer id, and most tests make a
producer for a few records. This one is not idempotent, so it begins at once; with one request at a time, its records
keep their order.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Producer

from penstock.client.confluent.delivery_reports import DeliveryReports
from penstock.client.settings import PRODUCER, client_settings
from penstock.config import StreamsConfig
from penstock.record import Headers
from tests.support.waiting import WAIT_SECONDS

_NOT_IDEMPOTENT: Final = {
    "enable.idempotence": False,
    "max.in.flight.requests.per.connection": 1,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "linger.ms": 0,
}


class PlainProducer:
    """Writes records with the methods of `ConfluentProducer`.

    Args:
        config: the configuration of an application, or bootstrap.servers alone.
    """

    def __init__(self, config: StreamsConfig) -> None:
        self._reports = DeliveryReports()
        forced = {**_NOT_IDEMPOTENT, "on_delivery": self._reports.delivered}
        self._client = Producer(client_settings(config, PRODUCER, forced))

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
        assert timestamp != 0, "librdkafka would write the present time: write it with ConfluentProducer"
        extra: dict[str, Any] = {"headers": list(headers)} if headers else {}
        if timestamp is not None:
            extra["timestamp"] = timestamp
        self._client.produce(topic, value, key, -1 if partition is None else partition, **extra)

    def flush(self) -> None:
        """Wait until all records are written. Raises AssertionError if one failed."""
        assert self._client.flush(WAIT_SECONDS) == 0, "records were not written"
        assert not self._reports.failures, self._reports.failures

    def close(self) -> None:
        """Flush."""
        self.flush()
