"""The transaction coordinator: fencing of producers, and the end of transactions.

Contains the decisions of Kafka's TransactionCoordinator. Not here: the record of a state (transaction_log.py), and the
state of transactions in a partition (producer_state.py).

Rules:
- A state takes effect once it is written to `__transaction_state`, and not earlier. A transaction ends in three steps:
  its outcome is written (prepared), a marker is written to each of its partitions, and its end is written (complete).
  The first step decides the outcome: after a crash or a failed write, the rest is finished at the next start or by the
  next `tick`.
- The three steps are one turn of the event loop, so clients see a prepared transaction only after a failed write.
- Id and epoch of a producer are on disk before it gets them. A transaction that writes to a topic with
  `flush.messages=1` is on disk as a whole: its begin before its records, its records and offsets before its outcome,
  its outcome before its markers, these before its end, and that before the next one begins. So after a power failure
  either all of it is left or nothing.
- A producer is fenced by a bump of its epoch: when another one starts with its transactional id, when its transaction
  times out, and, with transaction version 2 (KIP-890), at each end of a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from penstock_broker.common.clock import Clock
from penstock_broker.common.log_limits import limit_rate
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ApiError
from penstock_broker.groups.offsets import TopicPartition
from penstock_broker.partition import Partition
from penstock_broker.producer_state import EPOCH_BUMPS, LARGEST_EPOCH, NO_OFFSET, ActiveProducer
from penstock_broker.records import EndTransactionMarker, encode_marker
from penstock_broker.topics import OFFSETS_TOPIC, TopicRegistry
from penstock_broker.transaction_log import (
    MOST_ID_BYTES,
    NEXT_STATES,
    NO_EPOCH,
    NO_ID,
    State,
    Transaction,
    TransactionLog,
)
from penstock_broker.wire.error_codes import ErrorCode

COORDINATOR_EPOCH: Final = 0
"""Epoch of the coordinator in markers, constant because there is one broker."""

_LAST_EPOCH: Final = 2**15 - 2
"""The last epoch assigned to a producer; one more is reserved for fencing it."""

_log = limit_rate(logging.getLogger(__name__))


class Producer(NamedTuple):
    """Id and epoch of a producer, as in a request."""

    producer_id: int
    epoch: int


class TransactionalOffsets(Protocol):
    """Offsets of groups in open transactions."""

    def complete_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Apply the marker of a transaction, which was written to `__consumer_offsets`."""
        ...

    def partitions_in_transaction(self, producer_id: int) -> set[TopicPartition]:
        """Return the partitions with pending offsets in a producer's transaction."""
        ...


class TransactionCoordinator:
    """The transactional ids of the broker.

    The constructor finishes transactions that a crash left prepared, and aborts those that only their partitions know
    after a power failure.

    Args:
        config: the broker's settings.
        log: storage of the states.
        topics: the topics of the broker.
        offsets: the offsets of groups.
        new_producer_id: allocates a producer id.
        clock: the machine's clock.

    Raises:
        BrokerError: a stored state cannot be read.
    """

    def __init__(
        self,
        config: BrokerConfig,
        log: TransactionLog,
        topics: TopicRegistry,
        offsets: TransactionalOffsets,
        new_producer_id: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._config = config
        self._log = log
        self._topics = topics
        self._offsets = offsets
        self._new_producer_id = new_producer_id
        self._clock = clock
        # In the order of the last changes; the second one contains the ids that are not idle.
        self._by_id: dict[str, Transaction] = {}
        self._busy: dict[str, None] = {}
        for transaction in log.read():
            self._keep(transaction)
        self._finish_prepared()
        self._mend()

    def now_ms(self) -> int:
        """Return the current time (ms) of the transactions' clock."""
        return self._clock.milliseconds()

    def all(self) -> list[Transaction]:
        """Return the states of all transactional ids."""
        return list(self._by_id.values())

    def of_id(self, transactional_id: str) -> Transaction:
        """Return the state of a transactional id.

        Raises:
            ApiError: INVALID_REQUEST for an empty or too long id, TRANSACTIONAL_ID_NOT_FOUND.
        """
        _check_transactional_id(transactional_id)
        found = self._by_id.get(transactional_id)
        if found is None:
            raise ApiError(ErrorCode.transactional_id_not_found, f"there is no transactional id {transactional_id!r}")
        return found

    def init_producer_id(self, transactional_id: str, timeout_ms: int, known: Producer | None) -> Producer:
        """Return id and epoch for a producer that starts or recovers from an error.

        All earlier epochs are fenced, and an open transaction of the transactional id is aborted.

        Args:
            transactional_id: the id of the producer across restarts.
            timeout_ms: maximum duration (ms) of its transactions.
            known: id and epoch of the producer before its error (KIP-360); None if it starts.

        Raises:
            ApiError: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, or
                NOT_COORDINATOR if the state cannot be written.
        """
        _check_transactional_id(transactional_id)
        most = self._config.transaction_max_timeout_ms
        if not 0 < timeout_ms <= most:
            raise ApiError(
                ErrorCode.invalid_transaction_timeout,
                f"transaction.timeout.ms is {timeout_ms}; it must be from 1 to {most}",
            )
        transaction = self._by_id.get(transactional_id) or self._new_transaction(transactional_id, timeout_ms)
        _check_id(transaction, known)
        if transaction.state == State.ONGOING:
            transaction = self._end(transaction, is_commit=False, version=EPOCH_BUMPS)
        _check_not_prepared(transaction)
        started = self._started(transaction, known)
        self._write_to_disk(replace(started, timeout_ms=timeout_ms, updated_ms=self.now_ms()))
        return Producer(started.producer_id, started.epoch)

    def _new_transaction(self, transactional_id: str, timeout_ms: int) -> Transaction:
        if len(self._by_id) >= self._config.max_transactional_ids:
            unused = next((one for one in self._by_id if one not in self._busy), None)
            if unused is None:
                raise ApiError(
                    ErrorCode.policy_violation, f"{self._config.max_transactional_ids} transactions are open at once"
                )
            self._remove(unused)
        return Transaction(
            transactional_id=transactional_id,
            producer_id=self._new_producer_id(),
            timeout_ms=timeout_ms,
            updated_ms=self.now_ms(),
        )

    def _started(self, transaction: Transaction, known: Producer | None) -> Transaction:
        """Return a producer's initial state, with a bumped epoch unless the request is repeated."""
        empty = replace(
            transaction,
            state=State.EMPTY,
            partitions=frozenset(),
            started_ms=-1,
            previous_producer_id=transaction.producer_id,
            version=0,
        )
        if known is not None and transaction.epoch != NO_EPOCH:
            if known.epoch == transaction.last_epoch:
                return replace(empty, previous_producer_id=transaction.previous_producer_id)
            if known.epoch != transaction.epoch:
                raise _fenced(transaction, known)
        if transaction.epoch >= _LAST_EPOCH:
            last_epoch = NO_EPOCH if known is None else transaction.epoch
            return replace(empty, producer_id=self._new_producer_id(), epoch=0, last_epoch=last_epoch)
        last_epoch = NO_EPOCH if known is None else transaction.epoch
        return replace(empty, epoch=transaction.epoch + 1, last_epoch=last_epoch)

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition], version: int
    ) -> None:
        """Add partitions to the open transaction of a transactional id, opening it if necessary.

        Args:
            transactional_id: the id.
            producer: its producer.
            partitions: the partitions that the producer is about to write to.
            version: the transaction version of the producer.

        Raises:
            ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, or NOT_COORDINATOR if the
                state cannot be written.
        """
        transaction = self._of_producer(transactional_id, producer)
        added = transaction.partitions.union(partitions)
        if transaction.state == State.ONGOING and added == transaction.partitions:
            return
        now_ms = self.now_ms()
        begun = replace(
            transaction,
            state=State.ONGOING,
            partitions=added,
            started_ms=now_ms if transaction.state.is_idle else transaction.started_ms,
            updated_ms=now_ms,
            version=version,
        )
        (self._write_to_disk if self._forced_with(begun) else self._write)(begun)

    def partitions(self, transactional_id: str, producer: Producer) -> frozenset[TopicPartition]:
        """Return the partitions in the open transaction of a transactional id, if any.

        Raises:
            ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or CONCURRENT_TRANSACTIONS.
        """
        return self._of_producer(transactional_id, producer).partitions

    def _of_producer(self, transactional_id: str, producer: Producer) -> Transaction:
        """Return the state of a producer's transactional id, after checking that it is not ending."""
        transaction = self._mapped(transactional_id)
        if transaction.producer_id != producer.producer_id:
            raise _wrong_id(transaction, producer)
        if transaction.epoch != producer.epoch:
            raise _fenced(transaction, producer)
        _check_not_prepared(transaction)
        return transaction

    def _mapped(self, transactional_id: str) -> Transaction:
        _check_transactional_id(transactional_id)
        transaction = self._by_id.get(transactional_id)
        if transaction is None:
            raise ApiError(
                ErrorCode.invalid_producer_id_mapping, f"no producer has the transactional id {transactional_id!r}"
            )
        return transaction

    def end(self, transactional_id: str, producer: Producer, is_commit: bool, version: int) -> Producer:
        """End the open transaction of a transactional id.

        A repeated request gets the answer of the first one.

        Args:
            transactional_id: the id.
            producer: its producer.
            is_commit: whether its records are committed.
            version: the transaction version of the producer; from EPOCH_BUMPS on its epoch is bumped, and a transaction
                without records can be aborted.

        Returns:
            Id and epoch for the next transaction.

        Raises:
            ApiError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
                INVALID_TXN_STATE, or NOT_COORDINATOR if the outcome cannot be written.
        """
        transaction = self._mapped(transactional_id)
        is_repeated = _is_repeated_end(transaction, producer, version)
        if transaction.state == State.ONGOING:
            ended = self._end(transaction, is_commit, version)
        elif is_repeated and transaction.state in _OUTCOMES[is_commit]:
            _check_not_prepared(transaction)
            ended = transaction
        elif version >= EPOCH_BUMPS and not is_repeated and not is_commit:
            ended = self._end(transaction, is_commit, version)
        else:
            raise ApiError(
                ErrorCode.invalid_txn_state,
                f"the transaction of {transactional_id!r} cannot be {'committed' if is_commit else 'aborted'}: its "
                f"state is {transaction.state.label}",
            )
        if ended.next_producer_id != NO_ID:
            return Producer(ended.next_producer_id, 0)
        return Producer(ended.producer_id, ended.epoch)

    def _end(self, transaction: Transaction, is_commit: bool, version: int) -> Transaction:
        """Decide and apply the outcome of a transaction, and return its new state.

        Raises:
            ApiError: NOT_COORDINATOR; nothing was decided.
        """
        now_ms = self.now_ms()
        prepared = replace(
            transaction,
            state=State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
            started_ms=now_ms if transaction.state.is_idle else transaction.started_ms,
            updated_ms=now_ms,
            version=version,
        )
        if version >= EPOCH_BUMPS:
            is_last = transaction.epoch >= _LAST_EPOCH
            prepared = replace(
                prepared,
                epoch=transaction.epoch + 1,
                last_epoch=transaction.epoch,
                next_producer_id=self._new_producer_id() if is_last else NO_ID,
            )
        self._write_with(self._forced_with(transaction), prepared)
        return self._completed(prepared)

    def _forced_with(self, transaction: Transaction) -> list[Partition]:
        """Return the partitions that must be on disk with a transaction.

        If any of its partitions is forced to disk, these are all of them and those of its offsets. Otherwise the list
        is empty.
        """
        written = self._existing(transaction.partitions)
        if not any(partition.config.is_forced for partition in written):
            return []
        return written + self._existing(self._offsets.partitions_in_transaction(transaction.producer_id))

    def _existing(self, names: Iterable[TopicPartition]) -> list[Partition]:
        # If a topic was deleted, so were its records of the transaction.
        return [self._topics.partition(*each) for each in sorted(names) if self._topics.has_partition(*each)]

    def _completed(self, prepared: Transaction) -> Transaction:
        """Write the markers and the end of a prepared transaction.

        Return it unchanged if a write fails.
        """
        is_commit = prepared.state == State.PREPARE_COMMIT
        is_rotated = prepared.next_producer_id != NO_ID
        producer = Producer(prepared.producer_id, prepared.epoch)
        completed = replace(
            prepared,
            state=State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT,
            producer_id=prepared.next_producer_id if is_rotated else prepared.producer_id,
            previous_producer_id=prepared.producer_id,
            next_producer_id=NO_ID,
            epoch=0 if is_rotated else prepared.epoch,
            partitions=frozenset(),
            updated_ms=self.now_ms(),
        )
        forced = self._forced_with(prepared)
        try:
            for partition in self._existing(prepared.partitions):
                where = (partition.topic, partition.index)
                self.write_marker(where, producer, EndTransactionMarker(is_commit, COORDINATOR_EPOCH))
            self._write_with(forced, completed)
        except ApiError as error:
            _log.error("the transaction of %r is not ended yet: %s", prepared.transactional_id, error)
            return prepared
        return completed

    def write_marker(self, where: TopicPartition, producer: Producer, marker: EndTransactionMarker) -> None:
        """Write the marker that ends a transaction in a partition.

        Args:
            where: the partition.
            producer: the producer of the transaction.
            marker: commit or abort.

        Raises:
            ApiError: the partition does not exist, or KAFKA_STORAGE_ERROR.
        """
        partition = self._topics.partition(*where)
        now_ms = self.now_ms()
        partition.append_own(memoryview(encode_marker(marker, producer.producer_id, producer.epoch, now_ms)))
        if where[0] == OFFSETS_TOPIC:
            self._offsets.complete_transaction(producer.producer_id, marker.is_commit)

    def tick(self) -> None:
        """Abort late transactions, finish prepared ones, and forget unused ids."""
        self._finish_prepared()
        self._abort_late()
        self._forget_unused()

    def _finish_prepared(self) -> None:
        for transactional_id in tuple(self._busy):
            transaction = self._by_id[transactional_id]
            if transaction.state.is_prepared:
                self._completed(transaction)

    def _mend(self) -> None:
        """Repair transaction states that were lost in a power failure.

        Later batches of their producers may have survived it. No epoch is assigned twice, and a transaction that is
        open in a partition but missing in its state is aborted.
        """
        by_producer = {transaction.producer_id: transaction for transaction in self._by_id.values()}
        for partition in tuple(self._topics.partitions()):
            where = (partition.topic, partition.index)
            for active in partition.producers.all():
                known = by_producer.get(active.producer_id)
                is_open = active.first_open_offset != NO_OFFSET
                if known is None:
                    if is_open:
                        self._report_hanging(where, active)
                        producer = Producer(active.producer_id, active.epoch)
                        self.write_marker(where, producer, EndTransactionMarker(False, COORDINATOR_EPOCH))
                    continue
                if active.epoch > known.epoch:
                    known = replace(known, epoch=active.epoch, last_epoch=NO_EPOCH)
                    self._write(known)
                if is_open and where not in known.partitions:
                    self._report_hanging(where, active)
                    # Its producer, if still alive, is fenced: otherwise a part of its transaction would be lost.
                    epoch = min(known.epoch + 1, LARGEST_EPOCH)
                    begun = replace(known, epoch=epoch, state=State.ONGOING, partitions=known.partitions | {where})
                    known = self._end(begun, is_commit=False, version=0)
                by_producer[active.producer_id] = known

    def _report_hanging(self, where: TopicPartition, active: ActiveProducer) -> None:
        _log.warning(
            "%s-%d: the transaction of producer %d that is open from offset %d on is aborted, because the coordinator "
            "has lost its state, as after a loss of power",
            *where, active.producer_id, active.first_open_offset,
        )  # fmt: skip

    def _abort_late(self) -> None:
        now_ms = self.now_ms()
        for transactional_id in tuple(self._busy):
            transaction = self._by_id[transactional_id]
            if transaction.state == State.ONGOING and transaction.started_ms + transaction.timeout_ms < now_ms:
                _log.info("the transaction of %r took more than %d ms and is aborted", transactional_id,
                          transaction.timeout_ms)  # fmt: skip
                try:
                    self._end(transaction, is_commit=False, version=EPOCH_BUMPS)
                except ApiError as error:
                    _log.error("the transaction of %r is not aborted yet: %s", transactional_id, error)

    def _forget_unused(self) -> None:
        oldest_ms = self.now_ms() - self._config.transactional_id_expiration_ms
        unused: list[str] = []
        for transactional_id, transaction in self._by_id.items():
            if transaction.updated_ms > oldest_ms:
                break
            if transaction.state.is_idle:
                unused.append(transactional_id)
        for transactional_id in unused:
            try:
                self._remove(transactional_id)
            except ApiError as error:
                _log.error("the transactional id %r is not forgotten yet: %s", transactional_id, error)

    def _write(self, transaction: Transaction) -> None:
        known = self._by_id.get(transaction.transactional_id, transaction).state
        assert transaction.state in (known, *NEXT_STATES[known]), f"{transaction.state} cannot follow {known}."
        try:
            self._log.write(transaction)
        except ApiError as error:
            raise _not_written(error) from error
        self._keep(transaction)

    def _write_with(self, forced: Sequence[Partition], transaction: Transaction) -> None:
        """Write a state, and force it to disk after the logs of the given partitions.

        Without partitions, the state is not forced to disk.
        """
        try:
            for partition in forced:
                partition.force()
        except ApiError as error:
            raise _not_written(error) from error
        (self._write_to_disk if forced else self._write)(transaction)

    def _write_to_disk(self, transaction: Transaction) -> None:
        self._write(transaction)
        try:
            self._log.force()
        except ApiError as error:
            raise _not_written(error) from error

    def _keep(self, transaction: Transaction) -> None:
        self._by_id.pop(transaction.transactional_id, None)
        self._by_id[transaction.transactional_id] = transaction
        if transaction.state.is_idle:
            self._busy.pop(transaction.transactional_id, None)
        else:
            self._busy[transaction.transactional_id] = None

    def _remove(self, transactional_id: str) -> None:
        try:
            self._log.remove(transactional_id, self.now_ms())
        except ApiError as error:
            raise _not_written(error) from error
        del self._by_id[transactional_id]


_OUTCOMES: Final = {
    True: (State.PREPARE_COMMIT, State.COMPLETE_COMMIT),
    False: (State.PREPARE_ABORT, State.COMPLETE_ABORT),
}


def _is_repeated_end(transaction: Transaction, producer: Producer, version: int) -> bool:
    """Return whether a producer has ended the transaction before, after checking its permission.

    Raises:
        ApiError: INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED.
    """
    is_complete = transaction.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    is_rotated = (
        version >= EPOCH_BUMPS
        and is_complete
        and transaction.previous_producer_id == producer.producer_id
        and transaction.epoch == 0
        and producer.epoch == _LAST_EPOCH
    )
    if is_rotated:
        return True
    if transaction.producer_id != producer.producer_id:
        raise _wrong_id(transaction, producer)
    is_bumped = transaction.epoch == producer.epoch + 1
    match transaction.state:
        case State.ONGOING | State.EMPTY:
            is_repeated, is_valid = False, transaction.epoch == producer.epoch
        case _ if version < EPOCH_BUMPS:
            is_repeated, is_valid = True, transaction.epoch == producer.epoch
        case State.PREPARE_COMMIT | State.PREPARE_ABORT:
            is_repeated, is_valid = True, is_bumped
        case _:
            is_repeated, is_valid = is_bumped, is_bumped or transaction.epoch == producer.epoch
    if not is_valid:
        raise _fenced(transaction, producer)
    return is_repeated


def _check_transactional_id(transactional_id: str) -> None:
    size = len(transactional_id.encode())
    if not 0 < size <= MOST_ID_BYTES:
        raise ApiError(
            ErrorCode.invalid_request, f"the transactional id has {size} bytes; it needs 1 to {MOST_ID_BYTES}"
        )


def _check_id(transaction: Transaction, known: Producer | None) -> None:
    """Check that a recovering producer has the current id of its transactional id.

    The previous id is accepted, too, if its epochs were exhausted.

    Raises:
        ApiError: PRODUCER_FENCED.
    """
    if known is None or transaction.epoch == NO_EPOCH or known.producer_id == transaction.producer_id:
        return
    if known.producer_id != transaction.previous_producer_id or known.epoch < _LAST_EPOCH:
        raise _fenced(transaction, known)


def _check_not_prepared(transaction: Transaction) -> None:
    if transaction.state.is_prepared:
        raise ApiError(
            ErrorCode.concurrent_transactions,
            f"the transaction of {transaction.transactional_id!r} is still being ended",
        )


def _fenced(transaction: Transaction, producer: Producer) -> ApiError:
    return ApiError(
        ErrorCode.producer_fenced,
        f"producer {producer.producer_id} with epoch {producer.epoch} is fenced: {transaction.transactional_id!r} is "
        f"now producer {transaction.producer_id} with epoch {transaction.epoch}",
    )


def _wrong_id(transaction: Transaction, producer: Producer) -> ApiError:
    return ApiError(
        ErrorCode.invalid_producer_id_mapping,
        f"{transaction.transactional_id!r} is producer {transaction.producer_id}, not {producer.producer_id}",
    )


def _not_written(error: ApiError) -> ApiError:
    # As in Kafka: clients look up the coordinator and retry the request.
    return ApiError(ErrorCode.not_coordinator, str(error))
