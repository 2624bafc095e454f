"""What a partition remembers of its idempotent producers, to refuse duplicates and gaps.

Here live the last batches of each producer and the check of sequence numbers. Not here: the assignment of producer ids
(metadata_store.py).

Rules, as in Kafka: a producer's last five batches are remembered; a repeated one is answered with the offset it got
the first time; a sequence number that leaves a gap, and an older epoch, are refused. A producer that the partition does
not know may begin with any sequence number. The state is rebuilt from the batches' headers at start. Where there are
more than MAX_PRODUCERS, those that were silent longest are forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.broker.batch import NO_PRODUCER_ID, BatchHeader
from penstock.broker.errors import ApiError

MAX_PRODUCERS: Final = 10_000
"""Producers that one partition remembers."""

REMEMBERED_BATCHES: Final = 5
"""Batches remembered of each producer; as many as a client may have in flight."""


class _AppendedBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: deque[_AppendedBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


class ProducerState:
    """The idempotent producers of one partition."""

    def __init__(self) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict()

    def find_duplicate(self, header: BatchHeader) -> int | None:
        """Return the base offset of an equal batch that was appended before, or None if the batch is the next.

        Args:
            header: the batch that a producer sent.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or DUPLICATE_SEQUENCE_NUMBER.
        """
        known = self._producers.get(header.producer_id)
        if header.producer_id == NO_PRODUCER_ID or known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise ApiError(
                ErrorCode.invalid_producer_epoch,
                f"producer {header.producer_id} sent epoch {header.producer_epoch}; its epoch is now {known.epoch}",
            )
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise ApiError(
                    ErrorCode.out_of_order_sequence_number,
                    f"producer {header.producer_id} began epoch {header.producer_epoch} at {header.base_sequence}",
                )
            return None
        for batch in known.batches:
            if (batch.base_sequence, batch.last_sequence) == (header.base_sequence, header.last_sequence):
                return batch.base_offset
        self._check_follows(header, known.batches[-1].last_sequence)
        return None

    def _check_follows(self, header: BatchHeader, last_sequence: int) -> None:
        expected = (last_sequence + 1) & 0x7FFFFFFF
        if header.base_sequence == expected:
            return
        sent = f"producer {header.producer_id} sent sequence {header.base_sequence}; expected {expected}"
        if header.last_sequence <= last_sequence:
            raise ApiError(ErrorCode.duplicate_sequence_number, f"{sent}: the batch is an old duplicate")
        raise ApiError(ErrorCode.out_of_order_sequence_number, sent)

    def note(self, header: BatchHeader) -> None:
        """Remember an appended batch.

        Args:
            header: its header, with the offset it got.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        producer.batches.append(_AppendedBatch(header.base_sequence, header.last_sequence, header.base_offset))
        self._producers.move_to_end(header.producer_id)
        if len(self._producers) > MAX_PRODUCERS:
            self._producers.popitem(last=False)
