"""What the registry refuses of HTTP: pages of other sites, other names, bodies that are too long or of another type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.tools.registry.routes import MOST_BYTES, application
from tests.tools.registry.test_operations import TEXTS, opened

TYPE = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
BODY = json.dumps({"schema": TEXTS[0]})


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with opened(tmp_path) as (registry, _):
        yield TestClient(application(registry), base_url="http://localhost")


def test_an_answer_has_the_type_of_the_api(client: TestClient) -> None:
    answer = client.post("/subjects/s/versions", content=BODY, headers=TYPE)
    assert (answer.status_code, answer.headers["content-type"]) == (200, TYPE["Content-Type"])
    assert answer.json()["id"] == 1
    assert client.get("/schemas/ids/1?fetchMaxId=true").json()["maxId"] == 1
    assert client.get("/subjects/s/versions/latest/schema").json() == json.loads(TEXTS[0])


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"headers": {"Content-Type": "text/plain"}}, 415),
        ({"headers": {**TYPE, "Origin": "http://evil.example"}}, 403),
        ({"headers": {**TYPE, "Host": "evil.example"}}, 421),
        ({"content": b" " * (MOST_BYTES + 1)}, 413),
        ({"content": b"{"}, 422),
        ({"content": b"[" * 100_000}, 422),
        ({"content": json.dumps({"schema": TEXTS[0], "id": 7})}, 422),
        ({"content": json.dumps({"schema": TEXTS[0], "schemaType": "XML"})}, 422),
        ({"url": "/subjects/__GLOBAL/versions"}, 422),
        ({"url": "/subjects/s%0A/versions"}, 422),
        ({"url": "/elsewhere"}, 404),
        ({"url": "/subjects"}, 405),
    ],
)
def test_a_request_that_may_not_be_changes_nothing(client: TestClient, changed: Any, status: int) -> None:
    request = {"url": "/subjects/s/versions", "content": BODY, "headers": TYPE, **changed}
    answer = client.post(**request)
    assert answer.status_code == status
    if status not in (421,):
        assert set(answer.json()) == {"error_code", "message"}
    assert client.get("/subjects").json() == []


def test_a_setting_with_fields_that_have_no_effect_is_refused(client: TestClient) -> None:
    answer = client.put("/config/s", content='{"compatibility": "NONE", "normalize": true}', headers=TYPE)
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42203)
    assert "normalize" in answer.json()["message"]
    assert client.put("/config", content='{"compatibility": "none"}', headers=TYPE).json() == {"compatibility": "NONE"}
    assert client.get("/config/s?defaultToGlobal=true").json() == {"compatibilityLevel": "NONE"}


def test_lists_come_in_pages(client: TestClient) -> None:
    for name in "abc":
        client.post(f"/subjects/{name}/versions", content=BODY, headers=TYPE)
    assert client.get("/subjects?offset=1&limit=1").json() == ["b"]
    assert client.get("/subjects?offset=0&limit=-1").json() == ["a", "b", "c"]
