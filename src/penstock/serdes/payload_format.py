"""Formats of payloads with a schema in a registry: the protocol, and JSON. Avro is in serdes/avro_format.py."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from penstock.serdes.api import Serde
from penstock.serdes.factory import Serdes

T = TypeVar("T")


class PayloadFormat(Protocol):
    """How values with a schema become bytes; picklable.

    Both methods raise TypeError, ValueError or SerializationError for data that does not fit.
    """

    @property
    def data_format(self) -> str:
        """The name of the format in registries, such as `AVRO`."""
        ...

    @property
    def schema(self) -> str:
        """The schema of the values that are written."""
        ...

    def write(self, topic: str, value: Any) -> bytes:
        """Return the payload of `value`."""
        ...

    def read(self, topic: str, payload: bytes, written_by: str) -> Any:
        """Return the value of a payload that was written by the schema `written_by`."""
        ...


class JsonFormat(Generic[T]):
    """Values as JSON, whose schema is for others: values are not validated by it.

    Args:
        schema: the JSON Schema, as JSON.
        type: the class of the objects; None for plain values.

    Raises:
        TypeError: objects of `type` cannot be read.
    """

    data_format = "JSON"

    def __init__(self, schema: str, type: type[T] | None = None) -> None:
        self.schema = schema
        self._serde: Serde[Any] = Serdes.json() if type is None else Serdes.json(type)

    def write(self, topic: str, value: Any) -> bytes:
        """Return `value` as JSON; raises SerializationError if it would not be read back as an equal one."""
        return self._serde.serialize(topic, value)

    def read(self, topic: str, payload: bytes, written_by: str) -> Any:
        """Return the value; a missing field of its class has its default."""
        return self._serde.deserialize(topic, payload)
