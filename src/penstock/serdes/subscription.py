"""Subscriptions and responses of foreign-key joins and combined keys, byte for byte Kafka's.

Combined keys are the keys of the subscription store.

Layouts, all numbers big-endian:
- subscription: version and, in the highest bit, whether the hash is null (1 byte), instruction (1), hash (16, unless
  null), primary key, primary partition (4, since version 1);
- response: version and null bit (1), hash (16, unless null), value of the foreign table (empty for null);
- combined key: length of the foreign key (4), foreign key, primary key.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, NamedTuple

import mmh3

from penstock.errors import SerializationError, StreamsError
from penstock.record import Headers
from penstock.serdes.api import Serde, any_uses_headers, inner_serde, or_default

_HASH_SEED = 104729
_HASH = struct.Struct(">qq")
_INT = struct.Struct(">i")
_NULL_HASH = 0x80

SUBSCRIPTION_VERSION = 1
RESPONSE_VERSION = 0


class Instruction(IntEnum):
    """The foreign table's action on a subscription (Kafka class: SubscriptionWrapper.Instruction)."""

    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3


_INSTRUCTIONS = tuple(Instruction)


class SubscriptionWrapper(NamedTuple):
    """A primary row's request for the value of its foreign key (Kafka class: SubscriptionWrapper).

    Args:
        hash: of the row's serialized value, 16 bytes; None for a deleted row.
        primary_partition: the row's partition; None in version 0.
    """

    hash: bytes | None
    instruction: Instruction
    primary_key: Any
    primary_partition: int | None


class SubscriptionResponseWrapper(NamedTuple):
    """The answer to a subscription (Kafka class: SubscriptionResponseWrapper).

    Args:
        hash: that of the subscription.
        primary_partition: the destination of the answer; not serialised.
    """

    hash: bytes | None
    foreign_value: Any
    primary_partition: int | None


def hash_of(data: bytes) -> bytes:
    """Return the 128-bit murmur3 of `data`, which matches a response with its row (Kafka: Murmur3.hash128)."""
    return _HASH.pack(*mmh3.hash64(data, _HASH_SEED, True))


class SubscriptionWrapperSerde(Serde[SubscriptionWrapper]):
    """Converts subscriptions (Kafka class: SubscriptionWrapperSerde).

    Args:
        primary_key_serde: the serde of primary keys; None means the configured default.
    """

    def __init__(self, primary_key_serde: Serde | None) -> None:
        self._primary_key_serde = primary_key_serde

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[SubscriptionWrapper]:
        """Return this serde, or one with the default key serde if it is missing."""
        return SubscriptionWrapperSerde(or_default(self._primary_key_serde, key_serde, key_serde, value_serde))

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the primary keys."""
        return (self._primary_key_serde,)

    @property
    def uses_headers(self) -> bool:
        """Whether the primary key serde uses the headers."""
        return any_uses_headers(self._primary_key_serde)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the subscription."""
        subscription: SubscriptionWrapper = value
        key = inner_serde(self._primary_key_serde, "key").serialize(f"{topic}-pk", subscription.primary_key, headers)
        if subscription.primary_partition is None:
            return _head(0, subscription.hash, subscription.instruction) + key
        head = _head(SUBSCRIPTION_VERSION, subscription.hash, subscription.instruction)
        return head + key + _INT.pack(subscription.primary_partition)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> SubscriptionWrapper:
        """Deserialise the subscription; raises StreamsError for an unknown version."""
        version, hash, rest = _split_head(topic, data[:1] + data[2:])
        if version > SUBSCRIPTION_VERSION:
            raise _unknown_version("SubscriptionWrapper", topic, version, SUBSCRIPTION_VERSION)
        key, partition = rest, None
        if version > 0:
            key, partition = rest[: -_INT.size], _INT.unpack(rest[-_INT.size :])[0]
        primary_key = inner_serde(self._primary_key_serde, "key").deserialize(f"{topic}-pk", key, headers)
        return SubscriptionWrapper(hash, _INSTRUCTIONS[data[1]], primary_key, partition)


class SubscriptionResponseWrapperSerde(Serde[SubscriptionResponseWrapper]):
    """Converts responses (Kafka class: SubscriptionResponseWrapperSerde).

    Args:
        foreign_value_serde: the serde of the foreign table's values; None means the configured default.
    """

    def __init__(self, foreign_value_serde: Serde | None) -> None:
        self._foreign_value_serde = foreign_value_serde

    def with_defaults(self, key_serde: Serde | None, value_serde: Serde | None) -> Serde[SubscriptionResponseWrapper]:
        """Return this serde, or one with the default value serde if it is missing."""
        return SubscriptionResponseWrapperSerde(
            or_default(self._foreign_value_serde, value_serde, key_serde, value_serde)
        )

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the foreign table's values."""
        return (self._foreign_value_serde,)

    @property
    def uses_headers(self) -> bool:
        """Whether the value serde uses the headers."""
        return any_uses_headers(self._foreign_value_serde)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the response."""
        response: SubscriptionResponseWrapper = value
        head = _head(RESPONSE_VERSION, response.hash)
        if response.foreign_value is None:
            return head
        return head + inner_serde(self._foreign_value_serde, "value").serialize(topic, response.foreign_value, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> SubscriptionResponseWrapper:
        """Deserialise the response, without partition; raises StreamsError for an unknown version."""
        version, hash, rest = _split_head(topic, data)
        if version != RESPONSE_VERSION:
            raise _unknown_version("SubscriptionResponseWrapper", topic, version, RESPONSE_VERSION)
        if not rest:
            return SubscriptionResponseWrapper(hash, None, None)
        value = inner_serde(self._foreign_value_serde, "value").deserialize(topic, rest, headers)
        return SubscriptionResponseWrapper(hash, value, None)


def combined_key(foreign_key: bytes, primary_key: bytes) -> bytes:
    """Return the key of a subscription in its store (Kafka class: CombinedKeySchema)."""
    return _INT.pack(len(foreign_key)) + foreign_key + primary_key


def combined_key_prefix(foreign_key: bytes) -> bytes:
    """Return the key prefix of all subscriptions to `foreign_key`."""
    return _INT.pack(len(foreign_key)) + foreign_key


def _head(version: int, hash: bytes | None, *more: int) -> bytes:
    if hash is None:
        return bytes((version | _NULL_HASH, *more))
    return bytes((version, *more)) + hash


def _split_head(topic: str, data: bytes) -> tuple[int, bytes | None, bytes]:
    """Return version, hash and the remaining bytes."""
    if not data:
        raise SerializationError(
            f"Cannot read an empty value from {topic!r}: a subscription or response has at least 1 byte."
        )
    if data[0] & _NULL_HASH:
        return data[0] & ~_NULL_HASH, None, data[1:]
    return data[0], data[1 : 1 + _HASH.size], data[1 + _HASH.size :]


def _unknown_version(kind: str, topic: str, version: int, known: int) -> StreamsError:
    return StreamsError(
        f"{kind} is of an incompatible version: {version} in {topic!r}, this release knows {known}. Update the "
        "application before it reads data of a newer release."
    )
