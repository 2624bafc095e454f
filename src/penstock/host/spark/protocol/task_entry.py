"""The entry of a task in a manifest, and the places of its carried rows.

Planner and workers send these values to one another, and the files of the checkpoint contain them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.record import TopicPartition


@dataclass(frozen=True)
class TaskEntry:
    """The entry of one task in a manifest.

    Args:
        head: the position (hex) after its last commit, empty before the first.
        segments: its log of live segments from `log_to_json`; decoded only by tasks that need it.
        due_ms: when its next wall-clock punctuation is due, None for never.
        carried: the entry from `write_carried` for its file of rows for the next epoch, None without rows.
        ahead: its input partitions (topic and number) that are ahead of others by more than
            partition.pause.threshold.ms.
        waits_for_answers: whether it takes nothing but answers of calls, because a store of waiting records is full.
        calls_head: the position (hex) after its last commit that changed a store of waiting records of calls.
    """

    head: str = ""
    segments: Mapping[str, Any] = field(default_factory=lambda: {"deltas": [], "snapshots": []})
    due_ms: int | None = None
    carried: Mapping[str, Any] | None = None
    ahead: tuple[TopicPartition, ...] = ()
    waits_for_answers: bool = False
    calls_head: str = ""

    def fields(self) -> tuple[Any, ...]:
        """Return the entry as plain data, for `of_fields`."""
        carried = None if self.carried is None else dict(self.carried)
        ahead = tuple(map(tuple, self.ahead))
        return self.head, dict(self.segments), self.due_ms, carried, ahead, self.waits_for_answers, self.calls_head

    @staticmethod
    def of_fields(fields: Sequence[Any]) -> TaskEntry:
        """Return the entry that was turned into `fields`."""
        head, segments, due_ms, carried, ahead, *rest = fields  # `rest` is empty in manifests of earlier versions
        return TaskEntry(head, segments, due_ms, carried, tuple(TopicPartition(*each) for each in ahead), *rest)

    def ids(self) -> set[str]:
        """Return the ids (hex) of all live segments and of the file of carried rows."""
        files = {info["id"] for kind in ("deltas", "snapshots") for info in self.segments[kind]}
        return files if self.carried is None else {*files, self.carried["id"]}

    def places(self, task: str) -> Iterator[tuple[TopicPartition, CarriedRange]]:
        """Yield the place of the carried rows of each partition; task: the id of this entry's task."""
        if self.carried is not None:
            for topic, places in self.carried["places"].items():
                for partition, *place in places:
                    yield TopicPartition(topic, partition), CarriedRange(task, self.carried["id"], *place)

    def held(self) -> dict[TopicPartition, int]:
        """Return the size in bytes of the rows of each partition that the task holds back."""
        held = () if self.carried is None else self.carried["held"]
        return {TopicPartition(topic, partition): size for topic, partition, size in held}


class CarriedRange(NamedTuple):
    """The place of rows for one consumer.

    Args:
        task: the task that wrote them.
        file: id (hex) of its file.
        offset: first byte in the file.
        length: number of bytes.
        checksum: CRC-32 of the bytes.
    """

    task: str
    file: str
    offset: int
    length: int
    checksum: int
