"""The common part of the serdes by confluent-kafka's serializers: registry client and serializer calls.

Each process creates its client on first use. The serdes themselves hold only configuration, so that they can be sent to
workers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext
from confluent_kafka.serialization import SerializationError as ClientSerializationError

from penstock.config_providers import resolved
from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde
from penstock.serdes.framing import SchemaId, SchemaIdKind
from penstock.serdes.headers import split_headers, with_headers
from penstock.serdes.schema_lookup import ProcessBoundLookup, TopicSchema

T = TypeVar("T")


def registry_client(config: Mapping[str, Any]) -> SchemaRegistryClient:
    """Return this process's client for a schema registry.

    config: confluent-kafka's own keys, `url` being required; `mock://NAME` is a registry in this process's memory.
    Values may refer to the environment or to files, see `config.providers`.
    """
    return _client(tuple(sorted(config.items())))


@lru_cache(maxsize=64)
def _client(config: tuple[tuple[str, Any], ...]) -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({key: resolved(key, value) for key, value in config})


class SchemaRegistrySerde(Serde[T], Generic[T]):
    """Base of the serdes with schemas in a registry; subclasses create serializer and deserializer.

    The error of an unreachable registry is not a data error, and is raised unchanged.

    Args:
        registry: the URL of the registry, or its configuration.
        is_key: whether the schemas are for keys (subject `TOPIC-key`) instead of values.
        config: keys of confluent-kafka's serializer; with `schema.id.serializer`, ids may be headers of the records.
    """

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
    """Errors of the serializers and their libraries for data that does not fit."""

    def __init__(
        self, registry: str | Mapping[str, Any], *, is_key: bool = False, config: Mapping[str, Any] | None = None
    ) -> None:
        self._registry = {"url": registry} if isinstance(registry, str) else dict(registry)
        self._field = MessageField.KEY if is_key else MessageField.VALUE
        self._config = dict(config or {})
        self._serializer: Callable[[Any, SerializationContext], bytes] | None = None
        self._deserializer: Callable[[bytes, SerializationContext], Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_serializer": None, "_deserializer": None}  # created again in the other process

    @property
    def writes_headers(self) -> bool:
        """Whether `schema.id.serializer` is set, which may write ids to headers."""
        return "schema.id.serializer" in self._config

    @property
    def is_of_one_process(self) -> bool:
        """Whether the registry is in the memory of a process."""
        return _is_in_memory(self._registry)

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
        """Serialise `value`, prefixed with the id of its schema.

        An id that belongs in a header is a part of the data here. Raises SerializationError if the value does not fit
        the schema, or the registry rejects the schema.
        """
        data, added = self._serialized(topic, value, headers)
        return with_headers(data, added) if added else data

    def serialize_record(self, topic: str, value: T, headers: Headers = ()) -> tuple[bytes, Headers]:
        """Serialise `value`, and return the headers of its record with those that the serializer adds."""
        data, added = self._serialized(topic, value, headers)
        names = {name for name, _ in added}
        return data, (*(each for each in headers if each[0] not in names), *added)

    def _serialized(self, topic: str, value: T, headers: Headers) -> tuple[bytes, Headers]:
        """Return the data of `value`, and the headers that the serializer adds."""
        written: list[Any] = list(headers)
        try:
            if self._serializer is None:
                self._serializer = self.make_serializer()
            data = self._serializer(value, SerializationContext(topic, self._field, written))
            return data, tuple(written[len(headers) :])
        except self.errors as error:
            _pass_on_if_away(error)
            raise SerializationError(f"Cannot write {value!r:.100} to {topic!r}: {self._reason(error)}.") from error

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> T:
        """Deserialise `data`; raises SerializationError if the registry does not know its schema."""
        data, headers = split_headers(topic, data, headers)
        try:
            if self._deserializer is None:
                self._deserializer = self.make_deserializer()
            value: T = self._deserializer(data, SerializationContext(topic, self._field, list(headers)))
        except self.errors as error:
            _pass_on_if_away(error)
            raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r}: {self._reason(error)}.") from error
        return value

    def _reason(self, error: Exception) -> str:
        url = str(self._registry.get("url"))
        if isinstance(error, SchemaRegistryError) and _is_in_memory(self._registry):
            return (
                f"{url} is a registry in the memory of this process, which ends with it, and it does not have this "
                "schema. For several processes, or a program that starts again, use a registry that they share: "
                "`penstock broker --schema-registry` serves one at http://127.0.0.1:8081"
            )
        return str(error)


def _is_in_memory(registry: Mapping[str, Any]) -> bool:
    """Return whether a registry is one in the memory of each process."""
    return str(registry.get("url")).startswith("mock://")


def _pass_on_if_away(error: Exception) -> None:
    """Raise `error` again if the registry is unreachable: the same data may be readable later."""
    if isinstance(error, SchemaRegistryError) and not 400 <= error.http_status_code < 500:
        raise error


class ConfluentSchemas(ProcessBoundLookup):
    """The schemas of Confluent's registry, as a client for `RegistrySerde` (framings CONFLUENT ...).

    The subject of a topic is `TOPIC-key` or `TOPIC-value`. A schema that it lacks is registered as its next version.

    Args:
        registry: the URL of the registry, or its configuration.
    """

    def __init__(self, registry: str | Mapping[str, Any]) -> None:
        self._registry = {"url": registry} if isinstance(registry, str) else dict(registry)

    @property
    def is_of_one_process(self) -> bool:
        """Whether the registry is in the memory of this process."""
        return _is_in_memory(self._registry)

    def schema_of(self, id: SchemaId) -> str:
        """Return the schema of `id`; raises LookupError if the registry does not have it."""
        client = registry_client(self._registry)
        try:
            match id.value:
                case UUID():
                    found = client.get_schema_by_guid(str(id.value))
                case number:
                    found = client.get_schema(number)
        except SchemaRegistryError as error:
            _pass_on_if_away(error)
            raise LookupError(f"{self._registry['url']} has no {id}: {error}") from error
        return found.schema_str or ""

    def id_of(self, schema: TopicSchema, kind: SchemaIdKind) -> SchemaId:
        """Return the id of `schema`; raises LookupError if the registry rejects it."""
        subject = f"{schema.topic}-{schema.part}"
        try:
            found = registry_client(self._registry).register_schema_full_response(
                subject, Schema(schema.text, schema.data_format)
            )
        except SchemaRegistryError as error:
            _pass_on_if_away(error)
            raise LookupError(f"{self._registry['url']} rejects the schema of {subject!r}: {error}") from error
        return SchemaId(kind, UUID(found.guid) if kind is SchemaIdKind.GUID else int(found.schema_id or 0))
