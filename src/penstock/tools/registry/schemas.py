"""Schemas and subject versions in Confluent's JSON format, and errors of the REST API.

Rule: two schemas are the same if type, references, metadata and rules are equal and their texts differ only in white
space and, in AVRO and JSON, the order of keys.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Any, Final

import msgspec

from penstock.errors import StreamsError

AVRO: Final = "AVRO"
JSON: Final = "JSON"
TYPES: Final = (AVRO, JSON, "PROTOBUF")
"""The types of schemas."""

_MOST_VERSION: Final = 2**31 - 1


class RefusedRequestError(StreamsError):
    """A request fails with an error of Confluent's REST API.

    Args:
        status: the HTTP status.
        code: the code of the API.
        message: the error, the expectation and the remedy.
    """

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Reference(msgspec.Struct, frozen=True):
    """A version of a subject whose definitions a schema uses, under a name."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A schema; the JSON of AVRO has no type."""

    schema: str
    schema_type: str | None = None
    references: tuple[Reference, ...] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None

    @property
    def type(self) -> str:
        """One of TYPES."""
        return self.schema_type or AVRO

    @property
    def guid(self) -> str:
        """An id that depends only on the content of the schema."""
        said = [self.type, self._comparable(), self.references or (), self.metadata, self.rule_set]
        digest = hashlib.sha256(msgspec.json.encode(said, order="sorted")).digest()
        return str(uuid.UUID(bytes=digest[:16]))

    def _comparable(self) -> Any:
        if self.type in (AVRO, JSON):
            try:
                return msgspec.json.decode(self.schema)
            except (msgspec.DecodeError, RecursionError):
                pass  # from a record written by another program
        return self.schema.strip()


class Version(Schema, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A version of a subject. deleted: a soft delete, so its id remains readable."""

    subject: str
    version: int
    id: int
    deleted: bool = False

    def described(self) -> dict[str, Any]:
        """Return its form in the API."""
        shown: dict[str, Any] = {**msgspec.to_builtins(self), "guid": self.guid}
        return shown


class _Request(Schema, frozen=True, kw_only=True, rename="camel"):
    id: int | None = None
    version: int | None = None


def requested_schema(body: bytes) -> Schema:
    """Parse the schema in the body of a request.

    Raises:
        RefusedRequestError: the body is not a schema, requests its own id or version, or its type is unknown.
    """
    try:
        request = msgspec.json.decode(body, type=_Request)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RefusedRequestError(422, 42201, f"The body of the request is not a schema in JSON: {error}.") from error
    if request.type not in TYPES:
        raise RefusedRequestError(422, 42201, f"Invalid schema type {request.type!r}: expected {', '.join(TYPES)}.")
    if (request.id or 0) > 0 or (request.version or 0) > 0:
        raise RefusedRequestError(
            422,
            42205,
            "This registry gives ids and versions itself: it has no mode IMPORT. Leave id and version out.",
        )
    return Schema(
        schema=request.schema,
        schema_type=None if request.type == AVRO else request.type,
        references=request.references or None,
        metadata=request.metadata,
        rule_set=request.rule_set,
    )


def version_number(text: str) -> int | None:
    """Parse the number of a version; None for the latest one.

    Raises:
        RefusedRequestError: it is neither a number from 1 to 2^31 - 1 nor `latest`.
    """
    if text in ("latest", "-1"):
        return None
    if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= _MOST_VERSION:
        return int(text)
    raise RefusedRequestError(
        422, 42202, f"The specified version {text!r:.40} is not a valid version: expected 1 to 2^31 - 1 or latest."
    )
