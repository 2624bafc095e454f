"""The byte layout of an update waiting in a buffer (Kafka classes: BufferValue, ProcessorRecordContext).

Like Kafka's, it consists of the record's context and the values. Numbers are big-endian; sizes take 4 bytes, -1 means
None. No I/O, no serdes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.record import Headers
from penstock.state.api import RecordContext

_TIMES = struct.Struct(">qq")
_SIZE = struct.Struct(">i")
_NONE = -1
_SAME_AS_PRIOR = -2


class BufferedChange(NamedTuple):
    """An update and the context of the record that caused it.

    Its values: the one before the first waiting update, the one before this update, and the new one.
    """

    prior_value: bytes | None
    old_value: bytes | None
    new_value: bytes | None
    context: RecordContext


def pack_change(change: BufferedChange) -> bytes:
    """Serialise an update."""
    prior, old, new, context = change
    old_part = _SIZE.pack(_SAME_AS_PRIOR) if old is not None and old == prior else _sized(old)
    return b"".join([_pack_context(context), _sized(prior), old_part, _sized(new)])


def unpack_change(data: bytes) -> BufferedChange:
    """Deserialise an update."""
    context, at = _unpack_context(data)
    prior, at = _read(data, at)
    if _SIZE.unpack_from(data, at)[0] == _SAME_AS_PRIOR:
        old, at = prior, at + _SIZE.size
    else:
        old, at = _read(data, at)
    new, _ = _read(data, at)
    return BufferedChange(prior, old, new, context)


def _pack_context(context: RecordContext) -> bytes:
    topic = context.topic
    parts = [
        _TIMES.pack(context.timestamp, context.offset),
        _sized(None if topic is None else topic.encode()),
        _SIZE.pack(context.partition),
        _SIZE.pack(len(context.headers)),
    ]
    for name, value in context.headers:
        parts += [_sized(name.encode()), _sized(value)]
    return b"".join(parts)


def _unpack_context(data: bytes) -> tuple[RecordContext, int]:
    timestamp, offset = _TIMES.unpack_from(data)
    topic, at = _read(data, _TIMES.size)
    partition, count = _SIZE.unpack_from(data, at)[0], _SIZE.unpack_from(data, at + _SIZE.size)[0]
    at += 2 * _SIZE.size
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read(data, at)
        value, at = _read(data, at)
        headers.append(((name or b"").decode(), value))
    given: Headers = tuple(headers)
    return RecordContext(timestamp, given, None if topic is None else topic.decode(), partition, offset), at


def _sized(data: bytes | None) -> bytes:
    return _SIZE.pack(_NONE) if data is None else _SIZE.pack(len(data)) + data


def _read(data: bytes, at: int) -> tuple[bytes | None, int]:
    size: int = _SIZE.unpack_from(data, at)[0]
    start = at + _SIZE.size
    return (None, start) if size == _NONE else (data[start : start + size], start + size)
