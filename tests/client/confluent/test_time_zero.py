"""Records with timestamp 0 keep it in every way in which records are written, in their order and once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from time import monotonic

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.client.api import GroupIdentity, NewTopic, OffsetAndMetadata, RefusedOutputError, RefusedRecord
from penstock.client.confluent import (
    ConfluentAdmin,
    ConfluentBatchProducer,
    ConfluentFetcher,
    ConfluentProducer,
    ConfluentTransactionalProducer,
)
from penstock.client.confluent.at_least_once import AtLeastOnceWriter
from penstock.client.confluent.transactions import TransactionalWriter
from penstock.config import StreamsConfig
from penstock.errors import KafkaError, ProducerFencedError, StreamsError
from penstock.plan.partitioning import partition_for
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock.testing import EmbeddedBroker
from tests.support.brokers import RunningBroker
from tests.support.waiting import until

Row = tuple[bytes, int]


class Place:
    """A topic with two partitions, and what is in it."""

    def __init__(self, broker: RunningBroker | EmbeddedBroker, name: str) -> None:
        self.name = name
        self.config = StreamsConfig({"application.id": name, "bootstrap.servers": broker.bootstrap_servers})
        self.admin, self.fetcher = ConfluentAdmin(self.config), ConfluentFetcher(self.config)
        self.admin.create_topics([NewTopic(name, 2), NewTopic(f"{name}-commits", 1)])

    def rows(self, partition: int) -> list[Row]:
        """Return value and timestamp of each committed record."""
        at = TopicPartition(self.name, partition)
        end = self.admin.end_offsets([at], read_committed=True)[at]
        found = self.fetcher.fetch(at, 0, end, read_committed=True) if end else ()
        return [row for each in found for row in zip(each.values, each.timestamps.tolist(), strict=True)]

    def has(self, *expected: Sequence[Row]) -> bool:
        """Return whether the partitions have these rows alone: of a commit, soon after it."""
        return until(lambda: [self.rows(partition) for partition in range(len(expected))] == list(map(list, expected)))

    def batch(self, partition: int, *rows: Row, size: int = 0) -> PartitionBatch:
        records = [(b"k", value + bytes(size), time, 0, (("name", b"1"), ("null", None))) for value, time in rows]
        return PartitionBatch(self.name, partition, RecordBatch.of(records))

    def nobody(self) -> GroupIdentity:
        return GroupIdentity(self.name, -1, "")

    def close(self) -> None:
        self.admin.close()
        self.fetcher.close()


@pytest.fixture
def place(broker: RunningBroker, unique_name: Callable[[str], str]) -> Iterator[Place]:
    with closing(Place(broker, unique_name("topic"))) as made:
        yield made


ROWS = [(b"1", 5), (b"2", 0), (b"3", 7)]


def write_single(place: Place, output: Sequence[Sequence[Row]]) -> None:
    with closing(ConfluentProducer(place.config)) as producer:
        for rows in output:
            for value, time in rows:
                producer.send(place.name, b"k", value, 0, time, (("name", b"1"), ("null", None)))


def write_batches(place: Place, output: Sequence[Sequence[Row]]) -> None:
    with closing(ConfluentBatchProducer(place.config)) as producer:
        for rows in output:
            producer.send([place.batch(0, *rows)])
        assert producer.flush() == {TopicPartition(place.name, 0): sum(map(len, output))}


def write_transaction(place: Place, output: Sequence[Sequence[Row]]) -> None:
    with closing(ConfluentTransactionalProducer(place.config, place.name)) as producer:
        for rows in output:
            producer.send([place.batch(0, *rows)])
            producer.commit({TopicPartition(place.name, 1): OffsetAndMetadata(1)}, place.nobody())


def write_epochs(transactional: bool, place: Place, output: Sequence[Sequence[Row]]) -> None:
    marker = TopicPartition(f"{place.name}-commits", 0)
    writer: TransactionalWriter | AtLeastOnceWriter = AtLeastOnceWriter(place.config)
    if transactional:
        writer = TransactionalWriter(place.config, place.name, place.name, marker, lambda epoch: None)
    with closing(writer):
        for epoch, rows in enumerate(output):
            assert writer.write(epoch, "owner", [place.batch(0, *rows)])


WAYS = {
    "single": write_single,
    "batches": write_batches,
    "transactions": write_transaction,
    "epochs": partial(write_epochs, False),
    "epochs in transactions": partial(write_epochs, True),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_timestamp_0_stays_and_the_order_too(
    place: Place, way: Callable[[Place, Sequence[Sequence[Row]]], None]
) -> None:
    output = [[(b"0", 9)], ROWS, [(b"4", 1)], [(b"5", 0)]]
    way(place, output)
    assert place.has([row for rows in output for row in rows])


def test_a_transaction_that_has_begun_is_made_again(place: Place) -> None:
    with closing(ConfluentTransactionalProducer(place.config, place.name)) as producer:
        made = [[place.batch(0, (b"1", 3)), place.batch(1, (b"a", 3))], [place.batch(0, (b"2", 0))]]
        producer.send(made[0])
        with pytest.raises(RefusedOutputError, match="timestamp 0"):
            producer.send(made[1])
        for each in made:
            producer.send(each)
        ends = producer.commit({}, place.nobody())
        assert ends.keys() == {TopicPartition(place.name, partition) for partition in range(2)}
        assert min(ends.values()) > 0
    assert place.has([(b"1", 3), (b"2", 0)], [(b"a", 3)])


def test_a_transaction_of_such_records_alone_is_committed_or_aborted(place: Place) -> None:
    with closing(ConfluentTransactionalProducer(place.config, place.name)) as producer:
        for value, is_kept in ((b"1", True), (b"lost", False), (b"2", True)):
            producer.send([place.batch(0, (value, 0))])
            if is_kept:
                producer.commit({}, place.nobody())
            else:
                producer.abort()
        producer.send([place.batch(0, (b"open", 0))])
    assert place.has([(b"1", 0), (b"2", 0)])


@pytest.mark.timeout(60)
def test_an_abort_waits_for_no_coordinator_that_does_not_answer(unique_name: Callable[[str], str]) -> None:
    with EmbeddedBroker() as broker, closing(Place(broker, unique_name("topic"))) as place:
        with closing(ConfluentTransactionalProducer(place.config, place.name, timeout_ms=30_000)) as producer:
            producer.send([place.batch(0, (b"lost", 0))])
            broker.delay("EndTxn", 3_600_000)
            start = monotonic()
            producer.abort()
            assert monotonic() - start < 20
            producer.send([place.batch(0, (b"1", 0))])
            producer.commit({}, place.nobody())
        assert place.has([(b"1", 0)])


def test_librdkafka_writes_all_again_after_commits_without_such_records(place: Place) -> None:
    with closing(ConfluentTransactionalProducer(place.config, place.name)) as producer:
        rows = [(b"%d" % number, 0 if number in (0, 24) else number) for number in range(26)]
        for row in rows:
            producer.send([place.batch(0, row)])
            producer.commit({}, place.nobody())
    assert place.has(rows)


def test_a_producer_that_was_fenced_writes_nothing(place: Place) -> None:
    with closing(ConfluentTransactionalProducer(place.config, place.name)) as zombie:
        zombie.send([place.batch(0, (b"1", 0))])
        zombie.commit({}, place.nobody())
        with closing(ConfluentTransactionalProducer(place.config, place.name)) as owner:
            owner.send([place.batch(1, (b"of owner", 0))])
            with pytest.raises(ProducerFencedError):
                zombie.send([place.batch(0, (b"of zombie", 0))])
            owner.commit({}, place.nobody())
    assert place.has([(b"1", 0)], [(b"of owner", 0)])


@pytest.mark.parametrize("transactional", [False, True])
def test_a_record_that_brokers_refuse_is_named_and_the_others_are_written(place: Place, transactional: bool) -> None:
    refused: list[RefusedRecord] = []

    def instead(record: RefusedRecord) -> list[PartitionBatch]:
        refused.append(record)
        return [place.batch(1, (b"instead", 0))]

    large = place.batch(0, (b"large", 0), size=1_100_000).batch
    mixed = RecordBatch.concat([place.batch(0, *ROWS[:2]).batch, large, place.batch(0, ROWS[2]).batch])
    output = [PartitionBatch(place.name, 0, mixed)]
    if transactional:
        with closing(ConfluentTransactionalProducer(place.config, place.name)) as producer:
            producer.send([place.batch(1, (b"first", 0))])
            producer.send(output, instead)
            producer.commit({}, place.nobody())
    else:
        with closing(ConfluentBatchProducer(place.config)) as batches:
            batches.send([place.batch(1, (b"first", 0))])
            batches.send(output, instead)
            batches.flush()
    assert [(each.topic, each.partition, each.timestamp) for each in refused] == [(place.name, 0, 0)]
    assert place.has(ROWS, [(b"first", 0), (b"instead", 0)])


def test_without_a_handler_the_error_names_the_topic(place: Place) -> None:
    with closing(ConfluentProducer(place.config)) as producer, pytest.raises(KafkaError, match=place.name):
        producer.send(place.name, b"k", bytes(1_100_000), 0, 0)


def test_the_key_chooses_the_partition(place: Place) -> None:
    with closing(ConfluentProducer(place.config)) as producer:
        for key in (b"a", b"b", b"c", b"d"):
            producer.send(place.name, key, key, timestamp=0)
        producer.send(place.name, None, b"none", timestamp=0)
    found = {value: partition for partition in range(2) for value, _ in place.rows(partition)}
    assert found.pop(b"none") in (0, 1)
    assert found == {key: partition_for(key, 2) for key in (b"a", b"b", b"c", b"d")}


def test_a_partitioner_of_librdkafka_is_refused(place: Place) -> None:
    config = StreamsConfig({**place.config.given(), "producer.partitioner": "consistent"})
    with closing(ConfluentProducer(config)) as producer:
        producer.send(place.name, b"a", b"1", 0, 0)
        with pytest.raises(StreamsError, match="timestamp 0 to topic"):
            producer.send(place.name, b"a", b"1", timestamp=0)


OUTPUT = st.lists(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), max_size=4), max_size=4)


@given(st.lists(OUTPUT, max_size=4))
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_transactions_are_written_once_in_order(
    broker: RunningBroker, unique_name: Callable[[str], str], transactions: list[list[list[tuple[int, int]]]]
) -> None:
    with closing(Place(broker, unique_name("any"))) as place:
        expected: list[list[Row]] = [[], []]
        with closing(ConfluentTransactionalProducer(place.config, place.name)) as producer:
            for number, sends in enumerate(transactions):
                made = [[place.batch(partition, (b"%d" % number, time)) for partition, time in rows] for rows in sends]
                send_all(producer, made)
                producer.commit({}, place.nobody())
                for partition, time in (row for rows in sends for row in rows):
                    expected[partition].append((b"%d" % number, time))
        assert place.has(*expected)


def send_all(producer: ConfluentTransactionalProducer, made: Sequence[Sequence[PartitionBatch]]) -> None:
    """Send, again from the beginning as often as the producer asks for it."""
    for _ in range(3):  # each of two partitions may need another client
        try:
            for each in made:
                producer.send(each)
            return
        except RefusedOutputError:
            continue
    raise AssertionError("The producer does not accept the output.")
