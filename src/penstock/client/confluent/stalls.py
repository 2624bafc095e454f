"""Partitions of which nothing arrives though they have more: a damaged batch may be in the way, for which librdkafka
asks again and again without a word."""

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
"""For how long nothing has arrived of a partition that has more before its next batch is looked at, each time."""

_LOOK_SECONDS = 1.0
_TIMEOUT_MS = 1_000
_MOST_OF_TIME = 10
"""How many times as long as a look the pause behind it is at least: a broker may be away."""

Ends = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns how far partitions can be read, as far as that is known."""


class Stalls:
    """Follows how far partitions are read."""

    def __init__(self, config: StreamsConfig, read_committed: bool) -> None:
        """Follow nothing. read_committed: as the consumer reads."""
        self._config = config
        self._read_committed = read_committed
        self._next: dict[TopicPartition, int] = {}
        self._since: dict[TopicPartition, float] = {}
        """Since when (s) the next record of each partition that is being read has been awaited."""
        self._looks_at = 0.0

    def begin(self, positions: Mapping[TopicPartition, int]) -> None:
        """Follow these partitions too, from these offsets on."""
        self._next.update(positions)
        self.resume(positions)

    def end(self, partitions: Collection[TopicPartition]) -> None:
        """Follow these partitions no longer."""
        for partition in partitions:
            self._next.pop(partition, None)
        self.pause(partitions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Await nothing of these partitions."""
        for partition in partitions:
            self._since.pop(partition, None)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Await records of these partitions from now on."""
        self._since.update(dict.fromkeys(partitions, time.monotonic()))

    def moved(self, partition: TopicPartition, offset: int) -> None:
        """Take that a partition is read up to `offset`."""
        self._next[partition] = offset
        if partition in self._since:
            self._since[partition] = time.monotonic()

    def look(self, ends: Ends) -> None:
        """Look at the next batch of a partition that has more, and of which nothing has arrived for long; mostly it is
        not time to. Raises CorruptRecordError for a damaged one."""
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
    """Raise CorruptRecordError if the batch at `offset` is damaged; where it cannot be looked at, nobody knows."""
    try:
        with Cluster(config, _TIMEOUT_MS, CONSUMER) as cluster:
            check_batch_at(cluster, partition, offset, read_committed)
    except CorruptRecordError:
        raise
    except (KafkaError, ConfigError) as error:  # its settings may not suit connections without librdkafka
        _log.debug("Nothing arrives of %s at offset %d, whose batch cannot be looked at: %s", partition, offset, error)
