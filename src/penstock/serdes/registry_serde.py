"""The serde of schemas in a registry that confluent-kafka does not know: AWS Glue, Apicurio, or one of your own.

It combines a client of the registry, a format of payloads and a framing of ids. Confluent's registry has serdes of its
own (serdes/avro.py), which also run its data rules.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde
from penstock.serdes.framing import Framing, Part, SchemaId
from penstock.serdes.headers import split_headers, with_headers
from penstock.serdes.payload_format import PayloadFormat
from penstock.serdes.schema_lookup import ProcessBoundLookup, SchemaLookup, TopicSchema

T = TypeVar("T")

_ERRORS: Final = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    EOFError,
    struct.error,
)
"""Errors of registries, formats and framings for data that does not fit."""


class RegistrySerde(Serde[T], Generic[T]):
    """Values with a schema in any registry: AWS Glue's, Apicurio's, Confluent's, or your own.

    The error of an unreachable registry is not a data error, and is raised unchanged. Each process keeps the schemas
    and ids that it has looked up.

    Args:
        registry: the client of the registry.
        format: of the payloads, with the schema to write by.
        framing: how the id of the schema travels; records are written and read in it.
        also_reads: further framings of records to read, such as those from before a move to another registry. The
            first one that fits counts, and `registry` has to know its ids.
        part: whether it is for keys or values.
    """

    repeatable = True

    def __init__(
        self,
        registry: SchemaLookup,
        format: PayloadFormat,
        framing: Framing,
        *,
        also_reads: Sequence[Framing] = (),
        part: Part = "value",
    ) -> None:
        self._registry = registry
        self._format = format
        self._framing = framing
        self._readable = (framing, *also_reads)
        self._part: Part = part
        self._schemas: dict[SchemaId, str] = {}
        self._ids: dict[str, SchemaId] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_schemas": {}, "_ids": {}}  # looked up again in the other process

    @property
    def is_of_one_process(self) -> bool:
        """Whether the registry is in the memory of one process."""
        return isinstance(self._registry, ProcessBoundLookup) and self._registry.is_of_one_process

    @property
    def uses_headers(self) -> bool:
        """Whether one of the framings has ids in headers."""
        return any(each.uses_headers for each in self._readable)

    @property
    def writes_headers(self) -> bool:
        """Whether the framing has ids in headers."""
        return self._framing.uses_headers

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise `value` with the id of its schema.

        If one of the framings has ids in headers, the data contains its headers: a store has none to read. Raises
        SerializationError if the value does not fit the schema, or the registry does not know the schema.
        """
        data, own = self._written(topic, value)
        return with_headers(data, own) if self.uses_headers else data

    def serialize_record(self, topic: str, value: Any, headers: Headers = ()) -> tuple[bytes, Headers]:
        """Serialise `value`, and return the headers of its record with the id of its schema."""
        data, own = self._written(topic, value)
        names = {name for name, _ in own}
        return data, (*(each for each in headers if each[0] not in names), *own)

    def _written(self, topic: str, value: Any) -> tuple[bytes, Headers]:
        try:
            payload = self._format.write(topic, value)
            return self._framing.write(self._part, self._id_for(topic), payload)
        except _ERRORS as error:
            raise SerializationError(f"Cannot write {value!r:.100} to {topic!r}: {error}.") from error

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> T:
        """Deserialise `data`.

        Raises SerializationError if it is in no known framing, the registry does not know its schema, or it does not
        fit the schema.
        """
        data, headers = split_headers(topic, data, headers)
        try:
            id, payload = self._unframed(data, headers)
            value: T = self._format.read(topic, payload, self._schema_of(id))
        except _ERRORS as error:
            raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r}: {error}.") from error
        return value

    def _unframed(self, data: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        for framing in self._readable:
            found = framing.read(self._part, data, headers)
            if found is not None:
                return found
        expected = " or ".join(f"{each!r}" for each in self._readable)
        raise ValueError(f"the {self._part} has no id of a schema: expected {expected}")

    def _id_for(self, topic: str) -> SchemaId:
        if topic not in self._ids:
            wanted = TopicSchema(topic, self._part, self._format.data_format, self._format.schema)
            self._ids[topic] = self._registry.id_of(wanted, self._framing.kind)
        return self._ids[topic]

    def _schema_of(self, id: SchemaId) -> str:
        if id not in self._schemas:
            self._schemas[id] = self._registry.schema_of(id)
        return self._schemas[id]
