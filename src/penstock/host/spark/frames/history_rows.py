"""The steps of a history's rows in Spark's workers: to their partitions, then to files of the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.stored_history import histories_of, write_chunks
from penstock.host.spark.frames.data_frames import partitions_of
from penstock.record import RecordBatch, TopicPartition

PLACED = (
    "partition int, offset bigint, task int, number bigint, key binary, value binary, timestamp bigint, "
    "headers array<struct<key: string, value: binary>>"
)
"""The schema of rows with their partition: task and number are their place in the DataFrame."""

ORDER = ("partition", "timestamp", "offset", "task", "number")
"""The columns by which the rows of a partition are sorted."""

CHUNKS = "partition int, place bigint, file string, rows bigint, last_ms bigint"
"""The schema of the written chunks: place is the number of a chunk in its partition."""

_KEPT = ("key", "value", "timestamp", "headers")


def placed_rows(
    topic: str, partitions: int, source: str, task: int, frames: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows with their partitions and places.

    Args:
        topic: the topic that follows.
        partitions: its number of partitions.
        source: the source and its line, for messages.
        task: the number of the part of the DataFrame that has these rows.
        frames: the rows.

    Raises:
        StreamsError: a row has no timestamp, or a partition that `topic` does not have.
    """
    number = 0
    for frame in frames:
        count = frame.num_rows
        if frame["timestamp"].null_count:
            raise StreamsError(
                f"A row of the history of topic {topic} has no timestamp ({source}): each row needs the time of its "
                'record. Leave such rows out, with data_frame.dropna(subset=["timestamp"]), or give them a time.'
            )
        arrays = [
            pa.array(partitions_of(frame, topic, partitions), pa.int32()),
            frame["offset"],
            pa.array([task] * count, pa.int32()),
            pa.array(range(number, number + count), pa.int64()),
            *(frame[name] for name in _KEPT),
        ]
        yield pa.RecordBatch.from_arrays(arrays, ["partition", "offset", "task", "number", *_KEPT])
        number += count


def stored_rows(
    checkpoint: str, topic: str, max_bytes: int, frames: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write rows in the order of ORDER to files; yield the chunks.

    Args:
        checkpoint: the URI of the checkpoint.
        topic: the topic that follows.
        max_bytes: limit of a chunk before compression.
        frames: the rows.
    """
    files = histories_of(checkpoint).below(topic)
    places: dict[int, int] = {}
    for partition, batch in _by_partition(frames):
        for chunk in write_chunks(files, TopicPartition(topic, partition), [batch], max_bytes):
            place = places[partition] = places.get(partition, -1) + 1
            yield pa.RecordBatch.from_pylist([{"partition": partition, "place": place, **chunk._asdict()}], _CHUNKS)


_CHUNKS = pa.schema(
    [
        ("partition", pa.int32()),
        ("place", pa.int64()),
        ("file", pa.string()),
        ("rows", pa.int64()),
        ("last_ms", pa.int64()),
    ]
)


def _by_partition(frames: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, RecordBatch]]:
    for frame in frames:
        numbers = frame["partition"].to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, end in pairwise(edges):
            if end > start:
                yield int(numbers[start]), _batch(frame.slice(start, end - start))


def _batch(frame: pa.RecordBatch) -> RecordBatch:
    headers = [tuple((each["key"], each["value"]) for each in row or ()) for row in frame["headers"].to_pylist()]
    return RecordBatch(
        frame["key"].to_pylist(),
        frame["value"].to_pylist(),
        frame["timestamp"].to_numpy(),
        np.arange(frame.num_rows, dtype=np.int64),
        headers if any(headers) else None,
    )
