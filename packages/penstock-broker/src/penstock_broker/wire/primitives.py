"""The primitives of Kafka's wire format: a cursor over a frame and a message sink.

Not here: the fields of messages (codec.py), and sockets.

Rules: no length from the wire is trusted; reading past the frame raises MalformedMessageError, an array cannot have
more elements than the frame has bytes left, and a message has at most as many elements as its reader allows. Bytes and
records are passed as views of the frame, never copied. Output is limited, too: a short request may name one large item
again and again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

INT8: Final = struct.Struct(">b")
"""Layout of an 8-bit signed integer."""
INT16: Final = struct.Struct(">h")
"""Layout of a 16-bit signed integer."""
INT32: Final = struct.Struct(">i")
"""Layout of a 32-bit signed integer."""

MOST_ELEMENTS: Final = 50_000
"""Maximum number of array elements and tagged fields in one request.

While they are decoded, no other client is served.
"""

MOST_WRITTEN: Final = 128 * 1024 * 1024
"""Maximum bytes of a written message, above librdkafka's `receive.message.max.bytes` (100 MB)."""

MOST_STRING: Final = 32_767
"""Maximum bytes of a string, even with a compact length.

Kafka neither reads nor writes a longer one.
"""

_COPY_BELOW: Final = 8192


class OversizedMessageError(Exception):
    """A written message exceeds the size limit; it is not sent."""


class MalformedMessageError(Exception):
    """The bytes of a message do not match its schema; its connection is closed."""


class Cursor:
    """A position in a received frame; every read advances it and checks the bounds.

    Args:
        view: the frame without its length prefix.
        most_elements: maximum number of its array elements and tagged fields in total.
    """

    __slots__ = ("_elements", "_most_elements", "position", "view")

    def __init__(self, view: memoryview, most_elements: int = MOST_ELEMENTS) -> None:
        self.view = view
        self.position = 0
        self._elements = 0
        self._most_elements = most_elements

    def elements(self, count: int) -> range:
        """Return the indices of elements that are about to be decoded.

        Args:
            count: their number.

        Raises:
            MalformedMessageError: the message has too many elements in total.
        """
        self._elements += count
        if self._elements > self._most_elements:
            raise MalformedMessageError(f"a message of more than {self._most_elements} elements")
        return range(count)

    def number(self, layout: struct.Struct) -> Any:
        """Return one number of the given layout.

        Raises:
            MalformedMessageError: the frame ends before it.
        """
        return self.numbers(layout)[0]

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return all numbers of the given layout.

        Raises:
            MalformedMessageError: the frame ends before the last one.
        """
        try:
            values = layout.unpack_from(self.view, self.position)
        except struct.error as error:
            raise MalformedMessageError(f"the frame of {len(self.view)} bytes ends inside a number") from error
        self.position += layout.size
        return values

    def varint(self) -> int:
        """Return an unsigned variable-length integer of at most five bytes.

        Raises:
            MalformedMessageError: the frame ends inside it, or it is longer than five bytes.
        """
        position = self.position
        result = shift = 0
        try:
            while shift < 35:
                byte = self.view[position]
                position += 1
                result |= (byte & 0x7F) << shift
                if byte < 0x80:
                    self.position = position
                    return result
                shift += 7
        except IndexError:
            pass
        raise MalformedMessageError(f"a variable-length integer at byte {self.position} has no end")

    def take(self, size: int) -> memoryview:
        """Return the next bytes without a copy.

        Args:
            size: number of bytes.

        Raises:
            MalformedMessageError: the frame has fewer bytes left.
        """
        end = self.position + size
        if size < 0 or end > len(self.view):
            left = len(self.view) - self.position
            raise MalformedMessageError(f"a length of {size} bytes is claimed, but {left} bytes are left")
        taken = self.view[self.position : end]
        self.position = end
        return taken

    def length(self, compact: bool, prefix: struct.Struct = INT32) -> int:
        """Return the length of a following string, bytes or array; -1 for null.

        Args:
            compact: whether it is a variable-length integer of the length plus one.
            prefix: the layout of a length that is not compact.

        Raises:
            MalformedMessageError: the length exceeds the bytes left.
        """
        length: int = self.varint() - 1 if compact else self.number(prefix)
        if length > len(self.view) - self.position:
            left = len(self.view) - self.position
            raise MalformedMessageError(f"{length} elements or bytes are claimed, but {left} bytes are left")
        return length

    def skip_tagged_fields(self) -> None:
        """Skip a section of tagged fields."""
        for _ in self.elements(self.varint()):
            self.varint()
            self.take(self.varint())


class Sink:
    """Collects the bytes of one message; large byte strings are not copied.

    Args:
        most_bytes: maximum size of the message in bytes.
    """

    __slots__ = ("_most_bytes", "_tail", "_without_tail", "chunks")

    def __init__(self, most_bytes: int = MOST_WRITTEN) -> None:
        self._most_bytes = most_bytes
        self._tail = bytearray()
        self._without_tail = 0
        self.chunks: list[bytes | bytearray | memoryview] = [self._tail]

    @property
    def size(self) -> int:
        """Size of all chunks in bytes."""
        return self._without_tail + len(self._tail)

    def check_size(self) -> None:
        """Check that the message is not too large.

        Raises:
            OversizedMessageError: it is.
        """
        if self.size > self._most_bytes:
            raise OversizedMessageError(f"a message of more than {self._most_bytes} bytes")

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes; the caller must not change a large buffer afterwards."""
        if len(data) < _COPY_BELOW:
            self._tail += data
        else:
            self._without_tail += len(self._tail) + len(data)
            self._tail = bytearray()
            self.chunks += [data, self._tail]

    def number(self, layout: struct.Struct, value: Any) -> None:
        """Append one number in the given layout."""
        self._tail += layout.pack(value)

    def numbers(self, layout: struct.Struct, values: Iterable[Any]) -> None:
        """Append several numbers in the given layout."""
        self._tail += layout.pack(*values)

    def varint(self, value: int) -> None:
        """Append an unsigned variable-length integer."""
        while value > 0x7F:
            self._tail.append(value & 0x7F | 0x80)
            value >>= 7
        self._tail.append(value)

    def length(self, value: int, compact: bool, prefix: struct.Struct = INT32) -> None:
        """Append the length of a string, bytes or an array; -1 for null."""
        if compact:
            self.varint(value + 1)
        else:
            self.number(prefix, value)
