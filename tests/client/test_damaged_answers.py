"""Batches of records that are damaged: readers stop with an error that names where, and hand nothing of them over."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from crc32c import crc32c

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentConsumer, ConfluentFetcher, ConfluentProducer, stalls
from penstock.config import StreamsConfig
from penstock.errors import CorruptRecordError
from penstock.record import TopicPartition
from penstock_broker.batch import BatchHeader
from tests.support.api_keys import FETCH
from tests.support.brokers import RunningBroker
from tests.support.proxy import Proxy, batch_at

Damage = Callable[[bytearray, int, BatchHeader], None]
Read = Callable[[StreamsConfig, TopicPartition, list[int]], None]
BATCHES = 3
"""Batches of a topic, with two records each; the second is damaged."""

END = 2 * BATCHES


def _put(position: int, form: str, value: int, is_sealed: bool = False) -> Damage:
    """Return what writes a field of a batch. is_sealed: and a checksum that is right for it, as a broken producer."""

    def damage(answer: bytearray, at: int, header: BatchHeader) -> None:
        struct.pack_into(form, answer, at + position, value)
        if is_sealed:
            struct.pack_into(">I", answer, at + 17, crc32c(bytes(answer[at + 21 : at + header.size])))

    return damage


DAMAGES = {
    "a flipped byte in a record": _put(70, ">B", 0xAA),
    "a flipped byte in the attributes": _put(22, ">B", 0x55),
    "a wrong checksum": _put(17, ">I", 1),
    "an unknown format": _put(16, ">b", 7),
    "an old format": _put(16, ">b", 1),
    "an unknown compression": _put(21, ">h", 7, is_sealed=True),
    "records that are not compressed so": _put(21, ">h", 1, is_sealed=True),
}
SILENT = {
    "a length beyond the end": _put(8, ">i", 0x7FFFFF00),
    "a length too small for a header": _put(8, ">i", 20),
    "a negative length": _put(8, ">i", -5),
    "a record beyond the end": _put(61, ">B", 0xFF, is_sealed=True),
}
"""Damages of which librdkafka reports nothing."""


def _fetched(config: StreamsConfig, partition: TopicPartition, offsets: list[int]) -> None:
    with closing(ConfluentFetcher(config, timeout_ms=2_000)) as fetcher:
        for batch in fetcher.fetch(partition, 0, END, read_committed=True):
            offsets.extend(batch.offsets.tolist())


def _polled(config: StreamsConfig, partition: TopicPartition, offsets: list[int]) -> None:
    with closing(ConfluentConsumer(config)) as consumer:
        consumer.assign({partition: 0})
        for _ in range(400):
            for _, batch in consumer.poll(100, 100):
                offsets.extend(batch.offsets.tolist())
            if offsets[-1:] == [END - 1]:
                return
    raise AssertionError(f"neither an error nor all records, but {offsets}")


@pytest.fixture(scope="module")
def partition(broker: RunningBroker) -> TopicPartition:
    config = StreamsConfig({"bootstrap.servers": broker.bootstrap_servers})
    with closing(ConfluentAdmin(config)) as admin:
        admin.create_topics([NewTopic("damaged", 1)])
    with closing(ConfluentProducer(config)) as producer:
        for number in range(END):
            producer.send("damaged", b"key", b"a value that has some length %d" % number, 0)
            if number % 2:
                producer.flush()
    return TopicPartition("damaged", 0)


@pytest.fixture
def damaging(broker: RunningBroker) -> Iterator[Callable[[Damage], Proxy]]:
    """A function that starts a proxy, which damages the second batch in each answer."""
    proxies: list[Proxy] = []

    def start(damage: Damage) -> Proxy:
        def change(key: int, answer: bytes) -> bytes:
            found = batch_at(answer, 2) if key == FETCH else None
            changed = bytearray(answer)
            if found is not None:
                damage(changed, *found)
            return bytes(changed)

        proxies.append(Proxy(broker.bootstrap_servers, change))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.__exit__()


def _config(proxy: Proxy, **settings: Any) -> StreamsConfig:
    return StreamsConfig({"application.id": "reader", "bootstrap.servers": proxy.bootstrap_servers, **settings})


@pytest.mark.one_broker
@pytest.mark.parametrize("read", [_fetched, _polled])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_batch_is_an_error_behind_the_records_before_it(
    partition: TopicPartition, damaging: Callable[[Damage], Proxy], damage: Damage, read: Read
) -> None:
    offsets: list[int] = []
    with pytest.raises(CorruptRecordError, match=r"reading damaged-0 .*at offset 2\)"):
        read(_config(damaging(damage)), partition, offsets)
    assert offsets == [0, 1]


@pytest.mark.one_broker
@pytest.mark.parametrize("read", [_fetched, _polled])
@pytest.mark.parametrize("damage", SILENT.values(), ids=SILENT.keys())
def test_a_batch_of_a_damaged_length_is_an_error_too(
    partition: TopicPartition,
    damaging: Callable[[Damage], Proxy],
    monkeypatch: pytest.MonkeyPatch,
    damage: Damage,
    read: Read,
) -> None:
    monkeypatch.setattr(stalls, "STALLED_SECONDS", 0.2)
    monkeypatch.setattr(stalls, "_LOOK_SECONDS", 0.1)
    offsets: list[int] = []
    with pytest.raises(CorruptRecordError, match=r"reading damaged-0 at offset 2\b"):
        read(_config(damaging(damage)), partition, offsets)
    assert offsets == [0, 1]


@pytest.mark.one_broker
@pytest.mark.parametrize("read", [_fetched, _polled])
def test_checksums_are_not_compared_where_the_user_says_so(
    partition: TopicPartition, damaging: Callable[[Damage], Proxy], read: Read
) -> None:
    offsets: list[int] = []
    proxy = damaging(DAMAGES["a flipped byte in a record"])
    read(_config(proxy, **{"consumer.check.crcs": "false"}), partition, offsets)
    assert offsets == list(range(END))
