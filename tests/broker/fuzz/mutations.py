"""Changes of requests, each of which keeps enough of one to reach far into the broker."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

from crc32c import crc32c

from penstock_broker.apis import APIS
from penstock_broker.wire.codec import Message, is_flexible, request_decoder, request_encoder
from penstock_broker.wire.primitives import INT16, Cursor, Sink

NUMBERS: Final = (
    0,
    1,
    -1,
    -2,
    2,
    127,
    -128,
    255,
    32767,
    -32768,
    65535,
    50_001,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
)
STRINGS: Final = ("", "a", "..", "x" * 250, "x" * 32767, "fuzzed", "__consumer_offsets", "__transaction_state", "\x00/")
_MOST_PLACES: Final = 5_000
"""Values in a changed request: lists in lists that both get longer would make requests of gigabytes."""
_HEADER: Final = struct.Struct(">hhi")
_MAGIC_AT, _CHECKSUM_AT, _CHECKSUMMED_FROM, _BATCH_HEADER = 16, 17, 21, 61


def mutated(random: random.Random, frame: bytes, others: Sequence[bytes]) -> bytes:
    """Return a request that differs from another one in a few places.

    Args:
        random: decides on what is changed.
        frame: the request, without its length prefix.
        others: more requests, of which a part may be taken.
    """
    if random.random() < 0.5:
        frame = _other_values(random, frame)
    if random.random() < 0.7:
        data = bytearray(frame)
        for _ in range(random.choice((1, 1, 1, 2, 5, 20))):
            _change_bytes(random, data, others)
        frame = bytes(data)
    return _with_checksums(frame) if random.random() < 0.6 else frame


def _change_bytes(random: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    if not data:
        return
    at = random.randrange(len(data))
    match random.randrange(9):
        case 0:
            data[at] ^= 1 << random.randrange(8)
        case 1:
            data[at] = random.randrange(256)
        case 2:
            layout = random.choice((">h", ">i", ">q"))
            bits = struct.calcsize(layout) * 8 - 1
            number = max(-(1 << bits), min((1 << bits) - 1, random.choice(NUMBERS)))
            data[at : at + struct.calcsize(layout)] = struct.pack(layout, number)
        case 3:
            data[at:at] = random.randbytes(random.choice((1, 2, 4, 100)))
        case 4:
            del data[at : at + random.choice((1, 2, 4, 100))]
        case 5:
            end = min(len(data), at + random.choice((4, 20, 100)))
            data[at:at] = bytes(data[at:end]) * random.choice((1, 1, 10, 1000 if len(data) < 10_000 else 2))
        case 6:
            del data[at:]
        case 7:
            other = random.choice(others)
            data[at:] = other[random.randrange(len(other)) :]
        case _:
            data[at : at + 5] = random.choice(
                (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff", b"\x80\x80\x80\x80\x08")
            )


def _other_values(random: random.Random, frame: bytes) -> bytes:
    """Change values of the fields of a request, and perhaps its version."""
    try:
        key, version, correlation_id = _HEADER.unpack_from(frame)
        cursor = Cursor(memoryview(frame))
        cursor.position = _HEADER.size
        client_id = bytes(cursor.take(max(cursor.length(False, INT16), 0)))
        if is_flexible(key, version):
            cursor.skip_tagged_fields()
        body: Message = request_decoder(key, version)(cursor)
        if random.random() < 0.2:
            version = random.randint(APIS[key].min_version, APIS[key].max_version)
        places = list(_places(body))
        for _ in range(random.choice((1, 1, 2, 4)) if places else 0):
            holder, name = random.choice(places)
            holder[name] = _other_value(random, holder[name])
        if any(number == _MOST_PLACES for number, _ in enumerate(_places(body))):
            return frame
        sink = Sink()
        sink.write(_HEADER.pack(key, version, correlation_id) + INT16.pack(len(client_id)) + client_id)
        if is_flexible(key, version):
            sink.varint(0)
        request_encoder(key, version)(sink, body)
        return b"".join(bytes(chunk) for chunk in sink.chunks)
    except Exception:
        # The request was damaged before, or the value does not fit the field: it stays as it is.
        return frame


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    parts: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in parts:
        yield value, name
        if isinstance(part, (dict, list)):
            yield from _places(part)


def _other_value(random: random.Random, value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return random.choice((*NUMBERS, value + 1, value - 1, -value))
        case str():
            return random.choice((*STRINGS, value[:-1], value + "x", None))
        case list():
            return random.choice(([], value * 2, value * 300, value[::-1], value[:1], None))
        case memoryview():
            return random.choice((b"", bytes(value) * 2, bytes(value)[:-1], bytes(value)[:61], None))
        case None:
            return random.choice(("", "fuzzed", [], 0, b""))
        case _:
            return value


def _with_checksums(frame: bytes) -> bytes:
    """Make the checksums of record batches right again, so that what was changed in them is looked at."""
    data = bytearray(frame)
    at = 0
    while at + _BATCH_HEADER <= len(data):
        [length] = struct.unpack_from(">i", data, at + 8)
        end = at + 12 + length
        if data[at + _MAGIC_AT] == 2 and 12 + length >= _BATCH_HEADER and end <= len(data):
            struct.pack_into(">I", data, at + _CHECKSUM_AT, crc32c(data[at + _CHECKSUMMED_FROM : end]))
            at = end
        else:
            at += 1
    return bytes(data)
