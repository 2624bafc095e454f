"""Records that are written one by one in the background."""

from __future__ import annotations

import contextlib

import pytest

from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.errors import KafkaError
from penstock.plan.partitioning import partition_for
from penstock.record import TopicPartition
from tests.client.confluent.records import together, write


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
