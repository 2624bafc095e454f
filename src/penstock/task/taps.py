"""The taps of a task: the last records that reach some nodes, for inspecting a running application.

A task without taps checks one empty dict per batch. Taps do not affect the task's results.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from penstock.processor.row_partitions import RowPartitions
from penstock.record import Headers, RecordBatch


class TappedRecord(NamedTuple):
    """A record that has reached a node.

    Args:
        task: the id of the task.
        topic, partition, offset: of the input record; no topic and -1 without one, as in a punctuation.
        tapped_ms: the task's wall-clock time at the tap (ms).
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    task: str
    topic: str | None
    partition: int
    offset: int
    tapped_ms: int


class Taps:
    """The taps of one task, by node.

    Args:
        task: the id of the task.
    """

    def __init__(self, task: str) -> None:
        self._task = task
        self._kept: dict[str, deque[TappedRecord]] = {}

    @property
    def are_open(self) -> bool:
        """Whether any taps are open: records must be objects then."""
        return bool(self._kept)

    def open(self, node: str, limit: int) -> bool:
        """Keep the last `limit` records that reach `node`; return whether the tap is new."""
        kept = self._kept.get(node)
        if kept is None or kept.maxlen != limit:
            self._kept[node] = deque(kept or (), limit)
        return kept is None

    def close(self, node: str) -> bool:
        """Stop keeping the records of `node`; return whether they were kept."""
        return self._kept.pop(node, None) is not None

    def records(self, node: str) -> list[TappedRecord]:
        """Return the last records that have reached `node`, newest last."""
        return list(self._kept.get(node, ()))

    def take(self, node: str, partitions: RowPartitions, batch: RecordBatch, now_ms: int) -> None:
        """Keep the last records of a batch that reaches `node`.

        partitions: those of the input records.
        """
        kept = self._kept.get(node)
        if kept is None:
            return
        first = max(len(batch) - (kept.maxlen or 0), 0)
        for row in range(first, len(batch)):
            kept.append(
                TappedRecord(
                    batch.keys[row],
                    batch.values[row],
                    int(batch.timestamps[row]),
                    batch.headers_at(row),
                    self._task,
                    *partitions.at(row),
                    int(batch.offsets[row]),
                    now_ms,
                )
            )

    def take_record(self, node: str, record: TappedRecord) -> None:
        """Keep one record that reaches `node`."""
        if (kept := self._kept.get(node)) is not None:
            kept.append(record)
