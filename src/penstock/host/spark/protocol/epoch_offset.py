"""The offset of the source: an epoch and its end positions.

A plain value, which Spark passes around and the checkpoint logs before the epoch runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from penstock.client.api import UNKNOWN_LEADER_EPOCH
from penstock.record import TopicPartition

_DIGEST_BYTES = 16


@dataclass(frozen=True)
class EpochOffset:
    """The offset of the source: an epoch and its end positions.

    Args:
        query_id: of the topology version.
        epoch: number of the epoch.
        planned_ms: the clock of the epoch.
        positions: the next offset of each partition, by source topic.
        partitions: see Placement; included so that a replay by a driver with other numbers is detected.
        sink_partitions: likewise.
        global_positions: the next offset of each partition, by topic of a global store; the records before it are in
            the global stores that the tasks of the epoch read.
        lagging: by topic, the partitions that had more to read; recorded if tasks may wait for them.
        idle_ms: how long tasks wait for partitions without more records.
        read_to_ms: upper bound (exclusive) of the timestamps read from aligned topics (see `planner.time_alignment`).
        leader_epochs: by source topic, the leader epoch of each partition when its end was requested, -1 if unknown
            (KIP-320).
        call_again_before: by answers topic, the end of each partition at the start of the run; failed answers before it
            are ignored, and their calls are made again.
    """

    query_id: str
    epoch: int
    planned_ms: int
    positions: Mapping[str, list[int]]
    partitions: list[int]
    sink_partitions: int
    global_positions: Mapping[str, list[int]] = field(default_factory=dict)
    lagging: Mapping[str, list[int]] = field(default_factory=dict)
    idle_ms: int = 0
    read_to_ms: int = 0
    leader_epochs: Mapping[str, list[int]] = field(default_factory=dict)
    call_again_before: Mapping[str, list[int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the offset as plain data, for Spark and the checkpoint's offset log."""
        fields = asdict(self)
        for later in ("leader_epochs", "call_again_before"):
            if not fields[later]:  # an offset of an earlier version of Penstock keeps its digest
                del fields[later]
        return fields

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> EpochOffset:
        """Return the offset that `to_json` turned into `fields`; raises TypeError for other fields."""
        return EpochOffset(**fields)

    def digest(self) -> str:
        """Return a digest of all fields (hexadecimal digits); equal offsets have equal digests."""
        return blake2b(orjson.dumps(self.to_json(), option=orjson.OPT_SORT_KEYS), digest_size=_DIGEST_BYTES).hexdigest()

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of `partition`."""
        return self.positions[partition.topic][partition.partition]

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Return the leader epoch of `partition`; -1 if unknown."""
        epochs = self.leader_epochs.get(partition.topic, ())
        return epochs[partition.partition] if partition.partition < len(epochs) else UNKNOWN_LEADER_EPOCH
