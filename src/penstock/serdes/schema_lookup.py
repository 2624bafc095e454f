"""Clients of schema registries for `RegistrySerde`: from ids to schemas, and back.

A client is sent to workers with its serde, so it holds configuration only, and connects where it is used. None of
them needs a package of its own: the program creates the client of AWS, and Apicurio is called by HTTP. Confluent's is
in serdes/schema_registry.py.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode
from uuid import UUID

from penstock.config_providers import resolved
from penstock.serdes.framing import Part, SchemaId, SchemaIdKind

_TIMEOUT_S: Final = 30


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """A schema that records of a topic are written by.

    Args:
        topic: the name of the topic.
        part: whether keys or values have it.
        data_format: `AVRO` or `JSON`.
        text: the schema.
    """

    topic: str
    part: Part
    data_format: str
    text: str


class SchemaLookup(Protocol):
    """The client of a schema registry; your own class needs both methods and must be picklable."""

    def schema_of(self, id: SchemaId) -> str:
        """Return the schema of `id`; raises LookupError if the registry does not have it."""
        ...

    def id_of(self, schema: TopicSchema, kind: SchemaIdKind) -> SchemaId:
        """Return the id of `schema`; raises LookupError if the registry does not have it."""
        ...


class ProcessBoundLookup(ABC):
    """The client of a registry that may be in the memory of one process."""

    @property
    @abstractmethod
    def is_of_one_process(self) -> bool:
        """Whether only this process has the schemas."""
        ...


class SchemaTable:
    """A fixed table of schemas, for tests and for topics with known ids.

    Args:
        schemas: the schemas by id.
    """

    def __init__(self, schemas: Mapping[SchemaId, str]) -> None:
        self._schemas = dict(schemas)

    def schema_of(self, id: SchemaId) -> str:
        """Return the schema of `id`; raises LookupError if the table does not have it."""
        if id not in self._schemas:
            raise LookupError(f"the table of schemas has no {id}")
        return self._schemas[id]

    def id_of(self, schema: TopicSchema, kind: SchemaIdKind) -> SchemaId:
        """Return the id of `schema`; raises LookupError if the table does not have it."""
        wanted = json.loads(schema.text)
        for id, text in self._schemas.items():
            if id.kind == kind and json.loads(text) == wanted:
                return id
        raise LookupError(f"the table of schemas has no {kind} for the schema of {schema.topic!r}: add it")


class GlueSchemas:
    """The schemas of AWS Glue, by a client of boto3 that the program creates.

    A schema has the name of its topic, as with AWS's serializers. Schemas are not registered: create them before.

    Args:
        client: a function that returns the client, such as `partial(boto3.client, "glue")`; called once a process.
        registry: the name of the registry.
        schema_name: a function from a topic to the name of its schema; None for the topic's name.
    """

    def __init__(
        self,
        client: Callable[[], Any],
        registry: str = "default-registry",
        schema_name: Callable[[str], str] | None = None,
    ) -> None:
        self._make_client = client
        self._registry = registry
        self._schema_name = schema_name
        self._client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_client": None}  # created again in the other process

    def schema_of(self, id: SchemaId) -> str:
        """Return the schema of `id`; raises LookupError if the registry does not have it."""
        client = self._connected()
        try:
            found: str = client.get_schema_version(SchemaVersionId=str(id.value))["SchemaDefinition"]
        except client.exceptions.EntityNotFoundException as error:
            raise LookupError(f"AWS Glue has no {id}") from error
        return found

    def id_of(self, schema: TopicSchema, kind: SchemaIdKind) -> SchemaId:
        """Return the id of `schema`; raises LookupError if the registry does not have it."""
        client = self._connected()
        name = schema.topic if self._schema_name is None else self._schema_name(schema.topic)
        try:
            found = client.get_schema_by_definition(
                SchemaId={"SchemaName": name, "RegistryName": self._registry}, SchemaDefinition=schema.text
            )
        except client.exceptions.EntityNotFoundException as error:
            raise LookupError(
                f"AWS Glue has no version of {name!r} in {self._registry!r} with this schema: register it"
            ) from error
        return SchemaId(kind, UUID(found["SchemaVersionId"]))

    def _connected(self) -> Any:
        if self._client is None:
            self._client = self._make_client()
        return self._client


class ApicurioSchemas:
    """The schemas of an Apicurio Registry, by its REST API of version 3.

    The artifact of a topic is `TOPIC-key` or `TOPIC-value`. A schema that it lacks is registered as its next version.

    Args:
        url: such as `http://localhost:8080/apis/registry/v3`.
        group: the group of the artifacts.
        headers: HTTP headers of each request, such as `Authorization`; values may refer to the environment or to
            files, see `config.providers`.
    """

    def __init__(self, url: str, group: str = "default", headers: Mapping[str, str] | None = None) -> None:
        self._url = url.rstrip("/")
        self._group = group
        self._headers = dict(headers or {})

    def schema_of(self, id: SchemaId) -> str:
        """Return the schema of `id`; raises LookupError if the registry does not have it."""
        try:
            return self._answer(f"ids/{id.kind}s/{id.value}")
        except urllib.error.HTTPError as error:
            raise _as_lookup_error(error, f"{self._url} has no {id}") from error

    def id_of(self, schema: TopicSchema, kind: SchemaIdKind) -> SchemaId:
        """Return the id of `schema`; raises LookupError if the registry rejects it."""
        artifact = f"{schema.topic}-{schema.part}"
        content = {"content": schema.text, "contentType": "application/json"}
        body = {"artifactId": artifact, "artifactType": schema.data_format, "firstVersion": {"content": content}}
        query = urlencode({"ifExists": "FIND_OR_CREATE_VERSION", "canonical": "true"})
        try:
            answer = self._answer(f"groups/{quote(self._group, safe='')}/artifacts?{query}", json.dumps(body).encode())
        except urllib.error.HTTPError as error:
            reason = f"{self._url} rejects the schema of {artifact!r}: {error.read(500).decode(errors='replace')}"
            raise _as_lookup_error(error, reason) from error
        return SchemaId(kind, int(json.loads(answer)["version"][str(kind)]))

    def _answer(self, path: str, body: bytes | None = None) -> str:
        headers = {name: str(resolved(name, value)) for name, value in self._headers.items()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(f"{self._url}/{path}", body, headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            text: str = answer.read().decode()
        return text


def _as_lookup_error(error: urllib.error.HTTPError, reason: str) -> Exception:
    """Return a LookupError for an answer about the data; another answer may differ later, and stays as it is."""
    return LookupError(reason) if 400 <= error.code < 500 and error.code not in (401, 403, 408, 429) else error
