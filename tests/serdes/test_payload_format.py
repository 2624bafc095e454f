"""JSON as a format of payloads: objects and plain values, evolution."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.errors import SerializationError
from penstock.serdes.payload_format import JsonFormat, PayloadFormat

SCHEMA = '{"type": "object"}'


@dataclass
class Old:
    id: int


@dataclass
class New:
    id: int
    name: str = "none"


@pytest.mark.parametrize(("type_", "value"), [(None, {"id": 1}), (Old, Old(1))])
def test_values_come_back(type_: Any, value: Any) -> None:
    json: PayloadFormat = pickle.loads(pickle.dumps(JsonFormat(SCHEMA, type_)))
    payload = json.write("t", value)
    assert payload == b'{"id":1}'
    assert json.read("t", payload, SCHEMA) == value
    assert (json.data_format, json.schema) == ("JSON", SCHEMA)


def test_old_data_is_read_by_a_newer_class_and_newer_data_by_the_old_one() -> None:
    old, new = JsonFormat(SCHEMA, Old), JsonFormat(SCHEMA, New)
    assert new.read("t", old.write("t", Old(1)), SCHEMA) == New(1)
    assert old.read("t", new.write("t", New(1, "a")), SCHEMA) == Old(1)


def test_values_that_do_not_fit_are_refused_with_their_topic() -> None:
    json: JsonFormat[Any] = JsonFormat(SCHEMA, Old)
    with pytest.raises(SerializationError, match="'orders'"):
        json.write("orders", {"id": "one"})
    with pytest.raises(SerializationError, match="'orders'"):
        json.read("orders", b'{"id":"one"}', SCHEMA)
