"""Records that wait in a store, in order of arrival, each with its context.

It contains neither clocks nor limits: an operator adds and removes the records, and decides when one is due.

Rules:
- Records of one key wait in a line, whose first is its head. A null key equals no other key, so each record with a null
  key is the head of a line of its own, and their order is not kept.
- The key of an entry is `SequencedKeySerde`'s: the number in 8 bytes, big-endian, and the key of the record, by which
  the state is re-partitioned.
- The value of an entry is one byte with the version of the layout, 2, and an array of MessagePack: key, value,
  timestamp, headers, topic, partition, offset, attempts, due time, failure, source, id of its call. Key and value are
  bytes or nil; the source is the key and the value of the input record, true if they are those of this record, nil if
  unknown. Layout 1, of versions between 0.2.0 and this one, had a number instead of the id.
- Numbers grow. After a restart they continue after the largest one in the store, or from `first_number`. Without it, a
  number whose record has been removed may occur again, which is safe only if they are kept nowhere else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from heapq import heappop, heappush

import msgspec

from penstock.errors import ProcessorStateError
from penstock.record import Headers
from penstock.serdes.sequenced_key import sequenced_key, split_sequenced_key
from penstock.state.api import KeyValueStore

_VERSION = b"\x02"

_WRITERS = {b"\x01": "a version after 0.2.0 and before this one"}
"""The versions that wrote other layouts."""

_DIGEST_BYTES = 8

_FEW_OUTDATED = 100
"""Number of outdated due times in memory that costs less than their removal."""

SourceBytes = tuple[bytes | None, bytes | None]
"""The key and the value of an input record."""

_DECODER = msgspec.msgpack.Decoder(
    tuple[bytes | None, bytes | None, int, Headers, str | None, int, int, int, int, str, SourceBytes | bool | None, str]
)


@dataclass(frozen=True, slots=True)
class WaitingRecord:
    """A record that waits in a store, with its context.

    Args:
        key: the serialised key.
        value: the serialised value.
        timestamp: in ms.
        headers: (name, bytes or None) pairs.
        topic: of the input record; None if it has no origin.
        partition: of the input record.
        offset: of the input record.
        attempts: the number of failed attempts to process it.
        due: the time in ms, by the wall clock, before which it is not processed.
        failure: the first error, as a text; empty without one.
        source: the key and the value of the input record; None if unknown.
        call_id: the idempotency key of its call; empty for a record that waits for no call.
        was_waiting: whether the record was in the store when its task was opened, so its call may have been made; this
            is not stored.
        known_digest: the result of `digest`, if it is known; this is not stored.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    topic: str | None
    partition: int
    offset: int
    attempts: int = 0
    due: int = 0
    failure: str = ""
    source: SourceBytes | None = None
    call_id: str = ""
    was_waiting: bool = field(default=False, compare=False)
    known_digest: bytes = field(default=b"", init=False, compare=False, repr=False)

    def that_waited(self) -> WaitingRecord:
        """Return the record as one that was in the store when its task was opened."""
        return replace(self, was_waiting=True)

    def may_have_been_called(self, attempts: int) -> bool:
        """Return whether a service may know its call, after `attempts` attempts of this process."""
        return self.was_waiting or attempts > 0

    def digest(self) -> bytes:
        """Return 8 bytes that tell this record from others, also after a change of its number."""
        if not self.known_digest:  # a task and the call of its record both need it
            digest = blake2b(self.pack(), digest_size=_DIGEST_BYTES).digest()
            object.__setattr__(self, "known_digest", digest)
        return self.known_digest

    def pack(self) -> bytes:
        """Serialise the record."""
        fields = (
            self.key,
            self.value,
            self.timestamp,
            self.headers,
            self.topic,
            self.partition,
            self.offset,
            self.attempts,
            self.due,
            self.failure,
            True if self.source == (self.key, self.value) else self.source,
            self.call_id,
        )
        return _VERSION + msgspec.msgpack.encode(fields)


def unpack_waiting(data: bytes, store: str) -> WaitingRecord:
    """Deserialise a waiting record of the store of that name; raises ProcessorStateError if it cannot be read."""
    if data[:1] != _VERSION:
        writer = _WRITERS.get(data[:1], "the version of Penstock that wrote it")
        raise ProcessorStateError(
            f"Store {store!r} has a waiting record in layout {data[:1].hex() or 'of no bytes'}; this version reads "
            f"layout {_VERSION.hex()}. Run {writer}, until no record waits."
        )
    try:
        fields = _DECODER.decode(data[1:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProcessorStateError(f"Store {store!r} has a damaged waiting record: {error}.") from error
    key, value, *_, source, call_id = fields
    return WaitingRecord(*fields[:10], source=(key, value) if source is True else source or None, call_id=call_id)


Waiting = tuple[int, WaitingRecord]
"""The sequence number of a waiting record, and the record."""


class WaitingRecords:
    """The waiting records of a task, with an index in memory.

    The constructor reads the whole store, so create the object when the operator is initialised, and limit the number
    of records. Only this object may write to the store.

    Args:
        store: a store of bytes, with SequencedKeySerde as its key serde, and without a record cache.
        first_number: the smallest number of a record that is added.
    """

    def __init__(self, store: KeyValueStore, first_number: int = 1) -> None:
        self._store = store
        self._keys: dict[int, bytes | None] = {}
        self._sizes: dict[int, int] = {}
        self._lines: dict[bytes, deque[int]] = {}
        self._heads: dict[int, int] = {}  # due times by the number of a line's first record
        self._by_due: list[tuple[int, int]] = []  # a heap of due times and numbers; some are outdated
        self._bytes = 0
        self._next = 1
        with store.all() as entries:
            for entry_key, data in entries:
                sequence, _ = split_sequenced_key(entry_key)
                self._enter(sequence, unpack_waiting(data, store.name))
                self._size(sequence, len(entry_key) + len(data))
        self._next = max(self._next, first_number)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def size_bytes(self) -> int:
        """The size of all entries in bytes, keys and values."""
        return self._bytes

    @property
    def next_number(self) -> int:
        """The number of the next record that is added."""
        return self._next

    def append(self, record: WaitingRecord) -> int:
        """Add a record as the last one of its key; return its number."""
        sequence = self._next
        self._write(sequence, record)
        self._enter(sequence, record)
        return sequence

    def get(self, sequence: int) -> WaitingRecord | None:
        """Return the record of a number, or None if absent."""
        return self._read(sequence) if sequence in self._keys else None

    def waiting(self) -> list[Waiting]:
        """Return all records, in order of arrival."""
        return [(sequence, self._read(sequence)) for sequence in self._keys]

    def first(self, key: bytes | None) -> Waiting | None:
        """Return the first record of `key`, or None if no record of it waits. A null key has none."""
        line = None if key is None else self._lines.get(key)
        return None if line is None else (line[0], self._read(line[0]))

    def leads(self, sequence: int) -> bool:
        """Return whether this is the number of the first record of its key."""
        return sequence in self._heads

    def earliest(self) -> int | None:
        """Return the smallest number, or None if no record waits."""
        return next(iter(self._keys), None)

    def waits(self, key: bytes | None) -> bool:
        """Return whether a record of `key` waits; False for a null key."""
        return key is not None and key in self._lines

    def due(self, now: int) -> list[Waiting]:
        """Return the heads that are due at `now` (ms), in order of arrival: all of them at the largest time."""
        found = []
        while self._drop_outdated() and self._by_due[0][0] <= now:
            found.append(heappop(self._by_due))
        for entry in found:
            heappush(self._by_due, entry)
        return [(sequence, self._read(sequence)) for sequence in sorted({sequence for _, sequence in found})]

    def due_after(self, time: int) -> list[Waiting]:
        """Return the heads that are due after `time` (ms), in order of arrival."""
        return [(each, self._read(each)) for each in sorted(each for each, due in self._heads.items() if due > time)]

    def next_due(self) -> int | None:
        """Return the earliest due time of the heads (ms), or None if no record waits."""
        return self._by_due[0][0] if self._drop_outdated() else None

    def replace(self, sequence: int, record: WaitingRecord) -> None:
        """Store another version of a waiting record, in the same place.

        Raises:
            KeyError: no record with this number waits.
            ValueError: the key is another one.
        """
        before = self._key_of(sequence)
        if record.key != before:
            raise ValueError(
                f"Store {self._store.name!r}: waiting record {sequence} has the key {before!r}, not {record.key!r}; "
                "its place depends on the key."
            )
        self._write(sequence, record)
        if sequence in self._heads:
            self._lead(sequence, record)

    def remove(self, sequence: int) -> None:
        """Remove a record; the next one of its key becomes its head. Raises KeyError if it does not wait."""
        key = self._key_of(sequence)
        self._bytes -= self._sizes.pop(sequence)
        self._store.put(sequenced_key(sequence, key), None)  # delete would read it
        del self._keys[sequence]
        was_head = self._heads.pop(sequence, None) is not None
        if len(self._by_due) > 2 * len(self._heads) + _FEW_OUTDATED:
            self._by_due = sorted((due, each) for each, due in self._heads.items())
        if key is None:
            return
        line = self._lines[key]
        line.remove(sequence)
        if not line:
            del self._lines[key]
        elif was_head:
            self._lead(line[0], self._read(line[0]))

    def _enter(self, sequence: int, record: WaitingRecord) -> None:
        """Add a stored record to the index; numbers ascend."""
        self._next = sequence + 1
        self._keys[sequence] = record.key
        if record.key is not None:
            line = self._lines.setdefault(record.key, deque())
            line.append(sequence)
            if len(line) > 1:
                return
        self._lead(sequence, record)

    def _lead(self, sequence: int, record: WaitingRecord) -> None:
        """Note the due time of a head."""
        self._heads[sequence] = record.due
        heappush(self._by_due, (record.due, sequence))

    def _drop_outdated(self) -> bool:
        """Remove outdated entries from the top of the heap; return whether any is left."""
        while self._by_due and self._heads.get(self._by_due[0][1]) != self._by_due[0][0]:
            heappop(self._by_due)
        return bool(self._by_due)

    def _key_of(self, sequence: int) -> bytes | None:
        if sequence not in self._keys:
            raise KeyError(f"Store {self._store.name!r} has no waiting record {sequence}.")
        return self._keys[sequence]

    def _read(self, sequence: int) -> WaitingRecord:
        """Return the stored record of a number."""
        data: bytes | None = self._store.get(sequenced_key(sequence, self._keys[sequence]))
        if data is None:
            raise ProcessorStateError(
                f"Store {self._store.name!r} has lost waiting record {sequence}: only its operator may write to it."
            )
        return unpack_waiting(data, self._store.name)

    def _write(self, sequence: int, record: WaitingRecord) -> None:
        entry_key, data = sequenced_key(sequence, record.key), record.pack()
        self._store.put(entry_key, data)
        self._size(sequence, len(entry_key) + len(data))

    def _size(self, sequence: int, size: int) -> None:
        """Note the size of an entry in bytes, in place of an earlier one."""
        self._bytes += size - self._sizes.get(sequence, 0)
        self._sizes[sequence] = size
