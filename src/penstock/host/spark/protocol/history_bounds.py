"""The offsets of a topic's history in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.record import TopicPartition


@dataclass(frozen=True)
class HistoryBounds:
    """The offsets of a history, which end where the topic continues; so they may be negative.

    Args:
        id: the digest of the stored history.
        first: the offset of the first row, by partition.
        end: the offset of the topic after the last row, by partition.
    """

    id: str
    first: tuple[int, ...]
    end: tuple[int, ...]

    def live(self, partition: int, position: int) -> int:
        """Return `position`, or the first offset of the topic after the history if that is larger.

        A partition that the topic got later has no history.
        """
        return max(position, self.end[partition]) if partition < len(self.end) else position

    def is_read(self, positions: Sequence[int]) -> bool:
        """Return whether `positions`, by partition, are after the whole history."""
        return all(position >= end for position, end in zip(positions, self.end, strict=False))


def live_position(histories: Mapping[str, HistoryBounds], partition: TopicPartition, position: int) -> int:
    """Return the offset that brokers know of `position`.

    Within a history, it is the first offset of the topic after it.
    """
    bounds = histories.get(partition.topic)
    return position if bounds is None else bounds.live(partition.partition, position)
