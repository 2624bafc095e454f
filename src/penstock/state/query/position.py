"""How far into the source topics an answer has seen, and how far it must have seen (Kafka classes: Position,
PositionBound)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Position:
    """The offset of the last record that was taken in, a partition of a topic; a value, which nobody changes (Kafka
    class: Position). offsets: by topic and partition."""

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @staticmethod
    def empty_position() -> Position:
        """Return the position before all records."""
        return Position()

    @staticmethod
    def from_map(offsets: Mapping[str, Mapping[int, int]]) -> Position:
        """Return the position with the `offsets` given, by topic and partition."""
        return Position({topic: dict(partitions) for topic, partitions in offsets.items()})

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """Return this position with `offset` for a partition, unless it has a larger one."""
        partitions = self.partition_positions(topic)
        largest = max(offset, partitions.get(partition, offset))
        return Position({**self.offsets, topic: {**partitions, partition: largest}})

    def merge(self, other: Position | None) -> Position:
        """Return the larger offset of this and the `other` position, for each partition that one of them has."""
        merged = {topic: dict(partitions) for topic, partitions in self.offsets.items()}
        for topic, partitions in (other or Position()).offsets.items():
            own = merged.setdefault(topic, {})
            for partition, offset in partitions.items():
                own[partition] = max(offset, own.get(partition, offset))
        return Position(merged)

    @property
    def topics(self) -> frozenset[str]:
        """The topics of which something was seen."""
        return frozenset(self.offsets)

    def partition_positions(self, topic: str) -> Mapping[int, int]:
        """Return the offset of each partition of `topic` of which something was seen."""
        return self.offsets.get(topic, {})

    def is_empty(self) -> bool:
        """Return whether nothing was seen."""
        return not self.offsets

    def __str__(self) -> str:
        return f"Position{{position={ {topic: dict(each) for topic, each in self.offsets.items()} }}}"


@dataclass(frozen=True)
class PositionBound:
    """How far an answer must have seen (Kafka class: PositionBound). position: an empty one bounds nothing."""

    position: Position = Position()

    @staticmethod
    def unbounded() -> PositionBound:
        """Any answer will do."""
        return PositionBound()

    @staticmethod
    def at(position: Position) -> PositionBound:
        """An answer must have seen `position`, such as that of an earlier answer, or of records just written."""
        return PositionBound(position)

    def is_unbounded(self) -> bool:
        """Return whether any answer will do."""
        return self.position.is_empty()

    def __str__(self) -> str:
        return f"PositionBound{{position={self.position}}}"
