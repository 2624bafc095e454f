"""The serdes that a case may name (FORMAT.md section 3), and the conversion of its JSON keys and values to bytes."""

from __future__ import annotations

from typing import Any

from penstock import Headers, Serde, Serdes, WindowedSerdes
from penstock.errors import SerializationError
from tests.oracle.interpreter.vocabulary import Words


class PickyStringSerde(Serde):
    """Text as UTF-8, but some texts are refused: `refuse_write` on the way out, `refuse_read` on the way in."""

    _plain = Serdes.string()

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the text as UTF-8; raises SerializationError for a text that contains `refuse_write`."""
        if "refuse_write" in value:
            raise SerializationError("refused to write")
        return self._plain.serialize(topic, value, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Return the text; raises SerializationError for one that contains `refuse_read`."""
        value = self._plain.deserialize(topic, data, headers)
        if "refuse_read" in value:
            raise SerializationError("refused to read")
        return value


class HeaderStringSerde(Serde):
    """Text as UTF-8 with the headers that the serde is given: after `>` when it is written, after `<` when it is
    read."""

    _plain = Serdes.string()

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the text and the headers as UTF-8."""
        return self._plain.serialize(topic, value, headers) + shown(">", headers).encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Return the text and the headers."""
        return self._plain.deserialize(topic, data, headers) + shown("<", headers)


def shown(mark: str, headers: Headers) -> str:
    """Return `mark` and the headers as a text, an empty one if there are none."""
    return mark + ",".join(f"{name}={_text(value)}" for name, value in headers) if headers else ""


def _text(value: bytes | None) -> str:
    return "null" if value is None else value.decode()


class MarkedStringSerde(Serde):
    """Text as UTF-8; `~` stands behind every text that is read, so that it shows how often one was."""

    _plain = Serdes.string()

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return the text as UTF-8."""
        return self._plain.serialize(topic, value, headers)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Return the text and the mark."""
        return self._plain.deserialize(topic, data, headers) + "~"


SERDES = Words(
    "serde",
    {
        "string": Serdes.string,
        "long": Serdes.long,
        "int": Serdes.integer,
        "double": Serdes.double,
        "bytes": Serdes.bytes,
        "picky_string": PickyStringSerde,
        "header_string": HeaderStringSerde,
        "marked_string": MarkedStringSerde,
        "time_windowed": lambda inner, size: WindowedSerdes.time_windowed(SERDES.read(inner), size),
        "session_windowed": lambda inner: WindowedSerdes.session_windowed(SERDES.read(inner)),
    },
)


def encode(topic: str, serde: Serde, value: Any) -> bytes | None:
    """Return a key or value of a step as bytes: by the serde, or as they are where the case gives `{"hex": ...}`."""
    if value is None:
        return None
    if isinstance(value, dict) and "hex" in value:
        return bytes.fromhex(value["hex"])
    return serde.serialize(topic, value)


def decode(topic: str, serde: Serde, data: bytes | None) -> Any:
    """Return what `data` stands for, None for None."""
    return None if data is None else serde.deserialize(topic, data)
