"""Finds offsets by time in topics with a history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.host.spark.checkpoints.stored_history import open_history
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.history_bounds import live_position
from penstock.record import TopicPartition

OffsetsForTime = Callable[[Sequence[TopicPartition], int], Mapping[TopicPartition, int]]
"""Called with partitions and a time (ms).

Returns the first offset of each partition that is not older; partitions without such an offset are omitted.
"""


class HistoryOffsets:
    """Finds the first offset at or after a time, in the history of a partition and then in its topic.

    Args:
        description: of the application.
        offsets_for_time: finds offsets in topics.
    """

    def __init__(self, description: ApplicationDescription, offsets_for_time: OffsetsForTime) -> None:
        self._checkpoint = description.checkpoint
        self._histories = description.histories
        self._offsets_for_time = offsets_for_time

    def at(self, positions: Mapping[TopicPartition, int], time_ms: int) -> dict[TopicPartition, int]:
        """Return the first offset of each partition that is not older than `time_ms`.

        Partitions without such an offset are omitted. A history before the position of its partition is not read,
        because its files may be deleted.
        """
        past = {tp: row for tp, at in positions.items() if (row := self._in_history(tp, at, time_ms)) is not None}
        others = [tp for tp in positions if tp not in past]
        found = self._offsets_for_time(others, time_ms) if others else {}
        return {**{tp: live_position(self._histories, tp, offset) for tp, offset in found.items()}, **past}

    def _in_history(self, partition: TopicPartition, position: int, time_ms: int) -> int | None:
        """Return the offset of a row, None if all unread rows are older."""
        bounds = self._histories.get(partition.topic)
        if bounds is None or bounds.live(partition.partition, position) == position:
            return None
        offset = open_history(self._checkpoint, partition.topic, bounds).offset_at(partition.partition, time_ms)
        return offset if offset < bounds.end[partition.partition] else None
