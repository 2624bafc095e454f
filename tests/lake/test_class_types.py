"""The types of columns for classes as JSON and MessagePack."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal, Optional, TypedDict
from uuid import UUID

import msgspec
import pyarrow as pa
import pydantic
import pytest

from penstock.errors import StreamsError
from penstock.lake.class_types import type_of_class


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Place(TypedDict):
    city: str


class Renamed(msgspec.Struct, rename="camel"):
    unit_price: float


@dataclass
class Line:
    product: str
    quantity: int | None = None


@dataclass
class Order:
    lines: list[Line]
    prices: dict[str, float]
    tags: set[str]
    pair: tuple[int, ...]
    at: datetime
    on: date
    around: time
    total: Decimal
    id: UUID
    color: Color
    level: Level
    kind: Literal["a", "b"]
    paid: bool
    raw: bytes
    place: Place
    renamed: Optional[Renamed] = None  # noqa: UP045  # both spellings are types of users


class Model(pydantic.BaseModel):
    name: str
    lines: list[Model] | None = None


class Flat(pydantic.BaseModel):
    name: str
    at: datetime | None = None


@dataclass
class Node:
    children: list[Node] = field(default_factory=list)


def test_fields_have_the_types_of_their_annotations() -> None:
    assert type_of_class(Order) == pa.struct(
        [
            ("lines", pa.list_(pa.struct([("product", pa.string()), ("quantity", pa.int64())]))),
            ("prices", pa.map_(pa.string(), pa.float64())),
            ("tags", pa.list_(pa.string())),
            ("pair", pa.list_(pa.int64())),
            ("at", pa.timestamp("us", tz="UTC")),
            ("on", pa.date32()),
            ("around", pa.time64("us")),
            ("total", pa.decimal128(38, 18)),
            ("id", pa.string()),
            ("color", pa.string()),
            ("level", pa.int64()),
            ("kind", pa.string()),
            ("paid", pa.bool_()),
            ("raw", pa.binary()),
            ("place", pa.struct([("city", pa.string())])),
            ("renamed", pa.struct([("unitPrice", pa.float64())])),
        ]
    )


def test_a_model_of_pydantic_has_the_types_of_its_fields() -> None:
    assert type_of_class(Flat) == pa.struct([("name", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (Literal["a", 1], r"Literal.* has no type of a column: int \| str"),
        (Any, "Any has no type of a column: Any"),
        (list[int | str], r"list\[\] has no type of a column: Union"),
        (Node, r"Node.children\[\] contains itself"),
        (Model, r"Model.lines\[\] contains itself"),
    ],
)
def test_other_types_are_refused_by_their_place(kind: Any, where: str) -> None:
    with pytest.raises(StreamsError, match=where):
        type_of_class(kind)
