"""The coordinator of transactions: fencing, outcomes, time-outs, and what a crash or a failed write leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock_broker.batch import read_header
from penstock_broker.common.clock import MockClock
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ApiError
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.producer_ids import ProducerIds
from penstock_broker.records import LogRecord, encode_transactional_records, read_marker, read_records
from penstock_broker.topics import OFFSETS_TOPIC, TopicRegistry
from penstock_broker.transaction_log import State, Transaction, TransactionLog
from penstock_broker.transactions import Producer, TransactionCoordinator
from penstock_broker.wire.error_codes import ErrorCode

TIMEOUT_MS = 10_000
V1, V2 = 0, 2
"""The versions of transactions that producers speak."""


class Offsets:
    """Notes which transactions were completed."""

    def __init__(self) -> None:
        self.completed: list[tuple[int, bool]] = []

    def complete_transaction(self, producer_id: int, is_commit: bool) -> None:
        self.completed.append((producer_id, is_commit))

    def partitions_in_transaction(self, producer_id: int) -> set[tuple[str, int]]:
        return set()


class Broker:
    """A coordinator with its topics, without sockets; `restart` is what a kill and a start do."""

    def __init__(self, directory: Path) -> None:
        self.clock = MockClock(1_000_000)
        self.config = BrokerConfig(
            data_dir=directory, transaction_max_timeout_ms=60_000, transactional_id_expiration_ms=3_600_000,
            max_transactional_ids=5,
        )  # fmt: skip
        self.offsets = Offsets()
        self.open()
        self.topics.create("t", 3, {})

    def open(self) -> None:
        self.store = MetadataStore(self.config.data_dir / "metadata.sqlite")
        self.topics = TopicRegistry(self.config, self.store, self.clock)
        self.coordinator = TransactionCoordinator(
            self.config,
            TransactionLog(self.topics),
            self.topics,
            self.offsets,
            ProducerIds(self.store, lambda: -1).draw,
            self.clock,
        )

    def close(self) -> None:
        self.topics.close()
        self.store.close()

    def restart(self) -> None:
        self.close()
        self.open()

    def start(self, known: Producer | None = None, transactional_id: str = "x") -> Producer:
        return self.coordinator.init_producer_id(transactional_id, TIMEOUT_MS, known)

    def start_at(self, epoch: int) -> Producer:
        """Start a producer whose epochs have grown to one."""
        producer = self.start()
        TransactionLog(self.topics).write(replace(self.state, epoch=epoch))
        self.restart()
        return Producer(producer.producer_id, epoch)

    def add(self, producer: Producer, *partitions: int, version: int = V1, transactional_id: str = "x") -> None:
        self.coordinator.add_partitions(transactional_id, producer, [("t", index) for index in partitions], version)

    def write(self, producer: Producer, *partitions: int, version: int = V1, value: bytes = b"v") -> None:
        """Write one record to each of the partitions, in the transaction."""
        self.add(producer, *partitions, version=version)
        for index in partitions:
            batch = encode_transactional_records([LogRecord(0, 0, b"k", value)], *producer)
            self.topics.partition("t", index).append_own(memoryview(batch))

    def end(self, producer: Producer, is_commit: bool = True, version: int = V1) -> Producer:
        return self.coordinator.end("x", producer, is_commit, version)

    @property
    def state(self) -> Transaction:
        return self.coordinator.of_id("x")

    def markers(self, index: int, topic: str = "t") -> list[tuple[int, int, bool]]:
        """The markers in a partition: producer id, epoch, and whether it commits."""
        partition, found = self.topics.partition(topic, index), []
        offset = partition.start_offset
        while offset < partition.end_offset:
            data = memoryview(partition.read(offset, 1 << 20))
            while data:
                header = read_header(data)
                marker = read_marker(data) if header.is_control else None
                if marker is not None:
                    found.append((header.producer_id, header.producer_epoch, marker.is_commit))
                data, offset = data[header.size :], header.next_offset
        return found


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path)
    yield one
    one.close()


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.code


def test_a_transactional_id_keeps_its_producer_id_and_each_start_bumps_the_epoch(broker: Broker) -> None:
    first = broker.start()
    assert broker.start() == Producer(first.producer_id, first.epoch + 1)
    broker.restart()
    assert broker.start() == Producer(first.producer_id, first.epoch + 2)
    assert broker.start(transactional_id="y").producer_id != first.producer_id


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "code"),
    [
        ("", 1, ErrorCode.invalid_request),
        ("t" * 2**15, 1, ErrorCode.invalid_request),
        ("x", 0, ErrorCode.invalid_transaction_timeout),
        ("x", 60_001, ErrorCode.invalid_transaction_timeout),
    ],
)
def test_what_no_producer_may_ask_for(broker: Broker, transactional_id: str, timeout_ms: int, code: ErrorCode) -> None:
    assert refused(lambda: broker.coordinator.init_producer_id(transactional_id, timeout_ms, None)) == code
    assert broker.coordinator.all() == []


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", [V1, V2])
def test_the_end_of_a_transaction_puts_a_marker_into_each_of_its_partitions(
    broker: Broker, is_commit: bool, version: int
) -> None:
    producer = broker.start()
    broker.write(producer, 0, 2, version=version)
    assert broker.topics.partition("t", 0).last_stable_offset == 0
    following = broker.end(producer, is_commit, version)
    bumped = producer.epoch + (version == V2)
    assert following == Producer(producer.producer_id, bumped)
    for index in (0, 2):
        assert broker.markers(index) == [(producer.producer_id, bumped, is_commit)]
        assert broker.topics.partition("t", index).last_stable_offset == 2
    assert broker.markers(1) == []
    assert broker.state.state == (State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT)
    broker.restart()
    assert broker.state.state == (State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT)
    broker.write(following, 1, version=version)
    assert broker.end(following, is_commit, version).epoch == bumped + (version == V2)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_repeated_end_gets_the_same_answer_and_no_second_marker(broker: Broker, version: int) -> None:
    producer = broker.start()
    broker.write(producer, 0, version=version)
    following = broker.end(producer, version=version)
    assert broker.end(producer, version=version) == following
    assert refused(lambda: broker.end(producer, is_commit=False, version=version)) == ErrorCode.invalid_txn_state
    assert len(broker.markers(0)) == 1


def test_without_a_transaction_only_version_2_can_abort(broker: Broker) -> None:
    producer = broker.start()
    for is_commit in (True, False):
        assert refused(lambda commit=is_commit: broker.end(producer, commit)) == ErrorCode.invalid_txn_state
    assert refused(lambda: broker.end(producer, version=V2)) == ErrorCode.invalid_txn_state
    following = broker.end(producer, is_commit=False, version=V2)
    assert following == Producer(producer.producer_id, producer.epoch + 1)
    assert broker.end(following, is_commit=False, version=V2).epoch == producer.epoch + 2


def test_an_earlier_epoch_is_fenced_and_another_producer_id_unknown(broker: Broker) -> None:
    old = broker.start()
    new = broker.start()
    stranger = Producer(new.producer_id + 1, new.epoch)
    for version in (V1, V2):
        assert refused(lambda v=version: broker.add(old, 0, version=v)) == ErrorCode.producer_fenced
        assert refused(lambda v=version: broker.end(old, version=v)) == ErrorCode.producer_fenced
        assert refused(lambda v=version: broker.add(stranger, 0, version=v)) == ErrorCode.invalid_producer_id_mapping
        assert refused(lambda v=version: broker.end(stranger, version=v)) == ErrorCode.invalid_producer_id_mapping
    assert refused(lambda: broker.add(new, 0, transactional_id="y")) == ErrorCode.invalid_producer_id_mapping
    assert refused(lambda: broker.add(new, 0, transactional_id="")) == ErrorCode.invalid_request


def test_a_start_aborts_the_open_transaction_of_the_producer_before(broker: Broker) -> None:
    old = broker.start()
    broker.write(old, 0, 1)
    new = broker.start()
    assert new.producer_id == old.producer_id
    assert new.epoch > old.epoch
    [marker] = broker.markers(0)
    assert marker[1:] == (old.epoch + 1, False)
    assert broker.state.state == State.EMPTY
    assert refused(lambda: broker.write(old, 0)) == ErrorCode.producer_fenced


def test_a_producer_goes_on_after_an_error_unless_another_one_has_started(broker: Broker) -> None:
    first = broker.start()
    second = broker.start(known=first)
    assert second == Producer(first.producer_id, first.epoch + 1)
    # The answer got lost, so the request is repeated.
    assert broker.start(known=first) == second
    third = broker.start()
    assert refused(lambda: broker.start(known=second)) == ErrorCode.producer_fenced
    assert refused(lambda: broker.start(known=Producer(99, 0))) == ErrorCode.producer_fenced
    assert broker.start(known=third).epoch == third.epoch + 1


def test_a_producer_that_goes_on_has_its_open_transaction_aborted(broker: Broker) -> None:
    producer = broker.start()
    broker.write(producer, 0)
    following = broker.start(known=producer)
    assert following == Producer(producer.producer_id, producer.epoch + 1)
    assert [is_commit for *_, is_commit in broker.markers(0)] == [False]


def test_a_producer_whose_epochs_are_used_up_gets_a_new_id(broker: Broker) -> None:
    producer = broker.start()
    while producer.epoch < 2**15 - 2:
        following = broker.start(known=producer)
        assert following.producer_id == producer.producer_id
        producer = following
    rotated = broker.start(known=producer)
    assert rotated.epoch == 0
    assert rotated.producer_id != producer.producer_id
    assert broker.start(known=producer) == rotated
    assert broker.start(known=rotated) == Producer(rotated.producer_id, 1)


@pytest.mark.parametrize("is_commit", [True, False])
def test_version_2_gets_a_new_id_with_the_end_that_uses_up_the_epochs(broker: Broker, is_commit: bool) -> None:
    producer = broker.start_at(2**15 - 4)
    while producer.epoch < 2**15 - 2:
        producer = broker.end(producer, is_commit=False, version=V2)
    broker.write(producer, 0, version=V2)
    rotated = broker.end(producer, is_commit, version=V2)
    assert (rotated.epoch, rotated.producer_id != producer.producer_id) == (0, True)
    assert broker.markers(0) == [(producer.producer_id, producer.epoch + 1, is_commit)]
    assert broker.end(producer, is_commit, version=V2) == rotated
    broker.restart()
    broker.write(rotated, 0, version=V2)
    assert broker.end(rotated, version=V2) == Producer(rotated.producer_id, 1)


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(broker: Broker) -> None:
    producer = broker.start()
    broker.write(producer, 0)
    broker.clock.advance(TIMEOUT_MS)
    broker.write(producer, 1)
    broker.coordinator.tick()
    assert broker.state.state == State.ONGOING
    broker.clock.advance(1)
    broker.coordinator.tick()
    assert broker.state.state == State.COMPLETE_ABORT
    assert broker.markers(0) == broker.markers(1) == [(producer.producer_id, producer.epoch + 1, False)]
    assert refused(lambda: broker.write(producer, 0)) == ErrorCode.producer_fenced
    assert refused(lambda: broker.end(producer)) == ErrorCode.producer_fenced


def test_version_2_aborts_after_a_time_out_and_goes_on(broker: Broker) -> None:
    producer = broker.start()
    broker.write(producer, 0, version=V2)
    broker.clock.advance(TIMEOUT_MS + 1)
    broker.coordinator.tick()
    assert refused(lambda: broker.end(producer, version=V2)) == ErrorCode.invalid_txn_state
    following = broker.end(producer, is_commit=False, version=V2)
    assert following == Producer(producer.producer_id, producer.epoch + 1)
    broker.write(following, 0, version=V2)


def test_an_open_transaction_outlives_a_restart_and_its_time_out_counts_on(broker: Broker) -> None:
    producer = broker.start()
    broker.write(producer, 0)
    broker.restart()
    assert broker.state.state == State.ONGOING
    broker.write(producer, 1)
    broker.clock.advance(TIMEOUT_MS + 1)
    broker.restart()
    broker.coordinator.tick()
    assert [is_commit for *_, is_commit in broker.markers(0) + broker.markers(1)] == [False, False]


class FullDisk:
    """Lets so many writes pass, then fails them all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, passing: int) -> None:
        self._left = passing
        self._write = os.pwrite
        monkeypatch.setattr(os, "pwrite", self._pwrite)

    def _pwrite(self, descriptor: int, data: memoryview, position: int) -> int:
        if self._left == 0:
            raise OSError(28, "No space left on device")
        self._left -= 1
        return self._write(descriptor, data, position)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("how", ["tick", "restart"])
@pytest.mark.parametrize("passing", [1, 2, 3])
def test_an_outcome_that_was_decided_is_brought_about_after_failed_writes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_commit: bool, version: int, how: str, passing: int
) -> None:
    producer = broker.start()
    broker.write(producer, 0, 1, version=version)
    broker.coordinator.add_partitions("x", producer, [(OFFSETS_TOPIC, 0)], version)
    # One for the outcome, one for each marker in the topic; the state of the end fails in every case.
    FullDisk(monkeypatch, passing)
    following = broker.end(producer, is_commit, version)
    assert broker.state.state.is_prepared
    if version == V1:
        assert refused(lambda: broker.add(producer, 2)) == ErrorCode.concurrent_transactions
    assert refused(lambda: broker.end(producer, is_commit, version)) == ErrorCode.concurrent_transactions
    assert refused(lambda: broker.end(producer, not is_commit, version)) == ErrorCode.invalid_txn_state
    assert refused(broker.start) == ErrorCode.concurrent_transactions
    broker.coordinator.tick()
    monkeypatch.undo()
    broker.restart() if how == "restart" else broker.coordinator.tick()
    assert broker.state.state == (State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT)
    for index in (0, 1):
        assert set(broker.markers(index)) == {(producer.producer_id, following.epoch, is_commit)}
        partition = broker.topics.partition("t", index)
        assert partition.last_stable_offset == partition.end_offset
    broker.write(following, 2, version=version)


def test_an_outcome_that_cannot_be_written_is_not_decided(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = broker.start()
    broker.write(producer, 0)
    FullDisk(monkeypatch, 0)
    assert refused(lambda: broker.end(producer)) == ErrorCode.not_coordinator
    assert refused(lambda: broker.add(producer, 1)) == ErrorCode.not_coordinator
    assert refused(broker.start) == ErrorCode.not_coordinator
    broker.clock.advance(TIMEOUT_MS + 1)
    broker.coordinator.tick()
    monkeypatch.undo()
    assert (broker.state.state, broker.markers(0)) == (State.ONGOING, [])
    broker.end(producer)
    assert [is_commit for *_, is_commit in broker.markers(0)] == [True]


def test_offsets_are_completed_with_their_marker(broker: Broker) -> None:
    producer = broker.start()
    broker.topics.internal_topic(OFFSETS_TOPIC)
    broker.coordinator.add_partitions("x", producer, [(OFFSETS_TOPIC, 0)], V1)
    broker.end(producer)
    assert broker.offsets.completed == [(producer.producer_id, True)]
    assert broker.markers(0, OFFSETS_TOPIC) == [(producer.producer_id, producer.epoch, True)]
    broker.write(producer, 0)
    broker.end(producer)
    assert len(broker.offsets.completed) == 1


def test_a_topic_that_is_deleted_does_not_hold_up_the_end(broker: Broker) -> None:
    producer = broker.start()
    broker.write(producer, 0)
    broker.topics.delete(broker.topics.by_name("t"))
    broker.end(producer)
    assert broker.state.state == State.COMPLETE_COMMIT


def test_an_id_without_use_is_forgotten_and_one_with_a_transaction_is_not(broker: Broker) -> None:
    open_one, _ = broker.start(), broker.start(transactional_id="y")
    broker.add(open_one, 0)
    broker.clock.advance(broker.config.transactional_id_expiration_ms - 1)
    broker.coordinator.tick()
    assert {one.transactional_id for one in broker.coordinator.all()} == {"x", "y"}
    broker.start(transactional_id="z")
    broker.clock.advance(1)
    broker.coordinator.tick()
    for _ in range(2):
        assert {one.transactional_id for one in broker.coordinator.all()} == {"x", "z"}
        assert refused(lambda: broker.coordinator.of_id("y")) == ErrorCode.transactional_id_not_found
        broker.restart()


def test_one_id_too_many_replaces_the_one_without_use_for_longest(broker: Broker) -> None:
    producer = broker.start()
    for name in "abcd":
        broker.start(transactional_id=name)
    broker.add(producer, 0)
    broker.start(transactional_id="b")
    broker.start(transactional_id="e")
    for _ in range(2):
        assert {one.transactional_id for one in broker.coordinator.all()} == {"x", "b", "c", "d", "e"}
        broker.restart()


def test_partitions_are_added_until_the_end_and_not_written_twice(broker: Broker) -> None:
    producer = broker.start()
    assert broker.coordinator.partitions("x", producer) == frozenset()
    broker.add(producer, 0)
    before = broker.state
    broker.add(producer, 0)
    assert broker.state is before
    broker.add(producer, 2, 0)
    assert broker.coordinator.partitions("x", producer) == {("t", 0), ("t", 2)}
    broker.restart()
    assert broker.coordinator.partitions("x", producer) == {("t", 0), ("t", 2)}
    broker.end(producer)
    assert broker.coordinator.partitions("x", producer) == frozenset()


class KilledError(BaseException):
    """The process is gone."""


def committed_values(broker: Broker, index: int) -> list[bytes]:
    """What a reader of committed records finds in a partition."""
    partition = broker.topics.partition("t", index)
    records, aborted = partition.read_committed(0, 1 << 20)
    data, found = memoryview(records), []
    ignored: dict[int, int] = {}
    for one in aborted:
        ignored[one.first_offset] = one.producer_id
    open_aborted: set[int] = set()
    while data:
        header = read_header(data)
        if header.base_offset in ignored:
            open_aborted.add(ignored[header.base_offset])
        if header.is_control:
            open_aborted.discard(header.producer_id)
        elif header.producer_id not in open_aborted:
            found += [record.value or b"" for record in read_records(data)]
        data = data[header.size :]
    return found


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("is_torn", [False, True])
def test_a_kill_at_any_write_leaves_transactions_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, is_torn: bool
) -> None:
    real_write = os.pwrite
    passing, was_killed = 0, True
    while was_killed:
        left = passing

        def write(descriptor: int, data: memoryview, position: int) -> int:
            nonlocal left
            if left == 0:
                if is_torn:
                    real_write(descriptor, data[: len(data) // 2], position)
                raise KilledError
            left -= 1
            return real_write(descriptor, data, position)

        directory = tmp_path / str(passing)
        directory.mkdir()
        broker = Broker(directory)
        answered: dict[bytes, bool] = {}
        monkeypatch.setattr(os, "pwrite", write)
        try:
            producer = broker.start()
            for number, is_commit in enumerate((True, False, True)):
                value = b"%d" % number
                broker.write(producer, 0, 1, 2, version=version, value=value)
                producer = broker.end(producer, is_commit, version)
                answered[value] = is_commit
            was_killed = False
        except KilledError:
            pass
        monkeypatch.undo()
        broker.restart()
        broker.start()
        found = [committed_values(broker, index) for index in range(3)]
        assert found[0] == found[1] == found[2], passing
        for value, is_commit in answered.items():
            assert (value in found[0]) == is_commit, passing
        for index in range(3):
            partition = broker.topics.partition("t", index)
            assert partition.last_stable_offset == partition.end_offset
        broker.close()
        passing += 1
    assert passing > 20
