"""The position of an answer in the source topics, and bounds on it (Kafka classes: Position, PositionBound)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Position:
    """The offset of the last processed record per partition (Kafka class: Position).

    An immutable value.

    Args:
        offsets: by topic and partition.
    """

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @staticmethod
    def empty_position() -> Position:
        """Return the position before all records."""
        return Position()

    @staticmethod
    def from_map(offsets: Mapping[str, Mapping[int, int]]) -> Position:
        """Return a position with `offsets` by topic and partition."""
        return Position({topic: dict(partitions) for topic, partitions in offsets.items()})

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """Return this position with `offset` for a partition, unless the current one is larger."""
        partitions = self.partition_positions(topic)
        largest = max(offset, partitions.get(partition, offset))
        return Position({**self.offsets, topic: {**partitions, partition: largest}})

    def merge(self, other: Position | None) -> Position:
        """Return the larger offset of this and the `other` position, for each partition in either."""
        merged = {topic: dict(partitions) for topic, partitions in self.offsets.items()}
        for topic, partitions in (other or Position()).offsets.items():
            own = merged.setdefault(topic, {})
            for partition, offset in partitions.items():
                own[partition] = max(offset, own.get(partition, offset))
        return Position(merged)

    @property
    def topics(self) -> frozenset[str]:
        """The topics with processed records."""
        return frozenset(self.offsets)

    def partition_positions(self, topic: str) -> Mapping[int, int]:
        """Return the offsets of `topic` by partition, for partitions with processed records."""
        return self.offsets.get(topic, {})

    def is_empty(self) -> bool:
        """Return whether the position is before all records."""
        return not self.offsets

    def __str__(self) -> str:
        return f"Position{{position={ {topic: dict(each) for topic, each in self.offsets.items()} }}}"


@dataclass(frozen=True)
class PositionBound:
    """The required position of an answer (Kafka class: PositionBound).

    Args:
        position: the required position; an empty one accepts any answer.
    """

    position: Position = Position()

    @staticmethod
    def unbounded() -> PositionBound:
        """Return a bound that accepts any answer."""
        return PositionBound()

    @staticmethod
    def at(position: Position) -> PositionBound:
        """Return a bound that requires `position`, such as that of an earlier answer."""
        return PositionBound(position)

    def is_unbounded(self) -> bool:
        """Return whether the bound accepts any answer."""
        return self.position.is_empty()

    def __str__(self) -> str:
        return f"PositionBound{{position={self.position}}}"
