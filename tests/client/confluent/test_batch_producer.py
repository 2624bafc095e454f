"""Batches that are written in the background."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentBatchProducer, ConfluentFetcher
from penstock.client.confluent.refusals import Refusals
from penstock.config import StreamsConfig
from penstock.errors import (
    BrokerNotFoundError,
    ClusterAuthorizationError,
    KafkaError,
    RecordTooLargeError,
    RetriableError,
)
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock.testing import EmbeddedBroker
from tests.client.confluent.records import HERE, NO_BROKER, together


def test_batches_are_written_and_the_ends_of_partitions_known(
    config: StreamsConfig, fetcher: ConfluentFetcher, topic: str
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    rows = [(b"k", b"v%d" % number, 1_000 + number, 0, (("h", b"1"),)) for number in range(3)]
    batch = RecordBatch.of(rows)
    producer = ConfluentBatchProducer(config)
    try:
        assert producer.flush() == {}
        producer.send([PartitionBatch(*first, batch), PartitionBatch(*second, batch.slice(0, 1))])
        producer.send([PartitionBatch(*first, batch.slice(2, 3))])
        assert producer.flush() == {first: 4, second: 1}
        producer.send([PartitionBatch(*second, batch)])
        assert producer.flush() == {second: 4}
    finally:
        producer.close()
    found = together(fetcher.fetch(first, 0, 4, read_committed=True))
    assert found.values == [b"v0", b"v1", b"v2", b"v2"]
    assert found.timestamps.tolist() == [1_000, 1_001, 1_002, 1_002]
    assert found.headers_at(0) == (("h", b"1"),)


def test_a_client_that_cannot_go_on_fails_its_producer(config: StreamsConfig, topic: str) -> None:
    class Lost:
        def __len__(self) -> int:
            return 0

        def produce(self, *record: object) -> None: ...

        def poll(self, seconds: float) -> None:
            raise KafkaException(Code(Code._FATAL, "the client cannot go on"))

    producer = ConfluentBatchProducer(config)
    client, producer._client = producer._client, Lost()  # type: ignore[assignment]  # a client with that error
    try:
        with pytest.raises(KafkaError, match=f"writing to {topic}-0.*the client cannot go on"):
            producer.send([PartitionBatch(topic, 0, RecordBatch.of([(None, b"v", 1, 0, ())]))])
    finally:
        producer._client = client
        producer.close()


def test_the_cause_of_a_fatal_error_is_named_and_keeps_no_producer_open() -> None:
    class Forbidden:
        def __len__(self) -> int:
            return 0

        def produce(self, *record: object) -> None:
            raise KafkaException(Code(Code._FATAL, "fatal error"))

        def poll(self, seconds: float) -> None:
            raise KafkaException(Code(Code.CLUSTER_AUTHORIZATION_FAILED, "no producer id"))

        def purge(self) -> None: ...

    producer = ConfluentBatchProducer(NO_BROKER)
    producer._client = client = Forbidden()  # type: ignore[assignment]  # librdkafka, before anybody polls it
    producer._connection.serve = client.poll
    with pytest.raises(ClusterAuthorizationError, match=r"writing to .*: no producer id"):
        producer.send([PartitionBatch(*HERE, RecordBatch.of([(None, b"v", 1, 0, ())]))])
    producer.close()
    with pytest.raises(KafkaError, match="The producer is closed"):
        producer.flush()


@pytest.mark.parametrize("is_known", [False, True])
def test_a_batch_that_cannot_be_written_fails_its_producer(config: StreamsConfig, topic: str, is_known: bool) -> None:
    record = RecordBatch.of([(None, b"v", 1, 0, ())])
    nowhere = PartitionBatch(topic, 7, record)
    producer = ConfluentBatchProducer(config)
    if is_known:
        producer.send([PartitionBatch(topic, 0, record)])
        producer.flush()

    def write_it() -> None:
        producer.send([nowhere])  # that there is no such partition shows when the leader is known
        producer.flush()

    try:
        with pytest.raises(KafkaError, match=f"writing to {topic}-7"):
            write_it()
    finally:
        producer.close()


def test_records_that_are_not_written_in_time_are_an_error() -> None:
    producer = ConfluentBatchProducer(NO_BROKER, timeout_ms=100)
    assert not producer.lags()
    producer.send([PartitionBatch(*HERE, RecordBatch.of([(None, b"v", 1, 0, ())]))])
    with pytest.raises(BrokerNotFoundError, match=r"answered within \d+ ms"):
        producer.flush()
    for _ in range(2):
        producer.close()
    with pytest.raises(KafkaError, match="The producer is closed"):
        producer.send([])


def test_refusals_of_an_earlier_producer_go_on_with_single_records() -> None:
    refusals = Refusals()
    refusals.take({("t", 0, None, b"bad"): Code(Code.MSG_SIZE_TOO_LARGE)})
    refusals.take({("t", 0, None, b"bad"): Code(Code.MSG_SIZE_TOO_LARGE)})
    producer = ConfluentBatchProducer(NO_BROKER, refusals=refusals)
    with pytest.raises(RecordTooLargeError, match="topic t, partition 0"):
        producer.send([PartitionBatch(*HERE, RecordBatch.of([(None, b"bad", 1, 0, ())]))])
    producer.close()


def test_another_producer_goes_on_after_brokers_have_lost_records_of_one() -> None:
    batch = PartitionBatch("t", 0, RecordBatch.of([(None, b"v", 1, 0, ())]))
    with EmbeddedBroker() as broker:
        config = StreamsConfig({"bootstrap.servers": broker.bootstrap_servers})
        with closing(ConfluentAdmin(config)) as admin:
            admin.create_topics([NewTopic("t", 1)])
        broker.fail("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER")
        with closing(ConfluentBatchProducer(config)) as producer:
            producer.send([batch])
            with pytest.raises(RetriableError, match="desynchronization"):
                producer.flush()
        with closing(ConfluentBatchProducer(config)) as producer:
            producer.send([batch])
            assert producer.flush() == {TopicPartition("t", 0): 1}
