"""Dropped records that an operator writes to a topic: their headers, and the rows of a batch.

`penstock redrive` reads the headers, as it reads those of dead letters. All values are texts in UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Final, NamedTuple

from penstock.metrics.drop_reasons import DropReason
from penstock.record import NO_METADATA, Headers, Int64Array, RecordBatch, RecordMetadata
from penstock.windows import Window

HEADER_DROPPED_REASON: Final = "penstock.dropped.reason"
"""The reason, as in the metric dropped-records-by-reason-total, such as "late"."""
HEADER_DROPPED_WINDOW_START: Final = "penstock.dropped.window.start"
"""The start of the closed window in ms; only for windows."""
HEADER_DROPPED_WINDOW_END: Final = "penstock.dropped.window.end"
"""The end of the closed window in ms; only for windows."""
HEADER_DROPPED_STREAM_TIME: Final = "penstock.dropped.stream.time"
"""The stream time of the operator in ms; that of the task if the operator has none."""
HEADER_DROPPED_NODE: Final = "penstock.dropped.node"
"""The name of the node that dropped the record."""
HEADER_DROPPED_TOPIC: Final = "penstock.dropped.topic"
"""The topic of the source record; null if that is no longer known."""
HEADER_DROPPED_PARTITION: Final = "penstock.dropped.partition"
"""The partition of the source record; -1 if that is no longer known."""
HEADER_DROPPED_OFFSET: Final = "penstock.dropped.offset"
"""The offset of the source record; -1 if that is no longer known."""


def dropped_headers(
    node: str, reason: DropReason, window: Window | None, stream_time: int, source: RecordMetadata | None
) -> Headers:
    """Return the headers of a dropped record.

    Args:
        node: the name of the node that dropped it.
        reason: the reason.
        window: the closed window; None without one.
        stream_time: the stream time of the operator in ms.
        source: the place of the source record; None if that is no longer known.
    """
    topic, partition, offset = source or NO_METADATA
    times = (
        ()
        if window is None
        else (
            (HEADER_DROPPED_WINDOW_START, str(window.start).encode()),
            (HEADER_DROPPED_WINDOW_END, str(window.end).encode()),
        )
    )
    return (
        (HEADER_DROPPED_REASON, reason.value.encode()),
        *times,
        (HEADER_DROPPED_STREAM_TIME, str(stream_time).encode()),
        (HEADER_DROPPED_NODE, node.encode()),
        (HEADER_DROPPED_TOPIC, None if topic is None else topic.encode()),
        (HEADER_DROPPED_PARTITION, str(partition).encode()),
        (HEADER_DROPPED_OFFSET, str(offset).encode()),
    )


class DroppedRow(NamedTuple):
    """A dropped row of a batch.

    Args:
        row: its index.
        reason: the reason.
        window: the closed window; None without one.
        stream_time: the stream time of the operator in ms; None for that of the task.
    """

    row: int
    reason: DropReason
    window: Window | None
    stream_time: int | None


def dropped_rows(
    reason: DropReason, rows: Int64Array, windows: Iterable[Window] | None, stream_times: Int64Array | None
) -> list[DroppedRow]:
    """Return the rows with their windows and stream times, both in the order of `rows`."""
    each_window: Iterable[Window | None] = repeat(None) if windows is None else windows
    each_time: Iterable[int | None] = repeat(None) if stream_times is None else stream_times.tolist()
    return [
        DroppedRow(row, reason, window, time)
        for row, window, time in zip(rows.tolist(), each_window, each_time, strict=False)
    ]


def dropped_batch(
    node: str,
    rows: Sequence[DroppedRow],
    batch: RecordBatch,
    stream_times: Int64Array,
    places: Sequence[RecordMetadata | None],
) -> RecordBatch:
    """Return dropped rows with their headers.

    Args:
        node: the name of the node that dropped them.
        rows: their reasons, in the order of `batch`.
        batch: the rows.
        stream_times: the stream time of the task at each row, in ms.
        places: those of the source records; None if one is no longer known.
    """
    headers = []
    for number, (dropped, time, place) in enumerate(zip(rows, stream_times.tolist(), places, strict=True)):
        own = time if dropped.stream_time is None else dropped.stream_time
        added = dropped_headers(node, dropped.reason, dropped.window, own, place)
        headers.append((*batch.headers_at(number), *added))
    return replace(batch, headers=headers)
