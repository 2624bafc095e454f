"""How keys and values of stores are laid out as bytes, where that is more than a serde: the same layouts as Kafka
Streams has.

A timestamped value is its timestamp (ms, 8 bytes, big-endian) and the value. No I/O, no serdes.
"""

from __future__ import annotations

import struct
from operator import add

import numpy as np

from penstock.record import Int64Array

_TIMESTAMP = struct.Struct(">q")
TIMESTAMP_SIZE = _TIMESTAMP.size

pack_timestamp = _TIMESTAMP.pack
"""Return a timestamp (ms) as 8 bytes, big-endian."""


def timestamp_of(data: bytes) -> int:
    """Return the timestamp (ms) of a timestamped value."""
    timestamp: int = _TIMESTAMP.unpack_from(data)[0]
    return timestamp


def join_timestamps(timestamps: Int64Array, values: list[bytes | None]) -> list[bytes | None]:
    """Return each of `values` behind its timestamp (ms), None for None."""
    packed = timestamps.astype(">i8").tobytes()
    heads = [packed[at : at + TIMESTAMP_SIZE] for at in range(0, len(packed), TIMESTAMP_SIZE)]
    try:
        return list(map(add, heads, values))  # a None in the column raises TypeError: the careful way follows
    except TypeError:
        return [None if value is None else head + value for head, value in zip(heads, values, strict=True)]


def split_timestamps(data: list[bytes]) -> tuple[list[bytes], Int64Array]:
    """Return the values without their timestamps, and the timestamps (ms)."""
    heads = b"".join([item[:TIMESTAMP_SIZE] for item in data])
    return [item[TIMESTAMP_SIZE:] for item in data], np.frombuffer(heads, ">i8").astype(np.int64)


def after(key: bytes) -> bytes:
    """Return the smallest key above `key`: makes an inclusive upper bound an exclusive one."""
    return key + b"\x00"


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest key above all keys that begin with `prefix`, None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
