"""The types of the JSON: what is served has them, and each address is described. `Shown.json` compares each answer of
the other tests with them, too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from penstock import StreamsBuilder, TimeWindows, Topology
from penstock.record import Headers
from penstock.task.taps import TappedRecord
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.control import Control
from penstock.tools.ui.routes import application
from penstock.tools.ui.schema import ADDRESSES
from tests.support.answers import check_answer
from tests.tools.ui.conftest import Shown

READ = [path for path, address in ADDRESSES.items() if address.method == "get" and "{" not in path]


def every_kind_of_node() -> Topology:
    builder = StreamsBuilder()
    names = builder.global_table("names")
    lines = builder.stream("lines").join(names, lambda value, name: value, key_selector=lambda key, _: key)
    windows = TimeWindows.of_size_with_no_grace(timedelta(seconds=1))
    lines.group_by_key().windowed_by(windows).count().to_stream().to(lambda key, value, context: "out")
    return builder.build()


def test_each_answer_of_an_application_has_the_types_of_the_schema(
    show: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = show(every_kind_of_node())
    record = TappedRecord("k", "v", 5, Headers(), "0_0", None, -1, -1, 9)
    monkeypatch.setattr(type(shown.streams), "tapped", lambda streams, node: [record])
    shown.host.tasks().positions = {"0_0": (10, 50)}
    shown.after(1_000)
    shown.after(1_000)
    for path in set(READ) - {"/api/v1/dead-letters", "/api/v1/changes"}:
        shown.json(path)  # which compares the answer
    for path in ("/api/v1/dead-letters", "/api/v1/changes"):
        assert "error" in shown.json(path, 400)


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "RUNNING", "lag": 1},
        {"state": "RUNNING", "lag": "1", "reasons": []},
        {"state": "RUNNING", "lag": 1, "reasons": [], "other": 1},
    ],
)
def test_an_answer_of_another_form_is_found(wrong: dict[str, Any]) -> None:
    check_answer("/health/ready?max_lag=2", {"state": "RUNNING", "lag": 1, "reasons": []})
    with pytest.raises((AssertionError, msgspec.ValidationError)):
        check_answer("/health/ready", wrong)
    with pytest.raises(AssertionError, match="has no address /api/v1/other"):
        check_answer("/api/v1/other", {})


def test_the_schema_describes_each_address(shown: Shown) -> None:
    document = shown.json("/api/v1/schema.json")
    assert document["openapi"] == "3.1.0"
    described = {(path, method.upper()) for path, operations in document["paths"].items() for method in operations}
    answers = Answers(shown.observer, shown.config)
    served = {
        (route.path, method)
        for route in cast(Starlette, application(answers, Control(shown.streams, shown.config))).routes
        if isinstance(route, Route) and (route.path.startswith(("/api/", "/health")) or route.path.endswith(".json"))
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert described == served - {("/api/v1/schema.json", "GET")}
    schema = document["paths"]["/api/v1/history"]["get"]["responses"]["2XX"]["content"]["application/json"]["schema"]
    history = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    assert history["properties"]["lag"]["items"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert [each["name"] for each in document["paths"]["/api/v1/stores/{store}"]["get"]["parameters"]][:2] == [
        "store",
        "topology",
    ]
