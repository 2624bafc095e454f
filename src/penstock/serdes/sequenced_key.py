"""The serde of the keys in a store of waiting records: a sequence number, and the record's key.

The number takes 8 bytes, big-endian, so entries are in the order of their numbers. The serialised key of the record
follows; a null key adds nothing. The keys are bytes already, and the serde names their layout, by which state is
re-partitioned.
"""

from __future__ import annotations

from penstock.serdes.api import Serde, or_default
from penstock.serdes.primitive import BytesSerde

_SIZE = 8


class SequencedKeySerde(BytesSerde):
    """Converts such keys.

    Args:
        inner: the serde of the records' keys; None means the configured default.
    """

    def __init__(self, inner: Serde | None = None) -> None:
        self.inner = inner

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the records' keys."""
        return (self.inner,)

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> SequencedKeySerde:
        """Return this serde with the default key serde if it is missing."""
        return SequencedKeySerde(or_default(self.inner, key_serde, key_serde, value_serde))


def sequenced_key(sequence: int, key: bytes | None) -> bytes:
    """Return the key of an entry."""
    return sequence.to_bytes(_SIZE, "big") + (key or b"")


def split_sequenced_key(data: bytes) -> tuple[int, bytes]:
    """Return the sequence number and the record key of an entry's key; empty for a null key."""
    return int.from_bytes(data[:_SIZE], "big"), data[_SIZE:]


def renumbered_key(data: bytes, place: int, stores: int) -> bytes:
    """Return the key of an entry with a number that is unique among those of several stores, in the same order.

    place: the index of its store, from 0 to `stores` - 1.
    """
    sequence, key = split_sequenced_key(data)
    return sequenced_key(sequence * stores + place, key)
