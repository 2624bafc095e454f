"""The serdes of texts, bytes and numbers, byte for byte those of Kafka, and `Serdes`, which names them."""

from __future__ import annotations

import struct
from typing import Any, cast

import pyarrow as pa

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde
from penstock.serdes.columns import Places, distinct_texts
from penstock.serdes.json import JsonSerde

_TEXTS = {str, type(None)}


class StringSerde(Serde):
    """Text as UTF-8 (Kafka class: Serdes.StringSerde)."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the text as UTF-8; raises TypeError for anything but a text."""
        if not isinstance(value, str):
            raise TypeError(_wrong_type(topic, "a str", value))
        return value.encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        """Return the text; bytes that are not UTF-8 become U+FFFD, as in Kafka."""
        return data.decode("utf-8", "replace")

    def serialize_column(self, topic: str, values: list[Any]) -> list[bytes | None]:
        """Return each text as UTF-8, None for None."""
        try:
            return list(map(str.encode, values))
        except TypeError:  # a None, or a value that is no text: the careful way tells which
            return super().serialize_column(topic, values)

    def serialize_distinct(self, topic: str, values: list[Any]) -> tuple[list[bytes | None], Places]:
        """Return the distinct texts as UTF-8, None for None, and the place of each."""
        if type(self) is StringSerde and set(map(type, values)) <= _TEXTS:
            try:
                return distinct_texts(values)
            except (UnicodeEncodeError, pa.ArrowInvalid):  # the careful way says which
                pass
        return super().serialize_distinct(topic, values)

    def deserialize_column(self, topic: str, data: list[bytes | None]) -> list[Any]:
        """Return each text, None for None."""
        try:
            return list(map(bytes.decode, data))  # type: ignore[arg-type]  # a None in the column raises TypeError, which is the point
        except (TypeError, UnicodeDecodeError):
            return super().deserialize_column(topic, data)

    def is_readable_column(self, data: list[bytes | None]) -> bool:
        """Return True: what is not UTF-8 is read with U+FFFD."""
        return type(self) is StringSerde

    def is_canonical_column(self, data: list[bytes | None]) -> bool:
        """Return whether all are UTF-8: a broken sequence does not become whole beside the zero byte between two
        texts."""
        if type(self) is not StringSerde:
            return False
        texts = b"\0".join(cast("list[bytes]", data) if None not in data else filter(None, data))
        try:
            return texts.isascii() or bool(texts.decode())
        except UnicodeDecodeError:
            return False


class BytesSerde(Serde):
    """Bytes as they are (Kafka class: Serdes.ByteArraySerde)."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the bytes; raises TypeError for anything but bytes, bytearray or memoryview."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(_wrong_type(topic, "bytes", value))
        return bytes(value)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> bytes:
        """Return the bytes."""
        return data

    def is_readable_column(self, data: list[bytes | None]) -> bool:
        """Return True: bytes stay as they are."""
        return type(self) is BytesSerde

    def is_canonical_column(self, data: list[bytes | None]) -> bool:
        """Return True: bytes stay as they are."""
        return type(self) is BytesSerde


class _NumberSerde(Serde):
    """A number of fixed size, big-endian."""

    _format: struct.Struct
    _python_type: type[int] | type[float]
    _kafka_name: str

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the number big-endian; raises TypeError for another type, SerializationError if it is out of range."""
        if not isinstance(value, self._python_type) or isinstance(value, bool):
            raise TypeError(_wrong_type(topic, f"a {self._python_type.__name__}", value))
        try:
            return self._format.pack(value)
        except struct.error as error:
            raise SerializationError(f"Cannot write {value} to {topic!r} as {self._kafka_name}: {error}.") from error

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> int | float:
        """Return the number; raises SerializationError when `data` has another size."""
        if len(data) != self._format.size:
            raise SerializationError(
                f"Size of data received by {self._kafka_name}Deserializer is not {self._format.size}"
            )
        number: int | float = self._format.unpack(data)[0]
        return number

    def serialize_column(self, topic: str, values: list[Any]) -> list[bytes | None]:
        """Return each number big-endian, None for None."""
        if set(map(type, values)) != {self._python_type}:
            return super().serialize_column(topic, values)
        try:
            packed = struct.pack(f">{len(values)}{self._format.format[1:]}", *values)
        except struct.error:  # one is out of range: the careful way tells which
            return super().serialize_column(topic, values)
        size = self._format.size
        return [packed[at : at + size] for at in range(0, len(packed), size)]

    def deserialize_column(self, topic: str, data: list[bytes | None]) -> list[Any]:
        """Return each number, None for None."""
        if None in data or set(map(len, cast("list[bytes]", data))) != {self._format.size}:
            return super().deserialize_column(topic, data)
        return list(struct.unpack(f">{len(data)}{self._format.format[1:]}", b"".join(cast("list[bytes]", data))))


class IntegerSerde(_NumberSerde):
    """Whole numbers of 4 bytes (Kafka class: Serdes.IntegerSerde)."""

    _format, _python_type, _kafka_name = struct.Struct(">i"), int, "Integer"


class LongSerde(_NumberSerde):
    """Whole numbers of 8 bytes (Kafka class: Serdes.LongSerde)."""

    _format, _python_type, _kafka_name = struct.Struct(">q"), int, "Long"


class DoubleSerde(_NumberSerde):
    """Floating-point numbers of 8 bytes (Kafka class: Serdes.DoubleSerde)."""

    _format, _python_type, _kafka_name = struct.Struct(">d"), float, "Double"


def _wrong_type(topic: str, expected: str, value: Any) -> str:
    found = f"{type(value).__name__} {value!r:.100}"
    return f"Cannot write to {topic!r}: expected {expected}, got {found}; name another serde or convert the value."


class Serdes:
    """Makes the built-in serdes (Kafka class: Serdes)."""

    @staticmethod
    def string() -> Serde:
        """Return the serde of texts."""
        return StringSerde()

    @staticmethod
    def bytes() -> Serde:
        """Return the serde of bytes (Kafka: Serdes.ByteArray)."""
        return BytesSerde()

    @staticmethod
    def integer() -> Serde:
        """Return the serde of whole numbers of 4 bytes."""
        return IntegerSerde()

    @staticmethod
    def long() -> Serde:
        """Return the serde of whole numbers of 8 bytes."""
        return LongSerde()

    @staticmethod
    def double() -> Serde:
        """Return the serde of floating-point numbers of 8 bytes."""
        return DoubleSerde()

    @staticmethod
    def json() -> Serde:
        """Return the serde of JSON values."""
        return JsonSerde()
