"""Divides the limits of an instance's waiting input among the consumer, tasks and current runs.

The consumer counts too, because its memory belongs to the same process. librdkafka has one queue for all partitions and
fetches nothing while it is full. One request to each broker can exceed that limit: a batch of each partition, together
no more than `fetch.max.bytes`, which librdkafka derives from the limit of its queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.config import StreamsConfig
from penstock.host.threads.task_manager import BufferLimits

_PARTS: Final = 8
"""The parts of penstock.buffer.max.bytes. The consumer's queue and a request get one part each. Waiting records of
tasks get three parts, and so do their runs, which may have taken all waiting records."""
_LEAST_FETCH_BYTES: Final = 16 * 1024
_MOST_FETCH_BYTES: Final = 1024 * 1024
"""For all partitions together. A broker answers with a whole batch of the first partition, which may be just as large,
and with the same number of bytes of the others. So a quiet partition with small batches is in nearly every answer."""
_SMALL_RECORD_BYTES: Final = 32
"""The size of a small record. A request for a partition asks for as many records of this size as may wait for it."""


def limits(config: StreamsConfig) -> BufferLimits:
    """Return the limits of records that wait for the tasks of an instance."""
    records, size = config["buffered.records.per.partition"], 3 * config["penstock.buffer.max.bytes"] // _PARTS
    fetched = max(1, records // 2)  # half: operators that touch each key once per run cost less in long runs
    fetched_bytes = size // 8
    return BufferLimits(records - fetched, size - fetched_bytes, fetched, fetched_bytes)


def consumer_bounds(config: StreamsConfig, partitions: int) -> Mapping[str, int]:
    """Return the consumer's default settings, which the user can override. partitions: the most partitions that it may
    read."""
    records, part = config["buffered.records.per.partition"], config["penstock.buffer.max.bytes"] // _PARTS
    wanted = min(records * _SMALL_RECORD_BYTES, min(part, _MOST_FETCH_BYTES) // max(1, partitions))
    return {
        "queued.min.messages": min(records, 100_000),
        "queued.max.messages.kbytes": max(1, min(part, 2 * _MOST_FETCH_BYTES) // 1024),
        "fetch.message.max.bytes": max(wanted, _LEAST_FETCH_BYTES),
    }
