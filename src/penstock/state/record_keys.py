"""Maps the entries of a store to record keys, which determine their partitions.

An entry's key may contain more than a record key: a time segment, a window, versions, a side of a join, a foreign key,
an id, a sequence number. Pure functions over bytes; the layouts are those of `layouts` and of the key serdes.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import StreamsError
from penstock.serdes import Serde
from penstock.serdes.buffer import BufferKeySerde
from penstock.serdes.key_and_id import KeyAndIdSerde, split_key_and_id
from penstock.serdes.outer_join import TimestampedKeyAndJoinSideSerde
from penstock.serdes.sequenced_key import SequencedKeySerde, split_sequenced_key
from penstock.serdes.subscription import SubscriptionWrapperSerde
from penstock.serdes.windowed import WindowedSerde
from penstock.state.api import StoreBuilder
from penstock.state.layouts import (
    LATEST_PREFIX,
    SEGMENT_SIZE,
    SESSION_SUFFIX_SIZE,
    TIMESTAMP_SIZE,
    VERSION_SUFFIX_SIZE,
    WINDOW_SUFFIX_SIZE,
)
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    LruMapBytesStoreSupplier,
    SessionBytesStoreSupplier,
    StoreSupplier,
    TimeOrderedBufferBytesStoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
)
from penstock.state.time_ordered_buffer import INDEX_PREFIX

_SEQUENCE_SIZE = 4
_SIDE_SIZE = 1
_LENGTH_SIZE = 4


def record_key_reader(builder: StoreBuilder, default_key_serde: Serde | None) -> Callable[[bytes], bytes]:
    """Return a function from the key of a store's entry to the serialised record key.

    Args:
        builder: the store.
        default_key_serde: the key serde for stores without their own.

    Raises:
        StreamsError: the store is user-defined, so its keys are unknown.
    """
    stored_key = _stored_key(builder)
    if isinstance(builder.value_serde, SubscriptionWrapperSerde):
        return lambda key: foreign_key_of(stored_key(key))
    serde = builder.key_serde or default_key_serde
    inner = _inner(None if serde is None else serde.with_defaults(default_key_serde, None))
    return lambda key: inner(stored_key(key))


def foreign_key_of(combined: bytes) -> bytes:
    """Return the foreign key within a subscription's key."""
    return combined[_LENGTH_SIZE : _LENGTH_SIZE + int.from_bytes(combined[:_LENGTH_SIZE], "big")]


def primary_key_of(combined: bytes) -> bytes:
    """Return the primary key within a subscription's key."""
    return combined[_LENGTH_SIZE + int.from_bytes(combined[:_LENGTH_SIZE], "big") :]


def sizes_around_key(supplier: StoreSupplier) -> tuple[int, int]:
    """Return the sizes (bytes) of the time segment and the suffix in the key of an entry, for windows and sessions."""
    match supplier:
        case WindowBytesStoreSupplier():
            return SEGMENT_SIZE, WINDOW_SUFFIX_SIZE
        case SessionBytesStoreSupplier():
            return SEGMENT_SIZE, SESSION_SUFFIX_SIZE
        case _:
            return 0, 0


def _stored_key(builder: StoreBuilder) -> Callable[[bytes], bytes]:
    """Return a function that strips the time segment and the suffix from an entry's key."""
    match builder.supplier:
        case KeyValueBytesStoreSupplier() | LruMapBytesStoreSupplier():
            return lambda key: key
        case WindowBytesStoreSupplier() | SessionBytesStoreSupplier():
            before, after = sizes_around_key(builder.supplier)
            return lambda key: key[before:-after]
        case VersionedBytesStoreSupplier():
            return lambda key: key[1:] if key[:1] == LATEST_PREFIX else key[SEGMENT_SIZE:-VERSION_SUFFIX_SIZE]
        case TimeOrderedBufferBytesStoreSupplier():
            return lambda key: key[1:] if key[:1] == INDEX_PREFIX else key[TIMESTAMP_SIZE:]
        case _:
            raise StreamsError(
                f"Store {builder.name} is of a custom kind, and the keys of its entries are unknown, so they cannot be "
                "re-partitioned. Keep the partitions of its sub-topology."
            )


def _inner(serde: Serde | None) -> Callable[[bytes], bytes]:
    """Return a function that strips a serde's additions from the record key."""
    match serde:
        case WindowedSerde():
            size, inner = serde.window_size, _inner(serde.inner)
            return lambda key: inner(key[:-size])
        case BufferKeySerde():
            return lambda key: key[TIMESTAMP_SIZE:-_SEQUENCE_SIZE]
        case KeyAndIdSerde():
            of_key = _inner(serde.key_serde)
            return lambda key: of_key(split_key_and_id(key)[0])
        case SequencedKeySerde():
            of_waiting = _inner(serde.inner)
            return lambda key: of_waiting(split_sequenced_key(key)[1])
        case TimestampedKeyAndJoinSideSerde():
            return lambda key: key[TIMESTAMP_SIZE + _SIDE_SIZE :]
        case _:
            return lambda key: key
