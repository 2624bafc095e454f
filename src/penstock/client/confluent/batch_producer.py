"""Producer of whole batches over confluent-kafka, in the background and without transactions.

It returns the end offsets of the partitions to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer

from penstock.client.api import OnRefused
from penstock.client.confluent.connection import ClientConnection, nothing_to_serve
from penstock.client.confluent.delivery_reports import DeliveryReports
from penstock.client.confluent.pace import LAG_SECONDS, PATIENT, Pace, drained_while_taken
from penstock.client.confluent.refusals import Refusals, fail_on_refused
from penstock.client.confluent.sending import partition_of, send_accepted, send_output
from penstock.client.confluent.time_zero import TimeZero
from penstock.client.failures import Right
from penstock.client.settings import OF_KNOWN_TOPICS, PRODUCER, client_settings
from penstock.config import StreamsConfig
from penstock.errors import KafkaError
from penstock.record import PartitionBatch, TopicPartition


class ConfluentBatchProducer:
    """BatchProducer over confluent-kafka: idempotent, without transactions.

    It connects in the background.

    Args:
        config: the configuration of the application.
        timeout_ms: the timeout (ms) of a flush, and of a wait for space in the buffer.
        refusals: refused records of an earlier producer whose output this one writes.
    """

    def __init__(self, config: StreamsConfig, timeout_ms: int = 120_000, refusals: Refusals | None = None) -> None:
        self._refusals = refusals or Refusals()
        self._config = config
        self._timeout_ms = timeout_ms
        self._reports = DeliveryReports()
        self._pace = Pace()
        self._time_zero = TimeZero(config, timeout_ms, self._drain, self._reports.written)
        self._connect()

    def _connect(self) -> None:
        reports = {"on_delivery": self._reports.delivered, "delivery.report.only.error": False}
        forced, defaults = {**reports, **self._refusals.settings}, {**PATIENT, **OF_KNOWN_TOPICS, "linger.ms": 1}
        settings = client_settings(self._config, PRODUCER, forced, defaults)
        self._connection = ClientConnection(settings, self._timeout_ms)
        self._client: Producer | None = self._connection.make(Producer)
        self._connection.serve = self._client.poll

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused = fail_on_refused) -> None:
        """Write records in the background; see `client.api.BatchProducer`."""
        client = self._open()
        self._pace.give(sum(len(each.batch) for each in output), len(client))
        try:
            accepted = self._refusals.without_refused(output, on_refused)
            send_accepted(partial(send_output, self._connection, client, self._time_zero), accepted, on_refused)
            client.poll(0)
        except KafkaException as error:
            self._fail(error.args[0], partition_of(error, output))
        self._raise_failed()

    def lags(self) -> bool:
        """Return whether brokers are so slow that the sent records should be flushed before others are sent."""
        return self._pace.seconds_left(len(self._open())) > LAG_SECONDS

    def flush(self) -> dict[TopicPartition, int]:
        """Wait until all records are written, and return the ends of the partitions; see `client.api.BatchProducer`."""
        self._drain()
        if self._refusals.written():
            self._connect()
        return self._reports.take_ends()

    def close(self) -> None:
        """Release connections and threads, and drop unwritten records; idempotent."""
        self._time_zero.close()
        if self._client is not None:
            self._reports.ignore()
            self._client.purge()
            self._connection.take_reports()
            self._connection.serve = nothing_to_serve
            self._client = None

    def _drain(self) -> bool:
        """Wait until all records are written; raise the error of a record that failed."""
        try:
            remaining = drained_while_taken(self._connection, self._open())
        except KafkaException as error:
            self._raise_failed()
            self._connection.fail(error.args[0], "writing")
        self._raise_failed()
        if remaining:
            self._connection.fail(Code(Code._TIMED_OUT, f"{remaining} records were not written"), "writing")
        return True

    def _raise_failed(self) -> None:
        if not self._reports.failures:
            return
        refused, failed = self._reports.refused_records(), self._reports.cause()
        self._reports.failures.clear()
        if refused:
            raise self._refusals.take(refused)
        if failed is not None:
            self._fail(*failed)

    def _fail(self, error: Code, partition: TopicPartition) -> None:
        self._connection.fail(error, f"writing to {partition}", Right("WRITE", "topic", partition.topic))

    def _open(self) -> Producer:
        if self._client is None:
            raise KafkaError("The producer is closed.")
        return self._client
