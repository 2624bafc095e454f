"""Records that tests write and read, and clients without a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException

from penstock.config import StreamsConfig
from penstock.record import RecordBatch, TopicPartition
from tests.support.plain_producer import PlainProducer

NAMES = Callable[[str], str]
NO_BROKER = StreamsConfig({"bootstrap.servers": "127.0.0.1:1"})
HERE = TopicPartition("t", 0)


def write(config: StreamsConfig, topic: str, count: int, partition: int | None = 0, start: int = 0) -> None:
    producer = PlainProducer(config)
    for number in range(start, start + count):
        producer.send(topic, b"k%d" % number, b"v%d" % number, partition, timestamp=1_000 + number)
    producer.close()


def together(batches: Iterator[RecordBatch]) -> RecordBatch:
    return RecordBatch.concat(list(batches))


def raise_code(code: int) -> None:
    raise KafkaException(Code(code))
