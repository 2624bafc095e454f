"""Records and offsets in one transaction, as a member of a group; and what becomes of a transaction that is refused."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka import KafkaError as KafkaErrorCode

from penstock.client.api import (
    CommitRefusedError,
    GroupIdentity,
    NewTopic,
    OffsetAndMetadata,
    RefusedOutputError,
    RefusedRecord,
)
from penstock.client.confluent import (
    ConfluentAdmin,
    ConfluentFetcher,
    ConfluentTransactionalProducer,
    transactional_client,
)
from penstock.client.confluent.connection import ClientConnection
from penstock.client.sockets.offsets import TransactionOffsets
from penstock.config import StreamsConfig
from penstock.errors import (
    BrokerNotFoundError,
    KafkaError,
    ProducerFencedError,
    RetriableError,
    TaskMigratedError,
    TransactionalIdAuthorizationError,
)
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock.testing import EmbeddedBroker
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import OFFSET_FETCH
from tests.support.brokers import RunningBroker
from tests.support.protocol_client import ProtocolClient
from tests.support.waiting import until

SECONDS = 120.0


class Place:
    """A topic, a group and a transactional id of a test's own."""

    def __init__(self, broker: RunningBroker | EmbeddedBroker, unique_name: Callable[[str], str]) -> None:
        self.topic, self.group, self.id = unique_name("topic"), unique_name("group"), unique_name("id")
        self.config = StreamsConfig({"application.id": self.group, "bootstrap.servers": broker.bootstrap_servers})
        self.admin = ConfluentAdmin(self.config)
        self.admin.create_topics([NewTopic(self.topic, 2)])
        self.admin.committed_offsets(self.group, [TopicPartition(self.topic, 0)])  # makes the topic of groups
        self.first, self.second = TopicPartition(self.topic, 0), TopicPartition(self.topic, 1)

    def producer(self, **settings: object) -> ConfluentTransactionalProducer:
        return ConfluentTransactionalProducer(StreamsConfig({**self.config.given(), **settings}), self.id)

    def nobody(self) -> GroupIdentity:
        """Return who commits where the group has no members."""
        return GroupIdentity(self.group, -1, "")

    def has(self, partition: TopicPartition, *values: bytes) -> bool:
        """Return whether `partition` has these values alone: of a commit, soon after it."""
        return until(lambda: self.read(partition) == list(values))

    def as_committed(self, partition: TopicPartition) -> tuple[int, str]:
        """Return offset and text of the group as the broker has them."""
        client = ProtocolClient(str(self.config["bootstrap.servers"]))
        try:
            topics = [{"name": partition.topic, "partition_indexes": [partition.partition]}]
            found = client.call(OFFSET_FETCH, 7, {"group_id": self.group, "topics": topics, "require_stable": False})
        finally:
            client.socket.close()
        [one] = found["topics"][0]["partitions"]
        return one["committed_offset"], one["metadata"]

    def read(self, partition: TopicPartition) -> list[bytes]:
        fetcher = ConfluentFetcher(self.config)
        try:
            end = self.admin.end_offsets([partition], read_committed=True)[partition]
            batches = fetcher.fetch(partition, 0, end, read_committed=True) if end else ()
            return [value for batch in batches for value in batch.values]
        finally:
            fetcher.close()

    @contextmanager
    def member(self) -> Iterator[Consumer]:
        """Have a member in the group."""
        settings = {"bootstrap.servers": str(self.config["bootstrap.servers"]), "group.id": self.group}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe([self.topic])
        try:
            assert until(lambda: consumer.poll(0.2) is not None or bool(consumer.assignment()))
            yield consumer
        finally:
            consumer.close()


@pytest.fixture
def place(broker: RunningBroker, unique_name: Callable[[str], str]) -> Place:
    return Place(broker, unique_name)


def batch(partition: TopicPartition, *values: bytes) -> PartitionBatch:
    return PartitionBatch(*partition, RecordBatch.of([(b"k", value, 5, 0, ()) for value in values]))


def test_records_and_offsets_are_committed_together_and_the_ends_known(place: Place) -> None:
    producer = place.producer()
    try:
        producer.send([batch(place.first, b"a", b"b"), batch(place.second, b"c")])
        assert place.read(place.first) == []
        ends = producer.commit({place.second: OffsetAndMetadata(7, "note")}, place.nobody())
        assert ends == {place.first: 2, place.second: 1}
        assert place.has(place.first, b"a", b"b")
        assert until(lambda: place.as_committed(place.second) == (7, "note"))
        assert producer.commit({place.second: OffsetAndMetadata(8)}, place.nobody()) == {}
        producer.send([batch(place.first, b"d")])
        assert producer.commit({}, place.nobody()) == {place.first: 4}  # one offset is that of the end before
    finally:
        producer.close()


def test_other_clients_read_the_text_beside_an_offset_as_it_was_given(place: Place) -> None:
    producer = place.producer()
    try:
        producer.send([batch(place.first, b"a")])
        producer.commit({place.second: OffsetAndMetadata(1, "AgAAAaIDuPUC")}, place.nobody())
        producer.send([batch(place.first, b"lost")])
        producer.abort()
        producer.send([batch(place.first, b"b")])
        texts = {place.first: OffsetAndMetadata(3), place.second: OffsetAndMetadata(2, "AgAAAaIDuPUD")}
        producer.commit(texts, place.nobody())
        assert until(lambda: place.as_committed(place.second) == (2, "AgAAAaIDuPUD"))
        assert place.as_committed(place.first) == (3, "")
    finally:
        producer.close()


def test_an_abort_keeps_no_records_that_it_drops(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []

    class Told(Producer):
        def abort_transaction(self, *arguments: object) -> None:
            super().abort_transaction(*arguments)
            records = (each for each in gc.get_objects() if isinstance(each, Message))
            kept.append(sum(each.value() == b"dropped" for each in records))

    monkeypatch.setattr(transactional_client, "Producer", Told)
    producer = place.producer(**{"producer.linger.ms": 5_000})
    try:
        producer.send([batch(place.first, *[b"dropped"] * 100)])
        producer.abort()
    finally:
        producer.close()
    assert kept == [0]


def test_what_is_aborted_is_never_read(place: Place) -> None:
    producer = place.producer()
    try:
        producer.abort()
        producer.send([batch(place.first, b"a")])
        producer.abort()
        producer.send([batch(place.first, b"b")])
        producer.commit({}, place.nobody())
    finally:
        producer.close()
    assert place.has(place.first, b"b")


def test_a_member_that_was_counted_out_commits_nothing_and_the_next_transaction_is_its_own(place: Place) -> None:
    producer = place.producer()
    try:
        with place.member():
            for member in (GroupIdentity(place.group, 99, "somebody"), GroupIdentity(place.group, 1, "else", "static")):
                producer.send([batch(place.first, b"lost")])
                with pytest.raises(CommitRefusedError, match=f"member that commits as {place.id}") as raised:
                    producer.commit({place.first: OffsetAndMetadata(1)}, member)
                assert raised.value.code == ErrorCode.unknown_member_id
        assert place.admin.committed_offsets(place.group, [place.first]) == {}
        producer.send([batch(place.first, b"kept")])
        producer.commit({place.first: OffsetAndMetadata(1)}, place.nobody())
    finally:
        producer.close()
    assert place.has(place.first, b"kept")


def test_a_lost_answer_to_offsets_is_not_waited_for_longer_than_the_transaction_lasts(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: list[int] = []

    def made(config: StreamsConfig, transactional_id: str, timeout_ms: int) -> TransactionOffsets:
        bounds.append(timeout_ms)
        return TransactionOffsets(config, transactional_id, timeout_ms)

    monkeypatch.setattr(transactional_client, "TransactionOffsets", made)
    place.producer(**{"producer.transaction.timeout.ms": 7_000}).close()
    assert bounds == [7_000]


def test_a_newer_producer_of_the_same_id_ends_the_transaction_of_the_older(place: Place) -> None:
    older = place.producer()
    older.send([batch(place.first, b"older")])
    newer = place.producer()
    try:
        newer.send([batch(place.first, b"newer")])
        newer.commit({}, place.nobody())
        with pytest.raises(ProducerFencedError, match=f"Another producer has fenced that of {place.id}"):
            older.commit({}, place.nobody())
        older.send([batch(place.first, b"again")])  # and has fenced the newer by that
        older.commit({}, place.nobody())
        newer.send([batch(place.first, b"never")])
        with pytest.raises(ProducerFencedError):
            newer.commit({}, place.nobody())
    finally:
        older.close()
        newer.close()
    assert place.has(place.first, b"newer", b"again")


@pytest.mark.one_broker
def test_a_transaction_that_was_open_for_too_long_is_not_fenced_by_another_producer(place: Place) -> None:
    producer = place.producer(**{"transaction.timeout.ms": 1_000})
    try:
        producer.send([batch(place.first, b"lost")])
        # The end of the transaction takes an offset.
        assert until(lambda: place.admin.end_offsets([place.first], read_committed=True)[place.first] == 2)
        with pytest.raises(TaskMigratedError, match=r"open longer than transaction\.timeout\.ms=1000") as raised:
            producer.commit({}, place.nobody())
        assert not isinstance(raised.value, ProducerFencedError)

        def is_kept() -> bool:
            producer.send([batch(place.first, b"kept")])
            try:
                producer.commit({}, place.nobody())
            except TaskMigratedError:  # a busy machine has taken longer for this one too
                return False
            return True

        assert until(is_kept)
    finally:
        producer.close()
    assert place.has(place.first, b"kept")


class _StuckClient:
    """A client as librdkafka is when the coordinator of the group has gone: a request for offsets does not return, and
    until it does, nothing else is done."""

    def __init__(self) -> None:
        self.has_ended = threading.Event()

    def poll(self, timeout: float) -> int:
        return 0

    def __len__(self) -> int:
        return 0

    def begin_transaction(self) -> None:
        pass

    def send_offsets_to_transaction(self, *_: object) -> None:
        self.has_ended.wait(SECONDS)

    def abort_transaction(self, timeout: float) -> None:
        raise KafkaException(KafkaErrorCode(KafkaErrorCode._CONFLICT, "offsets are being sent"))


@pytest.mark.timeout(60)
def test_a_client_that_cannot_send_offsets_is_replaced_when_the_time_of_the_transaction_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients: list[_StuckClient] = []

    def initialized(*_: object) -> _StuckClient:
        clients.append(_StuckClient())
        return clients[-1]

    monkeypatch.setattr(transactional_client, "initialized", initialized)
    config = StreamsConfig({"bootstrap.servers": "localhost:1", "transaction.timeout.ms": 100})
    producer = ConfluentTransactionalProducer(config, "id")
    try:
        with pytest.raises(BrokerNotFoundError):
            producer.commit({TopicPartition("t", 0): OffsetAndMetadata(1)}, GroupIdentity("g", 1, "m"))
        producer.abort()
        assert len(clients) == 2
    finally:
        for client in clients:
            client.has_ended.set()
        producer.close()


class _LateAbortClient(_StuckClient):
    """A client that aborts later than it should, and reports then that a record was not delivered."""

    def __init__(self, delivered: Callable[[KafkaErrorCode, object], None]) -> None:
        super().__init__()
        self._delivered = delivered
        self.has_reported = threading.Event()

    def send_offsets_to_transaction(self, *_: object) -> None:
        pass

    def commit_transaction(self, timeout: float) -> None:
        pass

    def abort_transaction(self, timeout: float) -> None:
        self.has_ended.wait(SECONDS)
        self._delivered(KafkaErrorCode(KafkaErrorCode._PURGE_QUEUE, "a report"), _RefusedMessage())
        self.has_reported.set()


@pytest.mark.timeout(60)
def test_a_report_of_an_abandoned_abort_is_not_of_the_next_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[_LateAbortClient] = []

    def initialized(connection: ClientConnection, *_: object) -> _LateAbortClient:
        clients.append(_LateAbortClient(connection.settings["on_delivery"]))
        return clients[-1]

    monkeypatch.setattr(transactional_client, "initialized", initialized)
    monkeypatch.setattr(transactional_client, "_ABORT_SECONDS", 0.1)
    producer = ConfluentTransactionalProducer(StreamsConfig({"bootstrap.servers": "localhost:1"}), "id")
    try:
        producer.send([])
        producer.abort()
        producer.send([])
        clients[0].has_ended.set()
        assert clients[0].has_reported.wait(SECONDS)
        assert producer.commit({}, GroupIdentity("g", 1, "m")) == {}
    finally:
        for client in clients:
            client.has_ended.set()
        producer.close()


class _ThrottledClient(_StuckClient):
    """A stuck client whose broker says with each answer that the client is above its quota."""

    def __init__(self, throttled: Callable[[object], None]) -> None:
        super().__init__()
        self._throttled = throttled

    def poll(self, timeout: float) -> int:
        self._throttled(SimpleNamespace(throttle_time=3_600.0))
        return 0


@pytest.mark.timeout(60)
def test_a_quota_makes_nobody_wait_for_offsets_behind_the_end_of_the_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients: list[_ThrottledClient] = []

    def initialized(connection: ClientConnection, *_: object) -> _ThrottledClient:
        clients.append(_ThrottledClient(connection.settings["throttle_cb"]))
        return clients[-1]

    monkeypatch.setattr(transactional_client, "initialized", initialized)
    config = StreamsConfig({"bootstrap.servers": "localhost:1", "transaction.timeout.ms": 100})
    producer = ConfluentTransactionalProducer(config, "id")
    try:
        with pytest.raises(TaskMigratedError, match="above its quota"):
            producer.commit({TopicPartition("t", 0): OffsetAndMetadata(1)}, GroupIdentity("g", 1, "m"))
    finally:
        for client in clients:
            client.has_ended.set()
        producer.close()


class _RefusedMessage:
    """The report of a record of `t-0` that brokers refuse."""

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"


class _RefusingClient(_StuckClient):
    """A client as librdkafka is when brokers refuse a record: those behind it are not sent, and never reported."""

    def __init__(self, delivered: Callable[[KafkaErrorCode, object], None]) -> None:
        super().__init__()
        self._delivered = delivered
        self._has_reported = False
        self._polls = 0

    def __len__(self) -> int:
        return 2

    def flush(self, timeout: float) -> None:
        assert not self._has_reported, "no further report is to be waited for"
        self._has_reported = True
        self._delivered(KafkaErrorCode(KafkaErrorCode.MSG_SIZE_TOO_LARGE, "too large"), _RefusedMessage())

    def abort_transaction(self, timeout: float) -> None:
        pass


def test_a_commit_does_not_wait_for_the_records_behind_one_that_brokers_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    def initialized(connection: ClientConnection, *_: object) -> _RefusingClient:
        return _RefusingClient(connection.settings["on_delivery"])

    monkeypatch.setattr(transactional_client, "initialized", initialized)
    producer = ConfluentTransactionalProducer(StreamsConfig({"bootstrap.servers": "localhost:1"}), "id")
    try:
        with pytest.raises(RefusedOutputError, match="topic t, partition 0"):
            producer.commit({TopicPartition("t", 0): OffsetAndMetadata(1)}, GroupIdentity("g", 1, "m"))
    finally:
        producer.close()


class _LateClient(_RefusingClient):
    """A client whose transaction has failed: records behind the one that brokers refuse are reported before it."""

    def produce(self, *_: object) -> None:
        raise KafkaException(KafkaErrorCode(KafkaErrorCode._STATE, "the transaction has failed"))

    def poll(self, timeout: float) -> int:
        self._polls += 1
        code = {1: KafkaErrorCode._PURGE_QUEUE, 3: KafkaErrorCode.MSG_SIZE_TOO_LARGE}.get(self._polls)
        if code is not None:
            self._delivered(KafkaErrorCode(code, "a report"), _RefusedMessage())
        return 0


def test_a_record_that_is_refused_is_the_cause_though_those_behind_it_are_reported_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def initialized(connection: ClientConnection, *_: object) -> _LateClient:
        return _LateClient(connection.settings["on_delivery"])

    monkeypatch.setattr(transactional_client, "initialized", initialized)
    producer = ConfluentTransactionalProducer(StreamsConfig({"bootstrap.servers": "localhost:1"}), "id")
    try:
        with pytest.raises(RefusedOutputError, match="topic t, partition 0"):
            producer.send([batch(TopicPartition("t", 0), b"v")])
    finally:
        producer.close()


class _EndedClient(_StuckClient):
    """A client as librdkafka is when its transaction has failed in the background: calls fail, and a poll raises the
    reason if nothing can follow it."""

    def __init__(self, code: int, reason: int | None) -> None:
        super().__init__()
        self._code, self._reason = code, reason

    def produce(self, *_: object) -> None:
        raise KafkaException(KafkaErrorCode(self._code, "no further call"))

    def poll(self, timeout: float) -> int:
        if self._reason is not None:
            raise KafkaException(KafkaErrorCode(self._reason, "the reason", fatal=True))
        return 0


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (KafkaErrorCode._STATE, None, RetriableError),
        (KafkaErrorCode._FATAL, KafkaErrorCode.INVALID_TXN_STATE, RetriableError),
        (KafkaErrorCode._FATAL, KafkaErrorCode._FENCED, ProducerFencedError),
        (
            KafkaErrorCode._FATAL,
            KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            TransactionalIdAuthorizationError,
        ),
    ],
)
def test_a_client_that_has_ended_is_replaced_and_its_reason_reported(
    monkeypatch: pytest.MonkeyPatch, code: int, reason: int | None, error: type[Exception]
) -> None:
    clients: list[_EndedClient] = []

    def initialized(*_: object) -> _EndedClient:
        clients.append(_EndedClient(code, reason))
        return clients[-1]

    monkeypatch.setattr(transactional_client, "initialized", initialized)
    producer = ConfluentTransactionalProducer(StreamsConfig({"bootstrap.servers": "localhost:1"}), "id")
    try:
        with pytest.raises(error) as raised:
            producer.send([batch(TopicPartition("t", 0), b"v")])
        assert type(raised.value) is error
        assert "the reason" in str(raised.value) or reason is None
        producer.abort()
        assert len(clients) == 2
    finally:
        producer.close()


def test_a_record_that_cannot_be_written_ends_the_transaction(place: Place) -> None:
    producer = place.producer()

    def write(partition: TopicPartition) -> None:
        producer.send([batch(place.first, b"beside"), batch(partition, b"v")])
        producer.commit({}, place.nobody())

    try:
        with pytest.raises(KafkaError):
            write(TopicPartition(place.topic, 7))
        write(place.second)
    finally:
        producer.close()
    assert place.has(place.first, b"beside")
    with pytest.raises(KafkaError, match="closed"):
        write(place.first)


def test_records_that_brokers_refuse_are_named_one_by_one_and_made_again_without(place: Place) -> None:
    small = TopicPartition(f"{place.topic}-small", 0)
    place.admin.create_topics([NewTopic(small.topic, 1, 1, {"max.message.bytes": "2000"})])
    output = [batch(small, b"a", b"x" * 5_000, b"b", b"y" * 6_000), batch(place.first, b"beside")]
    refused: list[tuple[str, int, int]] = []
    errors: list[str] = []

    def drop(record: RefusedRecord) -> list[PartitionBatch]:
        refused.append((record.topic, record.partition, len(record.value or b"")))
        return []

    producer = place.producer()
    try:
        while True:
            refused.clear()
            try:
                producer.send(output, drop)
                producer.commit({}, place.nobody())
                break
            except RefusedOutputError as error:
                errors.append(str(error))
        assert all(f"topic {small.topic}, partition 0" in each for each in errors)
        assert len(errors) in (2, 3)  # the batch, and then the records, of which several may be on their way
        assert refused == [(*small, 5_000), (*small, 6_000)]
        producer.send([batch(place.first, b"after")])
        producer.commit({}, place.nobody())
    finally:
        producer.close()
    assert place.has(small, b"a", b"b")
    assert place.has(place.first, b"beside", b"after")


def test_a_commit_whose_answer_is_lost_has_happened_once(unique_name: Callable[[str], str]) -> None:
    with EmbeddedBroker() as broker:
        place = Place(broker, unique_name)
        producer = place.producer()
        try:
            for value in (b"a", b"b"):
                producer.send([batch(place.first, value)])
                broker.lose_answer("EndTxn")
                producer.commit({place.second: OffsetAndMetadata(1)}, place.nobody())
        finally:
            producer.close()
        assert place.has(place.first, b"a", b"b")


def test_what_is_called_before_a_commit_finds_all_sent_and_nothing_committed(place: Place) -> None:
    found: list[list[bytes]] = []
    producer = ConfluentTransactionalProducer(
        place.config, place.id, before_commit=lambda: found.append(place.read(place.first))
    )
    try:
        producer.send([batch(place.first, b"a")])
        producer.commit({}, place.nobody())
    finally:
        producer.close()
    assert found == [[]]
    assert place.has(place.first, b"a")
