"""Producer of whole batches over confluent-kafka: written in the background, without transactions, for a host that
learns up to which offset each partition was written."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Message, Producer

from penstock.client.api import OnRefused
from penstock.client.confluent.connection import ClientConnection, nothing_to_serve
from penstock.client.confluent.pace import LAG_SECONDS, PATIENT, Pace, drained_while_taken
from penstock.client.confluent.refusals import MOST_REFUSED, Refusals, fail_on_refused, is_held_back, is_refusal
from penstock.client.confluent.sending import partition_of, send_accepted
from penstock.client.confluent.time_zero import TimeZero
from penstock.client.failures import Right
from penstock.client.settings import OF_KNOWN_TOPICS, PRODUCER, client_settings
from penstock.config import StreamsConfig
from penstock.errors import KafkaError
from penstock.record import PartitionBatch, TopicPartition


class Deliveries:
    """Keeps the ends of partitions, refused records, and the first record that failed for another reason.

    A failure of its own comes before a consequence of another. The client refers to it; it refers to no client.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str | None, int | None], int] = {}
        self._failed: tuple[Code, TopicPartition] | None = None
        self._refused: dict[tuple[str | None, int | None, bytes | None, bytes | None], Code] = {}
        self.failures = 0
        """How many records were not delivered."""

    def delivered(self, error: Code | None, message: Message) -> None:
        """Record the report of one record (a callback of librdkafka)."""
        if error is None:  # mostly, and for each record: as little as possible
            self._last[message.topic(), message.partition()] = message.offset() or 0
            return
        self.failures += 1
        if is_refusal(error):
            if len(self._refused) < MOST_REFUSED:
                self._refused[message.topic(), message.partition(), message.key(), message.value()] = error
        elif self._failed is None or is_held_back(self._failed[0]):
            self._failed = error, TopicPartition(message.topic() or "", message.partition() or 0)

    def written(self, partition: TopicPartition, end: int) -> None:
        """Record the end of a partition after records that were written without librdkafka."""
        self._last[partition] = end - 1

    def has_failed(self) -> bool:
        """Return whether there is a record that was not delivered."""
        return self._failed is not None or bool(self._refused)

    def lacks_cause(self) -> bool:
        """Return whether there are only records that were not sent because of others, whose reports may come later."""
        return not self._refused and self._failed is not None and is_held_back(self._failed[0])

    def take_ends(self) -> dict[TopicPartition, int]:
        """Give up the ends of the partitions written to since the last time."""
        last, self._last = self._last, {}
        return {TopicPartition(topic or "", number or 0): offset + 1 for (topic, number), offset in last.items()}

    def take_refused(self) -> dict[tuple[str | None, int | None, bytes | None, bytes | None], Code]:
        """Give up records that brokers have refused, with the error of each: by topic, partition, key and value."""
        refused, self._refused = self._refused, {}
        return refused

    def take_failed(self) -> tuple[Code, TopicPartition] | None:
        """Give up the first error and its partition, None if there was none."""
        failed, self._failed = self._failed, None
        return failed

    def forget(self) -> None:
        """Forget everything."""
        self._last, self._failed, self._refused, self.failures = {}, None, {}, 0


class ConfluentBatchProducer:
    """BatchProducer over confluent-kafka: idempotent, without transactions."""

    def __init__(self, config: StreamsConfig, timeout_ms: int = 120_000, refusals: Refusals | None = None) -> None:
        """Connect in the background. timeout_ms: longest wait for room in the buffer, and of a flush. refusals: what
        brokers have refused of an earlier producer, whose output this one is to write."""
        self._refusals = refusals or Refusals()
        self._config = config
        self._timeout_ms = timeout_ms
        self._deliveries = Deliveries()
        self._pace = Pace()
        self._time_zero = TimeZero(config, timeout_ms, self._drain, self._deliveries.written)
        self._connect()

    def _connect(self) -> None:
        reports = {"on_delivery": self._deliveries.delivered, "delivery.report.only.error": False}
        forced, defaults = {**reports, **self._refusals.settings}, {**PATIENT, **OF_KNOWN_TOPICS, "linger.ms": 1}
        settings = client_settings(self._config, PRODUCER, forced, defaults)
        self._connection = ClientConnection(settings, self._timeout_ms)
        self._client: Producer | None = self._connection.make(Producer)
        self._connection.serve = self._client.poll

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused = fail_on_refused) -> None:
        """Take records to be written in the background; see `client.api.BatchProducer`."""
        client = self._open()
        self._pace.give(sum(len(each.batch) for each in output), len(client))
        try:
            accepted = self._refusals.without_refused(output, on_refused)
            send_accepted(self._connection, client, self._time_zero, accepted, on_refused)
            client.poll(0)
        except KafkaException as error:
            self._fail(error.args[0], partition_of(error, output))
        self._raise_failed()

    def lags(self) -> bool:
        """Return whether brokers take records so slowly that those sent should be flushed before there are more."""
        return self._pace.seconds_left(len(self._open())) > LAG_SECONDS

    def flush(self) -> dict[TopicPartition, int]:
        """Return the ends of the partitions when all records are written; see `client.api.BatchProducer`."""
        self._drain()
        if self._refusals.written():
            self._connect()
        return self._deliveries.take_ends()

    def close(self) -> None:
        """Release connections and threads, and drop what was not written; harmless when called again."""
        self._time_zero.close()
        if self._client is not None:
            self._client.purge()
            self._client.poll(0)
            self._connection.serve = nothing_to_serve
            self._client = None

    def _drain(self) -> bool:
        """Wait until all records taken are written; raise the error if one is not."""
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
        refused = self._deliveries.take_refused()
        if refused:
            raise self._refusals.take(refused)
        failed = self._deliveries.take_failed()
        if failed is not None:
            self._fail(*failed)

    def _fail(self, error: Code, partition: TopicPartition) -> None:
        self._connection.fail(error, f"writing to {partition}", Right("WRITE", "topic", partition.topic))

    def _open(self) -> Producer:
        if self._client is None:
            raise KafkaError("The producer is closed.")
        return self._client
