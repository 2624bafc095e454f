"""Compaction of one log: the last record of each key is retained (Kafka class: Cleaner).

Contains the retention rules and the order of the steps. Not here: the choice of the log and the time of its compaction
(dirtiness.py, log_manager.py) and the files (log_segments.py, segment.py).

How: the uncompacted part of the log is read into a map of keys to their last offsets, as far as the map has room. All
segments before the end of that part are then rewritten without the records that have a later one in the map.
Neighbouring segments are merged as long as the result is no larger than `segment.bytes`. The new file replaces the
first old one in one step, so a kill leaves either of them, and at most old files that the new one covers.

Rules, as in Kafka:
- Offsets never change. Neither the active segment nor records from the last stable offset on are compacted.
- A tombstone, or a marker whose transaction has no records left, stays for `delete.retention.ms` after the compaction
  that first met it, which writes that time into the batch (KIP-534).
- Records of aborted transactions are removed. A marker stays if there still were records of its transaction.
- The last batch of each producer stays for its sequence numbers, without records if necessary.
- Work is split into steps of at most a few hundred records, between which the broker serves other requests.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from penstock_broker.batch import BatchHeader, read_header
from penstock_broker.log import LARGEST_RELATIVE_OFFSET, Log
from penstock_broker.producer_state import AbortedTransaction, LastBatch, ProducerState
from penstock_broker.records import StoredRecord, encode_kept, read_marker, stored_records
from penstock_broker.segment import Segment

ENTRY_BYTES: Final = 200
"""Approximate bytes of memory per key in the map."""

_DIGEST_SIZE: Final = 20
_RECORDS_OF_A_STEP: Final = 200
_FLUSHED_BYTES: Final = 1 << 20

Steps = Generator[None]
"""Work in short steps."""


class _OffsetMap:
    """The last offset of each key; a long key is kept as its digest.

    Args:
        most_keys: maximum number of keys.
    """

    def __init__(self, most_keys: int) -> None:
        self._most_keys = most_keys
        self._offsets: dict[bytes, int] = {}
        self.end_offset = 0

    @property
    def is_full(self) -> bool:
        """Whether the map has no room for another key."""
        return len(self._offsets) >= self._most_keys

    def put(self, key: bytes, offset: int) -> None:
        """Remember the offset of a record, the last one of its key so far."""
        self._offsets[_name_of(key)] = offset

    def is_last(self, key: bytes, offset: int) -> bool:
        """Return whether the map has no later record of the key."""
        return offset >= self._offsets.get(_name_of(key), -1)


def _name_of(key: bytes) -> bytes:
    # A shorter name is the key itself, so a digest is never mistaken for a key.
    return key if len(key) < _DIGEST_SIZE else blake2b(key, digest_size=_DIGEST_SIZE).digest()


class _Transactions:
    """State of the transactions while a log is read in order (Kafka class: CleanedTransactionMetadata).

    Args:
        aborted: the aborted transactions with records in the range to read.
    """

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        # By producer id; whether the log still has records of the transaction.
        self._aborted: dict[int, bool] = {}
        self._committed: set[int] = set()

    def may_discard(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return whether readers need no record of the batch.

        This is the case for records of an aborted transaction, and for a marker without records before it.

        Args:
            header: its header.
            batch: the batch.
        """
        while self._ahead and self._ahead[-1].first_offset < header.next_offset:
            self._aborted[self._ahead.pop().producer_id] = False
        if header.is_control:
            return self._ends_nothing(header, batch)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted[header.producer_id] = True
            return True
        self._committed.add(header.producer_id)
        return False

    def _ends_nothing(self, header: BatchHeader, batch: memoryview) -> bool:
        if not header.record_count:
            return True
        marker = read_marker(batch)
        if marker is None:
            return False
        if not marker.is_commit:
            return not self._aborted.pop(header.producer_id, False)
        had_records = header.producer_id in self._committed
        self._committed.discard(header.producer_id)
        return not had_records


class Cleaner:
    """One compaction of one log.

    Args:
        log: the log.
        producers: the state of its producers.
        end_offset: the first offset that must not be compacted; the start of a segment.
        most_bytes: maximum memory for the map of keys, in bytes.
        now: the time (ms).
    """

    def __init__(self, log: Log, producers: ProducerState, end_offset: int, most_bytes: int, now: int) -> None:
        self._log = log
        self._producers = producers
        self._end_offset = end_offset
        self._last_offsets = _OffsetMap(max(1, most_bytes // ENTRY_BYTES))
        self._now = now
        self._transactions = _Transactions(())
        self._lone_markers: set[int] = set()
        self._last_batches: Mapping[int, LastBatch] = {}

    def clean(self) -> Steps:
        """Compact the log step by step.

        Closing the generator early leaves the log unchanged. A change of `cleanup.policy` that disables compaction ends
        it.

        Raises:
            OSError: a file cannot be read or written, or was deleted meanwhile; the log is unchanged, or partly
                compacted.
            InvalidBatchError: the log is damaged.
        """
        if self._log.first_dirty_offset >= self._end_offset:
            return
        yield from self._map_keys()
        end_offset = self._last_offsets.end_offset
        self._transactions = self._transactions_from(0)
        for group in _groups(self._log.segments.before(end_offset), self._log.config.segment_bytes):
            yield from self._clean_group(group)
            if not self._log.config.compact:
                return
        self._log.note_cleaned(end_offset)

    def _transactions_from(self, offset: int) -> _Transactions:
        return _Transactions(self._producers.aborted_transactions(offset, self._end_offset))

    def _map_keys(self) -> Steps:
        dirty = self._log.first_dirty_offset
        self._last_offsets.end_offset = dirty
        transactions = self._transactions_from(dirty)
        for segment in self._log.segments.before(self._end_offset):
            if segment.next_offset <= dirty:
                continue
            for header, batch in segment.batches_from(dirty):
                if self._last_offsets.is_full:
                    segment.close()
                    return
                if not transactions.may_discard(header, batch) and not header.is_control:
                    yield from self._map_batch(batch, dirty)
                self._last_offsets.end_offset = header.next_offset
                yield
            segment.close()
        self._last_offsets.end_offset = self._end_offset

    def _map_batch(self, batch: memoryview, dirty: int) -> Steps:
        for record in _in_steps(stored_records(batch)):
            if record is None:
                yield
            elif record.key is not None and record.offset >= dirty:
                self._last_offsets.put(record.key, record.offset)

    def _clean_group(self, group: Sequence[Segment]) -> Steps:
        self._last_batches = self._producers.last_batches()
        cleaned = self._log.begin_cleaned_segment(group[0].base_offset)
        unflushed = 0
        try:
            for segment in group:
                for header, batch in segment.batches_from(segment.base_offset):
                    kept = yield from self._filtered(header, batch)
                    if kept is not None:
                        cleaned.append(kept, read_header(kept))
                        unflushed += len(kept)
                    # Replaced records may have been on disk, so their replacement must be too. Flushing in parts avoids
                    # a long step.
                    if unflushed >= _FLUSHED_BYTES:
                        cleaned.flush()
                        unflushed = 0
                    yield
                segment.close()
            cleaned.flush()
            if not self._log.config.compact:
                return  # after a kill, the next start would mistake gaps in the offsets for damage
            # Readers drop records of an aborted transaction's producer up to its marker, which may be removed now.
            self._producers.forget_aborted(self._lone_markers)
            self._log.segments.replace(group, cleaned, self._now + self._log.config.file_delete_delay_ms)
        finally:
            self._log.segments.remove_unfinished(cleaned)

    def _filtered(self, header: BatchHeader, batch: memoryview) -> Generator[None, None, memoryview | None]:
        """Return the retained part of a batch, or None if it is empty."""
        horizon = header.delete_horizon
        is_unneeded = self._transactions.may_discard(header, batch)
        if is_unneeded and header.is_control:
            self._lone_markers.add(header.base_offset)
        is_past = horizon is not None and horizon <= self._now
        kept: list[StoredRecord] = []
        if not is_unneeded or (header.is_control and not is_past):
            for record in _in_steps(stored_records(batch)):
                if record is None:
                    yield
                elif header.is_control or self._keeps(record, is_past):
                    kept.append(record)
        if not kept:
            return memoryview(encode_kept(header, (), None)) if self._must_stay(header) else None
        waits = is_unneeded if header.is_control else not all(record.has_value for record in kept)
        new_horizon = self._now + self._log.config.delete_retention_ms if waits and horizon is None else None
        if len(kept) == header.record_count and new_horizon is None:
            return batch
        return memoryview(encode_kept(header, kept, new_horizon))

    def _keeps(self, record: StoredRecord, is_past: bool) -> bool:
        if record.offset >= self._last_offsets.end_offset:
            return True
        if record.key is None or not self._last_offsets.is_last(record.key, record.offset):
            return False
        return record.has_value or not is_past

    def _must_stay(self, header: BatchHeader) -> bool:
        last = self._last_batches.get(header.producer_id)
        return (last is not None and last.is_in(header)) or header.next_offset == self._end_offset


def _in_steps(records: Iterable[StoredRecord]) -> Iterator[StoredRecord | None]:
    """Yield records, and None at the end of each step."""
    for number, record in enumerate(records, 1):
        yield record
        if number % _RECORDS_OF_A_STEP == 0:
            yield None


def _groups(segments: Iterable[Segment], most_bytes: int) -> Iterator[list[Segment]]:
    """Yield groups of segments, each of which is merged into one segment."""
    group: list[Segment] = []
    for segment in segments:
        size = segment.size + sum(each.size for each in group)
        if group and (size > most_bytes or segment.next_offset - group[0].base_offset > LARGEST_RELATIVE_OFFSET):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group
