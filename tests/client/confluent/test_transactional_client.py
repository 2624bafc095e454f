"""The producer of a transactional id: its life, its transactions, and what ends them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as Code

from penstock.client.api import GroupIdentity, OffsetAndMetadata
from penstock.client.confluent import transactional_client
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.client.confluent.transactional_client import (
    FENCED,
    TransactionalClient,
    group_metadata,
    transactional_right,
)
from penstock.config import StreamsConfig
from penstock.errors import BrokerNotFoundError, KafkaError
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from tests.support.waiting import until

Made = Callable[..., TransactionalClient]


@pytest.fixture
def made(config: StreamsConfig, unique_name: Callable[[str], str]) -> Iterator[Made]:
    """A function that makes clients of one transactional id."""
    name, clients = unique_name("id"), list[TransactionalClient]()

    def make(**settings: Any) -> TransactionalClient:
        clients.append(TransactionalClient(config, name, 60_000, settings, {}))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


class _UnansweredProducer(Producer):
    """A producer without an answer from brokers."""

    asked: ClassVar[list[float]] = []

    def init_transactions(self, timeout: float = -1) -> None:
        self.asked.append(timeout)
        raise KafkaException(Code(Code._TIMED_OUT))


def test_the_last_attempt_to_initialise_a_producer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka waits twice `transaction.timeout.ms` if its timeout is negative."""
    monkeypatch.setattr(transactional_client, "Producer", _UnansweredProducer)
    nowhere = StreamsConfig({"application.id": "a", "bootstrap.servers": "127.0.0.1:1"}, environment={})
    with pytest.raises(BrokerNotFoundError):
        TransactionalClient(nowhere, "id", 0, {}, {}).ready({})
    assert _UnansweredProducer.asked == [0]


def send(client: TransactionalClient, topic: str, *values: bytes) -> None:
    output = [PartitionBatch(topic, 0, RecordBatch.of([(None, value, 5, 0, ()) for value in values]))]
    client.ready({})
    assert client.claim(output)
    client.begin()
    client.send(output)


def committed(config: StreamsConfig, topic: str) -> list[bytes | None]:
    at = TopicPartition(topic, 0)
    with closing(ConfluentAdmin(config)) as admin, closing(ConfluentFetcher(config)) as fetcher:
        end = admin.end_offsets([at], read_committed=True)[at]
        batches = fetcher.fetch(at, 0, end, read_committed=True) if end else ()
        return [value for batch in batches for value in batch.values]


def test_a_transaction_is_open_from_its_begin_to_its_commit(config: StreamsConfig, topic: str, made: Made) -> None:
    client = made(**{"delivery.report.only.error": False})
    assert not client.is_open
    send(client, topic, b"a", b"b")
    assert client.is_open
    client.begin()  # which is no other one
    assert client.drain(60) == 0
    client.commit(60)
    assert not client.is_open
    assert client.reports.take_ends() == {TopicPartition(topic, 0): 2}
    assert until(lambda: committed(config, topic) == [b"a", b"b"])


def test_an_aborted_transaction_is_followed_by_the_next(config: StreamsConfig, topic: str, made: Made) -> None:
    client = made()
    client.abort()  # there is none
    send(client, topic, b"lost")
    client.abort()
    assert (client.is_open, client.reports.failures) == (False, [])
    send(client, topic, b"kept")
    client.commit(60)
    assert until(lambda: committed(config, topic) == [b"kept"])


def test_a_newer_client_fences_the_older(topic: str, made: Made) -> None:
    older, newer = made(), made()
    send(older, topic, b"never")
    newer.ready({})
    with pytest.raises(KafkaException) as caught:
        older.commit(60)
    assert older.reason(caught.value.args[0]).code() in FENCED
    older.discard()
    assert not older.is_open


def test_offsets_are_committed_with_the_transaction(
    admin: ConfluentAdmin, topic: str, made: Made, unique_name: Callable[[str], str]
) -> None:
    client, group, at = made(), unique_name("group"), TopicPartition(topic, 0)
    send(client, topic, b"a")
    client.send_offsets({at: OffsetAndMetadata(7)}, GroupIdentity(group, -1, ""), 60, 60)
    assert admin.committed_offsets(group, [at], stable=False) == {}
    client.commit(60)
    assert until(lambda: [each.offset for each in admin.committed_offsets(group, [at]).values()] == [7])


def test_only_an_open_transaction_that_ran_out_of_time_was_too_slow(topic: str, made: Made) -> None:
    client, late = made(**{"transaction.timeout.ms": 30_000}), Code(Code._TIMED_OUT)
    client.ready({})
    assert client.slowness(late) is None
    send(client, topic, b"a")
    assert client.slowness(Code(Code._FENCED)) is None, "another producer has fenced it"
    assert client.slowness(Code(Code.TOPIC_AUTHORIZATION_FAILED)) is None
    found = client.slowness(late)
    assert found is not None
    assert (found.is_ended, found.is_throttled, found.timeout_ms) == (False, False, 30_000)


def test_a_timeout_of_the_user_that_brokers_refuse_is_an_error(made: Made) -> None:
    with pytest.raises(KafkaError, match=r"\(beginning as .*.*Transaction timeout is larger"):
        made(**{"transaction.timeout.ms": 2_000_000}).ready({})


def test_the_right_of_a_producer_is_that_to_its_id() -> None:
    assert str(transactional_right("x")) == "WRITE on the transactional id x"


def test_a_member_is_shown_as_librdkafka_shows_it() -> None:
    consumer = Consumer({"bootstrap.servers": "localhost:1", "group.id": "g"})
    try:
        assert group_metadata(GroupIdentity("g", -1, "")) == consumer.consumer_group_metadata()
    finally:
        consumer.close()
    static = Consumer({"bootstrap.servers": "localhost:1", "group.id": "g", "group.instance.id": "i"})
    try:
        assert group_metadata(GroupIdentity("g", -1, "", "i")) == static.consumer_group_metadata()
    finally:
        static.close()
