"""Segments: the changes of a task's stores as immutable files.

They are the durable state without changelog topics.

The functions are pure, from values to bytes and back; `segment_log` decides which segments to read, merge or drop.
Three kinds:
- a *delta* has the changes of one commit, or a part of them: a commit is one or more deltas, each with the previous one
  as its parent, and the last, the head, has the task's checkpoint. The id of a delta is also a position in the chain:
  the content of all stores after it was applied.
- a *merged* segment has the changes from one position to a later one, including deletes, and replaces the deltas in
  between.
- a *snapshot* has all entries of a range of keys at a position.

The id is a digest of kind, parent and content: a replay of the same commit has the same id, other content another.
Layout: magic, version, length of header and body, id; header (JSON); body: columns, compressed by zstd.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple

import cramjam
import numpy as np
import numpy.typing as npt
import orjson

from penstock.errors import CorruptedSegmentError, IncompatibleCheckpointError
from penstock.serdes.columns import arrow
from penstock.state.api import Changes

VERSION = 1
DEFAULT_MAX_BYTES = 8 * 1024 * 1024
_MAGIC = b"PSEG"
_PREFIX = struct.Struct("<4sBII16s")
_ID_SIZE = 16
_ENTRY_OVERHEAD = 8  # the lengths of key and value
_HEADER_ALLOWANCE = 16 * 1024
_CHUNK = 4096


class SegmentKind(Enum):
    """Kinds of segments."""

    DELTA = "delta"
    MERGED = "merged"
    SNAPSHOT = "snapshot"


class StoreKey(NamedTuple):
    """A position in the order of a task's entries: by store name, then key."""

    store: str
    key: bytes


class SegmentInfo(NamedTuple):
    """The metadata of a segment; a manifest has one for each live segment.

    id: names the file. parent, last: positions in the chain before and after the segment (for a snapshot: parent None,
    last its position). file_bytes: size of the file. content_bytes: size before compression, for planning merges.
    entries, deletes: number of changes, and of the deletes among them. sequence: the number of `last` in the chain, set
    by the log. final: whether the segment ends a commit. within: positions inside the segment from which it may also be
    applied, oldest first. cycle, start, end: round and keys of a snapshot: start <= key < end, None for an open end.
    largest: size (bytes) of the largest entry.
    """

    id: bytes
    kind: SegmentKind
    parent: bytes | None
    last: bytes
    file_bytes: int
    content_bytes: int
    entries: int
    deletes: int
    sequence: int = 0
    final: bool = True
    within: tuple[bytes, ...] = ()
    cycle: int = 0
    start: StoreKey | None = None
    end: StoreKey | None = None
    largest: int = 0


@dataclass(frozen=True)
class SegmentHeader:
    """The description of a commit.

    parent: the previous head, None for the first commit. stores: (name, kind) of each store. checkpoint: the task's
    checkpoint as bytes, None for a part of an unfinished commit.
    """

    parent: bytes | None
    stores: tuple[tuple[str, str], ...]
    checkpoint: bytes | None = b""


class EncodedSegment(NamedTuple):
    """A segment to be written: `data` under the name `info.id`."""

    info: SegmentInfo
    data: bytes


@dataclass(frozen=True)
class Segment:
    """A decoded segment.

    checkpoint: None if the segment does not end a commit. carried: records carried over, opaque.
    """

    kind: SegmentKind
    id: bytes
    parent: bytes | None
    last: bytes
    stores: tuple[tuple[str, str], ...]
    changes: dict[str, dict[bytes, bytes | None]]
    checkpoint: bytes | None = None
    carried: list[bytes] = field(default_factory=list)


def encode(
    header: SegmentHeader, changes: Changes, carried: Sequence[bytes] = (), max_bytes: int = DEFAULT_MAX_BYTES
) -> list[EncodedSegment]:
    """Return one commit, or a part of one, as deltas; the last is the head.

    changes: of each store, in any order. carried: records carried over. max_bytes: maximum size of one segment; a
    larger entry or record has a segment of its own. The result is deterministic.
    """
    parts = _Parts(max_bytes)
    for store in sorted(changes):
        parts.add_changes(store, _changed(changes[store]))
    parts.add_carried(carried)
    contents = parts.contents
    encoded: list[EncodedSegment] = []
    parent = header.parent
    for number, content in enumerate(contents, 1):
        final = number == len(contents)
        segment = _write(SegmentKind.DELTA, parent, None, header.stores, content, header.checkpoint if final else None)
        encoded.append(segment)
        parent = segment.info.id
    return encoded


def merge(segments: Sequence[Segment]) -> EncodedSegment:
    """Merge the changes of adjacent deltas and merged segments, oldest first, into one segment.

    The last change of a key wins; deletes are kept. Checkpoints and carried records are dropped: only those of the last
    commit matter, which is never merged. Raises ValueError if the segments are not adjacent.
    """
    if not segments:
        raise ValueError("Nothing to merge: expected one segment or more.")
    for before, after in pairwise(segments):
        if after.parent != before.last:
            raise ValueError(
                f"Segment {after.id.hex()} cannot be merged after {before.id.hex()}: it follows {_hex(after.parent)}."
            )
    merged: dict[str, dict[bytes, bytes | None]] = {}
    stores: dict[str, str] = {}
    for segment in segments:
        stores.update(segment.stores)
        for store, changed in segment.changes.items():
            merged.setdefault(store, {}).update(changed)
    content = _Content({store: _changed(changed) for store, changed in sorted(merged.items())}, [])
    return _write(SegmentKind.MERGED, segments[0].parent, segments[-1].last, tuple(stores.items()), content, None)


def encode_snapshot(
    position: bytes,
    cycle: int,
    start: StoreKey | None,
    stores: tuple[tuple[str, str], ...],
    entries: Iterable[tuple[str, Iterable[tuple[bytes, bytes]]]],
    content_bytes: int,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> list[EncodedSegment]:
    """Return snapshots at `position` of the entries from `start`, until `content_bytes` or the end.

    entries: (key, value) of each store, in order of stores and keys, starting at `start` or later; few are read beyond
    those returned. cycle: number of the round. Each snapshot begins at the end of the previous one; the last has an
    open end if `entries` ran out.
    """
    encoded: list[EncodedSegment] = []
    chunks = _chunks(entries)
    pending = next(chunks, None)
    taken = 0
    while True:
        content: dict[str, list[_Changed]] = {}
        size, limit = 0, min(_content_limit(max_bytes), content_bytes - taken)
        while pending is not None and size < limit:
            store, changed = pending
            ends = size + np.cumsum(changed.sizes())
            stop = min(int(np.searchsorted(ends, limit)) + 1, len(ends))
            content.setdefault(store, []).append(changed.part(0, stop))
            size = int(ends[stop - 1])
            pending = (store, changed.part(stop, len(ends))) if stop < len(ends) else next(chunks, None)
        end = None if pending is None else StoreKey(pending[0], pending[1].keys[0].as_py())
        whole = _Content({store: _Changed.concat(parts) for store, parts in content.items()}, [])
        encoded.append(_write(SegmentKind.SNAPSHOT, None, position, stores, whole, None, (cycle, start, end)))
        taken += size
        start = end
        if end is None or taken >= content_bytes:
            return encoded


def decode(data: bytes, expected_id: bytes | None = None, stores: Collection[str] | None = None) -> Segment:
    """Decode a segment, with the changes of some `stores`, or of all if None.

    Raises CorruptedSegmentError if `data` is not a segment, torn or damaged, or has another id than `expected_id`;
    IncompatibleCheckpointError if a newer version of Penstock wrote it.
    """
    name = "" if expected_id is None else expected_id.hex()
    header, body, identity = _read(data, name)
    if expected_id is not None and identity != expected_id:
        raise CorruptedSegmentError(name, f"has the content of another one, {identity.hex()}")
    columns = _Columns(body)
    checkpoint = columns.take()[0]
    carried = [record for record in columns.take() if record is not None]
    changes: dict[str, dict[bytes, bytes | None]] = {}
    for store in header["changed"]:
        if stores is not None and store not in stores:
            columns.skip()
            columns.skip()
            continue
        keys: list[Any] = columns.take()
        changes[store] = dict(zip(keys, columns.take(), strict=True))
    last = identity if header["last"] is None else bytes.fromhex(header["last"])
    return Segment(
        SegmentKind(header["kind"]),
        identity,
        None if header["parent"] is None else bytes.fromhex(header["parent"]),
        last,
        tuple((name, kind) for name, kind in header["stores"]),
        changes,
        checkpoint,
        carried,
    )


def segment_id(data: bytes) -> bytes:
    """Return the id of a segment without decoding its content; raises the errors of `decode`."""
    return _prefix(data, "")[2]


# ---------- content


class _Changed(NamedTuple):
    """Changes of one store in key order, as columns. The columns are Arrow's large binaries, with null for a delete."""

    keys: Any
    values: Any

    @staticmethod
    def concat(parts: Sequence[_Changed]) -> _Changed:
        """Return the changes of all `parts`, concatenated."""
        keys, values = zip(*parts, strict=True)
        return _Changed(arrow().concat_arrays(keys), arrow().concat_arrays(values))

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the size (bytes) of each entry."""
        return _lengths(self.keys) + _lengths(self.values) + _ENTRY_OVERHEAD

    def part(self, start: int, stop: int) -> _Changed:
        """Return the entries from `start` until before `stop`."""
        return _Changed(self.keys[start:stop], self.values[start:stop])


class _Content(NamedTuple):
    changes: dict[str, _Changed]
    carried: Sequence[bytes]


def _column(items: Iterable[bytes | None]) -> Any:
    return arrow().array(list(items), arrow().large_binary())


def _changed(changes: Mapping[bytes, bytes | None]) -> _Changed:
    keys, values = _column(changes), _column(changes.values())
    order = arrow("pyarrow.compute").sort_indices(keys)
    return _Changed(keys.take(order), values.take(order))


def _chunks(entries: Iterable[tuple[str, Iterable[tuple[bytes, bytes]]]]) -> Iterator[tuple[str, _Changed]]:
    """Yield the entries of each store as columns, in chunks."""
    for store, own in entries:
        rest = iter(own)
        while chunk := list(islice(rest, _CHUNK)):
            keys, values = zip(*chunk, strict=True)
            yield store, _Changed(_column(keys), _column(values))


class _Parts:
    """Splits changes and carried records into contents that fit into one segment each."""

    def __init__(self, max_bytes: int) -> None:
        self._limit = _content_limit(max_bytes)
        self._size = 0
        self.contents = [_Content({}, [])]

    def add_changes(self, store: str, changed: _Changed) -> None:
        """Add the changes of one store."""
        for start, stop in self._cuts(changed.sizes()):
            if stop > start:
                self.contents[-1].changes[store] = changed.part(start, stop)

    def add_carried(self, records: Sequence[bytes]) -> None:
        """Add records carried over."""
        for start, stop in self._cuts(_lengths(_column(records)) + _ENTRY_OVERHEAD):
            self.contents[-1] = self.contents[-1]._replace(carried=records[start:stop])

    def _cuts(self, sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Yield the ranges of items for successive contents; each goes to the current last content."""
        ends = np.cumsum(sizes)
        start, before = 0, 0
        while start < len(ends):
            stop = int(np.searchsorted(ends, before + self._limit - self._size, side="right"))
            if stop == start and self._size == 0:
                stop = start + 1  # larger than the limit: has a content of its own
            if stop > start:
                yield start, stop
                self._size += int(ends[stop - 1]) - before
                start, before = stop, int(ends[stop - 1])
            if start < len(ends):
                self.contents.append(_Content({}, []))
                self._size = 0


def _content_limit(max_bytes: int) -> int:
    """Return the content size (bytes) that always fits. zstd expands incompressible content by 1/256 at most."""
    return max(1, max_bytes - max_bytes // 128 - _HEADER_ALLOWANCE)


# ---------- bytes


def _write(
    kind: SegmentKind,
    parent: bytes | None,
    last: bytes | None,
    stores: tuple[tuple[str, str], ...],
    content: _Content,
    checkpoint: bytes | None,
    span: tuple[int, StoreKey | None, StoreKey | None] = (0, None, None),
) -> EncodedSegment:
    cycle, start, end = span
    header = orjson.dumps(
        {
            "kind": kind.value,
            "parent": None if parent is None else parent.hex(),
            "last": None if last is None else last.hex(),
            "stores": stores,
            "changed": list(content.changes),
            "span": [cycle, *(None if place is None else [place.store, place.key.hex()] for place in (start, end))],
        }
    )
    columns = [_column([checkpoint]), _column(content.carried)]
    for changed in content.changes.values():
        columns += changed
    body = b"".join(map(_pack_column, columns))
    identity = _identity(header, body)
    compressed = cramjam.zstd.compress(body, level=1)
    data = b"".join([_PREFIX.pack(_MAGIC, VERSION, len(header), len(compressed), identity), header, compressed])
    final = kind is not SegmentKind.DELTA or checkpoint is not None
    info = SegmentInfo(
        identity,
        kind,
        parent,
        identity if last is None else last,
        len(data),
        len(body),
        sum(len(changed.keys) for changed in content.changes.values()),
        sum(changed.values.null_count for changed in content.changes.values()),
        final=final,
        cycle=cycle,
        start=start,
        end=end,
        largest=max((int(changed.sizes().max()) for changed in content.changes.values()), default=0),
    )
    return EncodedSegment(info, data)


def _read(data: bytes, name: str) -> tuple[dict[str, Any], bytes, bytes]:
    """Return header, body and id; raises CorruptedSegmentError for torn or damaged data.

    name: the expected id, for errors.
    """
    header_size, body_size, identity = _prefix(data, name)
    name = name or identity.hex()
    if len(data) != _PREFIX.size + header_size + body_size:
        expected = _PREFIX.size + header_size + body_size
        raise CorruptedSegmentError(name, f"is torn: {len(data)} bytes, expected {expected}")
    header = data[_PREFIX.size : _PREFIX.size + header_size]
    try:
        body = _decompressed(data[_PREFIX.size + header_size :])
    except (cramjam.DecompressionError, ValueError, OverflowError, MemoryError) as error:
        raise CorruptedSegmentError(name, f"is damaged: {error}") from error
    if _identity(header, body) != identity:
        raise CorruptedSegmentError(name, "is damaged: its content does not have this id")
    fields: dict[str, Any] = orjson.loads(header)
    return fields, body, identity


def _decompressed(frame: bytes) -> bytes:
    """Return the content of a zstd frame, allocating only the size in its header.

    Raises:
        ValueError: the header has no content size.
        MemoryError, OverflowError: the size exceeds the available memory.
        cramjam.DecompressionError: the frame is damaged.
    """
    # RFC 8878, 3.1.1.1: magic number (4 bytes), descriptor (1), window (0 or 1), dictionary (0 to 4), content size.
    descriptor = frame[4] if len(frame) > 4 else 0
    is_single_segment = descriptor & 0x20
    width = 1 << (descriptor >> 6)
    if width == 1 and not is_single_segment:
        raise ValueError("its frame does not say how large its content is")
    at = 5 + (not is_single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(frame[at : at + width], "little") + (256 if width == 2 else 0)
    content = bytearray(size)  # a failed allocation is an error here, but ends the process in cramjam
    return bytes(memoryview(content)[: cramjam.zstd.decompress_into(frame, content)])


def _prefix(data: bytes, name: str) -> tuple[int, int, bytes]:
    """Return the sizes of header and body, and the id."""
    if len(data) < _PREFIX.size or data[: len(_MAGIC)] != _MAGIC:
        why = f"is not a segment of Penstock, or its first bytes are torn: {data[:8]!r}, {len(data)} bytes"
        raise CorruptedSegmentError(name, why)
    _, version, header_size, body_size, identity = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise IncompatibleCheckpointError(
            f"The segment {name or identity.hex()} has format {version}; this version of Penstock reads format "
            f"{VERSION}. Run the version that wrote it; if none did, the file is damaged: restore the checkpoint from "
            "a copy, or a savepoint."
        )
    return header_size, body_size, identity


def _identity(header: bytes, body: bytes) -> bytes:
    digest = blake2b(header, digest_size=_ID_SIZE)
    digest.update(body)
    return digest.digest()


def _pack_column(column: Any) -> bytes:
    """Return a column as bytes: item count, lengths (-1 for None), and contents."""
    offsets = _offsets(column)
    lengths = np.diff(offsets).astype("<i4")
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    content = memoryview(column.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]
    return b"".join([len(column).to_bytes(4, "little"), lengths.tobytes(), content])


def _lengths(column: Any) -> npt.NDArray[np.int64]:
    """Return the length of each item, 0 for None."""
    return np.diff(_offsets(column))


def _offsets(column: Any) -> npt.NDArray[np.int64]:
    """Return the start of each item in the column's content, and the last end."""
    if not len(column):
        return np.zeros(1, np.int64)
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]


class _Columns:
    """Reads columns from a body, one after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self) -> list[bytes | None]:
        """Return the next column."""
        body = self._body
        lengths, at = self._lengths()
        sizes = np.maximum(lengths, 0).tolist()
        ends = list(accumulate(sizes, initial=at))
        self._at = ends[-1]
        items: list[bytes | None] = [body[start:stop] for start, stop in pairwise(ends)]
        if len(lengths) and int(lengths.min()) < 0:
            for place in np.flatnonzero(lengths < 0).tolist():
                items[place] = None
        return items

    def skip(self) -> None:
        """Leave out the next column."""
        lengths, at = self._lengths()
        self._at = at + int(np.maximum(lengths, 0).sum(dtype=np.int64))

    def _lengths(self) -> tuple[npt.NDArray[np.int32], int]:
        """Return the lengths of the next column's items, -1 for None, and the start of their content."""
        count = int.from_bytes(self._body[self._at : self._at + 4], "little")
        lengths = np.frombuffer(self._body, "<i4", count, self._at + 4)
        return lengths, self._at + 4 + lengths.nbytes


def _hex(identity: bytes | None) -> str:
    return "nothing" if identity is None else identity.hex()
