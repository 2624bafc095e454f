"""The writers of a sink partition: each epoch once, however often and from wherever it is written, and
zombies write nothing."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from threading import Event
from time import sleep
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as Code
from confluent_kafka import TopicPartition as Position

from penstock.client.api import GroupCommit, NewTopic, OffsetAndMetadata
from penstock.client.confluent import commit_marker, transactional_client, transactions
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.at_least_once import AtLeastOnceWriter
from penstock.client.confluent.connection import ClientConnection
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.client.confluent.refusals import RefusedRecord
from penstock.client.confluent.transactions import (
    TransactionalWriter,
    transactions_refused,
)
from penstock.client.settings import PRODUCER
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.offsets import committed_offsets
from penstock.config import StreamsConfig
from penstock.errors import (
    BrokerNotFoundError,
    KafkaError,
    RecordTooLargeError,
    RetriableError,
    TaskCorruptedError,
    TaskMigratedError,
)
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock.testing import EmbeddedBroker
from tests.support.brokers import RunningBroker
from tests.support.waiting import WAIT_SECONDS, until


@dataclass
class Place:
    """A topic and a commits topic of a test's own."""

    config: StreamsConfig
    topic: str
    commits: str
    before_commit: Callable[[int], object] = lambda epoch: None
    writers: list[TransactionalWriter] = field(default_factory=list)

    def writer(
        self,
        before_commit: Callable[[int], object] | None = None,
        was_committed: Callable[[int], bool] = lambda _: False,
        timeout_ms: int = 60_000,
        before_write: Callable[[], object] = lambda: None,
    ) -> TransactionalWriter:
        writer = TransactionalWriter(
            self.config,
            f"{self.topic}-sink-0",
            self.commits,
            TopicPartition(self.commits, 0),
            before_commit or self.before_commit,
            was_committed=was_committed,
            timeout_ms=timeout_ms,
            before_write=before_write,
        )
        self.writers.append(writer)
        return writer

    def small_topic(self) -> str:
        """Make a topic that takes small records alone."""
        admin = ConfluentAdmin(self.config)
        config = {"retention.ms": "-1", "max.message.bytes": "2000"}
        admin.create_topics([NewTopic(f"{self.topic}-small", 1, 1, config)])
        admin.close()
        return f"{self.topic}-small"

    def read(self, read_committed: bool = True) -> list[bytes]:
        return self.read_topic(self.topic, read_committed)

    def read_topic(self, topic: str, read_committed: bool = True) -> list[bytes]:
        return [value for batch in self.read_batches(topic, read_committed) for value in batch.values]

    def read_batches(self, topic: str, read_committed: bool = True) -> list[RecordBatch]:
        admin, fetcher = ConfluentAdmin(self.config), ConfluentFetcher(self.config)
        partition = TopicPartition(topic, 0)
        try:
            if read_committed:  # a broker answers the end of a transaction before its marker is in every partition
                assert until(lambda: _last_stable_is_last(admin, partition)), "a transaction stayed open"
            end = admin.end_offsets([partition], read_committed=read_committed)[partition]
            return list(fetcher.fetch(partition, 0, end, read_committed))
        finally:
            fetcher.close()
            admin.close()

    def output(self, *values: str) -> list[PartitionBatch]:
        rows = [(None, value.encode(), 1_000 + number, number, ()) for number, value in enumerate(values)]
        return [PartitionBatch(self.topic, 0, RecordBatch.of(rows))]


def _last_stable_is_last(admin: ConfluentAdmin, partition: TopicPartition) -> bool:
    stable = admin.end_offsets([partition], read_committed=True)
    return stable == admin.end_offsets([partition], read_committed=False)


@contextmanager
def place_on(bootstrap_servers: str, unique_name: Callable[[str], str], **values: object) -> Iterator[Place]:
    """Topics of a test's own; values: further configuration of its clients."""
    config = StreamsConfig({"application.id": "writers", "bootstrap.servers": bootstrap_servers, **values})
    made = Place(config, unique_name("out"), unique_name("commits"))
    admin = ConfluentAdmin(config)
    admin.create_topics([NewTopic(made.topic, 1, 1, {"retention.ms": "-1"}), NewTopic(made.commits, 2, 1)])
    admin.close()
    yield made
    for writer in made.writers:
        writer.close()


@pytest.fixture
def place(broker: RunningBroker, unique_name: Callable[[str], str]) -> Iterator[Place]:
    with place_on(broker.bootstrap_servers, unique_name) as made:
        yield made


def test_writers_that_fence_each_other_keep_one_client_each(place: Place) -> None:
    writers = [place.writer(), place.writer()]
    gc.collect()
    gc.disable()
    try:
        before = producers()
        for epoch in range(1, 7):
            assert writers[epoch % 2].write(epoch, "owner", place.output(f"value {epoch}"))
        assert until(lambda: len(producers()) - len(before) <= 2)
    finally:
        gc.enable()


def producers() -> list[object]:
    """Return the producers of librdkafka that there are in this process."""
    return [each for each in gc.get_objects() if isinstance(each, Producer)]


def test_says_whether_brokers_serve_transactions(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert transactions_refused(place.config, "probe") is None

    def refuse(*_: object) -> None:
        raise KafkaException(Code(Code._UNSUPPORTED_FEATURE, "no transactions here"))

    monkeypatch.setattr(transactions, "until", refuse)
    assert transactions_refused(place.config, "probe") == "no transactions here"


def test_without_transactions_everything_is_written_each_time(place: Place) -> None:
    writer = AtLeastOnceWriter(place.config)
    assert writer.write(1, "q", place.output("a", "b"))
    assert writer.write(1, "q", place.output("a", "b"))
    writer.close()
    assert place.read() == [b"a", b"b", b"a", b"b"]


@pytest.mark.parametrize("is_transactional", [True, False])
def test_records_are_written_as_they_are(place: Place, is_transactional: bool) -> None:
    with_headers = RecordBatch.of(
        [(b"k", b"v", 5, 0, (("h", b"1"), ("h", None))), (None, b"w", 3, 1, ()), (b"k", None, 9, 2, (("i", b""),))]
    )
    plain = RecordBatch.of([(b"p", None, 7, 0, ()), (None, b"q", 8, 1, ())])
    output = [PartitionBatch(place.topic, 0, each) for each in (with_headers, plain)]
    writer = place.writer() if is_transactional else AtLeastOnceWriter(place.config)
    writer.write(1, "q", output)
    writer.close()
    until(lambda: len(place.read()) == 5)
    read = RecordBatch.concat(place.read_batches(place.topic))
    written = RecordBatch.concat([with_headers, plain])
    assert (read.keys, read.values, read.headers) == (written.keys, written.values, written.headers)
    assert read.timestamps.tolist() == [5, 3, 9, 7, 8]


def test_without_transactions_a_record_that_is_refused_is_an_error(place: Place) -> None:
    writer = AtLeastOnceWriter(place.config, timeout_ms=5_000)
    rows = [(None, b"x", 1, 0, ())]
    with pytest.raises(KafkaError, match="writing epoch 1"):
        writer.write(1, "q", [PartitionBatch(place.topic, 99, RecordBatch.of(rows))])


def test_an_epoch_is_written_once_by_whomever(place: Place) -> None:
    first = place.writer()
    assert first.write(1, "q", place.output("a"))
    assert not first.write(1, "q", place.output("a"))
    second = place.writer()
    assert not second.write(1, "q", place.output("a"))
    assert second.write(2, "q", place.output("b"))
    assert not first.write(2, "q", place.output("b"))  # fenced meanwhile, and looks again
    assert first.write(3, "q", place.output("c"))
    assert place.read() == [b"a", b"b", b"c"]


def test_an_epoch_is_not_taken_for_the_same_where_it_is_made_of_something_else(place: Place) -> None:
    assert place.writer().write(1, "q", place.output("a"), note="checkpoint one")
    assert not place.writer().write(1, "q", place.output("a"), note="checkpoint one")
    assert not place.writer().write(1, "q", place.output("a"))
    with pytest.raises(TaskCorruptedError, match="is already committed with other input"):
        place.writer().write(1, "q", place.output("b"), note="checkpoint two")
    assert place.read() == [b"a"]


def test_another_life_writes_its_own_epochs(place: Place) -> None:
    assert place.writer().write(5, "first", place.output("a"))
    assert place.writer().write(1, "second", place.output("b"))
    assert place.read() == [b"a", b"b"]


def test_a_driver_that_is_behind_learns_that_it_is_a_zombie(place: Place) -> None:
    assert place.writer().write(3, "q", place.output("a"))
    with pytest.raises(TaskMigratedError, match=r"Epoch 3 of .* is already committed"):
        place.writer().write(2, "q", place.output("b"))
    assert place.read() == [b"a"]


def test_a_zombie_with_an_open_transaction_commits_nothing(place: Place) -> None:
    overtaking = place.writer()
    taken_over: list[bool] = []

    def overtake(epoch: int) -> None:  # the other writes the same epoch while this one has everything sent
        if not taken_over:
            taken_over.append(overtaking.write(epoch, "q", place.output("a", "b")))

    zombie = place.writer(overtake)
    assert not zombie.write(1, "q", place.output("a", "b"))
    assert taken_over == [True]
    assert place.read() == [b"a", b"b"]


def test_what_a_killed_writer_left_open_is_aborted(place: Place) -> None:
    class KilledError(BaseException):
        pass

    def kill(epoch: int) -> None:
        raise KilledError

    with pytest.raises(KilledError):
        place.writer(kill).write(1, "q", place.output("a"))
    assert place.writer().write(1, "q", place.output("a"))
    assert place.read() == [b"a"]


def test_a_writer_that_was_interrupted_begins_again(place: Place) -> None:
    interrupted: list[int] = []

    def interrupt(epoch: int) -> None:
        if not interrupted:
            interrupted.append(epoch)
            raise KeyboardInterrupt

    writer = place.writer(interrupt)
    with pytest.raises(KeyboardInterrupt):
        writer.write(1, "q", place.output("a"))
    assert writer.write(1, "q", place.output("a"))
    assert place.read() == [b"a"]


LARGE = "x" * 3_000_000
"""More than the producer takes."""


def test_a_record_that_is_too_large_is_an_error_by_its_name(place: Place) -> None:
    with pytest.raises(RecordTooLargeError, match=f"topic {place.topic}, partition 0"):
        AtLeastOnceWriter(place.config).write(1, "q", place.output("a", LARGE))


@pytest.mark.parametrize("is_transactional", [True, False])
def test_what_a_topic_refuses_can_be_dropped_or_replaced(place: Place, is_transactional: bool) -> None:
    """The topic takes less than the producer: the whole batch is refused, and one of its records is to blame."""
    small = place.small_topic()
    writer = place.writer() if is_transactional else AtLeastOnceWriter(place.config)
    refused: list[RefusedRecord] = []

    def instead(record: RefusedRecord) -> list[PartitionBatch]:
        refused.append(record)
        return place.output("letter")

    (one,) = place.output("a", "x" * 5_000, LARGE, "b")
    output = [PartitionBatch(small, 0, one.batch)]
    assert writer.write(1, "q", output, instead)
    assert {record.topic for record in refused} == {small}
    assert sorted(len(record.value or b"") for record in refused) == [5_000, 3_000_000]
    assert place.read_topic(small) == [b"a", b"b"]
    if is_transactional:
        assert not writer.write(1, "q", output, instead)
    assert place.read() == [b"letter"] * 2
    writer.close()


def test_what_shares_a_batch_with_a_refused_record_is_not_overtaken(place: Place) -> None:
    small = place.small_topic()
    config = StreamsConfig({**place.config.given(), "producer.batch.num.messages": 7})
    refused: list[bytes | None] = []

    def drop(record: RefusedRecord) -> list[PartitionBatch]:
        refused.append(record.value)
        return []

    bad = {30: "x" * 5_000, 33: "y" * 5_000, 120: LARGE, 150: "z" * 5_000}
    (one,) = place.output(*(bad.get(number, f"{number}") for number in range(200)))
    writer = AtLeastOnceWriter(config)
    assert writer.write(1, "q", [PartitionBatch(small, 0, one.batch), *place.output("elsewhere")], drop)
    writer.close()
    assert place.read_topic(small) == [b"%d" % number for number in range(200) if number not in bad]
    assert sorted(len(value or b"") for value in refused) == [5_000, 5_000, 5_000, 3_000_000]
    assert set(place.read()) == {b"elsewhere"}


def test_an_epoch_that_is_known_to_be_committed_needs_no_marker(place: Place) -> None:
    writer = place.writer(was_committed=lambda epoch: epoch == 1)
    assert not writer.write(1, "q", place.output("a"))
    assert writer.write(2, "q", place.output("b"))
    assert place.read() == [b"b"]


def test_two_programs_of_one_id_with_separate_checkpoints_are_reported(place: Place) -> None:
    one, other = place.writer(), place.writer()
    assert one.write(1, "first", place.output("a"))
    assert other.write(1, "second", place.output("b"))
    with pytest.raises(TaskMigratedError, match=r"the same application\.id and another checkpoint"):
        one.write(2, "first", place.output("c"))
    assert place.read() == [b"a", b"b"]


@pytest.mark.parametrize(("given", "expected"), [({}, 5), ({"retry.backoff.ms": 70}, 70)])
def test_the_transaction_before_is_waited_for_in_short_steps_unless_the_user_says_otherwise(
    place: Place, monkeypatch: pytest.MonkeyPatch, given: dict[str, object], expected: int
) -> None:
    made: list[object] = []

    class Told(Producer):
        def __init__(self, settings: dict[str, object]) -> None:
            made.append(settings["retry.backoff.ms"])
            super().__init__(settings)

    class ToldReader(Consumer):
        def __init__(self, settings: dict[str, object]) -> None:
            made.append(settings["retry.backoff.ms"])
            super().__init__(settings)

    monkeypatch.setattr(transactional_client, "Producer", Told)
    monkeypatch.setattr(commit_marker, "Consumer", ToldReader)
    place.config = StreamsConfig({**place.config.given(), **given})
    writer = place.writer()
    for epoch in range(1, 4):  # back to back
        assert writer.write(epoch, "q", place.output(str(epoch)))
    assert made
    assert set(made) == {expected}
    assert place.read() == [b"1", b"2", b"3"]


@pytest.mark.timeout(110)
def test_a_producer_that_does_not_answer_is_abandoned_and_what_it_does_later_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, stuck, late = Event(), list[Producer](), Queue[object]()

    class Stuck(Producer):
        def send_offsets_to_transaction(self, *arguments: object) -> None:
            if stuck:
                return super().send_offsets_to_transaction(*arguments)
            stuck.append(self)
            release.wait(WAIT_SECONDS)
            try:
                late.put(super().send_offsets_to_transaction(*arguments))
            except KafkaException as error:
                late.put(error.args[0].fatal())
                raise

        def abort_transaction(self, *arguments: object) -> None:
            raise AssertionError("a producer that hangs cannot abort")

    monkeypatch.setattr(transactional_client, "Producer", Stuck)
    monkeypatch.setattr(transactions, "COORDINATOR_TIMEOUT_MS", 1_000)
    writer = place.writer()
    assert writer.write(1, "q", place.output("a"))
    assert len(stuck) == 1
    release.set()
    assert late.get(timeout=WAIT_SECONDS) is True
    assert writer.write(2, "q", place.output("b"))
    assert place.read() == [b"a", b"b"]


@pytest.mark.timeout(110)
def test_a_coordinator_that_answers_late_or_never_gets_new_producers_with_more_time_as_soon_as_brokers_accept_one(
    unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    initialized, connections = transactional_client.initialized, list[ClientConnection]()

    def away_for_the_second(connection: ClientConnection, *arguments: Any) -> Producer:
        connections.append(connection)
        if len(connections) == 2:
            raise BrokerNotFoundError("away")
        return initialized(connection, *arguments)

    monkeypatch.setattr(transactional_client, "initialized", away_for_the_second)
    monkeypatch.setattr(transactions, "_ATTEMPTS", 1)
    monkeypatch.setattr(transactions, "COORDINATOR_TIMEOUT_MS", 500)
    with EmbeddedBroker() as broker, place_on(broker.bootstrap_servers, unique_name) as made:
        writer = made.writer()
        broker.delay("AddOffsetsToTxn", 3_600_000)
        assert writer.write(1, "q", made.output("a"))
        broker.delay("TxnOffsetCommit", 3_600_000)
        broker.delay("TxnOffsetCommit", 1_250, times=1_000)
        assert writer.write(2, "q", made.output("b"))
        assert made.read() == [b"a", b"b"]


def test_a_reader_that_finds_its_group_no_more_is_replaced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Consumer] = []

    class Lost(Consumer):
        def committed(self, *arguments: object) -> list[Position]:
            if not lost:
                lost.append(self)
            if self in lost:
                raise KafkaException(Code(Code._TIMED_OUT))
            return super().committed(*arguments)

    monkeypatch.setattr(commit_marker, "Consumer", Lost)
    monkeypatch.setattr(commit_marker, "COORDINATOR_TIMEOUT_MS", 3_000)
    assert place.writer().write(1, "q", place.output("a"))
    assert not place.writer().write(1, "q", place.output("a"))
    assert place.read() == [b"a"]


def test_a_setting_that_is_on_purpose_is_not_warned_of(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    writer = AtLeastOnceWriter(place.config)
    assert writer.write(1, "q", place.output("a"))
    writer.close()
    assert "gapless" not in caplog.text


@pytest.mark.parametrize(("timeout_ms", "place"), [(2_000, " to {topic}-0"), (60_000, "")])
def test_records_that_no_broker_accepts_in_time_fail_with_a_retriable_error_and_are_written_later(
    timeout_ms: int, place: str, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"producer.transaction.timeout.ms": timeout_ms}
    with EmbeddedBroker() as broker, place_on(broker.bootstrap_servers, unique_name, **settings) as made:
        writer = made.writer(timeout_ms=4_000)
        assert writer.write(1, "q", made.output("a"))
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1_000_000)
        in_vain = pytest.raises(RetriableError, match=r"as many replicas in sync as its min\.insync\.replicas")
        with monkeypatch.context() as impatient, in_vain as raised:
            impatient.setattr(transactions, "_ATTEMPTS", 1)
            writer.write(2, "q", made.output("b"))
        assert not isinstance(raised.value, BrokerNotFoundError)
        doing = f"writing epoch 2{place.format(topic=made.topic)} as {made.topic}-sink-0"
        assert f"The brokers did not accept a record in time ({doing})" in str(raised.value)
        broker.clear_faults()
        assert writer.write(2, "q", made.output("b"))
        assert made.read() == [b"a", b"b"]


@pytest.mark.timeout(60)
def test_a_producer_with_something_to_report_does_not_take_records_for_written(
    unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def before_write() -> None:
        attempts.append(len(attempts))
        sleep(0.5)  # until there are statistics
        assert len(attempts) <= 2, "an attempt in which brokers took nothing was no failure"

    monkeypatch.setattr(transactions, "_ATTEMPTS", 2)
    settings = {"producer.transaction.timeout.ms": 1_000, "producer.statistics.interval.ms": 100}
    with EmbeddedBroker() as broker, place_on(broker.bootstrap_servers, unique_name, **settings) as made:
        writer = made.writer(timeout_ms=4_000, before_write=before_write)
        assert writer.write(1, "q", made.output("a"))
        attempts.clear()
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1_000_000)
        with pytest.raises(RetriableError, match=r"min\.insync\.replicas"):
            writer.write(2, "q", made.output("b"))
        attempts.clear()
        broker.clear_faults()
        assert writer.write(2, "q", made.output("b"))
        assert made.read() == [b"a", b"b"]


def test_each_new_producer_reads_secrets_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    class Told(Producer):
        def __init__(self, settings: dict[str, object]) -> None:
            made.append(settings["client.rack"])
            super().__init__(settings)

    monkeypatch.setattr(transactional_client, "Producer", Told)
    place.config = StreamsConfig({**place.config.given(), "producer.client.rack": "${env:PENSTOCK_TEST_SECRET}"})
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", "old")
    first = place.writer()
    assert first.write(1, "q", place.output("a"))
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", "new")
    assert place.writer().write(2, "q", place.output("b"))
    made.clear()
    assert first.write(3, "q", place.output("c"))  # fenced meanwhile
    assert set(made) == {"new"}


@pytest.mark.slow
def test_a_transaction_of_an_epoch_gets_the_time_that_a_slow_broker_needs(unique_name: Callable[[str], str]) -> None:
    settings = {"producer.transaction.timeout.ms": 1_000}
    with EmbeddedBroker() as broker, place_on(broker.bootstrap_servers, unique_name, **settings) as made:
        writer = made.writer()
        broker.delay("Produce", 1_500, times=1_000)
        assert writer.write(1, "q", made.output("a"))
        assert made.read() == [b"a"]


def test_a_record_that_no_broker_accepts_in_time_fails_without_transactions_too(
    unique_name: Callable[[str], str],
) -> None:
    settings = {"producer.delivery.timeout.ms": 4_000}
    with EmbeddedBroker() as broker, place_on(broker.bootstrap_servers, unique_name, **settings) as made:
        writer = AtLeastOnceWriter(made.config)
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1_000_000)
        with pytest.raises(RetriableError, match=f"writing epoch 1 to {made.topic}-0.*min.insync.replicas"):
            writer.write(1, "q", made.output("a"))
        broker.clear_faults()
        assert writer.write(1, "q", made.output("a"))
        assert made.read() == [b"a"]


def test_a_writer_that_may_not_write_has_fenced_the_one_before_and_sends_nothing(place: Place) -> None:
    allowed: list[bool] = []

    def check() -> None:
        if not allowed:
            raise TaskMigratedError("a newer driver writes")

    def overtake(epoch: int) -> None:
        if not allowed:
            with pytest.raises(TaskMigratedError, match="a newer driver"):
                place.writer(before_write=check).write(1, "q", place.output("never"))
            allowed.append(True)
            fenced.append(epoch)

    fenced: list[int] = []
    assert place.writer(overtake).write(1, "q", place.output("a"))
    assert fenced == [1]
    assert place.read() == [b"a"]


def test_a_commit_whose_answer_is_lost_is_not_repeated(unique_name: Callable[[str], str]) -> None:
    with EmbeddedBroker() as broker, place_on(broker.bootstrap_servers, unique_name) as made:
        writer = made.writer()
        broker.lose_answer("EndTxn")
        writer.write(1, "q", made.output("a"))
        assert not writer.write(1, "q", made.output("a"))
        assert writer.write(2, "q", made.output("b"))
        assert made.read() == [b"a", b"b"]


def group_of(place: Place) -> GroupCommit:
    """Return the offsets of a group that are to be committed with an epoch."""
    return GroupCommit(f"{place.topic}-group", {TopicPartition(place.topic, 0): OffsetAndMetadata(7, "text")})


def test_offsets_of_a_group_are_committed_with_the_epoch_and_their_texts(place: Place) -> None:
    commit = group_of(place)
    assert place.writer().write(1, "q", place.output("a"), group_commit=commit)
    with Cluster(place.config, 60_000, PRODUCER) as cluster:
        assert committed_offsets(cluster, commit.group, list(commit.offsets)) == commit.offsets


def test_an_epoch_whose_group_has_members_is_aborted_at_once(place: Place) -> None:
    commit = group_of(place)
    settings = {"bootstrap.servers": str(place.config["bootstrap.servers"]), "group.id": commit.group}
    member = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    member.subscribe([place.topic])
    try:
        assert until(lambda: member.poll(0.2) is not None or bool(member.assignment()))
        with pytest.raises(TaskMigratedError, match="has members"):
            place.writer().write(1, "q", place.output("never"), group_commit=commit)
        assert place.read() == []  # no transaction is open, though no other writer has fenced this one
    finally:
        member.close()
    assert place.writer().write(1, "q", place.output("a"), group_commit=commit)
    assert place.read() == [b"a"]


def test_a_dead_letter_that_is_refused_is_decided_about_too(place: Place) -> None:
    small = place.small_topic()
    parts: list[int] = []

    def instead(record: RefusedRecord) -> list[PartitionBatch]:
        parts.append(record.part)
        if record.part:
            raise record.error
        return [PartitionBatch(small, 0, place.output("y" * 6_000)[0].batch)]

    (one,) = place.output("a", "x" * 5_000)
    with pytest.raises(KafkaError, match=f"refuse a record for topic {small}, partition 0"):
        place.writer().write(1, "q", [PartitionBatch(small, 0, one.batch)], instead)
    assert parts == [0, 1]
    assert place.read_topic(small) == []
