"""Released clients end immediately, with their threads and sockets: nothing keeps them for the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Message

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.at_least_once import AtLeastOnceWriter
from penstock.client.confluent.batch_producer import ConfluentBatchProducer
from penstock.client.confluent.commit_marker import CommitMarker
from penstock.client.confluent.producer import ConfluentProducer
from penstock.client.confluent.transactions import TransactionalWriter, transactions_refused
from penstock.client.kept_clients import keep_open
from penstock.config import StreamsConfig
from penstock.errors import KafkaError
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from tests.support.open_clients import clients, clients_but, end_idle_clients
from tests.support.plain_producer import PlainProducer
from tests.support.waiting import until

NOWHERE = StreamsConfig({"application.id": "letting-go", "bootstrap.servers": "127.0.0.1:1"}, environment={})
GROUP = [TopicPartition("commits", 0)]


def transactional() -> TransactionalWriter:
    return TransactionalWriter(NOWHERE, "letting-go", "group", GROUP[0], lambda _: None, timeout_ms=200)


def closed_producer() -> ConfluentProducer:
    """Return a producer that is closed: it is kept, and its client is not."""
    producer = ConfluentProducer(NOWHERE)
    producer.close()
    return producer


MADE: dict[str, Callable[[], object]] = {
    "producer": lambda: ConfluentProducer(NOWHERE),
    "producer of tests": lambda: PlainProducer(NOWHERE),
    "admin": lambda: ConfluentAdmin(NOWHERE),
    "positions of a group": lambda: ConfluentAdmin(NOWHERE, 200).committed_offsets("group", GROUP),
    "writer": lambda: AtLeastOnceWriter(NOWHERE).write(1, "owner", ()),
    "transactions": lambda: transactional().fence(),
    "marker": lambda: CommitMarker(NOWHERE, "letting-go", "group", GROUP[0], 200, lambda _: False).read(),
    "checking transactions": lambda: transactions_refused(NOWHERE, "letting-go", 200),
}


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collector")
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_client_that_is_released_ends(make: Callable[[], object]) -> None:
    before = clients()
    with suppress(KafkaError):
        make()
    assert until(lambda: not clients_but(before))  # calls that may not return run in other threads


@pytest.mark.usefixtures("no_garbage_collector")
def test_a_producer_that_is_closed_keeps_no_client() -> None:
    before = clients()
    producer = closed_producer()
    assert until(lambda: not clients_but(before))
    with pytest.raises(KafkaError, match="closed"):
        producer.flush()


def test_a_producer_of_batches_that_is_closed_keeps_no_records() -> None:
    producer = ConfluentBatchProducer(NOWHERE)
    producer.send([PartitionBatch("topic", 0, RecordBatch.of([(b"k", b"dropped", 5, 0, ())] * 100))])
    producer.close()
    assert not [each for each in gc.get_objects() if isinstance(each, Message) and each.value() == b"dropped"]


@keep_open(most=1)
def kept_writer() -> TransactionalWriter:
    return transactional()


def used_writer() -> object:
    with suppress(KafkaError):
        kept_writer().fence()
    return kept_writer


@pytest.mark.usefixtures("no_garbage_collector")
@pytest.mark.parametrize("use", [lambda: ConfluentAdmin(NOWHERE), used_writer], ids=["admin", "writer"])
def test_a_client_that_is_kept_and_idle_ends(monkeypatch: pytest.MonkeyPatch, use: Callable[[], object]) -> None:
    before = clients()
    end_idle_clients(monkeypatch)
    kept = use()
    assert until(lambda: not clients_but(before))
    assert kept is not None
