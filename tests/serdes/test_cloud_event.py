"""The value of a CloudEvent: its attributes and what they may be."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.serdes.cloud_event import CloudEvent, is_json, is_text

EVENT = CloudEvent(
    "com.example.someevent",
    "/mycontext",
    "A234-1234-1234",
    {"a": 1},
    time=datetime(2018, 4, 5, 17, 31, tzinfo=UTC),
    extensions={"comexampleextension1": "value", "comexampleothervalue": 5},
)


def test_events_are_equal_by_value_hashable_and_picklable() -> None:
    other = pickle.loads(pickle.dumps(EVENT))
    assert other == EVENT
    assert {EVENT: 1}[other] == 1


def test_extensions_cannot_be_changed() -> None:
    given: dict[str, Any] = {"a": 1}
    event = CloudEvent("t", "s", "i", extensions=given)
    given["b"] = 2
    assert event.extensions == {"a": 1}
    with pytest.raises(TypeError):
        event.extensions["b"] = 2  # type: ignore[index]  # the mistake that is tested


@pytest.mark.parametrize(
    ("attributes", "error", "message"),
    [
        ({"type": ""}, ValueError, "type of a CloudEvent is empty"),
        ({"id": 5}, TypeError, "id of a CloudEvent is a text, not 5"),
        ({"subject": ""}, ValueError, "subject of a CloudEvent is empty"),
        ({"time": datetime(2018, 4, 5)}, ValueError, "time of a CloudEvent has a time zone"),
        ({"time": "2018"}, TypeError, "time of a CloudEvent is a datetime"),
        ({"extensions": {"Upper": "x"}}, ValueError, "'Upper' cannot be an extension"),
        ({"extensions": {"data": "x"}}, ValueError, "'data' cannot be an extension"),
        ({"extensions": {"data_base64": "x"}}, ValueError, "cannot be an extension"),
        ({"extensions": {"rate": 1.5}}, TypeError, "extension rate of a CloudEvent is a text"),
        ({"extensions": {"count": 2**31}}, ValueError, "extension count of a CloudEvent has 32 bits"),
    ],
)
def test_an_attribute_that_is_not_allowed_is_named(
    attributes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        CloudEvent(**{"type": "t", "source": "s", "id": "i", **attributes})


@pytest.mark.parametrize(
    ("media_type", "json", "text"),
    [
        ("application/json", True, False),
        ("Application/JSON; charset=utf-8", True, False),
        ("application/vnd.order+json", True, False),
        ("text/json", True, True),
        ("application/xml", False, True),
        ("image/svg+xml", False, True),
        ("text/plain; charset=UTF-8", False, True),
        ("text/plain; charset=latin-1", False, False),
        ("application/avro", False, False),
    ],
)
def test_media_types_of_json_and_of_texts(media_type: str, json: bool, text: bool) -> None:
    assert (is_json(media_type), is_text(media_type)) == (json, text)


def test_without_a_media_type_data_is_json() -> None:
    assert is_json(None)
