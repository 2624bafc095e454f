"""The byte layouts of stores' keys and values beyond a serde's, as in Kafka Streams.

A timestamped value is its timestamp (ms, 8 bytes, big-endian) and the value. No I/O, no serdes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
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
    """Prefix each value with its timestamp (ms); None stays None."""
    heads: list[bytes] = timestamps.astype(">i8").view(f"V{TIMESTAMP_SIZE}").tolist()
    try:
        return list(map(add, heads, values))  # a None in the column raises TypeError: fall back to the slow path
    except TypeError:
        return [None if value is None else head + value for head, value in zip(heads, values, strict=True)]


def split_timestamps(data: list[bytes]) -> tuple[list[bytes], Int64Array]:
    """Return the values without their timestamps, and the timestamps (ms)."""
    heads = b"".join([item[:TIMESTAMP_SIZE] for item in data])
    return [item[TIMESTAMP_SIZE:] for item in data], np.frombuffer(heads, ">i8").astype(np.int64)


def after(key: bytes) -> bytes:
    """Return the smallest key above `key`; turns an inclusive upper bound into an exclusive one."""
    return key + b"\x00"


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the exclusive upper bound of all keys with `prefix`, or None if unbounded."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None


# ---------- entries in time segments
#
# The key of such an entry is the number of its segment (8 bytes), the user's key, and a suffix that starts with the
# time of the entry's expiry. Without the segment it is the key that Kafka writes to the changelog topic.

SEGMENT_SIZE = TIMESTAMP_SIZE
"""Size of a segment number in bytes."""

pack_segment = _TIMESTAMP.pack
"""Return a segment number as bytes; their byte order is the order of segments."""

AFTER_SEGMENTS = b"\x80"
"""A bound above all segment numbers; keys from here on belong to no segment."""

_WINDOW_SUFFIX = struct.Struct(">qi")
_SESSION_SUFFIX = struct.Struct(">qq")
WINDOW_SUFFIX_SIZE = _WINDOW_SUFFIX.size
SESSION_SUFFIX_SIZE = _SESSION_SUFFIX.size
SEQUENCE_SIZE = WINDOW_SUFFIX_SIZE - TIMESTAMP_SIZE
MAX_SEQUENCE = (1 << 31) - 1
LAST_SUFFIX = b"\xff" * SEQUENCE_SIZE
"""Ends the last possible entry key of a window: the first bit of a sequence number may mark the entry."""

pack_window = _WINDOW_SUFFIX.pack
"""Return the start of a window (ms) and the value's sequence number as key suffix."""

pack_session = _SESSION_SUFFIX.pack
"""Return the end and the start of a session (ms) as a key suffix."""


VERSION_SUFFIX_SIZE = _SESSION_SUFFIX.size

pack_version = _SESSION_SUFFIX.pack
"""Return the end and the start of a version's validity (ms) as a key suffix."""

LATEST_PREFIX = b"\xff"
"""The prefix of the keys of latest versions, above all segments."""


def window_start_of(key: bytes) -> int:
    """Return the start (ms) of an entry's window."""
    start: int = _TIMESTAMP.unpack_from(key, len(key) - WINDOW_SUFFIX_SIZE)[0]
    return start


def sequence_of(key: bytes) -> int:
    """Return the sequence number of an entry of a window store, without its mark."""
    return int.from_bytes(key[-SEQUENCE_SIZE:], "big") & MAX_SEQUENCE


def session_of(key: bytes) -> tuple[int, int]:
    """Return the end and the start (ms) of an entry's session."""
    end, start = _SESSION_SUFFIX.unpack_from(key, len(key) - SESSION_SUFFIX_SIZE)
    return end, start


def version_of(key: bytes) -> tuple[int, int]:
    """Return the end and the start (ms) of the validity of an entry's version."""
    valid_to, valid_from = _SESSION_SUFFIX.unpack_from(key, len(key) - VERSION_SUFFIX_SIZE)
    return valid_to, valid_from


def times_of(keys: Sequence[bytes], suffix_size: int) -> Int64Array:
    """Return the expiry time (ms) of each key: the first part of its suffix of `suffix_size` bytes."""
    stop = TIMESTAMP_SIZE - suffix_size
    return np.frombuffer(b"".join([key[-suffix_size:stop] for key in keys]), ">i8").astype(np.int64)


def window_keys(keys: Sequence[bytes], starts: Int64Array, segment_interval_ms: int) -> list[bytes]:
    """Return the entry key of each key and its window, given the starts (ms)."""
    segments = (starts // segment_interval_ms).astype(">i8").tobytes()
    times = starts.astype(">i8").tobytes()
    sequence = bytes(SEQUENCE_SIZE)
    at = range(0, len(times), TIMESTAMP_SIZE)
    return [segments[i : i + 8] + key + times[i : i + 8] + sequence for i, key in zip(at, keys, strict=True)]


def duplicate_keys(
    keys: Sequence[bytes], starts: Int64Array, numbers: Int64Array, segment_interval_ms: int
) -> list[bytes]:
    """Return the entry key of each key and its window, given the starts (ms) and sequence numbers."""
    segments = (starts // segment_interval_ms).astype(">i8").tobytes()
    suffixes = np.empty(len(starts), [("start", ">i8"), ("number", ">u4")])
    suffixes["start"], suffixes["number"] = starts, numbers
    ends = suffixes.tobytes()
    at = range(0, len(segments), SEGMENT_SIZE), range(0, len(ends), WINDOW_SUFFIX_SIZE)
    return [
        segments[i : i + SEGMENT_SIZE] + key + ends[j : j + WINDOW_SUFFIX_SIZE]
        for i, j, key in zip(*at, keys, strict=True)
    ]


def session_keys(keys: Sequence[bytes], starts: Int64Array, ends: Int64Array, segment_interval_ms: int) -> list[bytes]:
    """Return the entry key of each key and its session, given starts and ends (ms)."""
    segments = (ends // segment_interval_ms).astype(">i8").tobytes()
    first, last = starts.astype(">i8").tobytes(), ends.astype(">i8").tobytes()
    at = range(0, len(first), TIMESTAMP_SIZE)
    return [segments[i : i + 8] + key + last[i : i + 8] + first[i : i + 8] for i, key in zip(at, keys, strict=True)]


def after_last(key: bytes, latest_suffix: bytes) -> bytes:
    """Return a bound above all keys up to `key` with suffixes up to `latest_suffix`.

    It is also above all prefixes of `key`, since a suffix sorts among the bytes of longer keys.
    """
    return after(max(key[:size] + latest_suffix for size in range(len(key) + 1)))
