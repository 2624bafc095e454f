"""The writers of a sink partition: each epoch once, however often and from wherever it is written, and
zombies write nothing."""

from __future__ import annotations

import gc
from collections.abc import Callable
from queue import Queue
from threading import Event
from time import sleep
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as Code

from penstock.client.api import GroupCommit, OffsetAndMetadata
from penstock.client.confluent import commit_marker, transactional_client, transactions
from penstock.client.confluent.at_least_once import AtLeastOnceWriter
from penstock.client.confluent.connection import ClientConnection
from penstock.client.confluent.refusals import RefusedRecord
from penstock.client.confluent.transactions import transactions_refused
from penstock.client.settings import PRODUCER
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.offsets import committed_offsets
from penstock.config import StreamsConfig
from penstock.errors import BrokerNotFoundError, KafkaError, RetriableError, TaskMigratedError
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from penstock.testing import EmbeddedBroker
from tests.client.confluent.places import LARGE, Place, place_on
from tests.support.waiting import WAIT_SECONDS, until


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


def test_another_life_writes_its_own_epochs(place: Place) -> None:
    assert place.writer().write(5, "first", place.output("a"))
    assert place.writer().write(1, "second", place.output("b"))
    assert place.read() == [b"a", b"b"]


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
    place.config = place.config.overridden({"transaction.timeout.ms": 600_000})  # longer than the test waits for an end
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
