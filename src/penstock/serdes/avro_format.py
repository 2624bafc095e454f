"""Avro as a format of payloads with a schema in a registry, by fastavro (the extra `avro`)."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from io import BytesIO
from typing import Any, Generic, TypeVar

from penstock.extras import missing_from

try:
    from fastavro import schemaless_reader, schemaless_writer
    from fastavro.read import SchemaResolutionError

    from penstock.serdes.avro_types import check_type, converter, writer
    from penstock.serdes.avro_values import AvroSchema
except ModuleNotFoundError as error:
    raise missing_from("avro", error, "penstock.serdes.avro_format") from error

T = TypeVar("T")


class AvroFormat(Generic[T]):
    """Records as Avro; a record of an older or newer schema is resolved to `schema`.

    Args:
        schema: the Avro schema, as JSON, without references to other subjects.
        type: a dataclass, TypedDict, pydantic model or similar class of the objects; None for dicts.

    Raises:
        TypeError: objects of `type` cannot be read.
    """

    data_format = "AVRO"

    def __init__(self, schema: str, type: type[T] | None = None) -> None:
        if type is not None:
            check_type(type)
        self.schema = schema
        self._type = type

    def write(self, topic: str, value: Any) -> bytes:
        """Return the record; raises TypeError or ValueError for a value that does not fit the schema."""
        schema = _parsed(self.schema)
        data = BytesIO()
        schemaless_writer(data, schema.root, writer(self._type, schema)(value))
        return data.getvalue()

    def read(self, topic: str, payload: bytes, written_by: str) -> Any:
        """Return the record; raises ValueError, EOFError or a similar error if it does not fit the schema."""
        schema, rest = _parsed(self.schema), BytesIO(payload)
        try:
            found: Any = schemaless_reader(
                rest, _parsed(written_by).root, schema.root, return_record_name=schema.has_choices
            )
        except SchemaResolutionError as error:
            raise ValueError(f"its schema does not fit the one of this program: {error}") from error
        if rest.tell() != len(payload):
            raise ValueError(f"the record ends {len(payload) - rest.tell()} bytes before the payload")
        value = deepcopy(found) if schema.has_container_defaults else found  # fastavro shares a default among records
        value = schema.read(value) if schema.has_choices else value
        return value if self._type is None else converter(self._type)(value)


@lru_cache(maxsize=1000)
def _parsed(text: str) -> AvroSchema:
    return AvroSchema(text)
