"""The byte layout of headers kept with a value (KIP-1271).

It consists of the size of everything that follows, the number of headers, and each name and value with its size; the
size of a None value is -1. Without headers there is only the size, 0. Numbers are variable-length, as in Kafka's
batches. No I/O, no serdes.
"""

from __future__ import annotations

from penstock.record import Headers

NO_HEADERS = b"\x00"
"""The bytes of empty headers."""


def pack_headers(headers: Headers) -> bytes:
    """Serialise `headers`, including their size."""
    if not headers:
        return NO_HEADERS
    parts = [_pack_number(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += [_pack_number(len(encoded)), encoded]
        parts += [_pack_number(-1)] if value is None else [_pack_number(len(value)), value]
    data = b"".join(parts)
    return _pack_number(len(data)) + data


def unpack_headers(data: bytes) -> tuple[Headers, int]:
    """Return the headers at the start of `data`, and the offset of their end."""
    size, at = _unpack_number(data, 0)
    end = at + size
    if size == 0:
        return (), end
    count, at = _unpack_number(data, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = _unpack_number(data, at)
        name, at = data[at : at + size].decode(), at + size
        size, at = _unpack_number(data, at)
        headers.append((name, None if size < 0 else data[at : at + size]))
        at += max(size, 0)
    return tuple(headers), end


def without_headers(data: bytes) -> bytes:
    """Return `data` without the headers at its start."""
    if data.startswith(NO_HEADERS):
        return data[1:]
    size, at = _unpack_number(data, 0)
    return data[at + size :]


def _pack_number(number: int) -> bytes:
    left = number << 1 if number >= 0 else (~number << 1) | 1
    packed = bytearray()
    while left > 0x7F:
        packed.append(left & 0x7F | 0x80)
        left >>= 7
    packed.append(left)
    return bytes(packed)


def _unpack_number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
