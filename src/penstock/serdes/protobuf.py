"""The serde of Protobuf with a schema registry, by confluent-kafka's own serializers (the extra `protobuf`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.extras import missing_from

try:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import SerializationContext
    from google.protobuf.message import DecodeError, EncodeError, Message

    from penstock.serdes.schema_registry import SchemaRegistrySerde
except ModuleNotFoundError as error:
    raise missing_from("protobuf", error, "penstock.serdes.protobuf") from error

M = TypeVar("M", bound=Message)


class ProtobufSerde(SchemaRegistrySerde[M]):
    """Messages of one generated class, their schemas kept in a registry (Confluent class: KafkaProtobufSerde)."""

    repeatable = True
    errors = (*SchemaRegistrySerde.errors, DecodeError, EncodeError)

    def __init__(
        self,
        registry: str | Mapping[str, Any],
        message: type[M],
        *,
        is_key: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Write and read objects of the generated class `message`.

        Args:
            registry: the URL of the schema registry, or a mapping of confluent-kafka's keys; `mock://NAME` for one in
                memory.
            message: the class that protoc made.
            is_key: whether it is for keys.
            config: further keys of confluent-kafka's ProtobufSerializer, such as `auto.register.schemas`.
        """
        super().__init__(registry, is_key=is_key)
        self._message = message
        self._config = dict(config or {})

    def make_serializer(self) -> Callable[[Any, SerializationContext], Any]:
        """Return confluent-kafka's ProtobufSerializer."""
        serializer: Callable[[Any, SerializationContext], Any] = ProtobufSerializer(
            self._message, self.client(), self._config
        )
        return serializer

    def make_deserializer(self) -> Callable[[bytes, SerializationContext], Any]:
        """Return confluent-kafka's ProtobufDeserializer."""
        deserializer: Callable[[bytes, SerializationContext], Any] = ProtobufDeserializer(
            self._message, {}, self.client()
        )
        return deserializer
