"""What the serdes of Avro and Protobuf share: a client of the schema registry, made in each process when it is first
needed, and how confluent-kafka's serializers are called.

The serdes themselves hold configuration only, so that they can be sent to workers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext
from confluent_kafka.serialization import SerializationError as ClientSerializationError

from penstock.config_providers import resolved
from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde

T = TypeVar("T")


def registry_client(config: Mapping[str, Any]) -> SchemaRegistryClient:
    """Return the client of this process for a schema registry.

    config: confluent-kafka's own keys, of which `url` is needed; `mock://NAME` is a registry in the memory of this
    process. Values may refer to the environment or to files, see `config.providers`.
    """
    return _client(tuple(sorted(config.items())))


@lru_cache(maxsize=64)
def _client(config: tuple[tuple[str, Any], ...]) -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({key: resolved(key, value) for key, value in config})


class SchemaRegistrySerde(Serde[T], Generic[T]):
    """Base of the serdes whose schemas a registry keeps. Subclasses create the serializer and the deserializer; an
    error of an unreachable registry is not a data error, and is raised unchanged."""

    errors: ClassVar[tuple[type[Exception], ...]] = (
        SchemaRegistryError,
        ClientSerializationError,
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        EOFError,
        struct.error,
    )
    """What the serializers, and the libraries below them, raise for data that does not fit."""

    def __init__(self, registry: str | Mapping[str, Any], *, is_key: bool = False) -> None:
        """Use the registry at the URL `registry`, or with the configuration that it is; is_key: the schemas are those
        of keys (subject `TOPIC-key`), not of values."""
        self._registry = {"url": registry} if isinstance(registry, str) else dict(registry)
        self._field = MessageField.KEY if is_key else MessageField.VALUE
        self._serializer: Callable[[Any, SerializationContext], bytes] | None = None
        self._deserializer: Callable[[bytes, SerializationContext], Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_serializer": None, "_deserializer": None}  # created again on arrival

    def make_serializer(self) -> Callable[[Any, SerializationContext], Any]:
        """Return confluent-kafka's serializer."""
        raise NotImplementedError

    def make_deserializer(self) -> Callable[[bytes, SerializationContext], Any]:
        """Return confluent-kafka's deserializer."""
        raise NotImplementedError

    def client(self) -> SchemaRegistryClient:
        """Return the client of the registry."""
        return registry_client(self._registry)

    def serialize(self, topic: str, value: T, headers: Headers = ()) -> bytes:
        """Return `value` with the id of its schema before it; raises SerializationError if it does not fit the schema,
        or the registry refuses the schema."""
        try:
            if self._serializer is None:
                self._serializer = self.make_serializer()
            return self._serializer(value, self._context(topic, headers))
        except self.errors as error:
            _pass_on_if_away(error)
            raise SerializationError(f"Cannot write {value!r:.100} to {topic!r}: {self._reason(error)}.") from error

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> T:
        """Return the value; raises SerializationError if `data` is not of a schema that the registry knows."""
        try:
            if self._deserializer is None:
                self._deserializer = self.make_deserializer()
            value: T = self._deserializer(data, self._context(topic, headers))
        except self.errors as error:
            _pass_on_if_away(error)
            raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r}: {self._reason(error)}.") from error
        return value

    def _reason(self, error: Exception) -> str:
        url = str(self._registry.get("url"))
        if isinstance(error, SchemaRegistryError) and url.startswith("mock://"):
            return (
                f"{url} is a registry in the memory of this process, which ends with it, and it does not have this "
                "schema. For several processes, or a program that starts again, use a registry that they share: "
                "`penstock broker --schema-registry` serves one at http://127.0.0.1:8081"
            )
        return str(error)

    def _context(self, topic: str, headers: Headers) -> SerializationContext:
        return SerializationContext(topic, self._field, list(headers))


def _pass_on_if_away(error: Exception) -> None:
    """Raise `error` again if the registry could not answer: the same data may be readable later."""
    if isinstance(error, SchemaRegistryError) and not 400 <= error.http_status_code < 500:
        raise error
