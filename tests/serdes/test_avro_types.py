"""Classes that Avro records are read as: models, and unions of classes that the names of records choose among."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, Field

from penstock.errors import SerializationError
from penstock.serdes.avro import AvroSerde
from penstock.serdes.avro_types import check_type, converter, has_choices
from tests.serdes.test_avro_values import AT, EVENTS, event, logical

_numbers = itertools.count()


class Reason(Enum):
    OLD = "old"


@dataclass
class Created:
    id: str
    at: datetime | None = None


@dataclass
class Deleted:
    id: str
    at: datetime | None = None


@dataclass
class Envelope:
    event: Created | Deleted | None


class CreatedModel(BaseModel):
    id: str
    at: datetime | None = None


class DeletedModel(BaseModel):
    id: str
    at: datetime | None = None


CreatedModel.__name__, DeletedModel.__name__ = "Created", "Deleted"


class EnvelopeModel(BaseModel):
    what: CreatedModel | DeletedModel | None = Field(alias="event")


@dataclass
class Batch:
    events: list[Created | Deleted]
    by_name: dict[str, Created | Deleted]
    reason: Reason
    parts: tuple[int, ...] = ()
    rest: "Batch | None" = None  # noqa: UP037  # it names itself


BATCH = {
    "type": "record",
    "name": "Batch",
    "fields": [
        {"name": "events", "type": {"type": "array", "items": [event("Created", AT), event("Deleted", AT)]}},
        {"name": "by_name", "type": {"type": "map", "values": ["Created", "Deleted"]}},
        {"name": "reason", "type": {"type": "enum", "name": "Reason", "symbols": ["old"]}},
        {"name": "parts", "type": {"type": "array", "items": "int"}},
        {"name": "rest", "type": ["null", "Batch"]},
    ],
}


NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schema", "type_", "value"),
    [
        (EVENTS, Envelope, Envelope(Deleted("7", NOON))),
        (EVENTS, Envelope, Envelope(None)),
        (EVENTS, EnvelopeModel, EnvelopeModel(event=DeletedModel(id="7", at=NOON))),
        (json.dumps([event("Created", AT), event("Deleted", AT)]), Created | Deleted, Deleted("7")),
        (
            json.dumps(BATCH),
            Batch,
            Batch([Deleted("7"), Created("8")], {"x": Deleted("9")}, Reason.OLD, (1,), Batch([], {}, Reason.OLD)),
        ),
    ],
)
def test_objects_choose_the_branch_that_their_class_names(schema: str, type_: Any, value: Any) -> None:
    serde: AvroSerde[Any] = AvroSerde(f"mock://objects-{next(_numbers)}", schema, type_)
    assert serde.deserialize("t", serde.serialize("t", value)) == value


class Money(BaseModel):
    amount: float = Field(alias="theAmount")
    on: date
    reason: Reason

    @property
    def doubled(self) -> float:
        return 2 * self.amount


MONEY = {
    "type": "record",
    "name": "Money",
    "fields": [
        {"name": "theAmount", "type": "double"},
        {"name": "on", "type": logical("int", "date")},
        {"name": "reason", "type": {"type": "enum", "name": "Reason", "symbols": ["old"]}},
    ],
}


def test_pydantic_models_come_back() -> None:
    serde, value = (
        AvroSerde("mock://money", json.dumps(MONEY), Money),
        Money(theAmount=2, on=NOON.date(), reason=Reason.OLD),
    )
    assert serde.deserialize("t", serde.serialize("t", value)) == value
    with pytest.raises(SerializationError, match="expected a record Money, got str"):
        serde.serialize("t", "2")  # type: ignore[arg-type]  # the mistake that is tested


class Plain:
    """A class that nothing can be read as."""


@pytest.mark.parametrize("type_", [Plain, list[Plain]])
def test_a_type_that_cannot_be_read_is_refused_at_once(type_: Any) -> None:
    with pytest.raises(TypeError, match="AvroSerde cannot read a Plain"):
        AvroSerde("mock://plain", EVENTS, type_)


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (Created, False),
        (Created | None, False),
        (Created | Deleted, True),
        (Envelope, True),
        (list[Created | Deleted], True),
        (dict[str, Batch], True),
        (int | str, False),
        (CreatedModel | int, False),
        (EnvelopeModel, True),
    ],
)
def test_a_union_of_several_classes_is_found_at_any_depth(type_: Any, expected: bool) -> None:
    assert has_choices(type_) is expected


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (Created | Deleted, ("shop.Deleted", {"id": "7"}), Deleted("7")),
        (tuple[Created | Deleted, int], [("Created", {"id": "7"}), 1], (Created("7"), 1)),
        (set[int | str], [1, "a", 1], {1, "a"}),
        (Created | Deleted | int, 5, 5),
        (Created | Deleted | None, None, None),
        (EnvelopeModel, {"event": None}, EnvelopeModel(event=None)),
    ],
)
def test_records_become_objects_of_the_class_that_they_name(type_: Any, value: Any, expected: Any) -> None:
    assert converter(type_)(value) == expected


@pytest.mark.parametrize("value", [("Moved", {"id": "7"}), {"id": "7"}, 5])
def test_a_value_of_none_of_the_classes_is_refused_with_their_names(value: Any) -> None:
    with pytest.raises(ValueError, match="expected Created or Deleted, got"):
        converter(Created | Deleted)(value)


def test_a_type_within_a_union_of_classes_is_not_for_msgspec_to_judge() -> None:
    check_type(Created | Deleted)
    check_type(Money)
    with pytest.raises(TypeError, match="AvroSerde cannot read a Plain: name a dict"):
        check_type(dict[str, Plain])
