"""The serdes of texts, bytes, numbers and other single values, byte for byte Kafka's.

`serdes/factory.py` gives them their names for users.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, Generic, TypeVar, cast

import numpy as np

from penstock.errors import SerializationError
from penstock.record import ArrayColumn, DictionaryColumn, Headers
from penstock.serdes.api import Library, Serde
from penstock.serdes.array_columns import (
    distinct_of,
    read_binaries,
    read_booleans,
    read_numbers,
    read_texts,
    written_binaries,
    written_booleans,
    written_numbers,
    written_texts,
)
from penstock.serdes.columns import Places, distinct_texts

N = TypeVar("N", int, float)

_TEXTS = {str, type(None)}


class StringSerde(Serde[str]):
    """Text as UTF-8 (Kafka class: Serdes.StringSerde)."""

    uses_headers = False
    unchanging_types = frozenset({str})
    repeatable = True

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the text as UTF-8; raises TypeError for any other type."""
        if not isinstance(value, str):
            raise TypeError(_wrong_type(topic, "a str", value))
        return value.encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        """Deserialise the text; bytes that are not UTF-8 become U+FFFD, as in Kafka."""
        return data.decode("utf-8", "replace")

    def serialize_column(
        self, topic: str, values: Sequence[Any], headers: Sequence[Headers] | None = None
    ) -> list[bytes | None]:
        """Serialise each text as UTF-8; None stays None."""
        if isinstance(values, ArrayColumn) and (written := written_texts(values)) is not None:
            return written
        try:
            return list(map(str.encode, values))
        except TypeError:  # a None, or another type: the slow path finds out which
            return super().serialize_column(topic, values, headers)

    def serialize_distinct(
        self, topic: str, values: Sequence[Any], headers: Sequence[Headers] | None = None
    ) -> tuple[list[bytes | None], Places]:
        """Return the distinct texts as UTF-8 and each row's index; None stays None."""
        if isinstance(values, ArrayColumn) and (found := distinct_of(values)) is not None:
            return found
        if set(map(type, values)) <= _TEXTS:
            try:
                return distinct_texts(values)
            except ValueError:  # of Python or Arrow; the slow path finds out which
                pass
        return super().serialize_distinct(topic, values, headers)

    def deserialize_column(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[Headers] | None = None
    ) -> list[Any]:
        """Deserialise each text; None stays None."""
        if isinstance(data, DictionaryColumn):
            return DictionaryColumn.of(self.deserialize_column(topic, data.entries()), data.places).rows()
        try:
            return list(map(bytes.decode, data))  # type: ignore[arg-type]  # a None in the column raises TypeError, which is the point
        except (TypeError, UnicodeDecodeError):
            return super().deserialize_column(topic, data, headers)

    def deserialize_array(self, topic: str, data: Sequence[bytes | None], library: Library) -> ArrayColumn[Any] | None:
        """Deserialise the texts as an array of Arrow."""
        return read_texts(data, library)

    def is_readable_column(self, data: Sequence[bytes | None]) -> bool:
        """Return True: bytes that are not UTF-8 become U+FFFD."""
        return True

    def is_canonical_column(self, data: Sequence[bytes | None]) -> bool:
        """Return whether all texts are UTF-8.

        The zero byte between two texts cannot complete a broken sequence.
        """
        texts = b"\0".join(cast("list[bytes]", data) if None not in data else filter(None, data))
        try:
            return texts.isascii() or bool(texts.decode())
        except UnicodeDecodeError:
            return False


class BytesSerde(Serde[bytes]):
    """Bytes, unchanged (Kafka class: Serdes.ByteArraySerde)."""

    uses_headers = False
    unchanging_types = frozenset({bytes})
    repeatable = True

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the bytes; raises TypeError for anything but bytes, bytearray or memoryview."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(_wrong_type(topic, "bytes", value))
        return bytes(value)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> bytes:
        """Return the bytes."""
        return data

    def serialize_column(
        self, topic: str, values: Sequence[Any], headers: Sequence[Headers] | None = None
    ) -> list[bytes | None]:
        """Return the bytes of each row; None stays None."""
        if isinstance(values, ArrayColumn) and (written := written_binaries(values)) is not None:
            return written
        return super().serialize_column(topic, values, headers)

    def deserialize_array(self, topic: str, data: Sequence[bytes | None], library: Library) -> ArrayColumn[Any] | None:
        """Return the bytes as an array of Arrow."""
        return read_binaries(data, library)

    def is_readable_column(self, data: Sequence[bytes | None]) -> bool:
        """Return True: bytes stay unchanged."""
        return True

    def is_canonical_column(self, data: Sequence[bytes | None]) -> bool:
        """Return True: bytes stay unchanged."""
        return True


class ByteBufferSerde(Serde[memoryview]):
    """Bytes as a view (Kafka class: Serdes.ByteBufferSerde)."""

    uses_headers = False
    repeatable = True

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the bytes of the view; raises TypeError for anything but memoryview, bytes or bytearray."""
        return BYTES.serialize(topic, value, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> memoryview:
        """Return a view of the bytes."""
        return memoryview(data)


class VoidSerde(Serde[None]):
    """Nothing: the serde of keys or values that are always null (Kafka class: Serdes.VoidSerde)."""

    uses_headers = False

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Raise TypeError: this serde writes only None."""
        raise TypeError(_wrong_type(topic, "None", value))

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> None:
        """Raise SerializationError: no bytes are expected."""
        raise SerializationError(f"Data should be null for a VoidDeserializer. Got {data[:100]!r} from {topic!r}.")


class UUIDSerde(Serde[uuid.UUID]):
    """UUIDs as 36-character text (Kafka class: Serdes.UUIDSerde)."""

    uses_headers = False
    unchanging_types = frozenset({uuid.UUID})
    repeatable = True

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the UUID as text; raises TypeError for any other type."""
        if not isinstance(value, uuid.UUID):
            raise TypeError(_wrong_type(topic, "a UUID", value))
        return str(value).encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> uuid.UUID:
        """Deserialise the UUID; raises SerializationError for any other text."""
        try:
            return uuid.UUID(data.decode())
        except ValueError as error:
            raise SerializationError(f"Error parsing data into UUID: {data[:100]!r} from {topic!r}.") from error


class BooleanSerde(Serde[bool]):
    """True and False as one byte (Kafka class: Serdes.BooleanSerde)."""

    uses_headers = False
    unchanging_types = frozenset({bool})
    repeatable = True

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the byte 1 or 0; raises TypeError for anything but a bool."""
        if not isinstance(value, bool):
            raise TypeError(_wrong_type(topic, "a bool", value))
        return b"\1" if value else b"\0"

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> bool:
        """Return the bool; raises SerializationError for any other length or byte."""
        if len(data) != 1:
            raise SerializationError("Size of data received by BooleanDeserializer is not 1")
        if data not in (b"\0", b"\1"):
            raise SerializationError(f"Unexpected byte received by BooleanDeserializer: {data[0]}")
        return data == b"\1"

    def serialize_column(
        self, topic: str, values: Sequence[Any], headers: Sequence[Headers] | None = None
    ) -> list[bytes | None]:
        """Serialise each bool; None stays None."""
        if isinstance(values, ArrayColumn) and (written := written_booleans(values)) is not None:
            return written
        return super().serialize_column(topic, values, headers)

    def deserialize_array(self, topic: str, data: Sequence[bytes | None], library: Library) -> ArrayColumn[Any] | None:
        """Deserialise the bools as an array."""
        return read_booleans(data, library)


class _NumberSerde(Serde[N], Generic[N]):
    """A number of fixed size, big-endian."""

    uses_headers = False
    unchanging_types = frozenset({int})
    repeatable = True
    _format: struct.Struct
    _python_type: type[N]
    _accepted: type = Integral
    _kafka_name: str

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the number big-endian.

        An int is also a float, as for type checkers, and numpy's scalars are numbers, if the conversion is lossless.
        Raises TypeError for another type, SerializationError for a number out of range.
        """
        try:
            number = value if isinstance(value, self._python_type) else self._exactly(topic, value)
            if isinstance(value, bool):
                raise TypeError(_wrong_type(topic, self._python_type.__name__, value))
            return self._format.pack(number)
        except (struct.error, OverflowError) as error:
            raise SerializationError(f"Cannot write {value} to {topic!r} as {self._kafka_name}: {error}.") from error

    def _exactly(self, topic: str, value: Any) -> N:
        make: Callable[[Any], N] = self._python_type
        if isinstance(value, self._accepted):
            number = make(value)
            if self._format.unpack(self._format.pack(number))[0] == value or value != value:  # NaN is unequal to itself
                return number
        raise TypeError(_wrong_type(topic, self._python_type.__name__, value))

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> N:
        """Deserialise the number; raises SerializationError for another size."""
        if len(data) != self._format.size:
            name = "" if self._kafka_name == "Double" else self._kafka_name  # Kafka's wording
            raise SerializationError(f"Size of data received by {name}Deserializer is not {self._format.size}")
        number: N = self._format.unpack(data)[0]
        return number

    def serialize_column(
        self, topic: str, values: Sequence[Any], headers: Sequence[Headers] | None = None
    ) -> list[bytes | None]:
        """Serialise each number big-endian; None stays None."""
        if isinstance(values, ArrayColumn) and (written := written_numbers(values, self._format)) is not None:
            return written
        if set(map(type, values)) != {self._python_type}:
            return super().serialize_column(topic, values, headers)
        try:
            packed = struct.pack(f">{len(values)}{self._format.format[1:]}", *values)
        except (struct.error, OverflowError):  # a number is out of range: the slow path finds out which
            return super().serialize_column(topic, values, headers)
        items: list[bytes | None] = np.frombuffer(packed, f"V{self._format.size}").tolist()
        return items

    def deserialize_column(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[Headers] | None = None
    ) -> list[Any]:
        """Deserialise each number; None stays None."""
        if None in data or set(map(len, cast("list[bytes]", data))) != {self._format.size}:
            return super().deserialize_column(topic, data, headers)
        return list(struct.unpack(f">{len(data)}{self._format.format[1:]}", b"".join(cast("list[bytes]", data))))

    def deserialize_array(self, topic: str, data: Sequence[bytes | None], library: Library) -> ArrayColumn[Any] | None:
        """Deserialise the numbers as an array of 64-bit numbers."""
        return read_numbers(data, self._format, library)

    def is_readable_column(self, data: Sequence[bytes | None]) -> bool:
        """Return whether all have the size of the number."""
        return {len(item) for item in data if item is not None} <= {self._format.size}

    def is_canonical_column(self, data: Sequence[bytes | None]) -> bool:
        """Return whether all have the size of a whole number; False for floating-point serdes.

        NaNs may be written differently.
        """
        return self._python_type is int and self.is_readable_column(data)


class ShortSerde(_NumberSerde[int]):
    """2-byte integers (Kafka class: Serdes.ShortSerde)."""

    _format, _python_type, _kafka_name = struct.Struct(">h"), int, "Short"


class IntegerSerde(_NumberSerde[int]):
    """4-byte integers (Kafka class: Serdes.IntegerSerde)."""

    _format, _python_type, _kafka_name = struct.Struct(">i"), int, "Integer"


class LongSerde(_NumberSerde[int]):
    """8-byte integers (Kafka class: Serdes.LongSerde)."""

    _format, _python_type, _kafka_name = struct.Struct(">q"), int, "Long"


class FloatSerde(_NumberSerde[float]):
    """4-byte floating-point numbers (Kafka class: Serdes.FloatSerde); read values have their precision."""

    unchanging_types = frozenset()
    _accepted = Real
    _format, _python_type, _kafka_name = struct.Struct(">f"), float, "Float"


class DoubleSerde(_NumberSerde[float]):
    """8-byte floating-point numbers (Kafka class: Serdes.DoubleSerde)."""

    unchanging_types = frozenset({float})
    _accepted = Real
    _format, _python_type, _kafka_name = struct.Struct(">d"), float, "Double"


def _wrong_type(topic: str, expected: str, value: Any) -> str:
    found = f"{type(value).__name__} {value!r:.100}"
    return f"Cannot write to {topic!r}: expected {expected}, got {found}; name another serde or convert the value."


BYTES = BytesSerde()
