"""Records that are written one by one in the background."""

from __future__ import annotations

import contextlib

import pytest

from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.errors import BrokerNotFoundError, KafkaError
from penstock.plan.partitioning import partition_for
from penstock.record import TopicPartition
from tests.client.confluent.records import NO_BROKER, together, write


def test_keys_go_to_the_partition_that_kafka_gives_them(
    admin: ConfluentAdmin, config: StreamsConfig, fetcher: ConfluentFetcher, topic: str
) -> None:
    write(config, topic, 20, partition=None)
    for partition, end in admin.end_offsets([TopicPartition(topic, 0), TopicPartition(topic, 1)]).items():
        keys = together(fetcher.fetch(partition, 0, end, read_committed=False)).keys
        assert keys
        assert {partition_for(key, 2) for key in keys} == {partition.partition}


def test_a_record_that_cannot_be_written_fails_the_producer(config: StreamsConfig, topic: str) -> None:
    producer = ConfluentProducer(config)
    with pytest.raises(KafkaError, match=topic):
        producer.send(topic, None, b"x" * 2_000_000)

    def send_and_close() -> None:  # fails immediately, or at the end if the partitions are not known yet
        producer.send(topic, None, b"x", partition=99)
        producer.close()

    with pytest.raises(KafkaError, match=topic):
        send_and_close()
    with contextlib.suppress(KafkaError):
        producer.close()
    with pytest.raises(KafkaError, match="closed"):
        producer.send(topic, None, b"x")


def test_a_partitioner_of_librdkafka_has_no_partition_for_time_zero() -> None:
    producer = ConfluentProducer(StreamsConfig({**NO_BROKER.given(), "partitioner": "consistent"}))
    with pytest.raises(KafkaError, match="timestamp 0 to topic t: partitioner=consistent chooses no partition"):
        producer.send("t", b"k", b"v", timestamp=0)


def test_a_time_that_no_record_can_have_is_refused() -> None:
    producer = ConfluentProducer(NO_BROKER)
    with pytest.raises(ValueError, match="the timestamp of a record for t"):
        producer.send("t", b"k", b"v", timestamp=1 << 63)


def test_records_that_are_not_written_in_time_are_an_error_once() -> None:
    producer = ConfluentProducer(NO_BROKER, timeout_ms=100)
    producer.send("t", b"k", b"v", 0)
    for call in (producer.flush, producer.close):
        with pytest.raises(BrokerNotFoundError, match=r"answered within \d+ ms \(writing\)"):
            call()
    producer.close()
    with pytest.raises(KafkaError, match="The producer is closed"):
        producer.flush()
