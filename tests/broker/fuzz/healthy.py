"""A client with good manners that checks each answer of a broker which others fuzz."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.api_keys import LIST_OFFSETS
from tests.support.protocol_client import ProtocolClient

TOPIC = "healthy"
GROUP = "healthy"
BATCH = 50
WAIT = 60


class WrongAnswerError(AssertionError):
    """The broker answered a healthy client otherwise than it must."""


class Healthy:
    """Produces in transactions, aborts each third, reads what is committed in a group, and commits in the group.

    Every value is the number of its record among those committed, so a reader knows what comes next.

    Args:
        bootstrap_servers: address of the broker.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.acknowledged = 0
        """Records of transactions whose commit was acknowledged."""
        self.rounds = 0
        self.failure: BaseException | None = None
        self._settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._bootstrap_servers = bootstrap_servers
        self._stopping = threading.Event()
        admin = AdminClient(self._settings)
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WAIT)
        self._thread = threading.Thread(target=self._guarded)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after this round, or after the first.

        Raises:
            WrongAnswerError: an answer was wrong, or an exception of the client came.
        """
        self._stopping.set()
        self._thread.join(5 * WAIT)
        if self.failure is not None:
            raise WrongAnswerError(f"in round {self.rounds}: {self.failure}") from self.failure
        if self._thread.is_alive():
            raise WrongAnswerError(f"no answer in round {self.rounds}")

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error

    def _run(self) -> None:
        producer = Producer(
            self._settings
            | {
                "transactional.id": "healthy",
                "compression.type": "lz4",
                "linger.ms": 1,
                "transaction.timeout.ms": WAIT * 1000,
            }
        )
        producer.init_transactions(WAIT)
        consumer = reader(self._settings)
        consumer.subscribe([TOPIC])
        with ProtocolClient(self._bootstrap_servers) as client:
            while self.rounds == 0 or not self._stopping.is_set():
                self._produce(producer)
                self._read(consumer)
                self._look_at_offsets(client)
                self.rounds += 1
        consumer.close()

    def _produce(self, producer: Producer) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)

        is_aborted = self.rounds % 3 == 2
        producer.begin_transaction()
        for number in range(self.acknowledged, self.acknowledged + BATCH):
            producer.produce(TOPIC, b"aborted" if is_aborted else b"%d" % number, on_delivery=delivered)
        if producer.flush(WAIT) or failures:
            raise WrongAnswerError(f"records were refused: {failures}")
        if is_aborted:
            producer.abort_transaction(WAIT)
        else:
            producer.commit_transaction(WAIT)
            self.acknowledged += BATCH

    def _read(self, consumer: Consumer) -> None:
        if self.rounds % 3 == 2:
            return
        first = self.acknowledged - BATCH
        messages = consume(consumer, BATCH)
        values = [message.value() for message in messages]
        expected = [b"%d" % number for number in range(first, self.acknowledged)]
        if values != expected:
            raise WrongAnswerError(f"read {values[:3]} to {values[-3:]} instead of {expected[0]!r} to {expected[-1]!r}")
        consumer.commit(asynchronous=False)
        [committed] = consumer.committed([TopicPartition(TOPIC, 0)], WAIT)
        last = messages[-1].offset()
        if committed.offset != (last or 0) + 1:
            raise WrongAnswerError(f"committed offset {committed.offset} after record {last}")

    def _look_at_offsets(self, client: ProtocolClient) -> None:
        # A transaction is its records and a marker.
        expected = (self.rounds + 1) * (BATCH + 1)
        wanted = {"partition_index": 0, "timestamp": -1}
        body = {"replica_id": -1, "isolation_level": 1, "topics": [{"name": TOPIC, "partitions": [wanted]}]}
        found = client.call(LIST_OFFSETS, 7, body)["topics"][0]["partitions"][0]
        if (found["error_code"], found["offset"]) != (0, expected):
            raise WrongAnswerError(f"error {found['error_code']}, end {found['offset']} instead of {expected}")


def reader(settings: dict[str, Any]) -> Consumer:
    """Return a consumer of the group that reads what is committed."""
    return Consumer(
        settings
        | {
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def consume(consumer: Consumer, count: int) -> list[Message]:
    """Return the next records.

    Raises:
        WrongAnswerError: an error came, or fewer records.
    """
    messages = consumer.consume(count, WAIT)
    for message in messages:
        if message.error():
            raise WrongAnswerError(f"an error instead of a record: {message.error()}")
    if len(messages) != count:
        raise WrongAnswerError(f"{len(messages)} records instead of {count}")
    return messages


def check_records(bootstrap_servers: str, count: int) -> None:
    """Read all records from the start and check that they are those that were acknowledged.

    Raises:
        WrongAnswerError: they are not.
    """
    consumer = reader({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values = [message.value() for message in consume(consumer, count)] if count else []
    consumer.close()
    if values != [b"%d" % number for number in range(count)]:
        raise WrongAnswerError("the records of the log are not those that were acknowledged")
