"""The offset of the source: an epoch, and how far it reads. A plain value, which Spark hands around and the checkpoint
logs before the epoch runs."""

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
    """The offset of the source: an epoch, and how far it has read.

    planned_ms: the clock of the epoch. positions: of each source topic, the next offset of each partition. partitions,
    sink_partitions: see Placement; included so that a replay by a driver with other numbers is detected.
    global_positions: of each topic of a global store, the next offset of each partition; the records before it are in
        the global stores that the tasks of the epoch read.
    lagging: by topic, the partitions that had more to read; kept where tasks may wait for them. idle_ms: how long tasks
    wait for partitions that had no more. read_to_ms: the time before which aligned topics are read (see
    `planner.time_alignment`). leader_epochs: of each source topic, the epoch of the leader of each partition when its
    end was asked for, -1 if it is unknown (KIP-320).
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

    def to_json(self) -> dict[str, Any]:
        """Return the offset as plain data, for Spark and for the offset log of the checkpoint."""
        fields = asdict(self)
        if not self.leader_epochs:  # an offset of an earlier version of Penstock keeps its digest
            del fields["leader_epochs"]
        return fields

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> EpochOffset:
        """Return the offset that `to_json` gave `fields` for; raises TypeError if they are others."""
        return EpochOffset(**fields)

    def digest(self) -> str:
        """Return a digest of all fields (hexadecimal digits): equal offsets have equal ones."""
        return blake2b(orjson.dumps(self.to_json(), option=orjson.OPT_SORT_KEYS), digest_size=_DIGEST_BYTES).hexdigest()

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of `partition`."""
        return self.positions[partition.topic][partition.partition]

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Return the epoch of the leader that `partition` had; -1 if it is unknown."""
        epochs = self.leader_epochs.get(partition.topic, ())
        return epochs[partition.partition] if partition.partition < len(epochs) else UNKNOWN_LEADER_EPOCH
