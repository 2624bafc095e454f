"""The history of a topic in a checkpoint: its rows by partition, in the order of time.

    histories/<topic>/index              the chunks of each partition, and the offset at which the topic follows
    histories/<topic>/<partition>/<id>   a chunk: compressed rows, named by the digest of its content

The driver writes the index after all chunks, before any epoch. A topic without a position in the checkpoint gets its
history again at the next start. Row n of N rows has the offset `end` - N + n, so history and topic are one log with
ascending offsets: the position of an input says whether its history is over.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import orjson

from penstock.host.packing.record_blobs import decode_batch, encode_batch
from penstock.host.spark.checkpoints.documents import damaged, parsed, unsealed
from penstock.host.spark.protocol.history_bounds import HistoryBounds
from penstock.host.storage.files import Files
from penstock.host.storage.sealed_files import digest_of, sealed
from penstock.record import Int64Array, RecordBatch, TopicPartition

_INDEX = "index"
_COMPRESSION = 1
_CHUNKS_AT_HAND = 256
_HISTORIES_AT_HAND = 16


class HistoryChunk(NamedTuple):
    """Consecutive rows of a partition in one file.

    Args:
        file: its name, the digest of its content.
        rows: the number of rows.
        last_ms: the timestamp of the last row, the largest.
    """

    file: str
    rows: int
    last_ms: int


@dataclass(frozen=True)
class StoredHistory:
    """The index of a history.

    Args:
        topic: the topic that follows.
        end: the first offset to read from the topic, by partition.
        chunks: the chunks of each partition, in order.
    """

    topic: str
    end: tuple[int, ...]
    chunks: tuple[tuple[HistoryChunk, ...], ...]

    @cached_property
    def starts(self) -> tuple[tuple[int, ...], ...]:
        """The offset of the first row of each chunk, and the end; by partition."""
        found = []
        for end, chunks in zip(self.end, self.chunks, strict=True):
            first = end - sum(chunk.rows for chunk in chunks)
            found.append(tuple(accumulate((chunk.rows for chunk in chunks), initial=first)))
        return tuple(found)

    def encoded(self) -> bytes:
        """Return the content of the index."""
        chunks = [[list(chunk) for chunk in each] for each in self.chunks]
        return orjson.dumps({"topic": self.topic, "end": self.end, "chunks": chunks})

    def bounds(self) -> HistoryBounds:
        """Return the offsets of the history."""
        return HistoryBounds(digest_of(self.encoded()), tuple(starts[0] for starts in self.starts), self.end)


class HistoryReader:
    """Reads the rows of one history.

    Args:
        files: its directory.
        history: its index.
    """

    def __init__(self, files: Files, history: StoredHistory) -> None:
        self._files = files
        self._history = history
        # planning looks for one time after another in all partitions
        self._times = lru_cache(max(_CHUNKS_AT_HAND, 2 * len(history.end)))(self._read_times)

    def read(self, partition: int, start: int, end: int) -> Iterator[RecordBatch]:
        """Yield the rows of `partition` with the offsets from `start` to before `end`.

        Raises TaskCorruptedError if a file is missing or damaged.
        """
        starts = self._history.starts[partition]
        number = max(bisect_right(starts, start) - 1, 0)
        while number < len(starts) - 1 and starts[number] < end:
            first = starts[number]
            batch = self._chunk(partition, number)
            batch = replace(batch, offsets=np.arange(first, first + len(batch), dtype=np.int64))
            yield batch.slice(max(start - first, 0), min(end - first, len(batch)))
            number += 1

    def offset_at(self, partition: int, time_ms: int) -> int:
        """Return the offset of the first row that is not older than `time_ms`, or the end of the history."""
        chunks, starts = self._history.chunks[partition], self._history.starts[partition]
        number = bisect_left(chunks, time_ms, key=lambda chunk: chunk.last_ms)
        if number == len(chunks):
            return starts[-1]
        return starts[number] + int(np.searchsorted(self._times(partition, number), time_ms))

    def _read_times(self, partition: int, number: int) -> Int64Array:
        return self._chunk(partition, number).timestamps

    def _chunk(self, partition: int, number: int) -> RecordBatch:
        chunk = self._history.chunks[partition][number]
        path = f"{partition}/{chunk.file}"
        data = self._files.read(path)
        if data is None or digest_of(data) != chunk.file:
            why = "it is missing" if data is None else "its content does not match its name, a digest"
            raise damaged(
                f"{self._files.uri}/{path}", f"{why}, and the history of topic {self._history.topic} names it"
            )
        return decode_batch(zlib.decompress(data)).batch


def histories_of(checkpoint: str) -> Files:
    """Return the parent directory of the histories in the checkpoint at the URI `checkpoint`."""
    return Files(checkpoint).below("histories")


def write_chunks(
    files: Files, partition: TopicPartition, batches: Iterable[RecordBatch], max_bytes: int
) -> Iterator[HistoryChunk]:
    """Write the rows of one partition, which are in the order of time; yield the chunks.

    Args:
        files: the directory of the history.
        partition: the partition of the rows.
        batches: the rows.
        max_bytes: limit of a chunk before compression; a larger row has its own.
    """
    for batch in batches:
        for blob in encode_batch(*partition, batch, max_bytes):
            rows = decode_batch(blob).batch
            data = zlib.compress(blob, _COMPRESSION)
            chunk = HistoryChunk(digest_of(data), len(rows), int(rows.timestamps[-1]))
            files.write_once(f"{partition.partition}/{chunk.file}", data)
            yield chunk


def write_index(files: Files, history: StoredHistory) -> None:
    """Complete a history: all its chunks exist."""
    files.write(_INDEX, sealed(history.encoded()))


def read_index(files: Files) -> StoredHistory | None:
    """Return the index of a history, None if it is absent or incomplete; raises TaskCorruptedError if damaged."""
    data = files.read(_INDEX)
    if data is None:
        return None
    name = f"{files.uri}/{_INDEX}"
    fields = parsed(unsealed(data, name), name)
    chunks = tuple(tuple(HistoryChunk(*chunk) for chunk in each) for each in fields["chunks"])
    return StoredHistory(fields["topic"], tuple(fields["end"]), chunks)


def stored_histories(checkpoint: str) -> dict[str, HistoryBounds]:
    """Return the offsets of each complete history in the checkpoint at the URI `checkpoint`, by topic."""
    files = histories_of(checkpoint)
    found = {each.name: read_index(files.below(each.name)) for each in files.find("") if each.is_directory}
    return {topic: history.bounds() for topic, history in found.items() if history is not None}


@lru_cache(_HISTORIES_AT_HAND)
def open_history(checkpoint: str, topic: str, bounds: HistoryBounds) -> HistoryReader:
    """Return the reader of a history, kept for the life of the process.

    Raises TaskCorruptedError if its index is missing or another one.
    """
    files = histories_of(checkpoint).below(topic)
    history = read_index(files)
    if history is None or history.bounds() != bounds:
        raise damaged(f"{files.uri}/{_INDEX}", "it was deleted or replaced after the application has started")
    return HistoryReader(files, history)


def unread_histories(histories: Mapping[str, HistoryBounds], positions: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the topics with `positions`, by partition, before the end of their history."""
    return sorted(
        topic for topic, each in histories.items() if topic in positions and not each.is_read(list(positions[topic]))
    )


def delete_chunks(checkpoint: str, topic: str) -> None:
    """Delete the rows of a history that no epoch needs again. The index stays, since it says that they were read."""
    files = histories_of(checkpoint).below(topic)
    for each in files.find(""):
        if each.is_directory:
            files.delete_directory(each.name)
