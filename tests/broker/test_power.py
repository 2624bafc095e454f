"""A loss of power, simulated: of each file at least what was forced to disk is left, and at most what was written.

`tests/crash/test_power.py` loses the power of a real file system.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock_broker.groups.offsets import CommittedOffset
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.partition import Partition
from penstock_broker.producer_ids import BLOCK_SIZE, ProducerIds
from penstock_broker.records import LogRecord, encode_records, encode_transactional_records, read_records
from penstock_broker.transactions import Producer
from tests.broker.test_cleaner import fetched_committed
from tests.broker.test_damaged_data import Broker

FORCED = {"flush.messages": "1"}
INPUT, OFFSETS = ("in", 0), ("__consumer_offsets", 0)
TRANSACTIONS = 2


class Disk:
    """Notes what is forced to disk of the files below a directory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self._directory = directory
        self._forced: dict[int, bytes] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._note)

    def _note(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_file():
            self._forced[os.fstat(descriptor).st_ino] = path.read_bytes()

    def left(self, target: Path, chance: random.Random) -> Path:
        """Copy what a loss of power might leave now: of some files the kernel has brought all to the disk."""
        shutil.copytree(self._directory, target)
        for path in self._directory.glob("topics/*/*/*"):
            if chance.random() < 0.7:
                copy = target / path.relative_to(self._directory)
                copy.write_bytes(self._forced.get(path.stat().st_ino, b""))
        return target


class Application:
    """What an exactly-once application does: reads, writes output and changelog, and commits its position with them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.producer = broker.transactions.init_producer_id("app", 60_000, None)
        self.committed = 0

    def run(self, version: int) -> None:
        for number in range(1, TRANSACTIONS + 1):
            batch = encode_records([LogRecord(0, 1_000, b"k", b"%d" % number)])
            self.broker.topics.partition(*INPUT).append(memoryview(batch))
            self._transact(number, version, is_commit=False)
            self._transact(number, version, is_commit=True)
            self.committed = number

    def _transact(self, number: int, version: int, is_commit: bool) -> None:
        transactions = self.broker.transactions
        for name in ("changelog", "out"):
            transactions.add_partitions("app", self.producer, [(name, 0)], version)
            batch = encode_transactional_records([LogRecord(0, 1_000, b"k", b"%d" % number)], *self.producer)
            self.broker.topics.partition(name, 0).append_own(memoryview(batch))
        transactions.add_partitions("app", self.producer, [OFFSETS], version)
        offsets = {INPUT: CommittedOffset(number, -1, "", 1_000)}
        self.broker.groups.offsets.commit_in_transaction(*self.producer, "app", offsets)
        self.producer = transactions.end("app", self.producer, is_commit, version)


def committed_in(partition: Partition) -> list[int]:
    found: list[int] = []
    position = partition.start_offset
    while position < partition.last_stable_offset:
        records, position = fetched_committed(partition, position, 200)
        found += [int(record.value or b"") for record in records]
    return found


def written_in(partition: Partition) -> int:
    data = memoryview(partition.read(0, 1 << 20)) if partition.end_offset else memoryview(b"")
    return len(read_records(data)) if data else 0


def before_each_write(monkeypatch: pytest.MonkeyPatch, call: Callable[[], None]) -> None:
    write = os.pwrite

    def write_after(*arguments: object) -> int:
        call()
        return write(*arguments)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(os, "pwrite", write_after)


@pytest.fixture
def losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[Path, int]]]:
    """Run the application, and return what losses of power before each write leave, with what was committed by then."""

    def run(version: int, **configs: dict[str, str]) -> list[tuple[Path, int]]:
        directory = tmp_path / "data"
        directory.mkdir()
        chance = random.Random(version)
        disk = Disk(monkeypatch, directory)
        broker = Broker(directory)
        for name in ("in", "changelog", "out"):
            broker.topics.create(name, 1, configs.get(name, {}))
        application = Application(broker)
        found: list[tuple[Path, int]] = []

        def lose() -> None:
            found.append((disk.left(tmp_path / str(len(found)), chance), application.committed))

        with monkeypatch.context() as patched:
            before_each_write(patched, lose)
            application.run(version)
            lose()
        broker.close()
        return found

    return run


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("forced", ["changelog", "out"])
def test_a_transaction_of_a_forced_topic_outlives_a_loss_of_power_as_a_whole(
    losses: Callable[..., list[tuple[Path, int]]], forced: str, version: int
) -> None:
    """The input, which is not forced itself, has what the committed position says."""
    for directory, acknowledged in losses(version, **{forced: FORCED}):
        broker = Broker(directory)
        broker.transactions.init_producer_id("app", 60_000, None)
        offset = broker.groups.offsets.of_group("app").get(INPUT)
        done = offset.offset if offset else 0
        assert acknowledged <= done <= broker.topics.partition(*INPUT).end_offset
        for name in ("out", "changelog"):
            partition = broker.topics.partition(name, 0)
            assert committed_in(partition) == list(range(1, done + 1)), name
            assert partition.last_stable_offset == partition.end_offset
        broker.close()


@pytest.mark.parametrize("version", [0, 2])
def test_after_a_loss_of_power_no_epoch_is_given_again_and_no_transaction_hangs(
    losses: Callable[..., list[tuple[Path, int]]], version: int
) -> None:
    for directory, _ in losses(version):
        broker = Broker(directory)
        known = [each.epoch for one in broker.partitions() for each in one.producers.all()]
        assert broker.transactions.init_producer_id("app", 60_000, None).epoch > max(known, default=-1)
        for name in ("out", "changelog"):
            partition = broker.topics.partition(name, 0)
            assert partition.last_stable_offset == partition.end_offset
            assert committed_in(partition) == sorted(set(committed_in(partition)))
        broker.close()


def test_a_transaction_that_only_its_partition_knows_is_aborted_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(tmp_path)
    batch = encode_transactional_records([LogRecord(0, 1_000, b"k", b"1")], *Producer(7, 3))
    partition = broker.topics.create("out", 1, {}).partitions[0]
    partition.append_own(memoryview(batch))
    assert partition.last_stable_offset == 0
    broker.close()
    again = Broker(tmp_path)
    assert committed_in(again.topics.partition("out", 0)) == []
    assert again.topics.partition("out", 0).last_stable_offset == 2
    assert "out-0: the transaction of producer 7 that is open from offset 0 on is aborted" in caplog.text
    again.close()


def test_producer_ids_are_reserved_before_they_are_given(tmp_path: Path) -> None:
    store = MetadataStore(tmp_path / "metadata.sqlite")
    ids = ProducerIds(store, lambda: -1)
    given = [ids.draw() for _ in range(BLOCK_SIZE + 1)]
    assert given == list(range(given[0], given[0] + BLOCK_SIZE + 1))
    store.close()
    store = MetadataStore(tmp_path / "metadata.sqlite")
    assert ProducerIds(store, lambda: -1).draw() == given[0] + 2 * BLOCK_SIZE
    assert ProducerIds(store, lambda: 1 << 40).draw() == (1 << 40) + 1
    store.close()
