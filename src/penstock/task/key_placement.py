"""Detects topics partitioned by CRC32, the default of librdkafka's producers.

If their records meet those of a repartition topic, which murmur2 partitions, equal keys are in different tasks. It
checks the first keys of each partition, and stops as soon as the result is certain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final
from zlib import crc32

from penstock.config import StreamsConfig
from penstock.plan.partitioning import partition_for
from penstock.plan.subtopology import SourceSpec, SubtopologySpec
from penstock.record import RecordBatch, TopicPartition

_log = logging.getLogger(__name__)

_LEAST_CHANCES: Final = 1_000
"""Inverse chance at which a sample of keys is large enough.

By chance alone, it would be in one partition at most once in this many times.
"""
_MOST_RECORDS: Final = 1_000
"""Maximum number of checked records per partition."""

_told: set[tuple[str, str]] = set()
"""The applications and topics already logged by this process."""


class KeyPlacement:
    """The samples of one task.

    Args:
        spec: the nodes of the task; only topics read together with a repartition topic are checked.
        config: the configuration.
        counts: the number of partitions of each topic.
        described: returns the name of a node with its line in the program.
    """

    def __init__(
        self, spec: SubtopologySpec, config: StreamsConfig, counts: Mapping[str, int], described: Callable[[str], str]
    ) -> None:
        sources = [node for node in spec.nodes if isinstance(node, SourceSpec)]
        by_key = [node for node in sources if node.repartition and not node.broadcast]
        self._repartition = next((topic for node in by_key for topic in node.topics), None)
        beside = sources if self._repartition is not None else []
        self._readers = {topic: node.name for node in beside if not node.repartition for topic in node.topics}
        self._application_id = str(config["application.id"])
        self._counts = counts
        self._described = described
        self._samples: dict[TopicPartition, tuple[set[bytes], int]] = {}
        self._known: set[TopicPartition] = set()

    def look(self, partition: TopicPartition, batch: RecordBatch) -> None:
        """Add records of `partition`, keys as bytes, to its sample."""
        if partition.topic not in self._readers or partition in self._known:
            return
        count = self._counts.get(partition.topic, 1)
        keys, looked_at = self._samples.get(partition, (set(), 0))
        for key in batch.keys[: _MOST_RECORDS - looked_at]:
            if key is not None:
                keys.add(key)
            if count ** len(keys) >= _LEAST_CHANCES:
                break
        enough = count > 1 and count ** len(keys) >= _LEAST_CHANCES
        if not enough and count > 1 and looked_at + len(batch) < _MOST_RECORDS:
            self._samples[partition] = keys, looked_at + len(batch)
            return
        self._samples.pop(partition, None)
        self._known.add(partition)
        if enough and _is_of_crc32(keys, partition.partition, count):
            self._tell(partition.topic)

    def _tell(self, topic: str) -> None:
        if (self._application_id, topic) in _told:
            return
        _told.add((self._application_id, topic))
        _log.warning(
            "%s reads %s, whose keys are in the partitions that CRC32 chooses, the default of librdkafka and "
            "confluent-kafka. Records of %s meet them in this task, and are in the partitions that Kafka's murmur2 "
            "chooses: equal keys do not meet, and joins find nothing. Write the topic with "
            "partitioner=murmur2_random, or repartition what is read from it (docs/partitioners.md).",
            self._described(self._readers[topic]),
            topic,
            self._repartition,
        )


def _is_of_crc32(keys: set[bytes], partition: int, count: int) -> bool:
    """Return whether CRC32 puts all `keys` into `partition`, but murmur2 does not."""
    by_crc32 = all(crc32(key) % count == partition for key in keys)
    return by_crc32 and any(partition_for(key, count) != partition for key in keys)
