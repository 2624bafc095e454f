"""Detection of stalled partitions: no records arrive although the partition has more.

The cause may be a damaged batch, which librdkafka fetches again and again without an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping

from penstock.client.settings import CONSUMER
from penstock.client.sockets.batches import check_batch_at
from penstock.client.sockets.cluster import Cluster
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, CorruptRecordError, KafkaError
from penstock.record import TopicPartition

_log = logging.getLogger(__name__)

STALLED_SECONDS = 5.0
"""Time (s) without records before each check of the next batch of an unfinished partition."""

_LOOK_SECONDS = 1.0
_TIMEOUT_MS = 1_000
_MOST_OF_TIME = 10
"""Minimum ratio of the pause after a check to its duration. A broker may be unavailable."""

Ends = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns the readable ends of partitions, omitting unknown ones."""


class Stalls:
    """Tracks the progress of partitions.

    Args:
        config: the configuration of the application.
        read_committed: the isolation level of the consumer.
    """

    def __init__(self, config: StreamsConfig, read_committed: bool) -> None:
        self._config = config
        self._read_committed = read_committed
        self._next: dict[TopicPartition, int] = {}
        self._since: dict[TopicPartition, float] = {}
        """Start of the wait (s, monotonic) for the next record, by partition. Paused partitions are missing."""
        self._looks_at = 0.0

    def begin(self, positions: Mapping[TopicPartition, int]) -> None:
        """Track these partitions too, from these offsets."""
        self._next.update(positions)
        self.resume(positions)

    def end(self, partitions: Collection[TopicPartition]) -> None:
        """Stop tracking these partitions."""
        for partition in partitions:
            self._next.pop(partition, None)
        self.pause(partitions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Expect no records of these partitions."""
        for partition in partitions:
            self._since.pop(partition, None)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Expect records of these partitions from now on."""
        self._since.update(dict.fromkeys(partitions, time.monotonic()))

    def moved(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of a partition to `offset`."""
        self._next[partition] = offset
        if partition in self._since:
            self._since[partition] = time.monotonic()

    def look(self, ends: Ends) -> None:
        """Check the next batch of a stalled partition; most calls return without a check.

        Raises CorruptRecordError if the batch is damaged.
        """
        began = time.monotonic()
        if began < self._looks_at:
            return
        silent = [partition for partition, since in self._since.items() if began - since >= STALLED_SECONDS]
        known = ends(silent) if silent else {}
        stalled = next((partition for partition, end in known.items() if self._next[partition] < end), None)
        if stalled is not None:
            self._since[stalled] = began
            check_stalled(self._config, stalled, self._next[stalled], self._read_committed)
        now = time.monotonic()
        self._looks_at = now + max(_LOOK_SECONDS, _MOST_OF_TIME * (now - began))


def check_stalled(config: StreamsConfig, partition: TopicPartition, offset: int, read_committed: bool) -> None:
    """Raise CorruptRecordError if the batch at `offset` is damaged. A failed check only logs a debug line."""
    try:
        with Cluster(config, _TIMEOUT_MS, CONSUMER) as cluster:
            check_batch_at(cluster, partition, offset, read_committed)
    except CorruptRecordError:
        raise
    except (KafkaError, ConfigError) as error:  # its settings may not suit connections without librdkafka
        _log.debug("Nothing arrives of %s at offset %d, whose batch cannot be looked at: %s", partition, offset, error)
