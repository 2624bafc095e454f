"""The serde of Avro with a schema registry, by confluent-kafka's own serializers (the extra `avro`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from penstock.extras import missing_from

try:
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import SerializationContext
    from fastavro.read import SchemaResolutionError

    from penstock.serdes.schema_registry import SchemaRegistrySerde
except ModuleNotFoundError as error:
    raise missing_from("avro", error, "penstock.serdes.avro") from error

T = TypeVar("T")

_NATIVE = (bytes, datetime, date, time, Decimal, UUID)
"""Types that Avro's logical types accept unchanged."""


class AvroSerde(SchemaRegistrySerde[T]):
    """Records as Avro, their schemas kept in a registry (Confluent class: GenericAvroSerde)."""

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
        """Write and read records of one schema.

        Args:
            registry: the URL of the schema registry, or a mapping of confluent-kafka's keys (`url`,
                `basic.auth.user.info` ...); `mock://NAME` for one in memory.
            schema: the Avro schema, as JSON; None to read each record by the schema it was written with, and to write
                by the latest schema in the registry (`use.latest.version`).
            type: a dataclass, TypedDict or the like whose objects are written and read; None for dicts.
            is_key: whether it is for keys.
            config: further keys of confluent-kafka's AvroSerializer, such as `auto.register.schemas`.
        """
        super().__init__(registry, is_key=is_key)
        self._schema = schema
        self._type = type
        latest = {} if schema is not None else {"auto.register.schemas": False, "use.latest.version": True}
        self._config = {**latest, **(config or {})}

    def make_serializer(self) -> Callable[[Any, SerializationContext], Any]:
        """Return confluent-kafka's AvroSerializer."""
        to_dict = (
            None if self._type is None else lambda value, context: msgspec.to_builtins(value, builtin_types=_NATIVE)
        )
        serializer: Callable[[Any, SerializationContext], Any] = AvroSerializer(
            self.client(), self._schema, to_dict, self._config
        )
        return serializer

    def make_deserializer(self) -> Callable[[bytes, SerializationContext], Any]:
        """Return confluent-kafka's AvroDeserializer."""
        from_dict = None if self._type is None else lambda fields, context: msgspec.convert(fields, self._type)
        deserializer: Callable[[bytes, SerializationContext], Any] = AvroDeserializer(
            self.client(), self._schema, from_dict
        )
        return deserializer
