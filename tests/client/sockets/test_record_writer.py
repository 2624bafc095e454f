"""Records that Penstock writes itself: each once, in order, and alone or in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.client.sockets.record_writer import RecordWriter
from penstock.config import StreamsConfig
from penstock.errors import UnknownTopicOrPartitionError
from penstock.record import RecordBatch, TopicPartition
from penstock.testing import EmbeddedBroker
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.brokers import RunningBroker
from tests.support.protocol_client import ProtocolClient
from tests.support.transactions import Transactions
from tests.support.waiting import until


class Log:
    """A topic of one partition, and what is in it."""

    def __init__(self, broker: RunningBroker | EmbeddedBroker, topic: str) -> None:
        self.config = StreamsConfig({"application.id": topic, "bootstrap.servers": broker.bootstrap_servers})
        self.at = TopicPartition(topic, 0)
        with closing(ConfluentAdmin(self.config)) as admin:
            admin.create_topics([NewTopic(topic, 1, config={"max.message.bytes": "2000"})])

    def read(self) -> RecordBatch:
        with closing(ConfluentAdmin(self.config)) as admin, closing(ConfluentFetcher(self.config)) as fetcher:
            end = admin.end_offsets([self.at], read_committed=True)[self.at]
            found = fetcher.fetch(self.at, 0, end, read_committed=True) if end else ()
            return RecordBatch.concat(list(found))

    def values(self) -> list[bytes | None]:
        return self.read().values


@pytest.fixture
def log(broker: RunningBroker, unique_name: Callable[[str], str]) -> Log:
    return Log(broker, unique_name("topic"))


@pytest.fixture
def writer(log: Log) -> Iterator[RecordWriter]:
    with closing(RecordWriter(log.config, 60_000)) as writer:
        yield writer


def rows(*values: bytes, time: int = 0) -> RecordBatch:
    return RecordBatch.of([(b"k", value, time + number, number, ()) for number, value in enumerate(values)])


def test_records_are_written_as_they_are(log: Log, writer: RecordWriter) -> None:
    given = [(b"k", b"v", 0, 0, (("h", b"1"), ("h", None))), (None, b"", 7, 1, ()), (b"", None, 3, 2, ())]
    assert writer.write(log.at, RecordBatch.of(given)) == (ErrorCode.none, 3)
    found = log.read()
    assert (found.keys, found.values, found.timestamps.tolist()) == ([b"k", None, b""], [b"v", b"", None], [0, 7, 3])
    assert [found.headers_at(row) for row in range(3)] == [headers for *_, headers in given]


def test_each_batch_follows_the_one_before(log: Log, writer: RecordWriter) -> None:
    assert not writer.has_written
    ends = [writer.write(log.at, rows(*values)) for values in ((b"a",), (b"b", b"c"), (b"d",))]
    assert ends == [(0, 1), (0, 3), (0, 4)]
    assert log.values() == [b"a", b"b", b"c", b"d"]
    assert writer.has_written


def test_a_batch_that_is_refused_leaves_the_next_one_its_place(log: Log, writer: RecordWriter) -> None:
    code, _ = writer.write(log.at, rows(b"x" * 5_000))
    assert code == ErrorCode.message_too_large
    assert writer.write(log.at, rows(b"a")) == (ErrorCode.none, 1)


def test_a_batch_whose_answer_is_lost_is_there_once() -> None:
    with EmbeddedBroker() as broker:
        log = Log(broker, "t")
        with closing(RecordWriter(log.config, 60_000)) as writer:
            writer.write(log.at, rows(b"a"))
            broker.lose_answer("Produce")
            assert writer.write(log.at, rows(b"b"))[0] == ErrorCode.none
            writer.write(log.at, rows(b"c"))
        assert log.values() == [b"a", b"b", b"c"]


def test_a_topic_that_does_not_exist_is_an_error(log: Log, writer: RecordWriter) -> None:
    assert writer.partitions(log.at.topic) == 1
    with pytest.raises(UnknownTopicOrPartitionError, match="writing to 'gone'"):
        writer.partitions("gone")
    with pytest.raises(UnknownTopicOrPartitionError):
        writer.write(TopicPartition(log.at.topic, 1), rows(b"a"))


@pytest.mark.parametrize("commits", [True, False])
def test_records_in_a_transaction_are_read_only_after_its_commit(
    log: Log, broker: RunningBroker, unique_name: Callable[[str], str], commits: bool
) -> None:
    with (
        ProtocolClient(broker.bootstrap_servers) as client,
        closing(RecordWriter(log.config, 60_000, name := unique_name("id"))) as writer,
    ):
        other = Transactions(client, name)
        other.find_coordinator()
        assert other.begin() == ErrorCode.none
        assert writer.end(is_commit=True) == ErrorCode.none, "there is nothing to end"
        writer.continue_as(other.producer)
        assert writer.write(log.at, rows(b"a", b"b")) == (ErrorCode.none, 2)
        assert log.values() == []
        assert writer.end(commits) == ErrorCode.none
        writer.ended()
        assert until(lambda: log.values() == ([b"a", b"b"] if commits else []))
        writer.continue_as((other.producer[0], other.producer[1] - 1))
        assert not writer.has_written
        assert writer.write(log.at, rows(b"late"))[0] in (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)
