"""Avro as a format of payloads: golden bytes, resolution of schemas in both directions, refused values."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.serdes.avro_format import AvroFormat
from tests.serdes.test_avro import SCHEMA, TRADE, Trade


@dataclass
class Old:
    a: int
    b: str


@dataclass
class New:
    b: str
    a: int
    tags: list[str] = field(default_factory=list)


LONG, STRING = {"name": "a", "type": "long"}, {"name": "b", "type": "string"}
TAGS = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}
OLD = json.dumps({"type": "record", "name": "test", "fields": [LONG, STRING]})
NEW = json.dumps({"type": "record", "name": "test", "fields": [STRING, LONG, TAGS]})


def test_a_record_has_the_bytes_of_the_specification() -> None:
    """The example of the section "Complex types" of Avro's specification: a = 27, b = "foo"."""
    avro = AvroFormat(OLD, Old)
    assert avro.write("t", Old(27, "foo")) == b"\x36\x06foo"
    assert avro.read("t", b"\x36\x06foo", OLD) == Old(27, "foo")
    assert avro.data_format == "AVRO"


@given(st.integers(-(2**63), 2**63 - 1), st.text(), st.lists(st.text(), max_size=3))
def test_records_of_older_and_newer_schemas_are_resolved(a: int, b: str, tags: list[str]) -> None:
    old, new = AvroFormat(OLD, Old), AvroFormat(NEW, New)
    assert new.read("t", old.write("t", Old(a, b)), OLD) == New(b, a)
    assert old.read("t", new.write("t", New(b, a, tags)), NEW) == Old(a, b)
    assert new.read("t", new.write("t", New(b, a, tags)), NEW) == New(b, a, tags)


def test_each_record_has_a_default_of_its_own() -> None:
    new: AvroFormat[Any] = AvroFormat(NEW)
    for _ in range(2):
        found = new.read("t", b"\x36\x06foo", OLD)
        assert found["tags"] == []
        found["tags"].append("seen")


def test_objects_with_logical_types_come_back_in_another_process() -> None:
    avro = pickle.loads(pickle.dumps(AvroFormat(SCHEMA, Trade)))
    assert avro.read("t", avro.write("t", TRADE), SCHEMA) == TRADE


def test_values_and_schemas_that_do_not_fit_are_refused() -> None:
    avro: AvroFormat[Any] = AvroFormat(OLD)
    with pytest.raises((TypeError, ValueError), match="a"):
        avro.write("t", {"a": 1.5, "b": "foo"})
    with pytest.raises(ValueError, match="ends 1 bytes before the payload"):
        avro.read("t", b"\x36\x06foo!", OLD)
    with pytest.raises(ValueError, match="does not fit the one of this program"):
        avro.read("t", b"\x06foo", json.dumps({"type": "record", "name": "test", "fields": [STRING]}))


def test_a_class_that_cannot_be_read_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="cannot read a Other"):
        AvroFormat(OLD, type("Other", (), {}))
