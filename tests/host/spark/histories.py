"""Histories for tests: rows of a Spark job, played in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.config import StreamsConfig
from penstock.host.spark.checkpoints.stored_history import HistoryChunk, StoredHistory, histories_of, write_index
from penstock.host.spark.frames.history_rows import ORDER, placed_rows, stored_rows
from tests.host.support import InputRecord

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)


def frame_of(records: Sequence[InputRecord]) -> pa.RecordBatch:
    """Return records as a DataFrame's rows reach a worker, with their partitions."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": each.key,
                "value": each.value,
                "timestamp": each.timestamp,
                "headers": [{"key": name, "value": value} for name, value in each.headers],
                "partition": each.partition,
            }
            for each in records
        ],
        ROWS,
    )


def store_history(
    config: StreamsConfig, topic: str, records: Sequence[InputRecord], end: Sequence[int], max_bytes: int = 512
) -> StoredHistory:
    """Copy `records` into the checkpoint as the history of `topic`, which follows at the offsets `end`."""
    uri = config.checkpoint_directory()
    placed = pa.Table.from_batches(placed_rows(topic, len(end), "source in", 0, [frame_of(records)]))
    ordered = placed.sort_by([(name, "ascending") for name in ORDER])
    found: list[list[HistoryChunk]] = [[] for _ in end]
    for frame in stored_rows(uri, topic, max_bytes, ordered.to_batches(max_chunksize=50)):
        for chunk in frame.to_pylist():
            values: dict[str, Any] = {name: chunk[name] for name in ("file", "rows", "last_ms")}
            found[chunk["partition"]].append(HistoryChunk(**values))
    history = StoredHistory(topic, tuple(end), tuple(map(tuple, found)))
    write_index(histories_of(uri).below(topic), history)
    return history
