"""How the bounds of what waits in an instance are divided: between what the consumer has fetched, what waits for tasks,
and the runs that go on.

The consumer counts too, for its memory is that of the same process. librdkafka has one queue for all partitions: while
it has as much as allowed, nothing is fetched. Beyond that is what one request to each broker brings: a batch of each
partition, and together no more than `fetch.max.bytes`, which librdkafka derives from the bound of its queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.config import StreamsConfig
from penstock.host.threads.task_manager import BufferLimits

_PARTS: Final = 8
"""Of the bytes, the consumer's queue and a request have one part each; three are for what waits for tasks, and as many
for their runs, which may have taken all that waited."""
_LEAST_FETCH_BYTES: Final = 16 * 1024
_MOST_FETCH_BYTES: Final = 1024 * 1024
"""Of all partitions together. A broker answers with a whole batch of the first partition, which may be as large again,
and with as much of the others: so a quiet one, whose batches are small, is in nearly every answer."""
_SMALL_RECORD_BYTES: Final = 32
"""A request for a partition asks for as many records as may wait of it, if they are as small as that."""


def limits(config: StreamsConfig) -> BufferLimits:
    """Return how much may wait for the tasks of an instance."""
    records, size = config["buffered.records.per.partition"], 3 * config["penstock.buffer.max.bytes"] // _PARTS
    fetched = max(1, records // 2)  # half: operators that touch each key once a run cost less in long runs
    fetched_bytes = size // 8
    return BufferLimits(records - fetched, size - fetched_bytes, fetched, fetched_bytes)


def consumer_bounds(config: StreamsConfig, partitions: int) -> Mapping[str, int]:
    """Return what the consumer of an instance is made with if the user has not given it. partitions: how many it may
    read at most."""
    records, part = config["buffered.records.per.partition"], config["penstock.buffer.max.bytes"] // _PARTS
    wanted = min(records * _SMALL_RECORD_BYTES, min(part, _MOST_FETCH_BYTES) // max(1, partitions))
    return {
        "queued.min.messages": min(records, 100_000),
        "queued.max.messages.kbytes": max(1, min(part, 2 * _MOST_FETCH_BYTES) // 1024),
        "fetch.message.max.bytes": max(wanted, _LEAST_FETCH_BYTES),
    }
