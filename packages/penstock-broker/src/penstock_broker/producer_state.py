"""The state of a partition's idempotent and transactional producers.

Contains the last batches of each producer, the check of sequence numbers, and open and aborted transactions. Not here:
the assignment of producer ids (metadata_store.py).

Rules, as in Kafka: a producer's last five batches are remembered; a repeated batch is answered with its original
offset; a gap in the sequence numbers, and an older epoch, are rejected. A producer that is unknown to the partition may
begin with any sequence number. At startup the state comes from a snapshot and the batches after it
(producer_snapshot.py). A producer without an open transaction is forgotten after `producer.id.expiration.ms`; if there
are more than MAX_PRODUCERS, those that were silent longest are forgotten first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from penstock_broker.batch import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from penstock_broker.errors import ApiError
from penstock_broker.records import EndTransactionMarker
from penstock_broker.wire.error_codes import ErrorCode

LARGEST_EPOCH: Final = 2**15 - 1
"""The last epoch of a producer id, which fences its producer for good."""

NO_OFFSET: Final = -1
"""First offset of the open transaction of a producer without one."""

MAX_PRODUCERS: Final = 10_000
"""Maximum number of producers that one partition remembers."""

EPOCH_BUMPS: Final = 2
"""First transaction version with an epoch bump per transaction (KIP-890; feature `transaction.version`)."""

REMEMBERED_BATCHES: Final = 5
"""Remembered batches per producer; the maximum number of a client's in-flight batches."""


class AppendedBatch(NamedTuple):
    """An appended batch of a producer: sequence numbers, first offset and largest timestamp."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    max_timestamp: int = NO_TIMESTAMP  # older snapshots lack it

    @property
    def last_offset(self) -> int:
        """Offset of its last record."""
        return self.base_offset + ((self.last_sequence - self.base_sequence) & 0x7FFFFFFF)


class LastBatch(NamedTuple):
    """The last batch of a producer.

    Its last offset is None if only markers of its epoch are known.
    """

    last_offset: int | None
    epoch: int

    def is_in(self, header: BatchHeader) -> bool:
        """Return whether a batch of the producer is this one.

        Args:
            header: its header.
        """
        if self.last_offset is None:
            return header.is_control and header.producer_epoch == self.epoch
        return header.next_offset - 1 == self.last_offset


class AbortedTransaction(NamedTuple):
    """An aborted transaction (Kafka class: AbortedTxn).

    `last_offset` is the offset of its marker, and `last_stable_offset` the last stable offset after the marker was
    written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ActiveProducer(NamedTuple):
    """The state of a producer in a partition; -1 for missing values."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    first_open_offset: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = -1
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


class ProducerState:
    """The idempotent and transactional producers of one partition."""

    def __init__(self) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict()
        # First offsets of the open transactions by producer id, in the order of the offsets.
        self._open: dict[int, int] = {}
        # In the order of the offsets of their markers.
        self._aborted: list[AbortedTransaction] = []

    def dump(self) -> dict[str, Any]:
        """Return the state as plain lists, for a snapshot."""
        return {
            "producers": [
                [producer_id, known.epoch, known.last_timestamp, known.coordinator_epoch, list(known.batches)]
                for producer_id, known in self._producers.items()
            ],
            "open": list(self._open.items()),
            "aborted": self._aborted,
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> Self:
        """Return the state from the result of `dump`.

        Args:
            dumped: the plain lists.
        """
        state = cls()
        for producer_id, epoch, last_timestamp, coordinator_epoch, batches in dumped["producers"]:
            known = state._producers[producer_id] = _Producer(epoch, last_timestamp, coordinator_epoch)
            known.batches.extend(AppendedBatch(*batch) for batch in batches)
        state._open = dict(dumped["open"])
        state._aborted = [AbortedTransaction(*aborted) for aborted in dumped["aborted"]]
        return state

    def forget_before(self, start_offset: int) -> None:
        """Forget the aborted transactions without remaining records.

        Args:
            start_offset: the start of the log.
        """
        self._aborted = [aborted for aborted in self._aborted if aborted.last_offset >= start_offset]

    def forget_aborted(self, markers: Set[int]) -> None:
        """Forget the aborted transactions with nothing left but their markers.

        Args:
            markers: the offsets of the markers.
        """
        self._aborted = [aborted for aborted in self._aborted if aborted.last_offset not in markers]

    def forget_silent(self, before: int) -> None:
        """Forget producers without an open transaction and without records since a time.

        Args:
            before: the time (ms).
        """
        silent = [
            producer_id
            for producer_id, known in self._producers.items()
            if known.last_timestamp < before and producer_id not in self._open
        ]
        for producer_id in silent:
            del self._producers[producer_id]

    @property
    def first_open_offset(self) -> int | None:
        """First offset of the earliest open transaction; None without one."""
        return next(iter(self._open.values())) if self._open else None

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in a range.

        Args:
            start_offset: the first offset of the range.
            end_offset: the offset after the last one of the range.
        """
        found: list[AbortedTransaction] = []
        first = bisect_left(self._aborted, start_offset, key=lambda aborted: aborted.last_offset)
        for aborted in self._aborted[first:]:
            if aborted.first_offset < end_offset:
                found.append(aborted)
            # No transaction that ended later began before this offset.
            if aborted.last_stable_offset >= end_offset:
                break
        return found

    def all(self) -> list[ActiveProducer]:
        """Return the state of each producer."""
        return [
            ActiveProducer(
                producer_id,
                known.epoch,
                known.batches[-1].last_sequence if known.batches else NO_SEQUENCE,
                known.last_timestamp,
                known.coordinator_epoch,
                self._open.get(producer_id, NO_OFFSET),
            )
            for producer_id, known in self._producers.items()
        ]

    @property
    def largest_id(self) -> int:
        """The largest producer id; NO_PRODUCER_ID without producers."""
        return max(self._producers, default=NO_PRODUCER_ID)

    def last_batches(self) -> dict[int, LastBatch]:
        """Return the last batch of each producer by id.

        Compaction must keep these batches, though possibly empty.
        """
        return {
            producer_id: LastBatch(known.batches[-1].last_offset if known.batches else None, known.epoch)
            for producer_id, known in self._producers.items()
        }

    def knows(self, producer_id: int) -> bool:
        """Return whether a producer is known."""
        return producer_id in self._producers

    def check_marker(
        self, producer_id: int, producer_epoch: int, marker: EndTransactionMarker, transaction_version: int
    ) -> None:
        """Check that a marker is not of an earlier epoch of its producer or coordinator.

        Args:
            producer_id: the producer of the transaction.
            producer_epoch: its epoch.
            marker: the marker.
            transaction_version: the transaction version; from EPOCH_BUMPS on, the end of a transaction has a later
                epoch than its records.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        known = self._producers.get(producer_id)
        if known is None:
            return
        _check_epoch(producer_id, producer_epoch, known)
        is_open = producer_id in self._open and producer_epoch != LARGEST_EPOCH
        if transaction_version >= EPOCH_BUMPS and producer_epoch == known.epoch and is_open:
            raise ApiError(
                ErrorCode.invalid_producer_epoch,
                f"the marker of producer {producer_id} has epoch {producer_epoch}, that of the records before it",
            )
        if marker.coordinator_epoch < known.coordinator_epoch:
            raise ApiError(
                ErrorCode.transaction_coordinator_fenced,
                f"the marker has coordinator epoch {marker.coordinator_epoch}; it is now {known.coordinator_epoch}",
            )

    def find_duplicate(self, header: BatchHeader) -> AppendedBatch | None:
        """Return the equal batch that was appended before, or None for a new batch.

        Args:
            header: the batch that a producer sent.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, or INVALID_TXN_STATE if the producer has an
                open transaction to which the batch does not belong.
        """
        known = self._producers.get(header.producer_id)
        if header.producer_id == NO_PRODUCER_ID or known is None:
            return None
        _check_epoch(header.producer_id, header.producer_epoch, known)
        if header.producer_id in self._open and not header.is_transactional:
            raise ApiError(
                ErrorCode.invalid_txn_state,
                f"producer {header.producer_id} has an open transaction, and the batch does not belong to it",
            )
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise ApiError(
                    ErrorCode.out_of_order_sequence_number,
                    f"producer {header.producer_id} began epoch {header.producer_epoch} at {header.base_sequence}",
                )
            return None
        if not known.batches:
            # Only a marker of this epoch is known, so the sequence numbers start over.
            _check_follows(header, NO_SEQUENCE)
            return None
        for batch in known.batches:
            if (batch.base_sequence, batch.last_sequence) == (header.base_sequence, header.last_sequence):
                return batch
        _check_follows(header, known.batches[-1].last_sequence)
        return None

    def note(self, header: BatchHeader, marker: EndTransactionMarker | None) -> None:
        """Remember an appended batch.

        Args:
            header: its header, with the assigned offset.
            marker: the marker in a control batch that ends a transaction, otherwise None.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_timestamp = header.max_timestamp
        if marker is not None:
            producer.coordinator_epoch = marker.coordinator_epoch
            self._end_transaction(header, marker)
        # Compaction keeps the last batch of a producer without its records, perhaps for longer than its marker.
        elif header.is_transactional and not header.is_control and header.record_count:
            self._open.setdefault(header.producer_id, header.base_offset)
        if header.base_sequence != NO_SEQUENCE:
            producer.batches.append(
                AppendedBatch(header.base_sequence, header.last_sequence, header.base_offset, header.max_timestamp)
            )
        self._producers.move_to_end(header.producer_id)
        if len(self._producers) > MAX_PRODUCERS:
            self._forget_one()

    def _end_transaction(self, header: BatchHeader, marker: EndTransactionMarker) -> None:
        first_offset = self._open.pop(header.producer_id, None)
        # A marker without records before it does not affect readers.
        if first_offset is None or marker.is_commit:
            return
        still_open = self.first_open_offset
        stable = header.next_offset if still_open is None else still_open
        self._aborted.append(AbortedTransaction(header.producer_id, first_offset, header.base_offset, stable))

    def _forget_one(self) -> None:
        silent = next((producer_id for producer_id in self._producers if producer_id not in self._open), None)
        if silent is not None:
            del self._producers[silent]


def _check_epoch(producer_id: int, epoch: int, known: _Producer) -> None:
    if epoch < known.epoch:
        raise ApiError(
            ErrorCode.invalid_producer_epoch,
            f"producer {producer_id} sent epoch {epoch}; its epoch is now {known.epoch}",
        )


def _check_follows(header: BatchHeader, last_sequence: int) -> None:
    expected = (last_sequence + 1) & 0x7FFFFFFF
    if header.base_sequence != expected:
        raise ApiError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id} sent sequence {header.base_sequence}; expected {expected}",
        )
