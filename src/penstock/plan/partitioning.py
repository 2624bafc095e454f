"""The partition of a key, exactly as in Kafka's default partitioner.

It is murmur2 of the serialised key, modulo the number of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from penstock.record import Headers, Int64Array
from penstock.serdes import Serde
from penstock.windows import Windowed

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: its multiples are evenly spread for any step."""


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of `data` as an unsigned number (Kafka: Utils.murmur2)."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def murmur2_column(data: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    """Return the murmur2 of each element of `data`; elements of equal length are hashed together."""
    hashes = np.empty(len(data), np.uint32)
    lengths = np.fromiter(map(len, data), np.int64, len(data))
    starts = np.cumsum(lengths) - lengths
    content = np.frombuffer(b"".join(data), np.uint8)
    for length in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == length)
        windows = sliding_window_view(content, length) if length else np.empty((1, 0), np.uint8)
        rows = windows[starts[places] if length else np.zeros(len(places), np.int64)]
        hashes[places] = _murmur2_of_length(rows, length)
    return hashes


def _murmur2_of_length(rows: npt.NDArray[np.uint8], length: int) -> npt.NDArray[np.uint32]:
    m, whole = np.uint32(_M), length & ~3
    h = np.full(len(rows), (_SEED ^ length) & _MASK, np.uint32)
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4")
    for column in range(whole // 4):
        k = words[:, column] * m
        h = (h * m) ^ ((k ^ (k >> np.uint32(24))) * m)
    if whole != length:
        tail = np.zeros(len(rows), np.uint32)
        for place in range(whole, length):
            tail |= rows[:, place].astype(np.uint32) << np.uint32(8 * (place - whole))
        h = (h ^ tail) * m
    h = (h ^ (h >> np.uint32(13))) * m
    return h ^ (h >> np.uint32(15))


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition of a serialised key, from 0 to `partitions` - 1.

    Kafka class: BuiltInPartitioner.partitionForKey.
    """
    return 0 if partitions == 1 else (murmur2(key) & _POSITIVE) % partitions


def partition_column(keys: Sequence[bytes | None], partitions: int, null_key_partition: int) -> Int64Array:
    """Return the partition of each key as an int64 array; a None key gets `null_key_partition`."""
    if partitions == 1:
        return np.zeros(len(keys), np.int64)
    known = [key for key in keys if key is not None]
    hashed = (murmur2_column(known) & np.uint32(_POSITIVE)) % np.uint32(partitions)
    if len(known) == len(keys):
        return hashed.astype(np.int64)
    chosen = np.full(len(keys), null_key_partition, np.int64)
    chosen[np.fromiter((key is not None for key in keys), np.bool_, len(keys))] = hashed
    return chosen


def keyless_partitions(offsets: Int64Array, timestamps: Int64Array, task_partition: int, partitions: int) -> Int64Array:
    """Return the partitions of records without a key, from 0 to `partitions` - 1.

    They are spread over all partitions, as by a producer, but a replay chooses the same ones.

    Args:
        offsets: the offsets of the input records that they result from, -1 without one.
        timestamps: the timestamps of the records, in ms; they distinguish records from punctuators.
        task_partition: the partition of the sending task.
        partitions: the number of partitions of the topic.
    """
    mixed = offsets.astype(np.uint64) * _SPREAD + timestamps.astype(np.uint64)
    mixed = (mixed * _SPREAD) >> np.uint64(32)
    chosen: Int64Array = ((mixed + np.uint64(task_partition)) % np.uint64(partitions)).astype(np.int64)
    return chosen


@dataclass(frozen=True)
class WindowedStreamPartitioner:
    """Sends all windows of a key to the partition of the key.

    Kafka class: WindowedStreamPartitioner.

    Args:
        inner: the serde of the key within the window.
    """

    inner: Serde

    def __call__(
        self, topic: str, key: Windowed[Any] | None, value: Any, headers: Headers, partitions: int
    ) -> set[int] | None:
        """Return the partition of a windowed key, or None (Kafka's default) without a key."""
        if key is None:
            return None
        return {partition_for(self.inner.serialize(topic, key.key, headers), partitions)}
