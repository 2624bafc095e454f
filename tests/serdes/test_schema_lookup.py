"""Clients of registries: a table, AWS Glue by a client of boto3's form, Apicurio by its REST API."""

from __future__ import annotations

import json
import pickle
import threading
import urllib.error
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest

from penstock.serdes.framing import SchemaId, SchemaIdKind
from penstock.serdes.schema_lookup import ApicurioSchemas, GlueSchemas, SchemaTable, TopicSchema

TEXT = '{"type": "record", "name": "Order", "fields": []}'
ORDERS = TopicSchema("orders", "value", "AVRO", TEXT)
VERSION = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")
VERSION_ID = SchemaId(SchemaIdKind.VERSION_ID, VERSION)


def test_a_table_finds_a_schema_by_its_id_and_an_id_by_the_content() -> None:
    table = SchemaTable({SchemaId(SchemaIdKind.ID, 7): TEXT})
    assert table.schema_of(SchemaId(SchemaIdKind.ID, 7)) == TEXT
    same = TopicSchema("orders", "value", "AVRO", TEXT.replace(" ", ""))
    assert table.id_of(same, SchemaIdKind.ID) == SchemaId(SchemaIdKind.ID, 7)
    with pytest.raises(LookupError, match="no id 8"):
        table.schema_of(SchemaId(SchemaIdKind.ID, 8))
    with pytest.raises(LookupError, match="no contentId for the schema of 'orders'"):
        table.id_of(ORDERS, SchemaIdKind.CONTENT_ID)


class NotFoundError(Exception):
    """Stands for boto3's EntityNotFoundException."""


class Exceptions:
    EntityNotFoundException = NotFoundError


class GlueClient:
    """A client with the two calls and the answers of boto3's for AWS Glue."""

    exceptions = Exceptions

    def __init__(self, made: list[str]) -> None:
        made.append("client")

    def get_schema_version(self, *, SchemaVersionId: str) -> dict[str, Any]:  # noqa: N803  # boto3's name
        if SchemaVersionId != str(VERSION):
            raise NotFoundError
        return {"SchemaVersionId": SchemaVersionId, "SchemaDefinition": TEXT, "DataFormat": "AVRO"}

    def get_schema_by_definition(self, *, SchemaId: dict[str, str], SchemaDefinition: str) -> dict[str, Any]:  # noqa: N803  # boto3's names
        if (SchemaId, SchemaDefinition) != ({"SchemaName": "orders", "RegistryName": "shop"}, TEXT):
            raise NotFoundError
        return {"SchemaVersionId": str(VERSION), "Status": "AVAILABLE"}


def test_glue_is_asked_by_one_client_of_the_program() -> None:
    made: list[str] = []
    glue = GlueSchemas(partial(GlueClient, made), "shop")
    assert glue.schema_of(VERSION_ID) == TEXT
    assert glue.id_of(ORDERS, SchemaIdKind.VERSION_ID) == VERSION_ID
    assert made == ["client"]


def test_a_schema_that_glue_lacks_is_a_lookup_error() -> None:
    glue = GlueSchemas(partial(GlueClient, []))
    other = SchemaId(SchemaIdKind.VERSION_ID, UUID(int=1))
    with pytest.raises(LookupError, match="AWS Glue has no schemaVersionId 00000000"):
        glue.schema_of(other)
    with pytest.raises(LookupError, match="no version of 'orders' in 'default-registry' with this schema: register it"):
        glue.id_of(ORDERS, SchemaIdKind.VERSION_ID)


def test_the_name_of_a_schema_may_be_another_than_the_topic() -> None:
    glue = GlueSchemas(partial(GlueClient, []), "shop", lambda topic: topic.removesuffix("-v2"))
    renamed = TopicSchema("orders-v2", "value", "AVRO", TEXT)
    assert glue.id_of(renamed, SchemaIdKind.VERSION_ID) == VERSION_ID


def test_a_used_client_of_glue_can_be_sent_to_workers() -> None:
    glue = GlueSchemas(partial(GlueClient, []), "shop")
    glue.schema_of(VERSION_ID)
    assert pickle.loads(pickle.dumps(glue)).schema_of(VERSION_ID) == TEXT


class Apicurio(BaseHTTPRequestHandler):
    """The two calls of Apicurio's REST API of version 3, with its answers."""

    asked: list[tuple[str, Any]]

    def do_GET(self) -> None:  # the name of http.server
        self.asked.append((self.path, self.headers["Authorization"]))
        match self.path.removeprefix("/apis/registry/v3/ids/"):
            case "contentIds/7" | "globalIds/9":
                self._answer(200, TEXT)
            case "contentIds/500":
                self._answer(500, "broken")
            case _:
                self._answer(404, "{}")

    def do_POST(self) -> None:  # the name of http.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        if body["artifactId"] == "rejected-value":
            self._answer(409, '{"title": "incompatible"}')
        else:
            self._answer(200, '{"artifact": {}, "version": {"version": "1", "globalId": 9, "contentId": 7}}')

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the log of the tests short."""


@pytest.fixture
def apicurio() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    handler = type("Handler", (Apicurio,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/apis/registry/v3", handler.asked
        server.shutdown()
        thread.join()


def test_apicurio_is_asked_by_the_kind_of_the_id(
    apicurio: tuple[str, list[tuple[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = apicurio
    monkeypatch.setenv("TOKEN", "Bearer abc")
    schemas = pickle.loads(pickle.dumps(ApicurioSchemas(url + "/", headers={"Authorization": "${env:TOKEN}"})))
    assert schemas.schema_of(SchemaId(SchemaIdKind.CONTENT_ID, 7)) == TEXT
    assert schemas.schema_of(SchemaId(SchemaIdKind.GLOBAL_ID, 9)) == TEXT
    assert asked == [
        ("/apis/registry/v3/ids/contentIds/7", "Bearer abc"),
        ("/apis/registry/v3/ids/globalIds/9", "Bearer abc"),
    ]


def test_apicurio_registers_a_schema_that_it_lacks(apicurio: tuple[str, list[tuple[str, Any]]]) -> None:
    url, asked = apicurio
    schemas = ApicurioSchemas(url, "my group")
    assert schemas.id_of(ORDERS, SchemaIdKind.CONTENT_ID) == SchemaId(SchemaIdKind.CONTENT_ID, 7)
    assert schemas.id_of(ORDERS, SchemaIdKind.GLOBAL_ID) == SchemaId(SchemaIdKind.GLOBAL_ID, 9)
    assert asked[0] == (
        "/apis/registry/v3/groups/my%20group/artifacts?ifExists=FIND_OR_CREATE_VERSION&canonical=true",
        {
            "artifactId": "orders-value",
            "artifactType": "AVRO",
            "firstVersion": {"content": {"content": TEXT, "contentType": "application/json"}},
        },
    )


def test_an_answer_about_the_data_is_a_lookup_error_and_any_other_stays(
    apicurio: tuple[str, list[tuple[str, Any]]],
) -> None:
    schemas = ApicurioSchemas(apicurio[0])
    with pytest.raises(LookupError, match="has no contentId 8"):
        schemas.schema_of(SchemaId(SchemaIdKind.CONTENT_ID, 8))
    with pytest.raises(LookupError, match=r"rejects the schema of 'rejected-value': .*incompatible"):
        schemas.id_of(TopicSchema("rejected", "value", "AVRO", TEXT), SchemaIdKind.CONTENT_ID)
    with pytest.raises(urllib.error.HTTPError, match="500"):
        schemas.schema_of(SchemaId(SchemaIdKind.CONTENT_ID, 500))
