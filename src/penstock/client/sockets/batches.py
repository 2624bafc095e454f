"""Checks one batch of a partition as the broker sends it.

librdkafka retries forever, without an error, if the length of a batch or of a record in it is damaged. Rule: a batch
that may be intact is considered intact. This module does not read records.
"""

from __future__ import annotations

import struct
from typing import Final

from penstock.client.failures import CORRUPT_MESSAGE, Right
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.connection import Api
from penstock.record import TopicPartition

FETCH: Final = Api("Fetch", 1, 4, 12)

_MOST_BYTES: Final = 1024 * 1024
"""Requested size (bytes); a broker sends the first batch completely, whatever its size."""

_BEGIN: Final = struct.Struct(">qiib")
"""Base offset, length, leader epoch and format of a batch."""

_HEADER_SIZE, _LENGTH_PREFIX, _FORMAT = 61, 12, 2
_ATTRIBUTES_AT, _COUNT_AT, _COMPRESSION_MASK = 21, 57, 0x07


def check_batch_at(cluster: Cluster, partition: TopicPartition, offset: int, read_committed: bool) -> None:
    """Check the batch of `partition` that contains the record at `offset`.

    Raises:
        CorruptRecordError: its lengths are damaged.
        KafkaError: the brokers do not send it.
    """
    doing, right = f"reading {partition} at offset {offset}", Right("READ", "topic", partition.topic)
    one = {"partition": partition.partition, "fetch_offset": offset, "partition_max_bytes": _MOST_BYTES}
    unknown = {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
    body = {
        "cluster_id": None,
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": _MOST_BYTES,
        "isolation_level": int(read_committed),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": partition.topic, "partitions": [one | unknown]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    answer = cluster.ask(cluster.leader(partition, doing), FETCH, body, doing)
    for found in (each for topic in answer["responses"] for each in topic["partitions"]):
        cluster.check(found, doing, right)
        damage = _damage(bytes(found["records"] or b""))
        if damage is not None:
            cluster.check({"error_code": CORRUPT_MESSAGE, "error_message": damage}, doing, right)


def _damage(records: bytes) -> str | None:
    """Return the damage of the first batch in `records`, None if it is intact."""
    if not records:
        return None
    if len(records) < _HEADER_SIZE:
        return f"the broker has sent {len(records)} bytes, less than the header of a batch"
    _, length, _, format = _BEGIN.unpack_from(records)
    size = _LENGTH_PREFIX + length
    if format != _FORMAT:
        return None  # librdkafka reads older formats, and reports others
    if not _HEADER_SIZE <= size <= len(records):
        return f"the batch claims {size} bytes, of {len(records)} that the broker has sent"
    is_plain = not records[_ATTRIBUTES_AT + 1] & _COMPRESSION_MASK
    count = int.from_bytes(records[_COUNT_AT:_HEADER_SIZE], signed=True)
    if is_plain and not _holds(records[_HEADER_SIZE:size], count):
        return f"the lengths of its {count} records are not that of the batch, {size} bytes"
    return None


def _holds(records: bytes, count: int) -> bool:
    """Return whether `records` contains exactly `count` records, according to their lengths."""
    at = 0
    for _ in range(count):
        length, shift = 0, 0
        while at < len(records) and shift < 35:
            byte = records[at]
            length, shift, at = length | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                break
        size = (length >> 1) ^ -(length & 1)
        at += size
        if size <= 0 or at > len(records):  # no record is empty: it is missing at the end
            return False
    return at == len(records)
