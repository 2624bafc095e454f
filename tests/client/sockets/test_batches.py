"""A batch as the broker sends it: damaged lengths are found, and what may be intact is taken for intact."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentProducer
from penstock.client.sockets.batches import check_batch_at
from penstock.client.sockets.cluster import Cluster
from penstock.config import StreamsConfig
from penstock.errors import CorruptRecordError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from penstock.record import TopicPartition
from tests.support.api_keys import FETCH
from tests.support.brokers import RunningBroker
from tests.support.proxy import Change, Proxy, batch_at

pytestmark = pytest.mark.one_broker
COUNT = 3
"""Records of the one batch in each partition; those of the second are compressed."""

PLAIN, COMPRESSED = 0, 1
Field = tuple[int, str, int]
"""Position, format and value of a field of a batch."""


@pytest.fixture(scope="module")
def topic(broker: RunningBroker) -> str:
    name = "batches-that-are-checked"
    config = StreamsConfig({"bootstrap.servers": broker.bootstrap_servers})
    with closing(ConfluentAdmin(config)) as admin:
        admin.create_topics([NewTopic(name, 2)])
    for partition, compression in ((PLAIN, "none"), (COMPRESSED, "gzip")):
        settings = {**config.given(), "compression.type": compression, "producer.linger.ms": 1_000}
        with closing(ConfluentProducer(StreamsConfig(settings))) as producer:
            for number in range(COUNT):
                producer.send(name, b"key", b"value " * 30 + b"%d" % number, partition)
    return name


@pytest.fixture
def through(broker: RunningBroker) -> Iterator[Callable[[Change], Cluster]]:
    """A function that returns a cluster, whose answers are changed on their way."""
    opened: list[Proxy | Cluster] = []

    def connect(change: Change) -> Cluster:
        proxy = Proxy(broker.bootstrap_servers, change)
        cluster = Cluster(StreamsConfig({"bootstrap.servers": proxy.bootstrap_servers}))
        opened.extend((cluster, proxy))
        return cluster

    yield connect
    for each in opened:
        each.__exit__(None, None, None)


def changing(*fields: Field) -> Change:
    """Return a change of these fields of the batch in an answer."""

    def change(key: int, answer: bytes) -> bytes:
        found = batch_at(answer, 0) if key == FETCH else None
        changed = bytearray(answer)
        for position, form, value in fields if found is not None else ():
            struct.pack_into(form, changed, found[0] + position, value)  # type: ignore[index]  # found
        return bytes(changed)

    return change


@pytest.mark.parametrize("partition", [PLAIN, COMPRESSED])
def test_an_intact_batch_passes_at_each_of_its_offsets(
    topic: str, through: Callable[[Change], Cluster], partition: int
) -> None:
    cluster = through(changing())
    for offset in range(COUNT + 1):  # and at the end, where there is no batch
        check_batch_at(cluster, TopicPartition(topic, partition), offset, read_committed=True)


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ((8, ">i", 0x7FFFFF00), "the batch claims 2147483404 bytes, of "),
        ((8, ">i", 48), "the batch claims 60 bytes"),
        ((8, ">i", -5), "the batch claims 7 bytes"),
        ((57, ">i", COUNT + 1), "the lengths of its 4 records are not that of the batch"),
        ((57, ">i", COUNT - 1), "the lengths of its 2 records are not that of the batch"),
        ((61, ">B", 0xFF), "the lengths of its 3 records"),
    ],
)
def test_damaged_lengths_are_found(topic: str, through: Callable[[Change], Cluster], field: Field, says: str) -> None:
    with pytest.raises(CorruptRecordError, match=says) as caught:
        check_batch_at(through(changing(field)), TopicPartition(topic, PLAIN), 1, read_committed=False)
    assert f"(reading {topic}-0 at offset 1)" in str(caught.value)


@pytest.mark.parametrize(
    ("partition", "field"), [(PLAIN, (16, ">b", 1)), (COMPRESSED, (57, ">i", COUNT + 1)), (PLAIN, (17, ">I", 1))]
)
def test_formats_compression_and_checksums_are_left_to_librdkafka(
    topic: str, through: Callable[[Change], Cluster], partition: int, field: Field
) -> None:
    check_batch_at(through(changing(field)), TopicPartition(topic, partition), 0, read_committed=True)


def test_a_place_that_the_broker_does_not_have_is_an_error(topic: str, through: Callable[[Change], Cluster]) -> None:
    cluster = through(changing())
    with pytest.raises(OffsetOutOfRangeError):
        check_batch_at(cluster, TopicPartition(topic, PLAIN), COUNT + 1, read_committed=True)
    with pytest.raises(UnknownTopicOrPartitionError):
        check_batch_at(cluster, TopicPartition(topic, 7), 0, read_committed=True)
