"""The JSON Schema serde with a schema registry, by confluent-kafka's serializers (the extra `jsonschema`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.extras import missing_from
from penstock.serdes.factory import Serdes
from penstock.serdes.fields import SchemaField, fields_of
from penstock.serdes.json import JsonSerde

try:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.serialization import SerializationContext
    from jsonschema import SchemaError, ValidationError

    from penstock.serdes.schema_registry import SchemaRegistrySerde
except ModuleNotFoundError as error:
    raise missing_from("jsonschema", error, "penstock.serdes.json_schema") from error

T = TypeVar("T")

_JSON = JsonSerde()


class JsonSchemaSerde(SchemaRegistrySerde[T]):
    """Values as JSON, with JSON Schemas in a registry (Confluent class: KafkaJsonSchemaSerde).

    Each value is validated at the write and at the read. A value that is read is validated by `schema`, so a newer
    schema reads older data if it fits, and a class fills its missing fields with their defaults.

    Args:
        registry: the URL of the schema registry, or a mapping of confluent-kafka's keys (`url`, `basic.auth.user.info`
            ...); `mock://NAME` for an in-memory registry.
        schema: the JSON Schema, as JSON; None to validate each record by its writer's schema, and to write by the
            latest schema in the registry (`use.latest.version`).
        type: a dataclass, TypedDict, pydantic model or similar class of the objects; None for plain values.
        is_key: whether it is for keys.
        config: additional keys of confluent-kafka's JSONSerializer, such as `auto.register.schemas`; `validate` False
            turns validation off in both directions.

    Raises:
        TypeError: objects of `type` cannot be read.
    """

    repeatable = True
    errors = (*SchemaRegistrySerde.errors, SchemaError)

    def __init__(
        self,
        registry: str | Mapping[str, Any],
        schema: str | None = None,
        type: type[T] | None = None,
        *,
        is_key: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        latest = {} if schema is not None else {"auto.register.schemas": False, "use.latest.version": True}
        super().__init__(registry, is_key=is_key, config={**latest, **(config or {})})
        self._schema = schema
        self._objects = Serdes.json() if type is None else Serdes.json(type)

    def make_serializer(self) -> Callable[[Any, SerializationContext], Any]:
        """Return confluent-kafka's JSONSerializer."""
        write = self._objects.serialize
        serializer: Callable[[Any, SerializationContext], Any] = JSONSerializer(
            self._schema,
            self.client(),
            lambda value, context: _JSON.deserialize(context.topic, write(context.topic, value)),
            self._config,
            json_encode=lambda value: _JSON.serialize("the registry's serializer", value),
        )
        return serializer

    def make_deserializer(self) -> Callable[[bytes, SerializationContext], Any]:
        """Return confluent-kafka's JSONDeserializer."""
        read = self._objects.deserialize
        deserializer: Callable[[bytes, SerializationContext], Any] = JSONDeserializer(
            self._schema,
            lambda value, context: read(context.topic, _JSON.serialize(context.topic, value)),
            self.client(),
            {name: value for name, value in self._config.items() if name == "validate"},
        )
        return deserializer

    def _reason(self, error: Exception) -> str:
        """Return the reason of `error`: of a failed validation with the path of the value."""
        if isinstance(error, SchemaError):
            return f"the schema is not valid: {error.message}"
        invalid = error.__context__
        return (
            f"{invalid.message} at {invalid.json_path}"
            if isinstance(invalid, ValidationError)
            else super()._reason(error)
        )


@fields_of.register(JsonSchemaSerde)
def _fields(serde: JsonSchemaSerde[Any]) -> tuple[SchemaField, ...]:
    """Return the fields of the class of the objects."""
    return fields_of(serde._objects)
