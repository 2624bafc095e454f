"""The format of stored entries. Keys have a two-byte prefix for the store; a digest replaces the end of a long key."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from penstock.state.layouts import after_prefix

STORE_SIZE: Final = 2
LONGEST_KEY: Final = 500
_KEPT: Final = 480
_DIGEST_SIZE: Final = 29  # prefix, 480 bytes and digest are 511 bytes, more than any shorter key
_LONG: Final = STORE_SIZE + _KEPT + _DIGEST_SIZE
_GROUPED: Final = STORE_SIZE + _KEPT
_KEY_LENGTH_SIZE: Final = 4


def bounds(number: bytes, from_key: bytes | None, to_key: bytes | None) -> tuple[bytes, bytes | None]:
    """Return the bounds of the stored keys of entries with from_key <= key < to_key.

    Other entries with the same first bytes as a bound may be within them too.
    """
    low = number if from_key is None else number + from_key[:_KEPT]
    if to_key is None:
        return low, after_prefix(number)
    if len(to_key) <= _KEPT:
        return low, number + to_key
    return low, after_prefix(number + to_key[:_KEPT])


def long_key(number: bytes, key: bytes) -> bytes:
    """Return the stored key of an entry with a long key."""
    return number + key[:_KEPT] + blake2b(key, digest_size=_DIGEST_SIZE).digest()


def long_value(key: bytes, value: bytes | None) -> bytes | None:
    """Return the stored value of an entry; long keys precede their value."""
    if value is None or len(key) <= LONGEST_KEY:
        return value
    return len(key).to_bytes(_KEY_LENGTH_SIZE, "big") + key + value


def value_after_key(key: bytes, stored: bytes) -> bytes:
    """Return the value of a long key without the key before it."""
    return stored[_KEY_LENGTH_SIZE + len(key) :]


def may_share(stored: bytes) -> bool:
    """Return whether other keys may have the same first bytes as a stored key."""
    return len(stored) >= _GROUPED


def same_group(one: bytes, other: bytes) -> bool:
    """Return whether two stored keys share their first bytes. Their order then depends on the complete keys."""
    return len(one) >= _GROUPED and one[:_GROUPED] == other[:_GROUPED]


def in_order(
    chunk: list[tuple[bytes, bytes]], from_key: bytes | None, to_key: bytes | None, reverse: bool
) -> Iterable[tuple[bytes, bytes]]:
    """Return the chunk's entries with from_key <= key < to_key, ordered by complete keys.

    Entries outside of these bounds can only be among those that share their first bytes with a bound.
    """
    stored, values = zip(*chunk, strict=True)
    if max(map(len, stored)) < _GROUPED:
        return zip([key[STORE_SIZE:] for key in stored], values, strict=True)
    return [
        entry
        for entry in sorted(map(_whole, stored, values), reverse=reverse)
        if (from_key is None or entry[0] >= from_key) and (to_key is None or entry[0] < to_key)
    ]


def _whole(stored: bytes, value: bytes) -> tuple[bytes, bytes]:
    if len(stored) != _LONG:
        return stored[STORE_SIZE:], value
    start = _KEY_LENGTH_SIZE + int.from_bytes(value[:_KEY_LENGTH_SIZE], "big")
    return value[_KEY_LENGTH_SIZE:start], value[start:]
