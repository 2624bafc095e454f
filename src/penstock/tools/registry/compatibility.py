"""Validation of schemas and their compatibility with earlier versions, using Apache's Avro library.

Rule: only AVRO schemas are compared. For the other types, any level except NONE rejects a second version, because this
registry cannot check it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import avro.errors
import msgspec
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.name import Names
from avro.schema import make_avsc_object

from penstock.tools.registry.schemas import AVRO, JSON, RefusedRequestError, Schema, Version

NONE: Final = "NONE"
DEFAULT_LEVEL: Final = "BACKWARD"
LEVELS: Final = (NONE, *(f"{way}{all}" for way in ("BACKWARD", "FORWARD", "FULL") for all in ("", "_TRANSITIVE")))
"""The levels of compatibility."""

_TROUBLE: Final = (avro.errors.AvroException, ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""The errors of the library for texts that are not schemas."""

Definitions = tuple[str, ...]
"""The texts of the referenced schemas."""

# A logical type unknown to the library is not an error: its underlying type applies.
warnings.filterwarnings("ignore", category=avro.errors.IgnoredLogicalType)


def check_valid(schema: Schema, definitions: Definitions) -> None:
    """Validate the text of a schema: AVRO completely, JSON as JSON, PROTOBUF not at all.

    Raises:
        RefusedRequestError: it is invalid.
    """
    try:
        if schema.type == AVRO:
            _parsed(schema.schema, definitions)
        elif schema.type == JSON and not isinstance(msgspec.json.decode(schema.schema), dict | bool):
            raise ValueError("a JSON schema is an object or a boolean")
        elif not schema.schema.strip():
            raise ValueError("it is empty")
    except _TROUBLE as error:
        raise RefusedRequestError(
            422, 42201, f"Invalid schema of type {schema.type}: {error}. It begins with {schema.schema[:100]!r}."
        ) from error


def incompatibilities(
    level: str, schema: Schema, definitions: Definitions, earlier: Sequence[tuple[Version, Definitions]]
) -> list[str]:
    """Return the incompatibilities of a schema with versions of its subject, if any.

    Args:
        level: one of LEVELS.
        schema: a valid schema.
        definitions: of its references.
        earlier: the versions, by number, with the definitions of their references.
    """
    if level == NONE or not earlier:
        return []
    compared = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    found: list[str] = []
    for version, its_definitions in compared:
        if version.type != schema.type:
            found.append(f"version {version.version} is of type {version.type}, the new schema of type {schema.type}")
        elif schema.type == AVRO:
            new, old = _parsed(schema.schema, definitions), _parsed(version.schema, its_definitions)
            found += [f"version {version.version}: {reason}" for reason in _reasons(level, new, old)]
        elif schema.guid != version.guid:
            found.append(
                f"this registry compares schemas of type AVRO only, and cannot tell whether a {schema.type} schema is "
                f"{level} compatible with version {version.version}; set the level of the subject to NONE: "
                'PUT /config/SUBJECT {"compatibility": "NONE"}'
            )
    return found


def _reasons(level: str, new: Any, old: Any) -> list[str]:
    found: list[str] = []
    if level.startswith(("BACKWARD", "FULL")):
        found += _unreadable(new, old, "the new schema cannot read data of the old one")
    if level.startswith(("FORWARD", "FULL")):
        found += _unreadable(old, new, "the old schema cannot read data of the new one")
    return found


def _unreadable(reader: Any, writer: Any, what: str) -> list[str]:
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]  # the library is untyped here
    result = checker.get_compatibility(reader, writer)
    if result.compatibility is not SchemaCompatibilityType.incompatible:
        return []
    kinds = ", ".join(sorted({kind.value.upper() for kind in result.incompatibilities}))
    places = ", ".join(sorted(result.locations))
    return [f"{what}: {kinds} at {places}: {'; '.join(sorted(result.messages))}"]


@lru_cache(maxsize=256)
def _parsed(text: str, definitions: Definitions) -> Any:
    names = Names()
    for definition in definitions:
        make_avsc_object(json.loads(definition), names)
    return make_avsc_object(json.loads(text), names)
