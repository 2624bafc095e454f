"""The Avro serde with a schema registry, by confluent-kafka's serializers (the extra `avro`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

from penstock.extras import missing_from
from penstock.serdes.fields import SchemaField, avro_schema_of, fields_of, fields_of_class
from penstock.serdes.objects import name_of

try:
    from confluent_kafka.schema_registry import (
        SchemaRegistryClient,
        dual_schema_id_deserializer,
        prefix_schema_id_serializer,
    )
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.serde import SchemaId
    from confluent_kafka.serialization import SerializationContext
    from fastavro.read import SchemaResolutionError

    from penstock.serdes.avro_types import check_type, converter, has_choices, writer
    from penstock.serdes.avro_values import AvroSchema
    from penstock.serdes.schema_registry import SchemaRegistrySerde
except ModuleNotFoundError as error:
    raise missing_from("avro", error, "penstock.serdes.avro") from error

T = TypeVar("T")

_LEAST_BYTES = 5
"""Size in bytes of a schema id: AvroDeserializer expects more bytes than these."""


class AvroSerde(SchemaRegistrySerde[T]):
    """Records as Avro, with schemas in a registry (Confluent class: GenericAvroSerde).

    Args:
        registry: the URL of the schema registry, or a mapping of confluent-kafka's keys (`url`, `basic.auth.user.info`
            ...); `mock://NAME` for an in-memory registry.
        schema: the Avro schema, as JSON; None to read each record by its writer's schema, and to write by the latest
            schema in the registry (`use.latest.version`).
        type: a dataclass, TypedDict, pydantic model or similar class of the objects; None for dicts.
        is_key: whether it is for keys.
        config: additional keys of confluent-kafka's AvroSerializer, such as `auto.register.schemas`.

    Raises:
        TypeError: objects of `type` cannot be read.
    """

    repeatable = True
    errors = (*SchemaRegistrySerde.errors, SchemaResolutionError)

    def __init__(
        self,
        registry: str | Mapping[str, Any],
        schema: str | None = None,
        type: type[T] | None = None,
        *,
        is_key: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if type is not None:
            check_type(type)
            if schema is None and has_choices(type):
                raise TypeError(f"AvroSerde needs the schema of {name_of(type)}, which has a union of several classes.")
        latest = {} if schema is not None else {"auto.register.schemas": False, "use.latest.version": True}
        super().__init__(registry, is_key=is_key, config={**latest, **(config or {})})
        self._schema = schema
        self._type = type

    def make_serializer(self) -> Callable[[Any, SerializationContext], Any]:
        """Return confluent-kafka's AvroSerializer."""
        schema = None if self._schema is None else AvroSchema(self._schema)
        config = self._config if schema is not None else _checking_by_latest(self.client(), self._config)
        write = writer(self._type, schema)

        def to_dict(value: Any, context: Any) -> Any:
            context.written = write(value)
            return context.written

        serializer: Callable[[Any, SerializationContext], Any] = AvroSerializer(
            self.client(), self._schema, to_dict, config
        )
        return lambda value, context: _readable(serializer(value, context))

    def make_deserializer(self) -> Callable[[bytes, SerializationContext], Any]:
        """Return confluent-kafka's AvroDeserializer."""
        convert = _unchanged if self._type is None else converter(self._type)
        client = self.client()
        if self._schema is None:
            schema_of = _schemas_in(client)

            def read_id(data: bytes, context: Any, schema_id: SchemaId) -> Any:
                payload = dual_schema_id_deserializer(data, context, schema_id)
                context.read = schema_of(schema_id.id, schema_id.guid, _subject(context)).read
                return payload

            by_id: Callable[[bytes, SerializationContext], Any] = AvroDeserializer(
                client,
                from_dict=lambda value, context: convert(context.read(value)),
                return_record_name=True,
                conf={"schema.id.deserializer": read_id},
            )
            return by_id
        schema = AvroSchema(self._schema)
        read = schema.read if schema.has_choices else _unchanged
        own = deepcopy if schema.has_container_defaults else _unchanged
        deserializer: Callable[[bytes, SerializationContext], Any] = AvroDeserializer(
            client, self._schema, lambda value, context: convert(read(own(value))), schema.has_choices
        )
        return deserializer


@avro_schema_of.register(AvroSerde)
def _schema(serde: AvroSerde[Any]) -> str | None:
    return serde._schema


@fields_of.register(AvroSerde)
def _fields(serde: AvroSerde[Any]) -> tuple[SchemaField, ...]:
    """Return the fields of the schema, or of the class if the schema is in the registry."""
    if serde._schema is None:
        return fields_of_class(serde._type)
    parsed = json.loads(serde._schema)
    fields = parsed.get("fields", ()) if isinstance(parsed, dict) else ()
    return tuple(SchemaField(field["name"], _text_of_type(field["type"])) for field in fields)


def _text_of_type(type_: Any) -> str:
    """Return a type of an Avro schema in one line."""
    match type_:
        case list():
            return " | ".join(map(_text_of_type, type_))
        case {"logicalType": str(name)} | {"type": "record" | "enum" | "fixed", "name": str(name)}:
            return name
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            return f"{type_['type']}<{_text_of_type(inner)}>"
        case {"type": inner}:
            return _text_of_type(inner)
        case _:
            return str(type_)


def _readable(data: bytes | None) -> bytes | None:
    """Return `data`; raises ValueError if confluent-kafka would reject it."""
    if data is not None and len(data) <= _LEAST_BYTES:
        raise ValueError(f"confluent-kafka reads no value of {len(data)} bytes: give the record a field")
    return data


def _checking_by_latest(client: SchemaRegistryClient, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration that checks a value by the schema used to write it."""
    schema_of, write_id = _schemas_in(client), config.get("schema.id.serializer", prefix_schema_id_serializer)

    def check_and_write_id(payload: bytes, context: Any, schema_id: SchemaId) -> bytes:
        schema = schema_of(schema_id.id, schema_id.guid, _subject(context))
        if schema.write(context.written) != context.written:
            raise ValueError("a record in a union of several is written with its name, as in ('Name', {...})")
        framed: bytes = write_id(payload, context, schema_id)
        return framed

    return {**config, "schema.id.serializer": check_and_write_id}


def _schemas_in(client: SchemaRegistryClient) -> Callable[[int | None, UUID | None, str], AvroSchema]:
    """Return a function that finds a schema in a registry by one of its ids."""

    @lru_cache(maxsize=1000)
    def schema_of(id: int | None, guid: UUID | None, subject: str) -> AvroSchema:
        schema = client.get_schema_by_guid(str(guid)) if id is None else client.get_schema(id, subject)
        return AvroSchema(schema.schema_str or "", _references(client, schema))

    return schema_of


def _subject(context: SerializationContext) -> str:
    return f"{context.topic}-{context.field}"


def _references(client: SchemaRegistryClient, schema: Any) -> Mapping[str, Any]:
    """Return a schema's references to definitions in other subjects of the registry."""
    found: dict[str, Any] = {}
    for reference in schema.references or ():
        other = client.get_version(reference.subject, reference.version).schema
        found.update(AvroSchema(other.schema_str or "", {**found, **_references(client, other)}).names)
    return found


def _unchanged(value: Any) -> Any:
    return value
