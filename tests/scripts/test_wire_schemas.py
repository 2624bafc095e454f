"""The schemas of Kafka's messages are those that scripts/wire_schemas.py makes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts import wire_schemas
from tests.support.kafka import KAFKA_VERSION, require_kafka


@pytest.mark.kafka
@pytest.mark.skipif(
    "PENSTOCK_KAFKA_VERSION" in os.environ, reason="the schemas are of the Kafka that tests run by default"
)
def test_the_schemas_and_error_codes_are_up_to_date() -> None:
    require_kafka()
    jar = wire_schemas.jar()
    modules = wire_schemas.schema_modules(jar, KAFKA_VERSION)
    modules[wire_schemas.WIRE / "error_codes.py"] = wire_schemas.error_codes(f"{jar.parent}/*", KAFKA_VERSION)
    assert {path: path.read_text(encoding="utf-8") for path in modules} == modules, "run make schemas"
    written = {path for path in wire_schemas.SCHEMAS.glob("*.py") if path.name != "__init__.py"}
    assert written == {path for path in modules if path.parent == wire_schemas.SCHEMAS}


def test_a_definition_becomes_a_schema(tmp_path: Path) -> None:
    (tmp_path / "Message.json").write_text(
        """
        // A comment.
        { "type": "data", "name": "Message", "validVersions": "0-2", "flexibleVersions": "none", "fields": [
          // Another one.
          { "name": "TimeoutMs", "type": "int32", "versions": "0+", "default": "0x10" },
          { "name": "Names", "type": "[]string", "versions": "1+", "nullableVersions": "2+", "default": "null" },
          { "name": "IsOn", "type": "bool", "versions": "0-1", "default": "true" },
          { "name": "Parts", "type": "[]Part", "versions": "0+", "fields": [
            { "name": "Id", "type": "uuid", "versions": "2+", "tag": 3, "taggedVersions": "2+" } ] } ],
          "commonStructs": [ { "name": "Empty", "versions": "0+", "fields": [] } ] }
        """
    )
    lines = wire_schemas.schema_lines("DATA", wire_schemas.definitions(tmp_path)["Message"])
    assert list(lines) == [
        "DATA: Final = MessageSchema(",
        '    "Message",',
        '    "0-2",',
        '    "",',
        "    {",
        '        "Message": [',
        '            Field("timeout", "int32", default=16),',
        '            Field("names", "[]string", "1+", nullable="2+"),',
        '            Field("is_on", "bool", "0-1", default=True),',
        '            Field("parts", "[]Part"),',
        "        ],",
        '        "Part": [',
        '            Field("id", "uuid", "2+", tag=3),',
        "        ],",
        '        "Empty": [],',
        "    },",
        ")",
    ]
