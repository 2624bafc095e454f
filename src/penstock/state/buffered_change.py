"""The byte layout of an update waiting in a buffer (Kafka classes: BufferValue, ProcessorRecordContext).

Like Kafka's, it consists of the record's context and the values. The origins of earlier values follow, if the buffer
keeps them. Numbers are big-endian; sizes take 4 bytes, -1 means None. No I/O, no serdes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.record import NO_TIMESTAMP, Headers
from penstock.state.api import RecordContext
from penstock.state.headers_layout import NO_HEADERS, pack_headers, unpack_headers
from penstock.state.layouts import pack_timestamp, timestamp_of

_TIMES = struct.Struct(">qq")
_SIZE = struct.Struct(">i")
_NONE = -1
_SAME_AS_PRIOR = -2


UNKNOWN_ORIGIN = NO_HEADERS + pack_timestamp(NO_TIMESTAMP)
"""The origin of a value that was not in the buffer."""


def pack_origin(context: RecordContext) -> bytes:
    """Return the origin of a value: the headers and the timestamp of its record, as KIP-1271 keeps them."""
    return pack_headers(context.headers) + pack_timestamp(context.timestamp)


def unpack_origin(origin: bytes | None) -> tuple[Headers, int]:
    """Return headers and timestamp (ms) of an origin; those of UNKNOWN_ORIGIN for None."""
    if origin is None:
        return (), NO_TIMESTAMP
    headers, at = unpack_headers(origin)
    return headers, timestamp_of(origin[at:])


class Origins(NamedTuple):
    """The origins of the earlier values of an update; None for a value of None.

    Args:
        prior: that of the value before the first waiting update.
        old: that of the value before this update.
    """

    prior: bytes | None
    old: bytes | None


class BufferedChange(NamedTuple):
    """An update and the context of the record that caused it.

    Its values: the one before the first waiting update, the one before this update, and the new one.

    Args:
        origins: the origins of the first two values; None if the buffer does not keep them.
    """

    prior_value: bytes | None
    old_value: bytes | None
    new_value: bytes | None
    context: RecordContext
    origins: Origins | None = None

    @property
    def old_is_prior(self) -> bool:
        """Whether the first two values are the same, with the same origins."""
        same_origin = self.origins is None or self.origins.prior == self.origins.old
        return self.old_value == self.prior_value and same_origin


def with_origins(change: BufferedChange, origins: Origins | None = None) -> BufferedChange:
    """Return `change` with origins: those that are given, or that the change already has.

    A value without one gets the time of the change, as in Kafka, and no headers.
    """
    prior, old = origins or change.origins or (None, None)
    fallback = NO_HEADERS + pack_timestamp(change.context.timestamp)
    return change._replace(
        origins=Origins(
            None if change.prior_value is None else prior or fallback,
            None if change.old_value is None else old or fallback,
        )
    )


def pack_change(change: BufferedChange) -> bytes:
    """Serialise an update."""
    prior, old, new, context, origins = change
    old_part = _SIZE.pack(_SAME_AS_PRIOR) if old is not None and old == prior else _sized(old)
    parts = [_pack_context(context), _sized(prior), old_part, _sized(new)]
    if origins is not None:
        parts += map(_sized, origins)
    return b"".join(parts)


def unpack_change(data: bytes) -> BufferedChange:
    """Deserialise an update."""
    context, at = _unpack_context(data)
    prior, at = _read(data, at)
    if _SIZE.unpack_from(data, at)[0] == _SAME_AS_PRIOR:
        old, at = prior, at + _SIZE.size
    else:
        old, at = _read(data, at)
    new, at = _read(data, at)
    if at == len(data):
        return BufferedChange(prior, old, new, context)
    prior_origin, at = _read(data, at)
    old_origin, _ = _read(data, at)
    return BufferedChange(prior, old, new, context, Origins(prior_origin, old_origin))


def without_origins(data: bytes) -> bytes:
    """Return a serialised update without the origins of its earlier values, as buffers write it that keep none."""
    return pack_change(unpack_change(data)._replace(origins=None))


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
