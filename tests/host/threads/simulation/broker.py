"""The broker of a simulation: topics, transactions, and the offsets of one group. What asks it are `clients`.

Transactions are of version 1: producers say which epoch of their transactional id they are; the broker ends what is
open too long. Each end of a transaction takes an offset in each partition, as the markers of Kafka do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from penstock.client.api import GroupIdentity, OffsetAndMetadata
from penstock.errors import ProducerFencedError, TaskMigratedError, UnstableOffsetCommitError
from penstock.record import Headers, PartitionBatch, RecordBatch, TopicPartition
from penstock_broker.wire.error_codes import ErrorCode
from tests.host.threads.simulation.group import Group
from tests.host.threads.simulation.world import World

LOOK_MS = 500
"""How often the broker looks for transactions that are open too long."""


class Row(NamedTuple):
    """A record as a log has it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


@dataclass(eq=False)
class Transaction:
    """One transaction; `firsts`: its first offset in each partition."""

    began: int
    firsts: dict[TopicPartition, int] = field(default_factory=dict)
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    is_aborted: bool = False


@dataclass(eq=False)
class Log:
    """A partition. A row is None where a transaction ends."""

    start: int = 0
    rows: list[tuple[Row | None, Transaction | None]] = field(default_factory=list)
    open: dict[Transaction, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return len(self.rows)

    @property
    def stable_end(self) -> int:
        return min(self.open.values(), default=self.end)

    def read(self, start: int, stop: int) -> list[tuple[int, Row]]:
        """Return the offsets and records of this range that are not of an aborted transaction."""
        return [
            (offset, row)
            for offset, (row, transaction) in enumerate(islice(self.rows, start, stop), start)
            if row is not None and (transaction is None or not transaction.is_aborted)
        ]


@dataclass
class _Writer:
    """A transactional id."""

    epoch: int = 0
    transaction: Transaction | None = None


class Broker:
    """See the module."""

    def __init__(self, world: World, topics: Mapping[str, int], group: Group, transaction_ms: int) -> None:
        self.logs = {TopicPartition(topic, n): Log() for topic, number in topics.items() for n in range(number)}
        self.group = group
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.listeners: list[Callable[[TopicPartition], None]] = []
        self.refuses_until = 0
        """Until when requests fail for a reason that passes."""
        self._world = world
        self._transaction_ms = transaction_ms
        self._writers: defaultdict[str, _Writer] = defaultdict(_Writer)
        world.after(LOOK_MS, self._look)

    # ---------------------------------------- records

    def append(
        self, output: Iterable[PartitionBatch], transaction: Transaction | None = None
    ) -> dict[TopicPartition, int]:
        """Write records, and return the ends of their partitions."""
        ends: dict[TopicPartition, int] = {}
        for topic, number, batch, _ in output:
            partition = TopicPartition(topic, number)
            log = self.logs[partition]
            if transaction is not None and partition not in transaction.firsts:
                transaction.firsts[partition] = log.open[transaction] = log.end
            columns = (batch.keys, batch.values, batch.timestamps.tolist())
            for at, (key, value, timestamp) in enumerate(zip(*columns, strict=True)):
                log.rows.append((Row(key, value, timestamp, batch.headers_at(at)), transaction))
            ends[partition] = log.end
        if transaction is None:
            self._tell(ends)
        return ends

    def records(self, partition: TopicPartition) -> list[Row]:
        """Return all records that are committed."""
        log = self.logs[partition]
        return [row for _, row in log.read(0, log.stable_end)]

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before these offsets."""
        for partition, offset in before.items():
            log = self.logs[partition]
            log.start = max(log.start, min(offset, log.end))

    def _tell(self, partitions: Collection[TopicPartition]) -> None:
        for listener in self.listeners:
            for partition in partitions:
                listener(partition)

    # ---------------------------------------- transactions

    def begin_writing(self, transactional_id: str) -> int:
        """End what earlier producers of this id left open; return the epoch of the new one."""
        writer = self._writers[transactional_id]
        if writer.transaction is not None:
            self._end(writer, is_aborted=True)
        writer.epoch += 1
        return writer.epoch

    def write(self, transactional_id: str, epoch: int, output: Sequence[PartitionBatch]) -> dict[TopicPartition, int]:
        """Write records in the transaction of a producer."""
        return self.append(output, self._transaction(transactional_id, epoch))

    def add_offsets(
        self,
        transactional_id: str,
        epoch: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: GroupIdentity,
    ) -> None:
        """Take the offsets that a transaction is to commit."""
        transaction = self._transaction(transactional_id, epoch)
        code = self.group.commits_in_transaction(member.member_id, member.generation)
        if code != ErrorCode.none:
            raise TaskMigratedError(ErrorCode(code).name)
        transaction.offsets.update(offsets)

    def end_transaction(self, transactional_id: str, epoch: int, is_aborted: bool) -> None:
        """Commit or abort the transaction of a producer."""
        self._transaction(transactional_id, epoch)
        self._end(self._writers[transactional_id], is_aborted)

    def _transaction(self, transactional_id: str, epoch: int) -> Transaction:
        writer = self._writers[transactional_id]
        if epoch != writer.epoch:
            raise ProducerFencedError(f"{transactional_id} has epoch {writer.epoch} and not {epoch}")
        if writer.transaction is None:
            writer.transaction = Transaction(self._world.now)
        return writer.transaction

    def _end(self, writer: _Writer, is_aborted: bool) -> None:
        transaction = writer.transaction
        assert transaction is not None
        writer.transaction = None
        transaction.is_aborted = is_aborted
        for partition in transaction.firsts:
            log = self.logs[partition]
            del log.open[transaction]
            log.rows.append((None, None))
        if not is_aborted:
            self._commit(transaction.offsets)
        self._tell(transaction.firsts)

    def _look(self) -> None:
        for name, writer in self._writers.items():
            if writer.transaction is not None and self._world.now - writer.transaction.began > self._transaction_ms:
                self._world.note("broker", f"ends the transaction of {name}")
                writer.epoch += 1
                self._end(writer, is_aborted=True)
        self._world.after(LOOK_MS, self._look)

    # ---------------------------------------- offsets

    def commit(self, member_id: str, generation: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> int:
        """Commit offsets of a member; return the code of the error."""
        code = self.group.commits(member_id, generation)
        if code == ErrorCode.none:
            self._commit(offsets)
        return code

    def fetch_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what is committed, unless a transaction is about to commit others."""
        for writer in self._writers.values():
            if writer.transaction is not None and not writer.transaction.offsets.keys().isdisjoint(partitions):
                raise UnstableOffsetCommitError("A transaction is open.")
        return {partition: self.committed[partition] for partition in partitions if partition in self.committed}

    def is_read(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether everything in these partitions is read and committed, and no transaction is open."""
        if any(log.open for log in self.logs.values()):
            return False
        for partition in partitions:
            log = self.logs[partition]
            done = max(log.start, self.committed[partition].offset if partition in self.committed else 0)
            if log.read(done, log.end):
                return False
        return True

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for partition, each in offsets.items():
            before = self.committed.get(partition)
            assert before is None or before.offset <= each.offset, (
                f"{partition} is committed at {each.offset} behind {before.offset}: two have its task"
            )
        self.committed.update(offsets)


def batch_of(rows: Sequence[tuple[int, Row]]) -> RecordBatch:
    """Return records as a batch."""
    return RecordBatch.of([(row.key, row.value, row.timestamp, offset, row.headers) for offset, row in rows])
